"""`toktier count`: how many tokens files hold, on all cores.

A file that cannot be counted is reported, and the rest goes on.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.errors import ToktierError
from toktier.labels import escaped, shown_path
from toktier_cli import options
from toktier_cli.inputs import read_file, read_stdin
from toktier_cli.invocation import Invocation, Result, exit_code_of
from toktier_cli.progress import Progress

if TYPE_CHECKING:
    from toktier import Tokenizer


@dataclass(slots=True)
class _Row:
    """One input. `path` is - for stdin."""

    path: str
    size: int = 0
    tokens: int | None = None
    error: ToktierError | None = None


@options.encodes
def count(
    ctx: typer.Context,
    load: options.Load,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILES...|-]", help="Files, or - for stdin.", show_default=False)
    ] = None,
    per_file: Annotated[bool, typer.Option("--per-file", help="One line for each file.")] = False,
    special: Annotated[bool, typer.Option("--special", help="Count the special tokens of the template.")] = False,
) -> Result:
    """Tokens of FILES, or of stdin. Each file is one text."""
    invocation: Invocation = ctx.obj
    tok = load()
    rows = [_Row(path) for path in files or ["-"]]
    start = time.perf_counter()
    _count_all(tok, rows, special, Progress(invocation, len(rows), "files"))
    seconds = time.perf_counter() - start
    errors = [row.error for row in rows if row.error is not None]
    if errors and len(rows) == 1:
        raise errors[0]
    for error in errors:
        invocation.report(error)
    return Result(
        "count",
        lambda: _document(tok, rows, per_file, seconds),
        lambda: _text(rows, per_file),
        exit_code_of(errors, done=len(rows) - len(errors)),
    )


def _count_all(tok: Tokenizer, rows: list[_Row], special: bool, progress: Progress) -> None:
    """Every row, by as many threads as there are cores: reading and encoding both leave the interpreter free."""
    pending = iter(rows)
    guard = threading.Lock()

    def work() -> None:
        while True:
            with guard:
                row = next(pending, None)
            if row is None:
                return
            try:
                data = read_stdin() if row.path == "-" else read_file(row.path)
                row.size = len(data)
                row.tokens = tok.count(data, add_special_tokens=special)
            except ToktierError as error:
                name = shown_path(row.path)
                error.message = error.message if name in error.message else f"{name}: {error.message}"
                error.details["path"] = row.path
                row.error = error
            except BaseException as error:  # shown by the one who waits
                faults.append(error)
                return
            progress.advance()

    faults: list[BaseException] = []
    workers = min(len(rows), os.cpu_count() or 1)
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
    total = sum(row.tokens or 0 for row in rows)
    if not per_file:
        return f"{total}\n"
    width = len(str(total))
    lines = [f"{row.tokens:>{width}} {escaped(row.path)}" for row in rows if row.tokens is not None]
    return "\n".join([*lines, f"{total:>{width}} total"]) + "\n"


def _document(tok: Tokenizer, rows: list[_Row], per_file: bool, seconds: float) -> dict[str, Any]:
    counted = [row for row in rows if row.error is None]
    document: dict[str, Any] = {
        "tokens": sum(row.tokens or 0 for row in counted),
        "bytes": sum(row.size for row in counted),
        "files_counted": len(counted),
        "files_failed": len(rows) - len(counted),
        "duration_ms": round(seconds * 1000),
        "artifact_sha256": tok.artifact_sha256,
        "errors": [row.error.to_dict() for row in rows if row.error is not None],
    }
    if per_file:
        document["files"] = [{"path": row.path, "bytes": row.size, "tokens": row.tokens} for row in counted]
    return document
