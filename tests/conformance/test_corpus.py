"""Real documents through the native engine and the reference: ids, offsets, tokens, batches, threads, decoding.

Small tokenizers on text of the repository always; every real artifact on a fixed sample of every corpus in CI; every
document of every corpus in the full tier (`run_corpus --complete` does the same and prints the counts).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from tests.conformance.adapter import native_tokenizer
from tests.conformance.corpus import SHOWN, Report, all_corpora, compare, sample, texts
from tests.support.material import ROOT, SHARED, Artifacts, small_tokenizers

SAMPLE_BYTES = 40_000  # of each corpus for each artifact

NAMES = [] if SHARED is None else sorted(p.name.removesuffix(".json.zst") for p in (SHARED / "artifacts").glob("*.zst"))


def shown(report: Report) -> str:
    return "\n".join([f"{len(report.mismatches)} mismatches", *report.mismatches[:SHOWN]])


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_small_tokenizers_on_text_of_the_repository(path: Path, isolated_home: Path) -> None:
    reference = tokenizers.Tokenizer.from_file(str(path))
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    documents = [(p.name, p.read_text(encoding="utf-8")[:20_000]) for p in sorted((ROOT / "tests/data/text").iterdir())]
    documents.append(("added tokens", " between ".join(added) + "".join(added) + "\n".join(added)))
    documents.append(("nothing", ""))
    report = compare(native_tokenizer(path, isolated_home), reference, documents)
    assert not report.mismatches, shown(report)
    assert report.served_by == "fast_cpu"
    assert report.ids > 7_000
    assert report.offsets == report.ids
    assert report.threaded == 8 * len(documents)


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_real_artifacts_on_a_sample_of_every_corpus(artifacts: Artifacts, shared: Path, name: str) -> None:
    _compare_all(artifacts, shared, name, SAMPLE_BYTES)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_real_artifacts_on_every_document(artifacts: Artifacts, shared: Path, name: str) -> None:
    _compare_all(artifacts, shared, name, None)


def _compare_all(artifacts: Artifacts, shared: Path, name: str, budget: int | None) -> None:
    path = artifacts.path(name)
    tokenizer = native_tokenizer(path)
    reference = tokenizers.Tokenizer.from_file(str(path))
    wrong: list[str] = []
    for corpus in all_corpora(shared):
        report = compare(tokenizer, reference, texts(shared, corpus, reference, budget))
        wrong += [f"{corpus}: {mismatch}" for mismatch in report.mismatches]
        assert report.documents > 0
        assert report.ids > 1000
    assert not wrong, "\n".join(wrong[:SHOWN])


def test_a_sample_is_fixed_and_within_its_budget() -> None:
    documents = [(f"d{n}", chr(97 + n % 26) * (n * 37 % 500)) for n in range(200)]
    once, again = list(sample(documents, 4000)), list(sample(reversed(documents), 4000))
    assert once == again
    assert 4000 <= sum(len(text) for _, text in once) < 4000 + 1000
    assert list(sample(documents, None)) == documents
