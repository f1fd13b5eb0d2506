"""`toktier certify --backend emulator`: the suites on the emulated kernels, through the real host engine. Small: one
shipped tokenizer and one real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command, check_document
from tests.support.certify_runs import run_suite
from tests.support.fake_cuda import FakeCuda
from tests.support.material import Artifacts
from toktier.certify.subject import Subject
from toktier.certify.suites import suite_named
from toktier.routing.vocabulary import Compared

pytestmark = [pytest.mark.ci, pytest.mark.unsanitized]


def test_the_command_writes_evidence_that_nobody_believes(cuda: FakeCuda, command: Command, tmp_path: Path) -> None:
    line = ("certify", "toktier_mini", "--backend", "emulator", "--driver", cuda.path, "--suite", "cases")
    out = tmp_path / "run"
    told = check_document(command(*line, "--out", str(out), "--workers", "1", "--json"))
    assert told["outcome"] == "passed", told
    evidence: dict[str, Any] = json.loads((out / "evidence.json").read_text())
    assert evidence["plan"]["backend"] == "emulator"
    assert evidence["plan"]["kernels"]["cubin"]
    totals = evidence["totals"]
    assert totals["checks"] > 1000
    assert totals["routed"] < totals["checks"] // 2
    assert command("certify", "verify", str(out)).code == 0
    shown = check_document(command("certify", "show", "--json"))
    assert not any(row.get("backend") == "emulator" for row in shown.get("evidence", []))
    # What it did not route, it compared: the fake driver ran kernels.
    resumed = command("certify", "--resume", str(out))
    assert resumed.code == 0


@pytest.mark.parametrize("name", ["qwen3"])
def test_a_real_tokenizer(cuda: FakeCuda, artifacts: Artifacts, name: str) -> None:
    subject = Subject(artifacts.path(name), Compared.EMULATOR, driver=Path(cuda.path))
    ran = run_suite(suite_named("fuzz"), subject, blocks=[0])
    assert ran.failures == []
    assert ran.counts.checks - ran.counts.routed > 300
