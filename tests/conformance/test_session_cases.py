"""The cases of sessions (../shared/cases/sessions.jsonl) through sessions of the native engine: step by step, where the
patches alone must give the expected ids, and by their own checker in the whole-transcript form."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.conformance.adapter import NotServedNatively, assert_only_native, make_present, native_tokenizer
from tests.conformance.test_cases import REFUSED, SUMMARY, check
from tests.support.material import Artifacts, small_tokenizers
from toktier import Tokenizer


def agrees(ids: list[int], expected: Any) -> bool:
    """As the case files write it: a list, or number and digest; by reference version where they differ."""
    if isinstance(expected, dict) and "by_version" in expected:
        expected = expected["by_version"][tokenizers.__version__]
    if isinstance(expected, list):
        return ids == expected
    digest = hashlib.sha256(array("I", ids).tobytes()).hexdigest()
    return bool((expected["n"], expected["sha256"]) == (len(ids), digest))


def steps(tokenizer: Tokenizer, case: dict[str, Any]) -> Iterator[tuple[int, bool]]:
    """Number of each step, and whether the list agrees to which its patch was applied."""
    session = tokenizer.session()
    ids: list[int] = []
    for number, step in enumerate(case["steps"]):
        if step["op"] == "append":
            patch = session.append(step["text"])
        else:
            patch = session.replace(step.get("chars", 0), step.get("text", ""))
        ids[patch.keep_tokens :] = patch.replacement_ids.ids
        yield number, agrees(ids, step["expected"]) and session.ids == ids


@pytest.mark.ci
def test_patches_alone_give_the_ids_of_every_step(shared: Path, artifacts: Artifacts) -> None:
    rows = map(json.loads, (shared / "cases" / "sessions.jsonl").read_text(encoding="utf-8").splitlines())
    made = 0
    for name, cases in groupby(sorted(rows, key=lambda row: row["artifact"]), key=lambda row: row["artifact"]):
        if name in REFUSED:
            continue
        tokenizer = native_tokenizer(artifacts.path(name))
        for case in cases:
            calls = tokenizer.native_calls[0]
            for number, right in steps(tokenizer, case):
                assert right, f"{case['id']} step {number}"
                made += 1
            assert tokenizer.native_calls[0] > calls, case["id"]
    assert made > 2_000


@pytest.mark.ci
def test_no_case_differs_in_the_whole_transcript_form(shared: Path, tmp_path: Path) -> None:
    run = check(shared, ["sessions.jsonl"], tmp_path, "tests.conformance.adapter:make_present")
    summary = SUMMARY.fullmatch(run.stdout.splitlines()[-1])
    assert summary is not None, run.stdout + run.stderr
    checks, mismatches, _ = map(int, summary.groups())
    assert (run.returncode, mismatches) == (0, 0), run.stdout
    assert checks > 2_000


def test_the_adapter_of_sessions_sees_through_a_silent_fallback(isolated_home: Path) -> None:
    path = small_tokenizers()[0]
    present = make_present(str(path))
    reference = tokenizers.Tokenizer.from_file(str(path))
    for text in ("one", "one two", "", "one t"):
        assert present(text, False) == reference.encode(text, add_special_tokens=False).ids
        assert present(text, True) == reference.encode(text).ids
    tokenizer = native_tokenizer(path, isolated_home)
    with pytest.raises(NotServedNatively):
        assert_only_native(tokenizer)
    tokenizer.session().append("counted")
    assert_only_native(tokenizer)
