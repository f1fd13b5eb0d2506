"""Tokenizer: encoding, decoding, segments and look-ups equal the reference, in threads, forks and pickles too."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import os
import pickle
import random
import re
import threading
import warnings
from array import array
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers.decoders import DecodeStream as ReferenceStream

import toktier
from tests.support.material import SMALL_DIR, changed_tokenizer, small_tokenizers
from tests.support.native_tokenizers import native_file
from tests.support.tokenizer_maker import added, changed, encoded, minimal
from toktier import errors

BYTE_LEVEL = SMALL_DIR / "cl100k_like.json"  # the program decodes
DELEGATED = SMALL_DIR / "gpt2_like.json"  # holds normalized added tokens: the reference decodes
FALLBACK = SMALL_DIR / "llama_like.json"  # byte fallback, no pre-tokenizer
TEXT = "Hello wörld, 世界! 👩‍👩‍👧 <|endoftext|> can't  stop\n\n  123456 "


def reference_of(path: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(path))


@pytest.fixture(autouse=True)
def no_silent_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", toktier.ToktierWarning)
        yield


# encode and vocabulary


# serving


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@pytest.mark.parametrize("add_special", [False, True])
def test_the_native_engine_serves_and_equals_the_reference(path: Path, add_special: bool) -> None:
    tok, reference = native_file(path), reference_of(path)
    expected = reference.encode(TEXT, add_special_tokens=add_special)
    calls, size = tok.native_calls
    enc = tok.encode(TEXT, add_special)
    assert tok.native_calls == (calls + 1, size + len(TEXT.encode()))
    assert enc.backend == "fast_cpu"
    assert (enc.ids, enc.offsets, enc.tokens) == (expected.ids, expected.offsets, expected.tokens)
    assert tok.encode(TEXT.encode(), add_special) == enc
    assert tok.count(TEXT, add_special) == len(enc)
    assert [row.ids for row in tok.encode_batch([TEXT, "", TEXT[:9]], add_special)] == [
        reference.encode(text, add_special_tokens=add_special).ids for text in (TEXT, "", TEXT[:9])
    ]
    assert tok.count_batch([TEXT, ""], add_special) == [len(enc), tok.count("", add_special)]


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_plain_equals_encode_special_tokens_of_the_reference(path: Path) -> None:
    reference = reference_of(path)
    text = " a ".join(token.content for token in reference.get_added_tokens_decoder().values())
    reference.encode_special_tokens = True
    expected = reference.encode(text, add_special_tokens=False)
    for tokenizer in ("fast_cpu", "hf"):
        tok = toktier.from_file(path, tokenizer=tokenizer, policy="supported")
        got = tok.encode(text, plain=True)
        assert got.backend == tokenizer
        assert (got.ids, got.offsets) == (expected.ids, expected.offsets)
        assert tok.encode(text).ids != got.ids


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_vocabulary_equals_the_references_whoever_serves(path: Path) -> None:
    reference = reference_of(path)
    added = reference.get_added_tokens_decoder()
    for tokenizer in ("fast_cpu", "hf"):
        tok = toktier.from_file(path, tokenizer=tokenizer, policy="supported")
        assert tok.vocab_size == reference.get_vocab_size(with_added_tokens=True)
        assert tok.special_tokens == {t.content: i for i, t in sorted(added.items()) if t.special}
        for token, token_id in reference.get_vocab(with_added_tokens=True).items():
            assert tok.token_to_id(token) == token_id
            assert tok.id_to_token(token_id) == token
        assert tok.token_to_id("no such token at all") is None
        assert tok.id_to_token(10**6) is None


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Lowercase"},
        {"type": "NFC"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "bb"},
        {"type": "Prepend", "prepend": "_"},
        None,
    ],
    ids=lambda step: step["type"] if step else "none",
)
def test_look_ups_of_normalized_added_tokens_are_the_installed_references(normalizer: Any, tmp_path: Path) -> None:
    """0.23.3 gives another string for such an id than 0.22.2 does."""
    tokens = [added("ABC", normalized=True), added(" xa ", normalized=True, lstrip=True), added("AB")]
    tokens += [added("e\u0301q", normalized=True, special=True), added("a", normalized=True)]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(encoded(changed(minimal(), normalizer=normalizer, added_tokens=tokens)))
    reference, tok = reference_of(path), native_file(path)
    assert tok.encode("ab").backend == "fast_cpu"
    for token_id in range(reference.get_vocab_size() + 2):
        assert tok.id_to_token(token_id) == reference.id_to_token(token_id), token_id
    for token in [*reference.get_vocab(), "abc", "_ABC", "\u00e9q", " xbb ", "xa", ""]:
        assert tok.token_to_id(token) == reference.token_to_id(token), token
    assert tok.vocab_size == reference.get_vocab_size()
    decoder = sorted(reference.get_added_tokens_decoder().items())
    assert tok.special_tokens == {token.content: i for i, token in decoder if token.special}


# decode


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_decoding_equals_the_references(path: Path, tokenizer: str) -> None:
    tok, reference = toktier.from_file(path, tokenizer=tokenizer, policy="supported"), reference_of(path)
    rng = random.Random(path.stem)
    size = reference.get_vocab_size(with_added_tokens=True)
    rows = [[rng.randrange(size + 9) for _ in range(rng.choice([0, 1, 5, 40]))] for _ in range(300)]
    for skip in (True, False):
        for ids in rows:
            assert tok.decode(ids, skip) == reference.decode(ids, skip_special_tokens=skip), ids
        assert tok.decode_batch(rows, skip) == [reference.decode(ids, skip_special_tokens=skip) for ids in rows]
    ids = reference.encode(TEXT).ids
    kinds: list[Any] = [tuple(ids), array("I", ids), memoryview(array("I", ids)), iter(ids), tok.encode(TEXT, True)]
    assert {tok.decode(kind) for kind in kinds} == {reference.decode(ids)}


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_the_decode_stream_equals_the_references(path: Path, tokenizer: str) -> None:
    tok, reference = toktier.from_file(path, tokenizer=tokenizer, policy="supported"), reference_of(path)
    rng = random.Random(path.stem)
    size = reference.get_vocab_size(with_added_tokens=True)
    compared = 0
    for _ in range(200):
        prompt = [rng.randrange(size) for _ in range(rng.choice([0, 3]))]
        ids = [rng.randrange(size + 9) for _ in range(rng.choice([5, 60]))]
        for skip in (True, False):
            mine = tok.decode_stream(prompt, skip_special_tokens=skip)
            theirs = ReferenceStream(ids=prompt, skip_special_tokens=skip) if prompt else ReferenceStream(None, skip)
            for token_id in ids:
                try:
                    expected = theirs.step(reference, token_id)
                except Exception:
                    mine.step(token_id)
                    break
                assert mine.step(token_id) == expected
                compared += 1
    assert compared > 5000


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, "1", None])
def test_what_is_no_id_is_refused_with_its_place(tokenizer: str, bad: Any) -> None:
    tok = toktier.from_file(BYTE_LEVEL, tokenizer=tokenizer, policy="supported")
    with pytest.raises(errors.InvalidToken) as caught:
        tok.decode([1, 2, bad])
    assert caught.value.details["index"] == 2
    with pytest.raises(errors.InvalidToken) as caught:
        tok.decode_batch([[1], [bad]])
    assert caught.value.details["item"] == 1
    with pytest.raises(errors.InvalidToken):
        tok.id_to_token(bad)
    for wrong in ("12", 7, None):
        with pytest.raises(TypeError):
            tok.decode(wrong)


# segments


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
@pytest.mark.parametrize("path", [BYTE_LEVEL, DELEGATED, FALLBACK], ids=lambda p: p.stem)
def test_segments_are_concatenated_encodings(path: Path, tokenizer: str) -> None:
    tok, reference, plain = (
        toktier.from_file(path, tokenizer=tokenizer, policy="supported"),
        reference_of(path),
        reference_of(path),
    )
    plain.encode_special_tokens = True
    special = next(iter(tok.special_tokens))
    segments: list[tuple[str | bytes, bool]] = [
        (f"{special}user\n", True),
        (f"say {special} wörld", False),
        ("", True),
        (special.encode(), True),
    ]
    got = tok.encode_segments(segments)
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    tokens: list[str] = []
    base = 0
    for text, allow in segments:
        text = text if isinstance(text, str) else text.decode()
        part = (reference if allow else plain).encode(text, add_special_tokens=False)
        ids += part.ids
        offsets += [(base + a, base + b) for a, b in part.offsets]
        tokens += part.tokens
        base += len(text)
    assert (got.ids, got.offsets, got.tokens) == (ids, offsets, tokens)
    assert got.backend == tokenizer
    assert got.ids.count(tok.special_tokens[special]) == 2
    assert tok.encode_segments([]).ids == []


@pytest.mark.parametrize("tokenizer", ["auto", "hf"])
@pytest.mark.parametrize(
    "given", [["ab"], [("a", "False")], [("a", 1)], [("a", None)], [("a",)], [("a", True, 1)], ["x"]]
)
def test_what_is_no_pair_of_a_text_and_a_bool_is_no_segment(given: Any, tokenizer: str) -> None:
    """A true word in the place of False would make control tokens of what a user wrote."""
    tok = toktier.from_file(SMALL_DIR / "cl100k_like.json", policy="supported", tokenizer=tokenizer)
    with pytest.raises(TypeError, match="segment 1 is no pair"):
        tok.encode_segments([("a", True), *given])


def test_segments_of_a_file_with_stored_truncation_are_refused(tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    path = changed_tokenizer(BYTE_LEVEL, tmp_path / "tokenizer.json", truncation=truncation)
    for tokenizer in ("fast_cpu", "hf"):
        tok = toktier.from_file(path, tokenizer=tokenizer, policy="supported")
        assert len(tok.encode(TEXT)) == 4
        with pytest.raises(errors.UnsupportedConfig):
            tok.encode_segments([("a", True)])


# threads, forks, arguments


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_eight_threads_get_what_one_gets(tokenizer: str) -> None:
    tok = toktier.from_file(DELEGATED, tokenizer=tokenizer, policy="supported")
    texts = [TEXT * n for n in range(1, 30)]
    expected = [(tok.encode(t).ids, tok.decode(tok.encode(t))) for t in texts]
    wrong: list[object] = []

    def work(start: int) -> None:
        try:
            for n in range(len(texts)):
                place = (start + n) % len(texts)
                enc = tok.encode(texts[place])
                if (enc.ids, tok.decode(enc)) != expected[place]:
                    wrong.append(place)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(3 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    if tokenizer == "hf":
        counters = tok.explain()["counters"]
        assert counters["calls"] == {"fast_cpu": 0, "hf": 29 * 2 + 8 * 29}
        assert counters["decode_calls"] == {"fast_cpu": 0, "hf": 29 + 8 * 29}


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_a_forked_child_encodes(tokenizer: str) -> None:
    tok = toktier.from_file(BYTE_LEVEL, tokenizer=tokenizer, policy="supported")
    batch = [TEXT] * 64
    expected = [row.ids for row in tok.encode_batch(batch)]
    child = os.fork()
    if child == 0:
        same = [row.ids for row in tok.encode_batch(batch)] == expected and tok.encode(TEXT).ids == expected[0]
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_arguments_of_encode(tokenizer: str) -> None:
    tok = toktier.from_file(BYTE_LEVEL, tokenizer=tokenizer, policy="supported")
    plain = tok.encode(TEXT).ids
    assert tok.encode(TEXT, lookup="off").ids == tok.encode(TEXT, lookup="auto").ids == plain
    with pytest.raises(errors.ConfigInvalid):
        tok.encode(TEXT, lookup="maybe")
    assert tok.encode(TEXT, session="chat").ids == plain
    with pytest.raises(errors.UnsupportedConfig) as refused:
        tok.encode(TEXT, session="chat", plain=True)
    assert refused.value.details == {"argument": "plain"}
    assert refused.value.remedy
    with pytest.raises(TypeError):
        tok.encode(TEXT, session=3)
    with pytest.raises(TypeError):
        tok.encode(3)
    with pytest.raises(TypeError):
        tok.encode_batch(TEXT)
    for text, position in (("ab\ud83d", 2), (b"ab\xff", 2)):
        with pytest.raises(errors.InvalidText) as caught:
            tok.encode(text)
        assert caught.value.details == {"position": position}
        with pytest.raises(errors.InvalidText) as caught:
            tok.encode_batch(["fine", text])
        assert caught.value.details == {"position": position, "item": 1}


@pytest.mark.parametrize("name", ["encode", "encode_batch", "count", "count_batch", "decode", "decode_batch"])
def test_help_of_a_call_names_its_arguments_and_errors(name: str) -> None:
    method = getattr(toktier.Tokenizer, name)
    text = inspect.getdoc(method) or ""
    refers = {"count": "encode", "count_batch": "encode_batch", "encode_batch": "encode", "decode_batch": "decode"}
    told = text
    while name in refers and refers[name] in told:  # "as for encode"
        name = refers[name]
        told += inspect.getdoc(getattr(toktier.Tokenizer, name)) or ""
    arguments = [argument for argument in inspect.signature(method).parameters if argument not in ("self", "batch")]
    assert [argument for argument in arguments if argument not in told] == []
    assert re.search(r"Raises|errors are those of", text)


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_a_pickle_opens_the_same_file_again(tmp_path: Path, tokenizer: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(BYTE_LEVEL.read_bytes())
    tok = toktier.from_file(path, tokenizer=tokenizer, policy="supported")
    data = pickle.dumps(tok)
    assert len(data) < 2000
    other = pickle.loads(data)
    assert other.encode(TEXT) == tok.encode(TEXT)
    assert other.encode(TEXT).backend == tokenizer
    assert other.fingerprint == tok.fingerprint
    assert copy.copy(tok) is copy.deepcopy(tok) is tok
    changed_tokenizer(BYTE_LEVEL, tmp_path / "tokenizer.json", normalizer={"type": "Lowercase"})
    with pytest.raises(errors.ArtifactHashMismatch):
        pickle.loads(data)
    path.unlink()
    with pytest.raises(errors.ArtifactNotFound):
        pickle.loads(data)


def test_a_pool_of_processes_encodes() -> None:
    tok = toktier.from_file(BYTE_LEVEL, policy="supported")
    texts = [TEXT * n for n in range(1, 9)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(tok.count, texts) == tok.count_batch(texts)


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_a_stream_of_malformed_ids_decodes_each_a_bounded_number_of_times(
    path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever decodes: the ids given to decode() in all, for N and for 2N ids that never complete a character."""
    tok = toktier.from_file(path, tokenizer=tokenizer, policy="supported")
    lead = next(i for i in map(tok.token_to_id, ("<0xE4>", "ä")) if i is not None)  # ä stands for the byte E4

    def decoded(count: int) -> int:
        total = 0
        original = tok._decoder(False)

        def counting(ids: Any) -> str:
            nonlocal total
            total += len(ids)
            return original(ids)

        monkeypatch.setattr(tok, "_decoder", lambda skip: counting)
        stream = tok.decode_stream()
        monkeypatch.undo()
        assert [stream.step(lead) for _ in range(count)] == [None] * count
        return total

    assert decoded(1200) <= 2.2 * decoded(600)
