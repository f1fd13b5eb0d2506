"""Everything that a machine with a GPU can tell of the kernels, in one run of a few minutes and one JSON document.

    python tools/gpu_judge.py --artifact qwen3.json --corpus ../shared/corpus --cubins DIR --out judged.json

Sections, each in a process of its own with a deadline, because a fault of a device ends all that its process does with
it: *machine*; *compile*, by this machine's NVRTC, held against the listed digests; *cubins*, brought from elsewhere, of
a newer NVRTC perhaps; *self_test*; *corpora* and *hostile*, ids of the GPU against the CPU engine's; *timings* of every
step and host to host; *bandwidth*; *sanitizer*, where compute-sanitizer is installed. What fails, and what there was no
time for, is said in its section. Needs an installed toktier and, to compile, cuda-python with NVRTC.
Not here: evidence, which `toktier certify --backend gpu` makes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from toktier._native import EncoderBase, GpuEngine, Program, gpu_device
from toktier.config import Config, resolve_settings
from toktier.errors import ToktierError
from toktier.gpu.delivery import Cubin, deliver
from toktier.gpu.host_identity import host_identity
from toktier.gpu.self_test import difference, self_test
from toktier.program.compile import compile_tokenizer
from toktier.program.engine_identity import build_facts, engine_identity
from toktier.program.file import read_program
from toktier.program.meta import read_meta
from toktier.version import VERSION

SCHEMA, SCHEMA_VERSION = "toktier.gpu_judge", 1
SECTIONS = ("machine", "compile", "cubins", "self_test", "corpora", "hostile", "timings", "bandwidth", "sanitizer")
SIZES = tuple(1 << n for n in (16, 18, 20, 22, 24, 26))  # 64 KiB to 64 MiB
DOCUMENT = 4096  # bytes of each document of a batch
CORPUS_BYTES = 4 << 20  # of each corpus and tokenizer
SECONDS = 280.0
CUBIN = "judged.cubin"
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
FILLER = "No corpus was given, so that this sentence is it. "
PROBE_BYTES = 256 << 20


def main() -> int:
    options = arguments()
    if options.section:
        json.dump(section(options), sys.stdout)
        return 0
    begun = time.monotonic()
    told: dict[str, Any] = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "toktier": VERSION}
    with tempfile.TemporaryDirectory() as work:
        for name in SECTIONS if not options.only else options.only:
            left = options.seconds - (time.monotonic() - begun)
            print(f"{name}: {left:.0f} s left", file=sys.stderr, flush=True)
            told[name] = run_section(name, left, Path(options.work or work))
    told["seconds"] = round(time.monotonic() - begun, 1)
    text = json.dumps(told, indent=1) + "\n"
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text, encoding="utf-8")
    return 0 if all(told[name].get("ok") or told[name].get("skipped") for name in told if name in SECTIONS) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--artifact", type=Path, action="append", default=[], metavar="FILE", help="a tokenizer.json")
    parser.add_argument(
        "--corpus", type=Path, action="append", default=[], metavar="PATH", help="JSONL, .zst or a directory"
    )
    parser.add_argument("--cubins", type=Path, metavar="DIR", help="cubins that were built elsewhere")
    parser.add_argument("--driver", metavar="LIB", help="a driver library in place of the system's")
    parser.add_argument(
        "--cubin", type=Path, metavar="FILE", help="the kernels to judge, in place of what is compiled here"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="BYTES")
    parser.add_argument("--corpus-bytes", type=int, default=CORPUS_BYTES, metavar="BYTES", help="of each corpus")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each timing; the best is told")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all sections")
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--section", choices=(*SECTIONS, "sanitized"), help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_section(name: str, seconds: float, work: Path) -> dict[str, Any]:
    """One section in a child. What it prints on stderr is shown; its end, however it comes, is an answer."""
    if seconds < 2:
        return {"ok": False, "problem": "there was no time left"}
    command = [sys.executable, __file__, *sys.argv[1:], "--section", name, "--work", str(work)]
    begun = time.monotonic()
    try:
        child = subprocess.run(command, stdout=subprocess.PIPE, timeout=seconds, check=False)
        answer: dict[str, Any] = json.loads(child.stdout)
    except subprocess.TimeoutExpired:
        return {"ok": False, "problem": f"it did not end within {seconds:.0f} s"}
    except ValueError:
        return {"ok": False, "problem": f"its process ended with {child.returncode}"}
    return {**answer, "seconds": round(time.monotonic() - begun, 2)}


def section(options: argparse.Namespace) -> dict[str, Any]:
    """The answer of a section, in this process."""
    found: dict[str, Any] = {}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the answer alone goes there
            for key, value in PARTS[options.section](options):
                found[key] = value
    except Skipped as skipped:
        return {"ok": True, "skipped": str(skipped), **found}
    except Exception as error:
        problem = error.message if isinstance(error, ToktierError) else f"{type(error).__name__}: {error}"
        return {"ok": False, "problem": problem, "trace": traceback.format_exc(limit=-3), **found}
    return {"ok": not found.get("mismatches") and not found.get("problems"), **found}


class Skipped(Exception):
    """A section that has nothing to do here, and why."""


Facts = Iterator[tuple[str, Any]]


def machine(options: argparse.Namespace) -> Facts:
    yield "system", platform.platform()
    yield "processors", len(os.sched_getaffinity(0))
    yield "python", platform.python_version()
    yield "engine_identity", engine_identity()
    yield "host_identity", host_identity()
    yield "build", {key: value for key, value in build_facts().items() if key != "identity"}
    yield "device", gpu_device(0, options.driver)
    smi = shutil.which("nvidia-smi")
    if smi is not None and options.driver is None:
        asked = ("name", "driver_version", "compute_cap", "clocks.max.sm", "clocks.max.mem", "pcie.link.gen.max")
        command = [smi, f"--query-gpu={','.join(asked)}", "--format=csv"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        yield "nvidia_smi", answer.stdout.strip()


def compile_here(options: argparse.Namespace) -> Facts:
    """The kernels that the other sections run are left in the working directory."""
    device = gpu_device(0, options.driver)
    if options.cubin is not None:
        data = options.cubin.read_bytes()
        (options.work / CUBIN).write_bytes(data)
        yield "given", {"sha256": hashlib.sha256(data).hexdigest()}
        return
    begun = time.monotonic()
    cubin: Cubin = deliver(device["architecture"], "auto", resolve_settings(Config(home=options.work / "home")))
    (options.work / CUBIN).write_bytes(cubin.data)
    yield (
        "cubin",
        {
            "sha256": cubin.sha256,
            "bytes": len(cubin.data),
            "architecture": cubin.architecture,
            "delivery": str(cubin.delivery),
            "listed": cubin.listed,
            "toolchain": cubin.toolchain,
            "notices": list(cubin.notices),
            "seconds": round(time.monotonic() - begun, 2),
        },
    )


def carried(options: argparse.Namespace) -> Facts:
    """Cubins that were built elsewhere, of this architecture: loaded, and the self-test of the first tokenizer run."""
    from toktier.gpu.cubin import read_cubin

    if options.cubins is None:
        raise Skipped("no --cubins DIR")
    architecture = gpu_device(0, options.driver)["architecture"]
    program, meta = program_of(first_artifact(options))
    results: dict[str, Any] = {}
    for path in sorted(options.cubins.rglob("*.cubin")):
        data = path.read_bytes()
        name = path.relative_to(options.cubins).as_posix()
        try:
            facts = read_cubin(data)
            if facts.architecture != architecture:
                continue
            engine = GpuEngine(program, data, driver=options.driver)
            problem = self_test(engine, EncoderBase(program), meta)
            engine.close()
            results[name] = {"sha256": hashlib.sha256(data).hexdigest(), "compiler": facts.compiler, "problem": problem}
        except Exception as error:
            results[name] = {"sha256": hashlib.sha256(data).hexdigest(), "problem": f"{type(error).__name__}: {error}"}
    yield "cubins", results
    yield "problems", sum(one["problem"] is not None for one in results.values())


def self_tests(options: argparse.Namespace) -> Facts:
    results: dict[str, Any] = {}
    for path in artifacts(options):
        program, meta = program_of(path)
        begun = time.monotonic()
        engine = open_engine(options, program)
        opened = time.monotonic()
        results[path.name] = {
            "problem": self_test(engine, EncoderBase(program), meta),
            "open_ms": round((opened - begun) * 1000, 1),
            "test_ms": round((time.monotonic() - opened) * 1000, 1),
            "facts": engine.facts(),
            "counters": engine.counters(),
        }
        engine.close()
        yield "tokenizers", results
    yield "problems", sum(one["problem"] is not None for one in results.values())


def corpora(options: argparse.Namespace) -> Facts:
    """Ids of the documents of each corpus by each tokenizer, on the GPU and by the CPU engine."""
    if not options.corpus:
        raise Skipped("no --corpus PATH")
    yield from compared(options, lambda meta: documents_by_corpus(options, meta))


def hostile(options: argparse.Namespace) -> Facts:
    """The built-in hostile texts and random ones, together and one by one."""
    from toktier.certify.hostile_texts import hostile_texts
    from toktier.certify.suites.cases import cases

    texts = [text for _, text in cases()]
    texts += hostile_texts([], max(20, min(4_000, options.corpus_bytes // 1024)), "judge", [])
    bounded, size = [], 0
    for text in texts:
        if size < options.corpus_bytes:
            bounded.append(text)
            size += len(text.encode())
    yield from compared(options, lambda _: [("texts", bounded)])


Corpora = Callable[[dict[str, Any]], Iterable[tuple[str, list[str]]]]


def compared(options: argparse.Namespace, corpora_for: Corpora) -> Facts:
    results: dict[str, Any] = {}
    mismatches = 0
    for path in artifacts(options):
        program, meta = program_of(path)
        native, engine = EncoderBase(program), open_engine(options, program)
        for name, texts in corpora_for(meta):
            before = engine.counters()
            row: dict[str, Any] = {"documents": len(texts), "bytes": sum(len(text.encode()) for text in texts)}
            found = 0
            for special, plain in ((False, False), (True, True)):
                expected = native.encode_batch(texts, special, plain=plain)
                got = engine.encode_batch(texts, special, plain)
                row["ids"] = len(expected.ids)
                if difference(texts, got, expected) is not None:
                    wrong = [i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b]
                    found += max(1, len(wrong))
                    row["first"] = difference(texts, got, expected)
            mismatches += found
            after = engine.counters()
            row |= {"mismatches": found, "device_texts": after["device_texts"] - before["device_texts"]}
            row["redone"] = {key: count - before["redone"][key] for key, count in after["redone"].items()}
            row["faults"] = after["faults"] - before["faults"]
            results.setdefault(path.name, {})[name] = row
            yield "tokenizers", results
            yield "mismatches", mismatches
        engine.close()


def timings(options: argparse.Namespace) -> Facts:
    """Milliseconds, the best of some runs. `steps`: by events on the device; `host`: host to host, with the ids in a
    buffer; `native`: the CPU engine on every core."""
    results: dict[str, Any] = {}
    for path in artifacts(options):
        program, meta = program_of(path)
        material = "".join(text for _, texts in documents_by_corpus(options, meta) for text in texts) or FILLER
        native, engine = EncoderBase(program), open_engine(options, program)
        wide = open_engine(options, program, lane_bytes=max(options.sizes))
        for size in options.sizes:
            for kind, texts in (("text", [one_text(material, size)]), ("batch", batch(material, size))):
                row = results.setdefault(path.name, {}).setdefault(str(size), {})[kind] = {"bytes": weight(texts)}
                steps = [wide.time(texts) for _ in range(options.repeat)]
                row["steps"] = {step: round(min(run[step] for run in steps), 4) for step in steps[0]}
                row["host_ms"] = best(partial(engine.encode_batch, texts, False, False), options.repeat)
                row["native_ms"] = best(partial(native.encode_batch, texts), options.repeat)
                row["host_GBps"] = round(row["bytes"] / max(row["host_ms"], 1e-6) / 1e6, 3)
                kernels = sum(ms for step, ms in row["steps"].items() if step not in ("h2d", "d2h"))
                row["kernels_GBps"] = round(row["bytes"] / max(kernels, 1e-6) / 1e6, 3)
                yield "tokenizers", results
        yield "counters", engine.counters()
        engine.close()
        wide.close()


def bandwidth(options: argparse.Namespace) -> Facts:
    """Plain copies of the driver: page-locked memory to the device and back, and within the device."""
    cuda = ctypes.CDLL(options.driver or "libcuda.so.1")
    size = min(PROBE_BYTES, 16 * max(options.sizes))

    def call(name: str, *given: Any) -> None:
        code = getattr(cuda, name)(*given)
        if code:
            raise RuntimeError(f"{name} gave {code}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxPushCurrent_v2", context)
    host = ctypes.c_void_p()
    here, there = ctypes.c_ulonglong(), ctypes.c_ulonglong()
    call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), 0)
    for pointer in (here, there):
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    length = ctypes.c_size_t(size)
    copies: dict[str, Callable[[], object]] = {
        "h2d_GBps": lambda: call("cuMemcpyHtoD_v2", here, host, length),
        "d2h_GBps": lambda: call("cuMemcpyDtoH_v2", host, here, length),
        "d2d_GBps": lambda: (call("cuMemcpyDtoD_v2", there, here, length), call("cuCtxSynchronize")),
    }
    yield "bytes", size
    for name, copy in copies.items():
        yield name, round(size / max(best(copy, options.repeat), 1e-6) / 1e6, 2)


def sanitizer(options: argparse.Namespace) -> Facts:
    """The self-test's texts under each tool of compute-sanitizer, in a process of its own."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None or options.driver is not None:
        raise Skipped("compute-sanitizer is not here" if tool is None else "it wants a driver, and not a stand-in")
    results: dict[str, Any] = {}
    for name in SANITIZERS:
        own = ["--section", "sanitized", "--work", str(options.work), "--artifact", str(first_artifact(options))]
        command = [tool, "--tool", name, "--error-exitcode", "99", sys.executable, __file__, *own]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            results[name] = {"code": run.returncode, "last": (run.stdout + run.stderr)[-600:]}
        except subprocess.TimeoutExpired:
            results[name] = {"code": None, "last": "it did not end within 60 s"}
        yield "tools", results
    yield "problems", sum(one["code"] == 99 for one in results.values())


def sanitized(options: argparse.Namespace) -> Facts:
    program, meta = program_of(first_artifact(options))
    engine = open_engine(options, program, lane_bytes=1 << 20)
    yield "problem", self_test(engine, EncoderBase(program), meta)
    engine.close()


PARTS: dict[str, Callable[[argparse.Namespace], Facts]] = {
    "machine": machine,
    "compile": compile_here,
    "cubins": carried,
    "self_test": self_tests,
    "corpora": corpora,
    "hostile": hostile,
    "timings": timings,
    "bandwidth": bandwidth,
    "sanitizer": sanitizer,
    "sanitized": sanitized,
}


# material


def artifacts(options: argparse.Namespace) -> list[Path]:
    if not options.artifact:
        raise Skipped("no --artifact FILE")
    return list(options.artifact)


def first_artifact(options: argparse.Namespace) -> Path:
    return artifacts(options)[0]


def program_of(path: Path) -> tuple[Program, dict[str, Any]]:
    image = compile_tokenizer(path.read_bytes(), path.name)
    return Program(image), read_meta(read_program(image).section("META"))


def open_engine(options: argparse.Namespace, program: Program, **more: Any) -> GpuEngine:
    """On the kernels of the section *compile*."""
    return GpuEngine(program, (options.work / CUBIN).read_bytes(), driver=options.driver, **more)


def documents_by_corpus(options: argparse.Namespace, meta: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Name and documents of each file, up to so many bytes of each; chats with the special tokens of the tokenizer."""
    from toktier.certify.conversations import render
    from toktier.certify.corpora import BlockReader, read_corpus

    added = [str(token["content"]) for token in meta["special_tokens"]]
    files = [
        file
        for path in options.corpus
        for file in (sorted(path.iterdir()) if path.is_dir() else [path])
        if file.is_file() and {".jsonl", ".txt"} & set(file.suffixes)
    ]
    for path in files:
        corpus = read_corpus(path)
        reader, texts, size = BlockReader(corpus), [], 0
        for number in range(len(corpus.blocks)):
            for document in reader.documents(number) if size < options.corpus_bytes else ():
                texts.append(document if isinstance(document, str) else render(document, added))
                size += len(texts[-1].encode())
        yield path.name, texts


def one_text(material: str, size: int) -> str:
    """`size` bytes of it, again and again."""
    data = material.encode()
    return (data * (size // len(data) + 1))[:size].decode(errors="ignore")


def batch(material: str, size: int) -> list[str]:
    """The same in documents of 4 KB."""
    whole = one_text(material, size).encode()
    return [whole[at : at + DOCUMENT].decode(errors="ignore") for at in range(0, len(whole), DOCUMENT)]


def weight(texts: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def best(call: Callable[[], object], repeat: int) -> float:
    """Milliseconds of the fastest of some runs, after one that warms up."""
    call()
    fastest = float("inf")
    for _ in range(repeat):
        begun = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - begun)
    return round(fastest * 1000, 4)


if __name__ == "__main__":
    raise SystemExit(main())
