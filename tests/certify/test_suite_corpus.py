"""Corpora are read as streams, known by digests, and never pass empty; documents agree, and a fault is reported."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.support.certify_runs import changed_file, run_suite
from tests.support.material import small_tokenizers
from toktier.certify import corpora
from toktier.certify.conversations import render
from toktier.certify.corpora import BlockReader, Corpus, read_corpora, read_corpus
from toktier.certify.levels import Level
from toktier.certify.plan import make_plan
from toktier.certify.subject import Subject
from toktier.certify.suites.corpus import CorpusSuite
from toktier.errors import EvidenceIncomplete, ExitCode

SUITE = CorpusSuite()
BASE = next(path for path in small_tokenizers() if path.stem == "cl100k_like")
MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]


def jsonl(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def all_documents(corpus: Corpus) -> Iterator[Any]:
    reader = BlockReader(corpus)
    for number in range(len(corpus.blocks)):
        yield from reader.documents(number)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    root = tmp_path / "corpus"
    (root / "deeper").mkdir(parents=True)
    (root / "a.txt").write_text("a text\nof two lines", encoding="utf-8")
    (root / "b.jsonl").write_bytes(jsonl("one", {"text": "two"}, MESSAGES, {"messages": MESSAGES}, {"content": "six"}))
    (root / "deeper" / "c.jsonl.zst").write_bytes(zstandard.compress(jsonl(*(f"seven {n} ü" for n in range(500)))))
    (root / "deeper" / "d.txt.zst").write_bytes(zstandard.compress(b"whole"))
    (root / ".hidden").write_text("no", encoding="utf-8")
    return root


def digest_of(*texts: str) -> bytes:
    """Of a file of these documents."""
    return hashlib.sha256(b"".join(hashlib.sha256(text.encode()).digest() for text in texts)).digest()


def test_every_form_is_read_and_each_file_in_its_order(directory: Path) -> None:
    corpus = read_corpus(directory)
    messages = (("user", "hi"), ("assistant", "yes"))
    files: list[list[Any]] = [["a text\nof two lines"], ["one", "two", messages, messages, "six"]]
    files += [[f"seven {n} ü" for n in range(500)], ["whole"]]
    expected = [document for file in files for document in file]
    found = list(all_documents(corpus))
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    for file in files:
        begin = found.index(file[0])
        assert found[begin : begin + len(file)] == file
    assert (corpus.name, corpus.documents, dict(corpus.skipped)) == ("corpus", len(expected), {})
    texts = [document for document in expected if isinstance(document, str)]
    assert corpus.utf8_bytes == sum(len(text.encode()) for text in texts) + 2 * len("hiyes")


def test_the_digest_is_over_the_digests_of_the_documents(tmp_path: Path) -> None:
    plain, packed = tmp_path / "x.jsonl", tmp_path / "y.jsonl.zst"
    plain.write_bytes(jsonl("one", "zwölf", ""))
    packed.write_bytes(zstandard.compress(jsonl({"text": "one"}, "zwölf")) + zstandard.compress(jsonl("")))
    file = digest_of("one", "zwölf", "")
    assert read_corpus(plain).sha256 == read_corpus(packed).sha256 == hashlib.sha256(file).hexdigest()
    (tmp_path / "z.txt").write_text("more", encoding="utf-8")
    packed.unlink()
    both = b"".join(sorted((file, digest_of("more"))))
    assert read_corpus(tmp_path).sha256 == hashlib.sha256(both).hexdigest()


def test_names_and_places_decide_nothing(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts with the same files, elsewhere and under other names, derive the same numbers and the same plan."""
    monkeypatch.setattr(corpora, "BLOCK_BYTES", 3000)
    (directory / "deeper" / "bad.txt").write_bytes(b"abc\xffdef")
    other = tmp_path / "other" / "place"
    other.mkdir(parents=True)
    names = {".txt": "Z", ".jsonl": "9", ".zst": "a"}
    files = sorted(path for path in directory.rglob("[!.]*") if path.is_file())
    for number, path in enumerate(reversed(files)):
        suffix = "".join(path.suffixes)
        (other / f"{names[path.suffix]}{number}{suffix}").write_bytes(path.read_bytes())
    one, two = read_corpus(directory), read_corpus(other)
    assert len(one.blocks) > 3
    assert (one.sha256, one.blocks, one.skipped_places) == (two.sha256, two.blocks, two.skipped_places)
    assert list(all_documents(one)) == list(all_documents(two))
    subjects = [Subject(BASE, corpora=(place,)) for place in (directory, other)]
    plans = [make_plan(subject, (SUITE,), Level.QUICK, 0, "x").plan for subject in subjects]
    assert plans[0].digest == plans[1].digest
    runs = [run_suite(SUITE, subject) for subject in subjects]
    assert runs[0].digests == runs[1].digests
    (next(other.glob("Z*.txt"))).write_bytes(b"another text")
    assert read_corpus(other).sha256 != one.sha256


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
def test_a_block_is_read_alone_and_in_any_order(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "BLOCK_BYTES", 1000)
    texts = [f"document {n} " + "é" * (n % 90) for n in range(400)]
    data = jsonl(*texts)
    path = tmp_path / f"many{suffix}"
    path.write_bytes(zstandard.compress(data) if suffix.endswith("zst") else data)
    corpus = read_corpus(path)
    assert len(corpus.blocks) > 20
    forwards = [BlockReader(corpus).documents(number) for number in range(len(corpus.blocks))]
    assert [text for block in forwards for text in block] == texts
    reader = BlockReader(corpus)
    order = [5, 6, 19, 2, 2, len(corpus.blocks) - 1, 0]
    assert [reader.documents(number) for number in order] == [forwards[number] for number in order]


def test_a_compressed_file_is_unpacked_once_for_ascending_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "BLOCK_BYTES", 1000)
    path = tmp_path / "many.jsonl.zst"
    path.write_bytes(zstandard.compress(jsonl(*(f"document {n}" for n in range(1000)))))
    corpus = read_corpus(path)
    opened: list[Path] = []
    real = corpora.open_regular
    monkeypatch.setattr(corpora, "open_regular", lambda p: opened.append(p) or real(p))  # type: ignore[func-returns-value]
    reader = BlockReader(corpus)
    for number in range(1, len(corpus.blocks), 2):
        reader.documents(number)
    assert opened == [path]


def test_a_fork_does_not_share_the_place_of_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "BLOCK_BYTES", 100)
    path = tmp_path / "many.jsonl"
    path.write_bytes(jsonl(*(f"document {n}" for n in range(100))))
    corpus = read_corpus(path)
    reader = BlockReader(corpus)
    reader.documents(0)
    child = os.fork()
    if not child:
        os._exit(0 if reader.documents(3) and reader.documents(30) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert reader.documents(1) == BlockReader(corpus).documents(1)


def test_what_is_no_document_is_skipped_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "MAX_DOCUMENT_BYTES", 1000)
    monkeypatch.setattr(corpora, "MAX_LINE_BYTES", 5000)
    root = tmp_path / "c"
    root.mkdir()
    (root / "bad.txt").write_bytes(b"abc\xffdef")
    (root / "long.txt").write_bytes(b"a" * 1001)
    good = [b'"x"\n', b"not json\n", b'{"no": 1}\n', b"\n", b'"\xff"\n', b'"\\ud800"\n', b'"' + b"l" * 1500 + b'"\n']
    (root / "lines.jsonl").write_bytes(b"".join(good) + b'"' + b"l" * 9000 + b'"\n' + b'"last"')
    corpus = read_corpus(root)
    assert list(all_documents(corpus)) == ["x", "last"]
    nothing, lines = hashlib.sha256().hexdigest()[:12], digest_of("x", "last").hex()[:12]
    assert dict(corpus.skipped) == {"longer than 16 MiB": 3, "no text": 1, "not JSON": 1, "not UTF-8": 3}
    assert f"{nothing}:3" in corpus.skipped_places
    assert f"{lines}:25" in corpus.skipped_places  # the byte itself
    facts = SUITE.plan(Subject(BASE, corpora=(root,)), Level.QUICK, 1).facts
    assert facts["skipped"] == 8
    assert facts["skipped_by_reason"] == {corpus.sha256[:12]: dict(corpus.skipped)}
    assert facts["skipped_places"] == list(corpus.skipped_places)


def test_missing_damaged_and_changed_corpora_are_incomplete(tmp_path: Path) -> None:
    with pytest.raises(EvidenceIncomplete, match="does not exist") as caught:
        read_corpus(tmp_path / "none")
    assert caught.value.exit_code is ExitCode.INCOMPLETE
    damaged = tmp_path / "x.jsonl.zst"
    damaged.write_bytes(zstandard.compress(jsonl(*map(str, range(9999))))[:-20] + b"garbage at the end..")
    with pytest.raises(EvidenceIncomplete, match="cannot be read to its end"):
        read_corpus(damaged)
    fifo = tmp_path / "fifo.txt"
    os.mkfifo(fifo)
    with pytest.raises(EvidenceIncomplete, match="not a regular file"):
        read_corpus(fifo)
    changing = tmp_path / "y.txt"
    changing.write_text("before", encoding="utf-8")
    subject = Subject(BASE, corpora=(changing,))
    plan = SUITE.plan(subject, Level.QUICK, 1)
    changing.write_text("beyond", encoding="utf-8")
    with pytest.raises(EvidenceIncomplete, match="not what it was"):
        SUITE.run(subject, Level.QUICK, 1, plan, 0, None)  # type: ignore[arg-type]


def test_a_torn_compressed_file_is_incomplete(tmp_path: Path) -> None:
    torn = tmp_path / "x.jsonl.zst"
    torn.write_bytes(zstandard.compress(jsonl(*(hashlib.sha256(bytes([n])).hexdigest() for n in range(250))))[:-400])
    with pytest.raises(EvidenceIncomplete, match="cannot be read to its end"):
        read_corpus(torn)


@pytest.mark.parametrize("name", ["x.zst", "x.jsonl.zst"])
def test_a_compressed_file_without_a_byte_is_torn_and_no_empty_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(EvidenceIncomplete, match="end early"):
        read_corpus(tmp_path / name)
    (tmp_path / name).write_bytes(zstandard.compress(b""))
    assert read_corpus(tmp_path / name).utf8_bytes == 0


def test_nothing_given_and_nothing_found_have_no_block(tmp_path: Path) -> None:
    assert SUITE.plan(Subject(BASE), Level.QUICK, 1).why == "no corpus was given"
    (tmp_path / "empty").mkdir()
    plan = SUITE.plan(Subject(BASE, corpora=(tmp_path / "empty",)), Level.QUICK, 1)
    assert (plan.blocks, plan.why) == (0, "the corpora hold no document")


def test_documents_agree_and_a_fault_is_reported_without_text_in_the_plan(directory: Path, tmp_path: Path) -> None:
    subject = Subject(BASE, corpora=(directory, directory))
    run = run_suite(SUITE, subject)
    assert (run.counts.mismatches, run.counts.routed) == (0, 0)
    assert run.counts.documents == run.plan.facts["documents"] == 2 * 507
    assert [corpus.name for corpus in subject.read_corpora] == ["corpus", "corpus#2"]
    assert "seven" not in json.dumps(dict(run.plan.facts))
    other = Subject(changed_file(BASE, tmp_path / "t.json", lambda d: d["model"]["merges"].pop(0)))
    faulty = Subject(BASE, corpora=(directory,))
    faulty.__dict__["tokenizer"] = other.tokenizer
    assert run_suite(SUITE, faulty).counts.mismatches > 0


def test_messages_are_rendered_with_the_tokens_at_hand() -> None:
    messages = (("user", "{role} hi"), ("assistant", "yes"))
    chat = ["<|im_end|>", "<|x|>", "<|im_start|>"]
    assert render(messages, chat) == "<|im_start|>user\n{role} hi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n"
    assert render(messages, ["<a>", "<b>"]) == "<a>user\n{role} hi<b>assistant\nyes"
    assert render(messages, []) == "{role} hi\nyes"


def test_the_same_path_may_be_given_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("x", encoding="utf-8")
    (corpus,) = read_corpora((path,))
    assert (corpus.name, corpus.documents) == ("x.txt", 1)
