"""The judge of a device, run on the emulated driver with tiny sizes: every section answers, and one that fails is one
section."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_cuda import FakeCuda, fake_cuda
from tests.support.material import ROOT

pytestmark = [pytest.mark.ci, pytest.mark.unsanitized]
TOOL = ROOT / "tools" / "gpu_judge.py"
MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
SECTIONS = ("machine", "compile", "cubins", "self_test", "corpora", "hostile", "timings", "bandwidth", "sanitizer")


def judged(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    out = tmp_path / "judged.json"
    command = [sys.executable, str(TOOL), "--artifact", str(MINI), "--repeat", "1", "--out", str(out), *arguments]
    subprocess.run(command, check=False, timeout=300, capture_output=True)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_every_section_answers(tmp_path: Path) -> None:
    cuda: FakeCuda = fake_cuda()
    kernels = tmp_path / "emulated.cubin"
    kernels.write_bytes(cuda.image())
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(text) + "\n" for text in ("The boats, 14 of them.", "中文 and more") * 20))
    carried = tmp_path / "carried"
    carried.mkdir()
    (carried / "broken.cubin").write_bytes(b"no cubin")
    told = judged(
        tmp_path, "--driver", cuda.path, "--cubin", str(kernels), "--cubins", str(carried),
        "--corpus", str(corpus), "--corpus-bytes", "20000", "--sizes", "4096", "16384",
    )  # fmt: skip
    assert set(SECTIONS) <= set(told)
    for name in ("machine", "compile", "self_test", "corpora", "hostile", "timings"):
        assert told[name]["ok"], told[name]
    assert told["machine"]["device"]["architecture"].startswith("sm_")
    assert told["self_test"]["tokenizers"][MINI.name]["problem"] is None
    assert told["self_test"]["tokenizers"][MINI.name]["counters"]["device_texts"] > 1000
    row = told["corpora"]["tokenizers"][MINI.name]["corpus.jsonl"]
    assert (row["documents"], row["mismatches"]) == (40, 0)
    assert row["device_texts"] > 0
    assert told["hostile"]["mismatches"] == 0
    sizes = told["timings"]["tokenizers"][MINI.name]
    assert set(sizes) == {"4096", "16384"}
    assert {"h2d", "tt_facts", "tt_gather", "d2h"} <= set(sizes["4096"]["text"]["steps"])
    assert (told["cubins"]["ok"], told["cubins"]["problems"]) == (False, 1)
    assert told["sanitizer"]["skipped"]


def test_without_a_driver_every_section_says_so_and_the_tool_ends(tmp_path: Path) -> None:
    told = judged(tmp_path, "--driver", str(tmp_path / "absent.so"), "--seconds", "60")
    assert not told["machine"]["ok"]
    assert "engine_identity" in told["machine"]  # what was told before it failed
    for name in ("compile", "self_test", "hostile", "timings", "bandwidth"):
        assert not told[name]["ok"]
        assert told[name]["problem"]


def test_what_there_is_no_time_for_is_said(tmp_path: Path) -> None:
    told = judged(tmp_path, "--seconds", "0")
    assert all(told[name] == {"ok": False, "problem": "there was no time left"} for name in SECTIONS)
