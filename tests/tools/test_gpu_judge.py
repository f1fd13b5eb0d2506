"""The judge of a device, run on the emulated driver with tiny sizes: every section answers, and one that fails is one
section."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli.test_gpu import lacks_toolchain
from tests.support.fake_cuda import FakeCuda, fake_cuda
from tests.support.kernels import make_cubin
from tests.support.material import ROOT, SMALL_DIR

pytestmark = [pytest.mark.ci, pytest.mark.unsanitized]
TOOL = ROOT / "tools" / "gpu_judge.py"
MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
SECTIONS = (
    "machine",
    "compile",
    "self_test",
    "timings",
    "corpora",
    "hostile",
    "bandwidth",
    "cubins",
    "certify",
    "sanitizer",
)


# The tool with deadlines for a host on which emulated kernels have a part of a core.
PATIENT = f"""import sys
sys.path.insert(0, {str(TOOL.parent)!r})
import gpu_judge
gpu_judge.SECTIONS = {{name: 20 * seconds for name, seconds in gpu_judge.SECTIONS.items()}}
gpu_judge.SECONDS *= 20
sys.exit(gpu_judge.main())"""


def command(tmp_path: Path, *arguments: str) -> list[str]:
    out = str(tmp_path / "judged.json")
    return [sys.executable, "-c", PATIENT, "--artifact", str(MINI), "--repeat", "1", "--out", out, *arguments]


def judged(tmp_path: Path, *arguments: str, driver: str = "") -> dict[str, Any]:
    """`driver`: knobs of the fake one in the children."""
    env = {**os.environ, "FAKE_CUDA": driver}
    subprocess.run(command(tmp_path, *arguments), check=False, timeout=3000, capture_output=True, env=env)
    found: dict[str, Any] = json.loads((tmp_path / "judged.json").read_text())
    return found


def load_tool(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def emulated(tmp_path: Path) -> list[str]:
    """Arguments that name the fake driver and its kernels."""
    cuda: FakeCuda = fake_cuda()
    kernels = tmp_path / "emulated.cubin"
    kernels.write_bytes(cuda.image())
    return ["--driver", cuda.path, "--cubin", str(kernels)]


def test_every_section_answers(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(text) + "\n" for text in ("The boats, 14 of them.", "中文 and more") * 20))
    carried = tmp_path / "carried"
    carried.mkdir()
    (carried / "broken.cubin").write_bytes(b"no cubin")
    told = judged(
        tmp_path, *emulated(tmp_path), "--cubins", str(carried), "--artifact", str(SMALL_DIR / "gemma_like.json"),
        "--corpus", str(corpus), "--corpus-bytes", "20000", "--sizes", "4096", "16384",
    )  # fmt: skip
    assert (set(SECTIONS) <= set(told), told["complete"]) == (True, True)
    for name in ("self_test", "corpora", "hostile", "timings"):
        assert (told[name]["ok"], told[name]["problems"]) == (False, 1), told[name]
        rows = told[name]["tokenizers"]["gemma_like.json"]
        assert "no device can run it" in (
            rows["problem"] if name in ("self_test", "timings") else rows["problem"]["problem"]
        )
    for name in ("machine", "compile", "bandwidth"):
        assert told[name]["ok"], told[name]
    assert told["machine"]["device"]["architecture"].startswith("sm_")
    assert told["self_test"]["tokenizers"][MINI.name]["problem"] is None
    assert told["self_test"]["tokenizers"][MINI.name]["counters"]["device_texts"] > 1000
    row = told["corpora"]["tokenizers"][MINI.name]["corpus.jsonl"]
    assert (row["documents"], row["mismatches"]) == (40, 0)
    assert row["device_texts"] > 0
    assert told["hostile"]["mismatches"] == 0
    sizes = told["timings"]["tokenizers"][MINI.name]
    assert set(sizes) == {"4096", "16384", "faults"}
    assert {"h2d", "tt_facts", "tt_gather", "d2h"} <= set(sizes["4096"]["text"]["steps"])
    assert {"host_ms", "stay_ms", "native_ms", "kernels_GBps"} <= set(sizes["16384"]["batch"])
    assert {"h2d_GBps", "d2h_GBps", "d2d_GBps"} <= set(told["bandwidth"])
    assert (told["cubins"]["ok"], told["cubins"]["problems"]) == (False, 1)
    assert told["sanitizer"]["skipped"]
    assert told["certify"]["skipped"]


def test_without_a_driver_every_section_says_so_and_the_tool_ends(tmp_path: Path) -> None:
    told = judged(tmp_path, "--driver", str(tmp_path / "absent.so"), "--seconds", "2000")
    assert not told["machine"]["ok"]
    assert "engine_identity" in told["machine"]  # what was told before it failed
    for name in ("compile", "bandwidth"):
        assert not told[name]["ok"]
        assert told[name]["problem"]
    for name in ("self_test", "hostile", "timings"):
        assert (told[name]["ok"], told[name]["problems"]) == (False, 1)


def test_what_there_is_no_time_for_is_said(tmp_path: Path) -> None:
    told = judged(tmp_path, "--seconds", "0")
    assert all(told[name] == {"ok": False, "problem": "there was no time left"} for name in SECTIONS)


def test_a_device_that_hangs_is_a_row(tmp_path: Path) -> None:
    only = ("--only", "compile", "--only", "self_test", "--only", "bandwidth")
    told = judged(tmp_path, *emulated(tmp_path), *only, driver="hang_from=0")
    row = told["self_test"]["tokenizers"][MINI.name]
    assert (told["self_test"]["ok"], told["self_test"]["problems"]) == (False, 1)
    assert "did not end within" in row["problem"]
    assert row["counters"]["last_fault"]["code"] == "hung"
    assert told["bandwidth"]["ok"], told["bandwidth"]
    assert told["complete"]


PARTLY = """
import json, os, signal, sys, time
from pathlib import Path
name = sys.argv[sys.argv.index("--section") + 1]
work = Path(sys.argv[sys.argv.index("--work") + 1])
(work / f"{name}.json").write_text(json.dumps({"told": 1, "ok": False, "unfinished": True}))
print("last words", file=sys.stderr, flush=True)
if name == "timings":
    os.kill(os.getpid(), signal.SIGSEGV)
os.fork()  # as a tool that starts others does
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("name", "seconds", "problem"),
    [("corpora", 2.0, "it did not end within 2 s"), ("timings", 600.0, "its process ended with -11")],
)
def test_a_section_that_breaks_off_has_told_what_it_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seconds: float, problem: str
) -> None:
    """Its seconds count from what it told on: how long an interpreter takes to start is the host's matter."""
    judge = load_tool(TOOL)
    wait = judge.wait

    def wait_from_then_on(child: subprocess.Popen[bytes], seconds: float) -> str | None:
        until = time.monotonic() + 300
        while b"last words\n" not in (tmp_path / f"{name}.stderr").read_bytes():
            assert time.monotonic() < until
            time.sleep(0.01)
        told: str | None = wait(child, seconds)
        return told

    monkeypatch.setattr(judge, "wait", wait_from_then_on)
    child = tmp_path / "child.py"
    child.write_text(PARTLY)
    monkeypatch.setattr(judge, "CHILD", child)
    monkeypatch.setattr(sys, "argv", ["gpu_judge.py"])
    told = judge.run_section(name, seconds, tmp_path)
    assert (told["told"], told["ok"], told["problem"]) == (1, False, problem)
    assert told["stderr"] == "last words\n"


def test_whoever_ends_it_gets_what_there_is(tmp_path: Path) -> None:
    env = {**os.environ, "FAKE_CUDA": "hang_from=0"}
    judge = subprocess.Popen(command(tmp_path, *emulated(tmp_path)), stderr=subprocess.DEVNULL, env=env)
    out = tmp_path / "judged.json"
    while not out.exists() or not json.loads(out.read_text())["compile"]["ok"]:
        time.sleep(0.1)
        assert judge.poll() is None
    judge.send_signal(signal.SIGTERM)
    assert judge.wait(300) == 1
    told = json.loads(out.read_text())
    assert not told["complete"]
    assert told["machine"]["ok"]
    assert told[SECTIONS[-1]] == {"ok": False, "problem": "its turn did not come"}


@pytest.mark.skipif(not lacks_toolchain(), reason="this host has a CUDA toolkit of its own")
def test_kernels_that_were_brought_serve_where_none_can_be_compiled(tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    carried.mkdir()
    for architecture in ("sm_80", "sm_90"):
        (carried / f"{architecture}.cubin").write_bytes(make_cubin(architecture))
    driver = ("--driver", fake_cuda().path)
    told = judged(tmp_path, *driver, "--cubins", str(carried), "--only", "compile", "--only", "cubins")
    assert told["compile"]["refused"]
    assert told["compile"]["carried"]["file"] == "sm_90.cubin"
    assert not told["compile"]["ok"]
    assert told["cubins"]["cubins"]["sm_90.cubin"]["problem"] is None
    assert list(told["cubins"]["cubins"]) == ["sm_90.cubin"]


SANITIZER = """#!/bin/sh
echo "$@" >> "$WORK/asked"
[ "$2" = memcheck ] && exit 3
echo '{"ok": true}' > "$WORK/sanitized.json"
"""


def test_each_sanitizer_has_its_turn(tmp_path: Path) -> None:
    """Though one of them does not start; what copies read is not asked, since some words of it nobody writes."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(SANITIZER)
    tool.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "WORK": str(work)}
    line = [sys.executable, str(TOOL.with_name("gpu_judge_sections.py")), "--section", "sanitizer", "--work", str(work)]
    subprocess.run([*line, "--artifact", str(MINI)], check=True, timeout=300, env=environment)
    told = json.loads((work / "sanitizer.json").read_text())
    assert {name: row["problem"] for name, row in told["tools"].items()} == {
        "memcheck": "it gave no answer",
        "racecheck": None,
        "synccheck": None,
        "initcheck": None,
    }
    assert (told["ok"], told["problems"]) == (False, 1)
    asked = (work / "asked").read_text().splitlines()
    assert [line for line in asked if "--check-api-memory-access no" in line] == [asked[3]]
    assert "--tool initcheck" in asked[3]


def test_a_document_that_cannot_be_written_goes_to_stdout(tmp_path: Path) -> None:
    (tmp_path / "judged.json").mkdir()
    run = subprocess.run(
        command(tmp_path, "--only", "machine", "--driver", "/nowhere.so"), check=False, capture_output=True, text=True
    )
    told = json.loads(run.stdout)
    assert (run.returncode, told["complete"], told["machine"]["ok"]) == (1, True, False)
    assert "no NVIDIA driver" in told["machine"]["problem"]
    assert "judged.json cannot be written, stdout has it in the end" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_second_signal_does_not_reach_the_document() -> None:
    """Whoever stops the tool sends one to its group, and often another, while what was found is being written."""
    tool, numbers = load_tool(TOOL), (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    try:
        with pytest.raises(tool.Ended):
            tool._end(signal.SIGTERM, None)
        assert [signal.getsignal(number) for number in numbers] == [signal.SIG_IGN] * 2
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
