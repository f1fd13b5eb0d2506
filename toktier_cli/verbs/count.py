"""`toktier count`: how many tokens files hold, on all cores.

Files of any size in bounded memory. A file that cannot be counted is reported, and the rest goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.errors import EnvironmentFault, ToktierError, UsageError
from toktier.labels import escaped, shown_path
from toktier_cli import options
from toktier_cli.inputs import file_blocks, named, stdin_blocks
from toktier_cli.invocation import Invocation, Result, exit_code_of
from toktier_cli.named_files import named_files
from toktier_cli.progress import Progress
from toktier_cli.table import columns, size

if TYPE_CHECKING:
    from toktier import Tokenizer


@dataclass(slots=True)
class _Row:
    """One input. `path` is - for stdin."""

    path: str
    error: ToktierError | None = None
    size: int = 0
    tokens: int | None = None


class _Stopped(Exception):
    """Another thread has met what ends the run."""


@options.encodes
def count(
    ctx: typer.Context,
    load: options.Load,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILES...|-]",
            help="Files, patterns in quotes ('docs/**/*.md'), directories with --recursive, or - for stdin.",
            show_default=False,
        ),
    ] = None,
    per_file: Annotated[
        bool, typer.Option("--per-file", help="A table: one line for each file, and the total.")
    ] = False,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Count the files below directories too; hidden ones are left out.")
    ] = False,
    suffix: Annotated[
        list[str] | None,
        typer.Option(
            "--suffix", metavar="SUFFIX", help="Below directories: only names that end so, such as .md; repeatable."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", help="Files counted at once; without it, one for each core."),
    ] = None,
    special: Annotated[bool, typer.Option("--special", help="Count the special tokens of the template.")] = False,
) -> Result:
    """Tokens of FILES, or of stdin. Each file is one text, of any size.

    A file that cannot be read or is not UTF-8 is reported, the rest is counted, and the exit code is 6. Where nothing
    could be counted there is no count, and the exit code is that of the first error.
    """
    invocation: Invocation = ctx.obj
    if suffix and not recursive:
        raise UsageError("--suffix goes with --recursive", remedy="toktier count --help")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs is {jobs}: expected 1 or more", remedy="toktier count --help")
    words = files or ["-"]
    if words.count("-") > 1:
        raise UsageError("- was given more than once, and there is one stdin", remedy="toktier count --help")
    tok = load()
    rows = [_Row(path, error) for path, error in named_files(words, recursive=recursive, suffixes=suffix or ())]
    start = time.perf_counter()
    _count_all(invocation, tok, rows, special, jobs)
    seconds = time.perf_counter() - start
    errors = [row.error for row in rows if row.error is not None]
    if errors and len(rows) == 1:
        raise errors[0]
    for error in errors:
        invocation.report(error)
    if not rows:
        invocation.note("note: no file there to be counted")
    return Result(
        "count",
        lambda: _document(tok, rows, per_file, seconds),
        lambda: _text(rows, per_file),
        exit_code_of(errors, done=len(rows) - len(errors)),
    )


def _count_all(invocation: Invocation, tok: Tokenizer, rows: list[_Row], special: bool, jobs: int | None) -> None:
    """Every row, by as many threads as there are cores: reading and encoding both leave the interpreter free."""
    todo = [row for row in rows if row.error is None]
    progress = Progress(invocation, len(todo), "files", lambda: f", {size(sum(row.size for row in todo))}")
    pending = iter(todo)
    guard = threading.Lock()

    def blocks_of(row: _Row) -> Iterator[bytes]:
        for block in stdin_blocks() if row.path == "-" else file_blocks(row.path):
            if faults:
                raise _Stopped
            row.size += len(block)
            yield block
            progress.advance(0)

    def hold(row: _Row, reason: str) -> None:
        invocation.note(f"note: {shown_path(row.path)}: the whole text is held in memory: {reason}")

    def work() -> None:
        while True:
            with guard:
                row = next(pending, None)
            if row is None or faults:
                return
            try:
                parts = tok.encode_stream(blocks_of(row), special, on_hold=partial(hold, row))
                row.tokens = sum(map(len, parts))
            except ToktierError as error:
                row.error = named(error, row.path)
            except OSError as error:
                row.error = EnvironmentFault(
                    f"{shown_path(row.path)} cannot be read: {error.strerror}",
                    details={"path": row.path},
                    remedy="check the path and its permissions",
                )
            except BaseException as error:  # shown by the one who waits; an interrupt comes to the first thread alone
                faults.append(error)
                return
            progress.advance()

    faults: list[BaseException] = []
    workers = min(len(todo), jobs or os.cpu_count() or 1)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    progress.close()
    if faults:
        raise faults[0]


def _text(rows: list[_Row], per_file: bool) -> str:
    counted = [row for row in rows if row.error is None]
    if rows and not counted:
        return ""  # a 0 would be taken for a count
    tokens, read = _totals(counted)
    if not per_file:
        return f"{tokens}\n"
    table = [_cells(row.tokens or 0, row.size, escaped(row.path)) for row in counted]
    return columns(("TOKENS", "BYTES", "TOKENS/BYTE", "FILE"), [*table, _cells(tokens, read, "total")], right=(0, 1, 2))


def _cells(tokens: int, read: int, name: str) -> tuple[str, str, str, str]:
    return str(tokens), str(read), f"{tokens / read:.3f}" if read else "-", name


def _totals(counted: list[_Row]) -> tuple[int, int]:
    return sum(row.tokens or 0 for row in counted), sum(row.size for row in counted)


def _document(tok: Tokenizer, rows: list[_Row], per_file: bool, seconds: float) -> dict[str, Any]:
    counted = [row for row in rows if row.error is None]
    tokens, read = _totals(counted)
    document: dict[str, Any] = {
        "tokens": tokens,
        "bytes": read,
        "tokens_per_byte": round(tokens / read, 6) if read else None,
        "files_counted": len(counted),
        "files_failed": len(rows) - len(counted),
        "duration_ms": round(seconds * 1000),
        "artifact_sha256": tok.artifact_sha256,
        "errors": [row.error.to_dict() for row in rows if row.error is not None],
    }
    if per_file:
        document["files"] = [{"path": row.path, "bytes": row.size, "tokens": row.tokens} for row in counted]
    return document
