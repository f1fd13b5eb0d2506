"""The open scenarios of the area doctor: one test for each. `PLACES` is held against the list in ../shared."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import toktier
from tests.cli.command import Outcome, check_document, environment, run
from tests.support.material import ROOT, SHARED
from toktier.artifacts.pins import shipped_pins
from toktier.config import Config

pytestmark = [pytest.mark.ci, pytest.mark.unsanitized]

HERE = "tests/scenarios/test_diagnostics.py"
PLACES = {
    "doc-exit-codes": [f"{HERE}::test_doc_exit_codes", "tests/cli/test_doctor.py::test_exit_codes"],
    "doc-fallback-visible": [
        f"{HERE}::test_doc_fallback_visible_unknown_name",
        f"{HERE}::test_doc_fallback_visible_slow_path",
    ],
}
MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
# What others build in this checkout meanwhile is no part of the scenario.
DOCTOR = ("doctor", "--json", "--timeout", "600", "--skip", "build.identity", "--skip", "evidence.registry")


def test_every_scenario_of_this_area_has_a_test() -> None:
    for places in PLACES.values():
        for place in places:
            path, name = place.split("::")
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            assert name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}, place
    if SHARED is None:
        pytest.skip("the list of scenarios lies in ../shared, which is not here")
    listed = re.findall(r"^### (\S+)\s+\(doctor;", (SHARED / "cases" / "scenarios.md").read_text("utf-8"), re.M)
    assert set(listed) == set(PLACES)


def told(outcome: Outcome) -> tuple[str, int]:
    return check_document(outcome)["status"], outcome.code


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv")
def test_doc_exit_codes(tmp_path: Path) -> None:
    """All fine, only a warning, a damaged artifact, a store that cannot be read: four statuses, told apart by
    `--check=warn`; `--check` lets a warning pass and nothing else."""
    fine, warned, damaged, closed = (tmp_path / name for name in ("fine", "warned", "damaged", "closed"))
    assert told(run(*DOCTOR, "--check=warn", home=fine)) == ("ok", 0)

    warned.mkdir()
    warned.chmod(0o777)  # any user could replace what is kept there; nothing is wrong yet
    (warned / "cache" / "artifacts").mkdir(parents=True)
    (warned / "cache" / "artifacts").chmod(0o777)
    assert told(run(*DOCTOR, "--check", home=warned)) == ("warn", 0)
    assert told(run(*DOCTOR, "--check=warn", home=warned)) == ("warn", 1)

    pin = shipped_pins().family("qwen3_8b").tokenizer
    for home in (damaged, closed):
        blob = home / "cache" / "artifacts" / "blobs" / "sha256" / pin.sha256[:2] / pin.sha256
        blob.parent.mkdir(parents=True)
        blob.write_bytes(b"x" * pin.size)
    assert told(run(*DOCTOR, "--check", home=damaged)) == ("fail", 1)
    assert told(run(*DOCTOR, home=damaged)) == ("fail", 0)

    closed.chmod(0o700)
    os.chown(closed, 65534, 65534)
    # This user without the right to pass over permissions: another one may not be able to reach the interpreter.
    bound = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--"]
    command = [*bound, sys.executable, "-m", "toktier_cli.main", *DOCTOR, "--check"]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment(closed))
    assert told(Outcome(done.returncode, done.stdout, done.stderr.decode())) == ("unknown", 6)


def test_doc_fallback_visible_unknown_name(tmp_path: Path) -> None:
    done = run("encode", "--family", "qwen38b", "text", home=tmp_path)
    assert done.code == 3
    assert done.stdout == b""  # never another encoding
    assert "nearest: qwen3_8b" in done.stderr


def test_doc_fallback_visible_slow_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported once, counted, and visible in the diagnosis: of the tokenizer, and of the process that has ended."""
    odd = tmp_path / "odd.json"
    document: dict[str, Any] = json.loads(MINI.read_text("utf-8"))
    document["model"] = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    document |= {"normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None}
    document["added_tokens"] = []
    odd.write_text(json.dumps(document))
    home = tmp_path / "home"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tok = toktier.from_file(odd, config=Config(home=home, diagnostics=True))
        for _ in range(3):
            assert tok.encode("a").backend == "hf"
    assert len([w for w in caught if issubclass(w.category, toktier.ToktierWarning)]) == 1
    assert tok.explain()["counters"]["reasons"] == {"R_PROGRAM_UNSUPPORTED": 3}
    assert tok.explain(summary=True)["fallback_ever_occurred"]

    report = check_document(run(*DOCTOR, "--family", str(odd), home=home))
    rows = {check["id"]: check for check in report["checks"]}
    assert report["family"]["effective_backend"] == "hf"
    assert "R_PROGRAM_UNSUPPORTED" in rows["family.route"]["summary"]
    assert rows["diagnostics.ring"]["facts"]["codes"] == {"R_PROGRAM_UNSUPPORTED": 1}
    assert rows["diagnostics.ring"]["status"] == "warn"
