"""A sample of what `run_emulated` compares, on a real artifact of each pre-tokenizer; and that it cannot be fooled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.emulated import Counts, NotTaken, Subject, chunks, compare
from tests.conformance.emulated_texts import Text, chains, class_strings, of_bytes, runs, tokens_at_edges
from tests.conformance.run_emulated import Bench, pre_tokenizers, run_artifact, sanitized_texts
from tests.support.emulated_pipeline import TILE, WORD
from tests.support.material import SMALL_DIR, Artifacts
from toktier.certify.hostile_texts import hostile_texts

DISTINCT = ("claude", "deepseek_v3", "gpt35turbo", "gpt4o", "gptoss", "llama3", "qwen3")
"""Of those that a device takes, one of each pre-tokenizer as it is written."""
CASES, HOSTILE, RUN_BYTES = 120, 60, (257, TILE + 1)


def small(name: str) -> Subject:
    return Subject((SMALL_DIR / f"{name}.json").read_bytes())


def agreed(counts: Counts) -> None:
    assert counts.mismatches == [], counts.mismatches[:2]
    assert counts.documents == counts.device_documents + sum(counts.redone.values())
    assert counts.device_documents > counts.documents // 2


@pytest.mark.parametrize("name", ["cl100k_like", "deepseek_like", "o200k_like"])
def test_small_tokenizers(name: str) -> None:
    subject = small(name)
    texts = [*class_strings(subject.characters, 2), *chains(300), *tokens_at_edges(subject.added[:2])]
    texts += [Text("hostile", text) for text in hostile_texts(subject.added, 40, name)]
    counts = compare(subject, texts, seeds=(1, 2))
    agreed(counts)
    assert counts.compared_ids > 2 * counts.compared_offsets - 100 > len(subject.characters)


def test_what_a_kernel_flags_is_no_agreement() -> None:
    counts = compare(small("cl100k_like"), [Text("run", "l" * 5000), Text("word", "one two")], seeds=(1,))
    assert (counts.documents, counts.device_documents) == (2, 1)
    assert counts.redone == {"GIANT": 1}
    assert counts.redone_bytes == 5000
    assert counts.compared_ids < 10


def test_another_tokenizer_is_noticed_and_the_text_minimised() -> None:
    subject = small("cl100k_like")
    subject.reference.add_special_tokens(["zq"])
    counts = compare(subject, [Text("same", "of the same"), Text("other", "before zq and behind")], seeds=(1, 2))
    assert [mismatch["name"] for mismatch in counts.mismatches] == ["other", "other"]
    assert counts.mismatches[0]["minimised"] == "zq"


def test_a_program_that_no_device_takes_is_told_by_its_premise() -> None:
    with pytest.raises(NotTaken):
        small("llama_like")


def test_texts_lie_where_their_names_say() -> None:
    token = "<|endoftext|>"
    tiles, words = tokens_at_edges([token])
    begins = [at for at in range(len(tiles.text)) if tiles.text.startswith(token * 2, at)]
    assert [at % TILE for at in begins] == [TILE - 13, TILE - 6, TILE - 1, 0, 1]
    assert {at % WORD for at in range(len(words.text)) if words.text.startswith(token * 2, at)} == {19, 26, 31, 0, 1}
    assert [len(chunk) for chunk in chunks([Text("", "a"), tiles, Text("", "b"), words])] == [1, 2, 1]
    assert of_bytes("中", 8) == "中中"
    assert len(list(class_strings("abc", 3))) == 3 + 9 + 27


@pytest.mark.ci
@pytest.mark.parametrize("name", DISTINCT)
def test_a_sample_of_real_artifacts(artifacts: Artifacts, shared: Path, name: str) -> None:
    seed = 1 + DISTINCT.index(name) % 3
    bench = Bench(shared, artifacts.path(name), (seed,))
    subject = bench.subject
    texts = [Text(case["id"], case["text"]) for case in bench.cases if len(case["text"]) < 3000][:CASES]
    texts += [*runs(RUN_BYTES), *chains(1000), *class_strings(subject.characters, 2), *tokens_at_edges(subject.added)]
    texts += [Text("hostile", text) for text in hostile_texts(subject.added, HOSTILE, name)]
    texts += sanitized_texts(shared, subject)
    agreed(compare(subject, texts, (seed,)))


@pytest.mark.ci
@pytest.mark.parametrize("variant", ["asan", "tsan"])
def test_sanitizers_find_nothing_on_real_tables(artifacts: Artifacts, shared: Path, variant: str) -> None:
    subject = Subject(artifacts.path("qwen3").read_bytes())
    agreed(compare(subject, sanitized_texts(shared, subject), (2,), variant=variant))


@pytest.mark.ci
def test_cases_through_the_host_and_a_run_that_is_taken_up_again(
    artifacts: Artifacts, shared: Path, tmp_path: Path
) -> None:
    job = (shared, artifacts.path("deepseek_v4"), tmp_path, ["cases by the host"], (1,))
    document = run_artifact(*job)
    counts = document["results"]["cases by the host"]
    assert counts["mismatches"] == []
    assert counts["device_documents"] > 400
    assert run_artifact(*job) == document  # with its times


@pytest.mark.ci
def test_every_pre_tokenizer_that_a_device_takes_has_a_sample(artifacts: Artifacts) -> None:
    first = pre_tokenizers(artifacts)
    assert set(DISTINCT) == set(first.values()) - {"gemini", "gemma3", "llama2"}
