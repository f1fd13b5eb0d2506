"""The directory of a run: its plan, and every finished block, so that a run ended by anything goes on where it was.

blocks.jsonl only grows; each line carries the digest of itself and of all lines before it, from the header on, which
names the plan. A line that a kill or a power loss tore is the last one, has no line end, and is dropped; any other
fault is refused. COMPLETE lists the digest of every other file and is written last. Not here: what the results mean.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from toktier.canonical import TAG_CHECKPOINT, canonical_json, tagged_digest
from toktier.certify.edit_scripts import from_rows
from toktier.certify.plan import Plan, Shard, read_plan
from toktier.certify.run_files import read_at_most
from toktier.certify.tally import Counts
from toktier.errors import EnvironmentFault, EvidenceIncomplete, EvidenceInvalid, ToktierError
from toktier.labels import shown_path, typed
from toktier.storage import (
    FILE_MODE,
    FileLock,
    atomic_write,
    environment_fault,
    is_temporary,
    make_directory,
    sync_directory,
)

PLAN, BLOCKS, COMPLETE, LOCK = "plan.json", "blocks.jsonl", "COMPLETE", "run.lock"
FAILURES = "failures"
SCHEMA = "toktier.certify_checkpoint"
SYNC_SECONDS = 1.0
MAX_FILE_BYTES = 1 << 30
MAX_NUMBER = 1 << 40  # of anything in one block; sums of 8,192 such are still exact in canonical JSON
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BlockResult:
    """One finished block. `index` counts over the whole plan; `failures` are the first of it."""

    index: int
    counts: Counts
    digest: str
    failures: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "counts": self.counts.to_dict(),
            "digest": self.digest,
            "failures": self.failures,
        }


@dataclass
class Checkpoint:
    """What a run directory holds. `target` is what the command line named, for whoever resumes."""

    directory: Path
    plan: Plan
    shard: Shard
    build: dict[str, Any]
    target: dict[str, Any]
    results: dict[int, BlockResult]
    chain: str
    size: int  # of the sound part of blocks.jsonl, bytes

    @property
    def planned(self) -> range:
        return self.shard.range_of(self.plan.blocks)

    @property
    def missing(self) -> list[int]:
        return [index for index in self.planned if index not in self.results]


def require_unused(directory: Path) -> None:
    """Raises EnvironmentFault unless the directory is new, empty, or of a run that was killed before it began: a run
    replaces its files and `failures/` whole."""
    try:
        entries = {name for name in os.listdir(directory) if not is_temporary(name)}
    except FileNotFoundError:
        return
    except OSError as error:
        raise environment_fault(error, "read", directory) from None
    if not entries or (entries == {PLAN} and _is_plan(directory / PLAN)):  # blocks.jsonl is written after the plan
        return
    again = PLAN in entries or BLOCKS in entries
    raise EnvironmentFault(
        f"{shown_path(directory)} holds a run already" if again else f"{shown_path(directory)} is not empty",
        details={"path": str(directory)},
        remedy=f"toktier certify --resume {typed(directory)}, or give another directory"
        if again
        else "give a new directory with --out DIR",
    )


def _is_plan(path: Path) -> bool:
    """Not a file of somebody's that has that name."""
    try:
        read_plan(_json(_bytes(path), path), shown_path(path))
    except ToktierError:
        return False
    return True


def begin(directory: Path, plan: Plan, shard: Shard, build: Mapping[str, Any], target: Mapping[str, Any]) -> Checkpoint:
    """Makes the directory. Raises EnvironmentFault as `require_unused` does."""
    require_unused(directory)
    make_directory(directory)
    atomic_write(directory / PLAN, plan.to_json() + b"\n")
    header = {
        "schema": SCHEMA,
        "plan": plan.digest,
        "shard": [shard.number, shard.count],
        "build": dict(build),
        "target": dict(target),
    }
    line, chain = _line(header, "")
    atomic_write(directory / BLOCKS, line)
    return Checkpoint(directory, plan, shard, dict(build), dict(target), {}, chain, len(line))


def read(directory: Path) -> Checkpoint:
    """What a directory holds. Raises EvidenceInvalid for anything but what a run leaves behind."""
    plan = read_plan(_json(_bytes(directory / PLAN), directory / PLAN), shown_path(directory / PLAN))
    path = directory / BLOCKS
    data = _bytes(path)
    whole = data[: data.rfind(b"\n") + 1]
    chain, results = "", dict[int, BlockResult]()
    header: dict[str, Any] | None = None
    for number, line in enumerate(whole.splitlines(), 1):
        record = _json(line, path, number)
        expected = record.pop("chain", None) if isinstance(record, dict) else None
        try:
            if expected is None or _line(record, chain)[1] != expected:
                raise _edited(path, number)
            chain = str(expected)
            if header is None:
                header, shard = record, _shard_of(record)
                if record["schema"] != SCHEMA or record["plan"] != plan.digest:
                    raise EvidenceInvalid(
                        f"{shown_path(path)} is of another plan than {PLAN} beside it",
                        details={"plan": plan.digest, "found": str(record["plan"])},
                        remedy="bring the whole directory again from where it was made",
                    )
                continue
            result = _result_of(record)
        except (KeyError, TypeError, ValueError):
            raise _edited(path, number) from None
        if result.index in results or result.index not in shard.range_of(plan.blocks):
            raise _edited(path, number)
        results[result.index] = result
    if header is None:
        raise _edited(path, 1)
    return Checkpoint(directory, plan, shard, header["build"], header["target"], results, chain, len(whole))


def _shard_of(header: Mapping[str, Any]) -> Shard:
    """The shard of a header. Raises KeyError, TypeError or ValueError for what no run wrote; so does `_result_of`."""
    number, count = header["shard"]
    build, target = header["build"], header["target"]
    named = isinstance(target, dict) and isinstance(target["artifact"], str)
    named = named and all(isinstance(path, str) for path in target.get("corpora", ()))
    if not (_is_number(number) and _is_number(count) and 1 <= number <= count and isinstance(build, dict) and named):
        raise ValueError("no header")
    return Shard(number, count)


def _result_of(record: Mapping[str, Any]) -> BlockResult:
    counts, index, digest, failures = Counts(**record["counts"]), record["index"], record["digest"], record["failures"]
    sound = counts.to_dict() == record["counts"] and all(map(_is_number, record["counts"].values()))
    sound = sound and _is_number(index)
    sound = sound and counts.mismatches + counts.routed <= counts.checks and isinstance(failures, list)
    if not (sound and _DIGEST.fullmatch(digest) and all(map(_is_failure, failures))):
        raise ValueError("no block")
    return BlockResult(index, counts, digest, failures)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_NUMBER


def _is_failure(failure: Any) -> bool:
    """Whether it is one as a tally keeps it, of a text, of a script or of a value."""
    if "script" in failure:
        from_rows(failure["script"])
    words = ("text",) if "text" in failure else () if "script" in failure else ("subject", "got", "expected")
    modes = ("add_special_tokens", "plain") if "text" in failure else ()
    return (
        all(isinstance(failure[name], str) for name in ("suite", "what", *words))
        and all(isinstance(failure[name], bool) for name in modes)
        and _is_number(failure["block"])
        and _is_number(failure["times"])
    )


class Writer:
    """Appends results; a context manager that holds the directory. Synced at most once a second, and at the end."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._path = checkpoint.directory / BLOCKS
        self._lock = FileLock(checkpoint.directory / LOCK, timeout=0)
        self._file: IO[bytes] | None = None
        self._synced = time.monotonic()

    def __enter__(self) -> Writer:
        self._lock.acquire()
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.checkpoint.directory / COMPLETE)
            if self._path.stat().st_size < self.checkpoint.size:
                raise _edited(self._path, 1)
            self._file = open(self._path, "r+b", buffering=0)
            self._file.truncate(self.checkpoint.size)
            self._file.seek(self.checkpoint.size)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise environment_fault(error, "write", self._path) from None
            raise
        return self

    def append(self, result: BlockResult) -> None:
        """Raises EnvironmentFault; what was written before stays good."""
        assert self._file is not None
        line, chain = _line(result.to_dict(), self.checkpoint.chain)
        try:
            written = 0
            while written < len(line):  # a full disk may take a part
                written += self._file.write(line[written:])
            if time.monotonic() - self._synced >= SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self.checkpoint.size)
            raise environment_fault(error, "write", self._path) from None
        self.checkpoint.chain = chain
        self.checkpoint.size += len(line)
        self.checkpoint.results[result.index] = result

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        try:
            with contextlib.suppress(OSError):  # a disk that cannot sync was told by the write
                os.fsync(self._file.fileno())
            self._file.close()
        finally:
            self._lock.release()


def seal(directory: Path) -> None:
    """Writes COMPLETE: the digest and name of every other file, as sha256sum does."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in _files(directory)]
    atomic_write(directory / COMPLETE, "".join(lines).encode())
    sync_directory(directory)


def check_seal(directory: Path) -> None:
    """Raises EvidenceIncomplete without COMPLETE, EvidenceInvalid where a file is changed, missing or not listed."""
    try:
        text = (directory / COMPLETE).read_text("utf-8")
    except FileNotFoundError:
        raise EvidenceIncomplete(
            f"{shown_path(directory)} is of a run that did not end: it has no {COMPLETE}",
            details={"path": str(directory)},
            remedy=f"toktier certify --resume {typed(directory)}",
        ) from None
    except (OSError, UnicodeDecodeError):
        raise EvidenceInvalid(f"{shown_path(directory / COMPLETE)} cannot be read", remedy="run it again") from None
    rows = [line.split("  ", 1) for line in text.splitlines() if "  " in line]
    listed = {name: digest for digest, name in rows}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in _files(directory)}
    for name in sorted({*listed, *found}):
        if listed.get(name) != found.get(name):
            kind = "is missing" if name not in found else "is not listed" if name not in listed else "was changed"
            raise EvidenceInvalid(
                f"{shown_path(name)} in {shown_path(directory)} {kind}",
                details={"path": str(directory / name), "problem": kind},
                remedy="bring the whole directory again from where it was made, or run it again",
            )


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and name not in (COMPLETE, LOCK) and not is_temporary(path.name):
            yield name, path


def write_private(path: Path, data: bytes) -> None:
    atomic_write(path, data, FILE_MODE)


def _line(record: Mapping[str, Any], chain: str) -> tuple[bytes, str]:
    """The line of a record, and the digest over it and all before it."""
    after = tagged_digest(TAG_CHECKPOINT, chain.encode("ascii") + canonical_json(record))
    return canonical_json({**record, "chain": after}) + b"\n", after


def _bytes(path: Path) -> bytes:
    data = read_at_most(
        path,
        MAX_FILE_BYTES,
        expected="the directory of a certification",
        remedy="check the path; toktier certify show lists what is on this host",
    )
    if data is None:
        raise EvidenceInvalid(f"{shown_path(path)} is larger than {MAX_FILE_BYTES:,} bytes", remedy="run it again")
    return data


def _json(data: bytes, path: Path, line: int = 1) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _edited(path, line) from None


def _edited(path: Path, line: int) -> EvidenceInvalid:
    return EvidenceInvalid(
        f"line {line} of {shown_path(path)} is not what a run wrote: it was edited or damaged",
        details={"path": str(path), "line": line},
        remedy="bring it again from where it was made, or run it again",
    )
