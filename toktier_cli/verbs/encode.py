"""`toktier encode`: token IDs of a text, a file or stdin, exactly the bytes that are given."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.errors import UnsupportedConfig, UsageError
from toktier.labels import quoted, typed
from toktier.routing.vocabulary import THIRD_PARTY
from toktier_cli import options
from toktier_cli.inputs import read_text, text_blocks, text_of_file
from toktier_cli.invocation import Invocation, Result
from toktier_cli.progress import Progress
from toktier_cli.table import size

if TYPE_CHECKING:
    from toktier import Encoding, Tokenizer

FORMATS = ("ids", "u32")
_LONGEST_NAME = 4096  # of a path, on Linux


@options.encodes
def encode(
    ctx: typer.Context,
    load: options.Load,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT|-]", help="The text, or - for stdin.", show_default=False)
    ] = None,
    input_: Annotated[str | None, typer.Option("--input", metavar="PATH", help="Read the text from a file.")] = None,
    special: Annotated[bool, typer.Option("--special", help="Add the special tokens of the template.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Each token with its code point range.")] = False,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="ids, or u32: raw little-endian numbers.")
    ] = "ids",
    explain: Annotated[bool, typer.Option("--explain", help="Also say which engine served, and why.")] = False,
) -> Result:
    """Token IDs of TEXT, of --input FILE, or of stdin."""
    invocation: Invocation = ctx.obj
    check_format(format_, "encode")
    if format_ == "u32" and (invocation.json or offsets):
        raise UsageError("--format u32 goes with neither --json nor --offsets", remedy="toktier encode --help")
    one = _one(text)
    _note_name_of_file(invocation, one)
    if not (invocation.json or offsets):
        return _streamed(invocation, load, text_blocks(one, input_), input_, special, format_, explain)
    content = read_text(one, input_)
    tok = load()
    if offsets:
        _require_offsets(tok)
    with text_of_file(input_):
        encoding = tok.encode(content, add_special_tokens=special)
    if explain and not invocation.json:
        _explain(invocation, tok)
    return Result("encode", lambda: _document(tok, encoding, offsets, explain), lambda: _rows(encoding))


def _streamed(
    invocation: Invocation,
    load: options.Load,
    blocks: Iterator[bytes],
    input_: str | None,
    special: bool,
    format_: str,
    explain: bool,
) -> Result:
    """Ids alone, written as the text comes, in memory that does not grow with it."""
    if format_ == "u32" and invocation.interactive:
        raise UsageError("--format u32 writes bytes, and stdout is a terminal", remedy="redirect stdout to a file")
    tok = load()
    held = "the whole text is held in memory"
    read, count, waited = 0, 0, 0.0  # bytes, tokens, seconds until the input came
    progress = Progress(invocation, None, "", lambda: f"{size(read)}, {count} tokens")

    def noticed() -> Iterator[bytes]:
        nonlocal read, waited
        while True:
            start = time.perf_counter()
            block = next(blocks, None)
            waited += time.perf_counter() - start
            if block is None:
                return
            read += len(block)
            progress.advance()
            yield block

    parts = tok.encode_stream(noticed(), special, on_hold=lambda reason: invocation.note(f"note: {held}: {reason}"))
    write = _little_endian if format_ == "u32" else _spelled

    def text() -> Iterator[bytes | memoryview]:
        nonlocal count
        seconds, backend = 0.0, ""
        gap = b""
        while True:
            start = time.perf_counter()
            with text_of_file(input_):
                encoding = next(parts, None)
            seconds += time.perf_counter() - start
            if encoding is None:
                break
            count, backend = count + len(encoding), encoding.backend
            if len(encoding):
                if format_ != "u32":
                    yield gap
                    gap = b" "
                yield write(encoding)
        progress.close()
        if format_ != "u32":
            yield b"\n"
        if invocation.interactive:
            invocation.note(f"{count} {'token' if count == 1 else 'tokens'}, {backend}, {_duration(seconds - waited)}")
        if explain:
            _explain(invocation, tok)

    return Result("encode", dict, text)


def _require_offsets(tok: Tokenizer) -> None:
    backend = tok.explain(summary=True)["backend"]
    if backend in THIRD_PARTY:
        raise UnsupportedConfig(
            f"{backend} serves, which gives no offsets: expected another backend, or no --offsets",
            details={"backend": backend},
            remedy="leave --offsets out, or name --tokenizer hf",
        )


def _explain(invocation: Invocation, tok: Tokenizer) -> None:
    for key, value in tok.explain(summary=True).items():
        invocation.note(f"{key}: {_fact(value)}")


def check_format(format_: str, verb: str) -> None:
    """Raises UsageError for a format that there is not."""
    if format_ not in FORMATS:
        raise UsageError(
            f"--format {quoted(format_)} is not one of {', '.join(FORMATS)}", remedy=f"toktier {verb} --help"
        )


def _one(words: list[str] | None) -> str | None:
    """A text without its quotes comes as several arguments. What stood between them is not known: nothing is joined."""
    if words and len(words) > 1:
        raise UsageError(
            f"expected one text, got {len(words)} arguments",
            details={"arguments": len(words)},
            remedy='put the text in quotes, as in toktier encode --family FAMILY "hello world"',
        )
    return words[0] if words else None


def _note_name_of_file(invocation: Invocation, text: str | None) -> None:
    """Whoever means the file gets ids of its name, which look like ids of a text."""
    if text is not None and len(text) < _LONGEST_NAME and "\0" not in text and os.path.isfile(text):
        invocation.note(f"note: the text is the name of a file, which is not read: --input {typed(text)} reads it")


def _rows(encoding: Encoding) -> str:
    rows = zip(encoding.ids, encoding.offsets, encoding.tokens, strict=True)
    return "".join(f"{i}\t{start}\t{end}\t{_printable(token)}\n" for i, (start, end), token in rows)


def _spelled(encoding: Encoding) -> bytes:
    return " ".join(map(str, encoding)).encode("ascii")


def _little_endian(encoding: Encoding) -> bytes | memoryview:
    view = memoryview(encoding).cast("B")
    if sys.byteorder == "little":
        return view
    from array import array

    numbers = array("I", view.tobytes())
    numbers.byteswap()
    return numbers.tobytes()


def _printable(token: str) -> str:
    """One line, whatever the token holds."""
    return token if token.isprintable() else repr(token)


def _document(tok: Tokenizer, encoding: Encoding, offsets: bool, explain: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "ids": encoding.ids,
        "count": len(encoding),
        "backend": encoding.backend,
        "artifact_sha256": tok.artifact_sha256,
    }
    if offsets:
        document["offsets"] = [list(pair) for pair in encoding.offsets]
        document["tokens"] = encoding.tokens
    if explain:
        document["explain"] = tok.explain(summary=True)
    return document


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_fact(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_fact, value)) or "none"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1 or unit == "µs":
            return f"{seconds * scale:.3g} {unit}"
    return ""
