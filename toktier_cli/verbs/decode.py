"""`toktier decode`: text of token IDs, written exactly, with a line end added only on a terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from toktier.errors import InvalidToken, UsageError
from toktier.labels import quoted, shown
from toktier_cli import options
from toktier_cli.inputs import read_file, read_stdin
from toktier_cli.invocation import Invocation, Result
from toktier_cli.verbs.encode import check_format


@options.encodes
def decode(
    ctx: typer.Context,
    load: options.Load,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[IDS...|-]", help="IDs, or - for stdin.", show_default=False)
    ] = None,
    input_: Annotated[str | None, typer.Option("--input", metavar="PATH", help="Read the IDs from a file.")] = None,
    special: Annotated[bool, typer.Option("--special", help="Keep special tokens in the text.")] = False,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="ids, or u32: raw little-endian numbers.")
    ] = "ids",
) -> Result:
    """Text of IDS, of --input FILE, or of stdin. IDs are separated by blanks, line ends or commas."""
    invocation: Invocation = ctx.obj
    numbers = _numbers(ids or [], input_, format_)
    tok = load()
    text = tok.decode(numbers, skip_special_tokens=not special)
    return Result(
        "decode",
        lambda: {"text": text, "count": len(numbers), "artifact_sha256": tok.artifact_sha256},
        lambda: text + "\n" if invocation.interactive else text,
    )


def _numbers(ids: list[str], input_: str | None, format_: str) -> list[int]:
    check_format(format_, "decode")
    if ids and input_ is not None:
        raise UsageError("expected one of IDS and --input, not both", remedy="toktier decode --help")
    if ids and ids != ["-"]:
        if format_ == "u32":
            raise UsageError("--format u32 reads stdin or --input, not arguments", remedy="toktier decode --help")
        return _parse(" ".join(ids))
    if input_ is None and not ids and sys.stdin.isatty():
        raise UsageError("no IDs: give IDS, --input FILE, or - for stdin", remedy="toktier decode --help")
    data = read_file(input_) if input_ is not None else read_stdin()
    if format_ == "u32":
        if len(data) % 4:
            raise InvalidToken(
                f"{len(data):,} bytes are no whole number of 32-bit IDs",
                details={"size": len(data)},
                remedy="check that the input was written with --format u32",
            )
        return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
    return _parse(data.decode("ascii", "replace"))


def _parse(text: str) -> list[int]:
    """Also takes the list that JSON prints: brackets around it are dropped."""
    stripped = text.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        stripped = stripped[1:-1]
    numbers = []
    for at, word in enumerate(stripped.replace(",", " ").split()):
        if not (word.isascii() and word.isdigit()) or len(word) > 10 or int(word) >= 2**32:
            raise InvalidToken(
                f"item {at} is {quoted(word)}, expected a token ID from 0 to {2**32 - 1}",
                details={"item": at, "value": shown(word)},
                remedy="give IDs as decimal numbers",
            )
        numbers.append(int(word))
    return numbers
