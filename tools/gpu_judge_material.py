"""What the sections of tools/gpu_judge.py work on: tokenizers, engines, texts of every size, a row that fails alone."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier._native import GpuEngine, Program, unsuitable
from toktier.errors import ToktierError
from toktier.program.store import load_or_compile

if TYPE_CHECKING:
    import argparse

CUBIN = "judged.cubin"  # in the working directory: the kernels that are judged
DOCUMENT = 4096  # bytes of each document of a batch
SANITIZERS: dict[str, tuple[str, ...]] = {
    "memcheck": (),
    "racecheck": (),
    "synccheck": (),
    # Of kernels alone: a copy back takes some words behind the last id, which nobody wrote and nobody looks at.
    "initcheck": ("--check-api-memory-access", "no"),
}
"""Tools of compute-sanitizer, with options of their own."""
Row = dict[str, Any]


class Skipped(Exception):
    """A section that has nothing to do here, and why."""


def said(error: Exception) -> str:
    return error.message if isinstance(error, ToktierError) else f"{type(error).__name__}: {error}"


def artifacts(options: argparse.Namespace) -> list[Path]:
    if not options.artifact:
        raise Skipped("no --artifact FILE")
    return list(options.artifact)


def first_artifact(options: argparse.Namespace) -> Path:
    return artifacts(options)[0]


def program_of(options: argparse.Namespace, path: Path) -> tuple[Program, Row]:
    """Compiled by the first section that wants it. Raises for what no device can run."""
    program, info = load_or_compile(path, options.work / "programs", opener=Program, name=path.name)
    found = unsuitable(program)
    if found is not None:
        raise ValueError(f"no device can run it: {found[1]}")
    return program, info.meta


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


@contextlib.contextmanager
def noted(row: Row) -> Iterator[None]:
    """What fails inside is the problem of this row, and the next one has its turn."""
    try:
        yield
    except Exception as error:
        row["problem"] = said(error)


@contextlib.contextmanager
def closing(engine: GpuEngine) -> Iterator[GpuEngine]:
    try:
        yield engine
    finally:
        engine.close()


def taken(answer: Path) -> Row:
    """What a process left, taken away; where it left nothing, that."""
    try:
        found: Row = json.loads(answer.read_bytes())
        answer.unlink()
    except (OSError, ValueError):
        return {"ok": False, "problem": "it gave no answer"}
    return found


def problems_of(rows: Iterable[Row]) -> int:
    return sum(row.get("problem") is not None for row in rows)


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
