"""`toktier certify --backend emulator`: suites on the emulated kernels, through the real host engine. Small: the
shipped tokenizer by the command, and a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import check_document, run
from tests.support.certify_runs import run_suite
from tests.support.fake_cuda import FakeCuda
from tests.support.material import Artifacts
from toktier.certify.subject import Subject
from toktier.certify.suites import suite_named
from toktier.routing.vocabulary import Compared

pytestmark = [pytest.mark.ci, pytest.mark.unsanitized]


def test_the_command_writes_evidence_that_nobody_believes(cuda: FakeCuda, tmp_path: Path) -> None:
    out, home = tmp_path / "run", tmp_path / "home"
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(f"The boats, {n} of them, weren't there.\n中文") + "\n" for n in range(200)))
    line = ("certify", "toktier_mini", "--backend", "emulator", "--driver", cuda.path, "--suite", "corpus")
    outcome = run(*line, "--corpus", str(corpus), "--out", str(out), "--workers", "1", "--json", home=home)
    told = check_document(outcome)
    assert told["outcome"] == "passed", told
    assert "believed nowhere" in outcome.stderr
    evidence: dict[str, Any] = json.loads((out / "evidence.json").read_text())
    assert evidence["plan"]["backend"] == "emulator"
    assert evidence["plan"]["kernels"]["architecture"].startswith("sm_")
    totals = evidence["totals"]
    assert (totals["documents"], totals["mismatches"]) == (200, 0)
    assert totals["routed"] < totals["checks"] // 10  # the emulated device served
    assert run("certify", "verify", str(out), home=home).code == 0
    assert not list(home.rglob("evidence/**/*.json"))


@pytest.mark.parametrize("name", ["qwen3"])
def test_a_real_tokenizer(cuda: FakeCuda, artifacts: Artifacts, name: str) -> None:
    subject = Subject(artifacts.path(name), Compared.EMULATOR, driver=Path(cuda.path))
    ran = run_suite(suite_named("fuzz"), subject, blocks=[0])
    assert ran.failures == []
    assert ran.counts.checks - ran.counts.routed > 300
