"""Random hostile texts: ids, offsets and tokens equal the reference's on every kind of tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from tests.conformance.adapter import native_tokenizer
from tests.conformance.corpus import SHOWN, compare
from tests.conformance.hostile import added_contents, compare_hostile
from tests.conformance.test_cases import REFUSED
from tests.support.material import SHARED, Artifacts, load_json, small_tokenizers
from toktier.certify.hostile_texts import hostile_texts

FAST, CI, FULL = 250, 1_000, 100_000

REAL = [] if SHARED is None else sorted(p.name.removesuffix(".json.zst") for p in (SHARED / "artifacts").glob("*.zst"))
DERIVED = [] if SHARED is None else sorted(s["name"] for s in load_json(SHARED / "cases" / "derived.json"))


def check(path: Path, count: int, home: Path | None = None) -> None:
    tokenizer, reference = native_tokenizer(path, home), tokenizers.Tokenizer.from_file(str(path))
    report = compare_hostile(tokenizer, reference, count, path.stem)
    assert not report.mismatches, "\n".join([f"{len(report.mismatches)} mismatches", *report.mismatches[:SHOWN]])
    assert report.documents == count
    assert report.ids > count


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_small_tokenizers(path: Path, isolated_home: Path) -> None:
    check(path, FAST, isolated_home)


@pytest.mark.ci
@pytest.mark.parametrize("name", [*REAL, *(name for name in DERIVED if name not in REFUSED)])
def test_real_and_derived_artifacts(artifacts: Artifacts, name: str) -> None:
    check(artifacts.path(name), CI if name in REAL else CI // 3)


@pytest.mark.full
@pytest.mark.parametrize("name", REAL)
def test_a_hundred_thousand_texts(artifacts: Artifacts, name: str) -> None:
    check(artifacts.path(name), FULL)


def test_texts_are_fixed_by_the_seed_and_hold_what_they_are_for() -> None:
    added = added_contents(tokenizers.Tokenizer.from_file(str(small_tokenizers()[0])))
    once, again = list(hostile_texts(added, 400, "seed")), list(hostile_texts(added, 400, "seed"))
    assert once == again
    assert once != list(hostile_texts(added, 400, "other"))
    assert "vocabularystring" in "".join(hostile_texts(added, 400, "seed", ["vocabularystring"]))
    whole = "".join(once)
    assert all(content in whole for content in added)
    assert all(sample in whole for sample in ("\r\n", "\u0301", "'s", "\u3000", "\U0010ffff"))
    whole.encode("utf-8")  # no surrogates


def test_the_comparison_notices_another_tokenizer(isolated_home: Path) -> None:
    """Against the reference on a file that differs in nothing but one added token, the comparison must fail."""
    path = next(p for p in small_tokenizers() if p.stem == "cl100k_like")
    other = tokenizers.Tokenizer.from_file(str(path))
    other.add_special_tokens(["the"])
    tokenizer = native_tokenizer(path, isolated_home)
    report = compare_hostile(tokenizer, other, 100, "seed")
    assert any(mismatch.startswith("ids") for mismatch in report.mismatches)
    corpus = compare(tokenizer, other, [("text", "over the hills")], threads=2)
    assert any(mismatch.startswith("ids") for mismatch in corpus.mismatches)
    assert any(mismatch.startswith("offsets") for mismatch in corpus.mismatches)
