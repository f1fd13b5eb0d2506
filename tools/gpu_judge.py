"""Everything that a machine with a GPU can tell of the kernels, in one run of a few minutes and one JSON document.

    python tools/gpu_judge.py --artifact qwen3.json --corpus ../shared/corpus --cubins DIR --out judged.json

Sections (tools/gpu_judge_sections.py), each in a process of its own with a deadline, because a fault of a device ends
all that its process does with it: *machine*; *compile*, by this machine's NVRTC, held against the listed digests;
*self_test*; *timings* of every step and host to host; *corpora* and *hostile*, ids of the GPU against the CPU engine's;
*bandwidth*; *cubins*, brought from elsewhere, of a newer NVRTC perhaps; *certify*, evidence, where a directory is given
for it; *sanitizer*, where compute-sanitizer is installed. What fails, and what there was no time for, is said in its
section, beside what it had found until then. The document is written after every section, and is whole whenever this
ends: by itself, by SIGTERM, or by SIGKILL. Imports the standard library alone, so that it has an answer where toktier
does not start. Needs, in the children, an installed toktier and, to compile, cuda-python with NVRTC.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

SCHEMA, SCHEMA_VERSION = "toktier.gpu_judge", 2
SECTIONS = {
    "machine": 20.0,
    "compile": 60.0,
    "self_test": 45.0,
    "timings": 70.0,
    "corpora": 60.0,
    "hostile": 40.0,
    "bandwidth": 15.0,
    "cubins": 30.0,
    "certify": 120.0,
    "sanitizer": 120.0,
}
"""In their order, what is wanted most first: the most seconds of each."""
SECONDS = 280.0
SIZES = tuple(1 << n for n in (16, 18, 20, 22, 24, 26))  # 64 KiB to 64 MiB
CORPUS_BYTES = 4 << 20  # of each corpus and tokenizer
CHILD = Path(__file__).with_name("gpu_judge_sections.py")
LAST_WORDS = 1500  # bytes of the stderr of a section that failed
GRACE = 5.0  # seconds until a killed process is left behind: a driver may hold it


class Ended(Exception):
    """SIGTERM or SIGINT."""


def main() -> int:
    options = arguments()
    begun = time.monotonic()
    told: dict[str, Any] = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "complete": False}
    wanted = list(options.only or SECTIONS)
    told |= {name: {"ok": False, "problem": "its turn did not come"} for name in wanted}
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    with contextlib.suppress(Ended), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own:
        work = Path(options.work or own)
        for name in wanted:
            keep(options, told, begun)
            left = options.seconds - (time.monotonic() - begun)
            print(f"{name}: {left:.0f} s left", file=sys.stderr, flush=True)
            told[name] = run_section(name, min(left, SECTIONS[name]), work)
        told["complete"] = True
    text = keep(options, told, begun)
    if options.out is None:
        sys.stdout.write(text)
    return 0 if told["complete"] and all(told[name]["ok"] for name in wanted) else 1


def _end(number: int, frame: FrameType | None) -> None:
    for again in (signal.SIGTERM, signal.SIGINT):  # what there is is being written
        signal.signal(again, signal.SIG_IGN)
    raise Ended


def arguments() -> argparse.Namespace:
    """Of this tool and of its children."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--artifact", type=Path, action="append", default=[], metavar="FILE", help="a tokenizer.json")
    add("--corpus", type=Path, action="append", default=[], metavar="PATH", help="JSONL, .zst or a directory")
    add("--cubins", type=Path, metavar="DIR", help="cubins that were built elsewhere")
    add("--certify", type=Path, metavar="DIR", help="make evidence too, and leave it there")
    add("--driver", metavar="LIB", help="a driver library in place of the system's")
    add("--cubin", type=Path, metavar="FILE", help="the kernels to judge, in place of what is compiled here")
    add("--sizes", type=int, nargs="+", default=list(SIZES), metavar="BYTES")
    add("--corpus-bytes", type=int, default=CORPUS_BYTES, metavar="BYTES", help="of each corpus")
    add("--repeat", type=int, default=5, metavar="N", help="runs of each timing; the best is told")
    add("--seconds", type=float, default=SECONDS, help="for all sections")
    add("--only", action="append", choices=list(SECTIONS), metavar="SECTION")
    add("--out", type=Path, metavar="FILE")
    add("--section", choices=(*SECTIONS, "sanitized"), help=argparse.SUPPRESS)
    add("--work", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_section(name: str, seconds: float, work: Path) -> dict[str, Any]:
    """One section in a child, and whatever that starts. Its end, however it comes, is an answer."""
    if seconds < 2:
        return {"ok": False, "problem": "there was no time left"}
    begun = time.monotonic()
    errors = work / f"{name}.stderr"
    command = [sys.executable, str(CHILD), *sys.argv[1:], "--section", name, "--work", str(work)]
    try:
        with open(errors, "wb") as stream:
            child = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
        problem = wait(child, seconds)
        answer = read(work / f"{name}.json")
    except OSError as error:
        return {"ok": False, "problem": f"it could not be run: {error}"}
    if problem is not None or "unfinished" in answer:
        answer |= {"ok": False, "problem": problem or "it ended before it was done"}
    if not answer["ok"]:
        with contextlib.suppress(OSError):
            answer["stderr"] = errors.read_bytes()[-LAST_WORDS:].decode(errors="replace")
    return {**answer, "seconds": round(time.monotonic() - begun, 2)}


def wait(child: subprocess.Popen[bytes], seconds: float) -> str | None:
    """None, or why the child has no whole answer. It and all that it started are gone afterwards, or left behind."""
    problem = None
    try:
        code = child.wait(seconds)
        problem = f"its process ended with {code}" if code else None
    except subprocess.TimeoutExpired:
        problem = f"it did not end within {seconds:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
    return problem


def read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {"ok": False, "problem": "it gave no answer"}
    return found


def keep(options: argparse.Namespace, told: dict[str, Any], begun: float) -> str:
    """Writes what there is. Where the file cannot be written, what is found goes to stdout in the end: a device is not
    had twice."""
    told["seconds"] = round(time.monotonic() - begun, 1)
    if options.out is not None:
        try:
            return write(options.out, told)
        except OSError as error:
            print(f"{options.out} cannot be written, stdout has it in the end: {error}", file=sys.stderr, flush=True)
            options.out = None
    return json.dumps(told, indent=1) + "\n"


def write(path: Path, document: dict[str, Any]) -> str:
    """Whole or not at all."""
    text = json.dumps(document, indent=1) + "\n"
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
    return text


if __name__ == "__main__":
    raise SystemExit(main())
