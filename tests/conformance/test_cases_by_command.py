"""A sample of the cases through the command, as a user runs it: the document on stdout holds the expected ids and names
the native engine.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.conformance.test_cases import REFUSED
from tests.support.material import SHARED, Artifacts, load_json, load_script

PER_ARTIFACT = 2

ARTIFACTS = (
    []
    if SHARED is None
    else [
        *sorted(p.name.removesuffix(".json.zst") for p in (SHARED / "artifacts").glob("*.zst")),
        *sorted(s["name"] for s in load_json(SHARED / "cases" / "derived.json") if s["name"] not in REFUSED),
    ]
)


@pytest.fixture(scope="module")
def cases(shared: Path) -> dict[str, list[dict[str, Any]]]:
    """Cases by artifact, spread over the file; those whose outcome the reference leaves to chance are left out."""
    rows = map(json.loads, (shared / "cases" / "ids.jsonl").read_text(encoding="utf-8").splitlines())
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "at random" not in row.get("note", ""):
            grouped.setdefault(row["artifact"], []).append(row)
    return {name: group[:: max(1, len(group) // PER_ARTIFACT)][:PER_ARTIFACT] for name, group in grouped.items()}


def expected_ids(case: dict[str, Any], add_special: bool) -> Any:
    expected = case["expected"]["false"]
    if add_special and case["expected"]["true"] != "same":
        expected = case["expected"]["true"]
    if isinstance(expected, dict) and "by_version" in expected:
        return expected["by_version"][tokenizers.__version__]
    return expected


def equal(ids: list[int], expected: Any) -> bool:
    """A case holds its ids, or for long texts their number and the SHA-256 of them as little-endian uint32."""
    if isinstance(expected, list):
        return ids == expected
    digest = hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()
    return (len(ids), digest) == (expected["n"], expected["sha256"])


@pytest.mark.ci
@pytest.mark.parametrize("name", ARTIFACTS)
def test_the_command_gives_the_expected_ids(
    name: str, cases: dict[str, list[dict[str, Any]]], artifacts: Artifacts, shared: Path, tmp_path: Path
) -> None:
    if name not in cases:
        pytest.skip("no case names this artifact")
    expand = load_script(shared / "cases" / "recipe.py").expand
    flags = ["-S"] if sys.flags.no_site else []
    for case, add_special in zip(cases[name], (False, True), strict=False):
        text = tmp_path / "text"
        text.write_bytes(expand(case).encode())
        run = subprocess.run(
            [
                *(sys.executable, *flags, "-m", "toktier_cli.main", "encode", "--file", str(artifacts.path(name))),
                # Most of these have no evidence: admitted without, and no reference in the engine's place.
                *("--input", str(text), "--json", "--policy", "supported", "--no-tokenizer-fallback"),
                *(["--special"] if add_special else []),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        document = json.loads(run.stdout)
        expected = expected_ids(case, add_special)
        if isinstance(expected, dict) and "error" in expected:
            assert document["error"]["code"] == "UNSUPPORTED_CONFIG"
            continue
        assert run.returncode == 0, run.stdout + run.stderr
        assert document["backend"] == "fast_cpu"
        assert equal(document["ids"], expected), case["id"]
