"""Kernels compiled on this host: from the cache of cubins where they are, else by NVRTC, and then kept.

A cache that cannot be written costs compiling again, never an answer: `notices` says so. Not here: whether what was
made is listed (`digests`), and what is taken in its place (`delivery`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toktier.errors import EnvironmentFault
from toktier.gpu import cubin
from toktier.gpu.cubin_cache import CubinCache, Damaged, Stored, key_of
from toktier.gpu.kernel_sources import KernelSources
from toktier.gpu.nvrtc import checked, compile_kernels, options_for
from toktier.gpu.toolchain import Toolchain, described
from toktier.version import VERSION


@dataclass(frozen=True)
class Made:
    """`path`: the entry of the cache; None: it is kept nowhere, for `fault` where a cache was there. `from_cache`: it
    was compiled before."""

    data: bytes
    path: Path | None
    from_cache: bool
    notices: tuple[str, ...] = ()
    fault: EnvironmentFault | None = None


def inputs_of(toolchain: Toolchain, sources: KernelSources, architecture: str) -> dict[str, Any]:
    """All that decides the bytes. Paths, Python, the binding and the driver do not."""
    return {
        "abi": list(cubin.expected_abi()),
        "sources": sources.digests,
        "options": list(options_for(architecture)),
        "architecture": architecture,
        "nvrtc": {"version": toolchain.version, **toolchain.digests},
    }


def make(toolchain: Toolchain, sources: KernelSources, architecture: str, cache: CubinCache | None) -> Made:
    """Raises what compiling raises (`nvrtc`), and EnvironmentFault where NVRTC's own files cannot be read."""
    inputs = inputs_of(toolchain, sources, architecture)
    notices: list[str] = []
    if cache is None:
        return Made(_compile(toolchain, sources, architecture), None, False)
    key = key_of(inputs)
    found = _cached(cache, key, architecture, notices)
    if found is not None:
        return Made(found.data, found.path, True)
    lock = cache.lock(key)
    try:
        cache.prepare(key)
        lock.acquire()
    except EnvironmentFault as fault:
        return _unkept(_compile(toolchain, sources, architecture), fault, notices)
    try:
        found = _cached(cache, key, architecture, [])  # by the process that held the lock
        if found is not None:
            return Made(found.data, found.path, True, tuple(notices))
        return keep(cache, toolchain, inputs, _compile(toolchain, sources, architecture), notices)
    finally:
        lock.release()


def keep(
    cache: CubinCache, toolchain: Toolchain, inputs: dict[str, Any], data: bytes, notices: list[str] | None = None
) -> Made:
    """Stores a checked cubin."""
    notices = notices or []
    facts = cubin.read_cubin(data)
    record = {
        "toktier": VERSION,
        "nvrtc": {**described(toolchain), "compiler": facts.compiler, "build": facts.build},
        "kernels": list(facts.kernels),
    }
    try:
        return Made(data, cache.store(inputs, data, record), False, tuple(notices))
    except EnvironmentFault as fault:
        return _unkept(data, fault, notices)


def _compile(toolchain: Toolchain, sources: KernelSources, architecture: str) -> bytes:
    return checked(compile_kernels(toolchain, sources, architecture), architecture)


def _unkept(data: bytes, fault: EnvironmentFault, notices: list[str]) -> Made:
    return Made(data, None, False, (*notices, f"the compiled kernels are not kept: {fault.message}"), fault)


def _cached(cache: CubinCache, key: str, architecture: str, notices: list[str]) -> Stored | None:
    try:
        found = cache.load(key)
        if found is not None and (problem := cubin.problem_of(found.data, architecture)) is not None:
            raise Damaged(problem)
        return found
    except Damaged as damage:
        notices.append(f"the kept kernels for {architecture} are damaged and compiled again: {damage}")
        return None
