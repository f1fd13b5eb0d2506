"""The sections of tools/gpu_judge.py: each asks one thing of the device, and tells what it knows after every step.

    python tools/gpu_judge_sections.py --section timings --work DIR --artifact qwen3.json ...

A section is a generator of facts; whoever runs it writes all of them down whenever there is one more, so that a device
that takes the process with it takes the last step alone. What one tokenizer fails at is its own row. Not here: the time
that a section has, and the document of them all.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_judge import arguments, write
from gpu_judge_material import (
    CUBIN,
    SANITIZERS,
    Row,
    Skipped,
    artifacts,
    batch,
    best,
    closing,
    documents_by_corpus,
    first_artifact,
    noted,
    one_text,
    open_engine,
    problems_of,
    program_of,
    said,
    taken,
    weight,
)

from toktier._native import EncoderBase, GpuEngine, gpu_device
from toktier.config import Config, resolve_settings
from toktier.errors import KernelsUnavailable
from toktier.gpu.architectures import compiled_for
from toktier.gpu.delivery import deliver
from toktier.gpu.host_identity import host_identity
from toktier.gpu.self_test import difference, self_test, texts
from toktier.program.engine_identity import build_facts, engine_identity
from toktier.version import VERSION

if TYPE_CHECKING:
    import argparse

SANITIZED_TEXTS, SANITIZED_BYTES = 120, 6_000  # texts of the self-test, of at most so many bytes
UNBOUNDED = 3600.0  # seconds of patience with a run: a sanitizer slows kernels down a hundredfold
FILLER = "No corpus was given, so that this sentence is it. "
PROBE_BYTES = 256 << 20


def main() -> int:
    """Runs a section. Its answer is in the working directory, whole at any time."""
    options = arguments()
    answer = options.work / f"{options.section}.json"
    found: Row = {}
    try:
        for key, value in PARTS[options.section](options):
            found[key] = value
            write(answer, {**found, "ok": False, "unfinished": True})
    except Skipped as skipped:
        found |= {"ok": True, "skipped": str(skipped)}
    except Exception as error:
        found |= {"ok": False, "problem": said(error), "trace": traceback.format_exc(limit=-3)}
    else:
        found["ok"] = not found.get("mismatches") and not found.get("problems")
    write(answer, found)
    return 0


Facts = Iterator[tuple[str, Any]]


def machine(options: argparse.Namespace) -> Facts:
    yield "toktier", VERSION
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
    """The kernels that the other sections run are left in the working directory. Where none can be compiled, or came
    with the installation, a carried cubin is taken."""
    architecture = gpu_device(0, options.driver)["architecture"]
    if options.cubin is not None:
        yield "given", kept(options, options.cubin.read_bytes())
        return
    begun = time.monotonic()
    try:
        cubin = deliver(architecture, "auto", resolve_settings(Config(home=options.work / "home")))
    except KernelsUnavailable as error:
        yield "refused", error.message
        for path in carried_for(options, architecture):
            yield "carried", {**kept(options, path.read_bytes()), "file": path.name}
            yield "problems", 1  # nothing was compiled; the other sections can run
            return
        raise
    yield (
        "cubin",
        {
            **kept(options, cubin.data),
            "architecture": cubin.architecture,
            "delivery": str(cubin.delivery),
            "listed": cubin.listed,
            "toolchain": cubin.toolchain,
            "notices": list(cubin.notices),
            "seconds": round(time.monotonic() - begun, 2),
        },
    )


def kept(options: argparse.Namespace, data: bytes) -> Row:
    (options.work / CUBIN).write_bytes(data)
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def carried_for(options: argparse.Namespace, architecture: str) -> Iterator[Path]:
    """Cubins that were brought and that a device of this architecture takes."""
    from toktier.gpu.cubin import problem_of

    wanted = compiled_for(architecture)
    for path in () if options.cubins is None or wanted is None else sorted(options.cubins.rglob("*.cubin")):
        if problem_of(path.read_bytes(), wanted) is None:
            yield path


def carried(options: argparse.Namespace) -> Facts:
    """Cubins that were built elsewhere, of this architecture: loaded, and the self-test of the first tokenizer run."""
    from toktier.gpu.cubin import read_cubin

    if options.cubins is None:
        raise Skipped("no --cubins DIR")
    wanted = compiled_for(gpu_device(0, options.driver)["architecture"])
    program, meta = program_of(options, first_artifact(options))
    results: dict[str, Row] = {}
    for path in sorted(options.cubins.rglob("*.cubin")):
        data = path.read_bytes()
        row: Row = {"sha256": hashlib.sha256(data).hexdigest(), "problem": None}
        with noted(row):
            facts = read_cubin(data)
            if facts.architecture != wanted:
                continue
            row["compiler"] = facts.compiler
            with closing(GpuEngine(program, data, driver=options.driver)) as engine:
                row["problem"] = self_test(engine, EncoderBase(program), meta)
        results[path.relative_to(options.cubins).as_posix()] = row
        yield "cubins", results
    yield "problems", problems_of(results.values())


def self_tests(options: argparse.Namespace) -> Facts:
    results: dict[str, Row] = {}
    for path in artifacts(options):
        row = results.setdefault(path.name, {"problem": None})
        with noted(row):
            program, meta = program_of(options, path)
            begun = time.monotonic()
            with closing(open_engine(options, program)) as engine:
                opened = time.monotonic()
                row["facts"] = engine.facts()
                row["open_ms"] = round((opened - begun) * 1000, 1)
                yield "tokenizers", results
                row["problem"] = self_test(engine, EncoderBase(program), meta)
                row["test_ms"] = round((time.monotonic() - opened) * 1000, 1)
                row["counters"] = engine.counters()
                using = {name: kernel["local_bytes"] for name, kernel in row["facts"]["kernels"].items()}
                if any(using.values()):
                    row["problem"] = row["problem"] or f"kernels use local memory: {using}"
        yield "tokenizers", results
    yield "problems", problems_of(results.values())


def corpora(options: argparse.Namespace) -> Facts:
    """Ids of the documents of each corpus by each tokenizer, on the GPU and by the CPU engine."""
    if not options.corpus:
        raise Skipped("no --corpus PATH")
    yield from compared(options, lambda meta: documents_by_corpus(options, meta))


def hostile(options: argparse.Namespace) -> Facts:
    """The built-in hostile texts and random ones, together and one by one."""
    from toktier.certify.hostile_texts import hostile_texts
    from toktier.certify.suites.cases import cases

    given = [text for _, text in cases()]
    given += hostile_texts([], max(20, min(4_000, options.corpus_bytes // 1024)), "judge", [])
    bounded, size = [], 0
    for text in given:
        if size < options.corpus_bytes:
            bounded.append(text)
            size += len(text.encode())
    yield from compared(options, lambda _: [("texts", bounded)])


Corpora = Callable[[dict[str, Any]], Iterable[tuple[str, list[str]]]]


def compared(options: argparse.Namespace, corpora_for: Corpora) -> Facts:
    results: dict[str, dict[str, Row]] = {}
    for path in artifacts(options):
        rows = results.setdefault(path.name, {})
        whole: Row = {}
        with noted(whole):
            program, meta = program_of(options, path)
            native = EncoderBase(program)
            with closing(open_engine(options, program)) as engine:
                for name, given in corpora_for(meta):
                    row = rows.setdefault(name, {"documents": len(given), "bytes": weight(given)})
                    with noted(row):
                        compare(engine, native, given, row)
                    yield "tokenizers", results
        if whole:
            rows["problem"] = whole
        yield "tokenizers", results
    flat = [row for rows in results.values() for row in rows.values()]
    yield "mismatches", sum(row.get("mismatches", 0) for row in flat)
    yield "problems", problems_of(flat)


def compare(engine: GpuEngine, native: EncoderBase, given: list[str], row: Row) -> None:
    before, found = engine.counters(), 0
    for special, plain in ((False, False), (True, True)):
        expected = native.encode_batch(given, special, plain=plain)
        got = engine.encode_batch(given, special, plain)
        row["ids"] = len(expected.ids)
        first = difference(given, got, expected)
        if first is not None:
            wrong = [i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b]
            found += max(1, len(wrong))
            row["first"] = first
    after = engine.counters()
    row |= {"mismatches": found, "device_texts": after["device_texts"] - before["device_texts"]}
    row["redone"] = {key: count - before["redone"][key] for key, count in after["redone"].items()}
    row["faults"] = after["faults"] - before["faults"]
    if row["faults"]:
        row["problem"] = after["last_fault"]["message"]


def timings(options: argparse.Namespace) -> Facts:
    """Milliseconds, the best of some runs. `steps`: by events on the device; `host`: host to host, with the ids in a
    buffer; `stay`: the ids stay on the device; `native`: the CPU engine on every core."""
    results: dict[str, Row] = {}
    for path in artifacts(options):
        sizes: Row = results.setdefault(path.name, {})
        with noted(sizes):
            program, meta = program_of(options, path)
            material = "".join(text for _, given in documents_by_corpus(options, meta) for text in given) or FILLER
            native = EncoderBase(program)
            with (
                closing(open_engine(options, program)) as engine,
                closing(open_engine(options, program, lane_bytes=max(options.sizes))) as wide,
            ):
                for size in options.sizes:
                    for kind, given in (("text", [one_text(material, size)]), ("batch", batch(material, size))):
                        row = sizes.setdefault(str(size), {})[kind] = {"bytes": weight(given)}
                        measure(options, (engine, wide), native, given, row)
                        yield "tokenizers", results
                sizes["faults"] = engine.counters()["faults"] + wide.counters()["faults"]
        yield "tokenizers", results
    yield "problems", problems_of(results.values()) + sum(bool(sizes.get("faults")) for sizes in results.values())


def measure(
    options: argparse.Namespace, engines: tuple[GpuEngine, GpuEngine], native: EncoderBase, given: list[str], row: Row
) -> None:
    engine, wide = engines
    steps = [wide.time(given) for _ in range(options.repeat)]
    row["steps"] = {step: round(min(run[step] for run in steps), 4) for step in steps[0]}
    kernels = sum(ms for step, ms in row["steps"].items() if step not in ("h2d", "d2h"))
    row["kernels_GBps"] = round(row["bytes"] / max(kernels, 1e-6) / 1e6, 3)
    row["host_ms"] = best(partial(engine.encode_batch, given, False, False), options.repeat)
    row["host_GBps"] = round(row["bytes"] / max(row["host_ms"], 1e-6) / 1e6, 3)
    row["stay_ms"] = best(partial(engine.encode_on_device, given), options.repeat)
    row["native_ms"] = best(partial(native.encode_batch, given), options.repeat)


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
    """Some texts of the self-test under each tool of compute-sanitizer, in a process of its own."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None or options.driver is not None:
        raise Skipped("compute-sanitizer is not here" if tool is None else "it wants a driver, and not a stand-in")
    results: dict[str, Row] = {}
    for name, more in SANITIZERS.items():
        own = ["--section", "sanitized", "--work", str(options.work), "--artifact", str(first_artifact(options))]
        command = [tool, "--tool", name, *more, "--error-exitcode", "99", sys.executable, __file__, *own]
        log = options.work / f"{name}.log"
        with open(log, "wb") as stream:
            run = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, check=False)
        last = log.read_bytes()[-6000:].decode(errors="replace")
        answer = taken(options.work / "sanitized.json")
        good = run.returncode == 0 and answer["ok"]
        problem = None if good else answer.get("problem") or answer.get("first") or f"it ended with {run.returncode}"
        results[name] = {"code": run.returncode, "problem": problem, "answer": answer, "last": last}
        yield "tools", results
    yield "problems", problems_of(results.values())


def sanitized(options: argparse.Namespace) -> Facts:
    program, meta = program_of(options, first_artifact(options))
    short = [text for text in texts(meta) if len(text.encode()) <= SANITIZED_BYTES]
    given = short[:: len(short) // SANITIZED_TEXTS + 1]
    with closing(open_engine(options, program, lane_bytes=1 << 20, patience=UNBOUNDED)) as engine:
        row: Row = {"documents": len(given), "bytes": weight(given)}
        compare(engine, EncoderBase(program), given, row)
    yield from row.items()
    yield "problems", int("problem" in row or not row["device_texts"])


def certified(options: argparse.Namespace) -> Facts:
    """Evidence of each tokenizer, made as an operator makes it, in a directory that outlives this run."""
    if options.certify is None:
        raise Skipped("no --certify DIR")
    results: dict[str, Row] = {}
    for path in artifacts(options):
        row = results.setdefault(path.name, {"problem": None})
        with noted(row):
            home, out = options.certify / "home", options.certify / path.stem
            line = ["certify", str(path), "--backend", "gpu", "--level", "quick", "--out", str(out), "--json"]
            command = [sys.executable, "-m", "toktier_cli.main", "--home", str(home), *line]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            row |= {"code": run.returncode, "last": run.stderr[-600:]}
            row["problem"] = f"it ended with {run.returncode}" if run.returncode else None
        yield "tokenizers", results
    yield "problems", problems_of(results.values())


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
    "certify": certified,
}


if __name__ == "__main__":
    raise SystemExit(main())
