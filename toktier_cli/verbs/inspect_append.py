"""`toktier inspect WHAT --text TEXT`: the append rule for a text. Finding the file: `inspect.py`; the rule itself:
`toktier.inspection.append_rule`. Lists are bounded, whatever the text.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier.config import Settings
from toktier.errors import ProgramUnsupported, UsageError
from toktier.labels import escaped, quoted, shown_path
from toktier_cli.inputs import read_file, read_text
from toktier_cli.invocation import Result
from toktier_cli.table import columns

if TYPE_CHECKING:
    from toktier._native import Program
    from toktier.inspection.append_rule import AppendRule, Part
    from toktier.program.store import ProgramInfo
    from toktier.program.tokenizer_json import TokenizerSpec

MAX_BYTES = 1 << 24  # characters are looked at one by one
LISTED = {"parts": 1000, "positions": 100}  # in JSON
SHOWN = 20  # rows of a table for people
SHOWN_TEXT, SHOWN_TOKENS = 48, 12  # of a row


def inspect_append(name: str, path: Path, text: str, settings: Settings) -> Result:
    """`name`: what the line calls the tokenizer, whose file is `path`. `text`: "-" is stdin. Raises InvalidText,
    ProgramUnsupported for a file that the reference serves, UsageError."""
    from toktier._native import Program, text_of
    from toktier.inspection.append_rule import append_rule
    from toktier.program.store import load_or_compile
    from toktier.program.tokenizer_json import read_tokenizer

    given = text_of(read_text(text, None))
    if len(given.encode()) > MAX_BYTES:
        raise UsageError(
            f"the text has more than {MAX_BYTES:,} bytes",
            details={"limit": MAX_BYTES},
            remedy="give the end of it: an append looks at nothing before the last cut",
        )
    try:
        image, info = load_or_compile(path, settings.programs_dir)
        spec = read_tokenizer(read_file(str(path)), name)
    except ProgramUnsupported as error:
        error.message = f"{shown_path(name)} knows no cuts, a session encodes its whole text again: {error.message}"
        error.remedy = f"toktier inspect {shlex.quote(name)}"
        raise
    program = bytes(image)
    rule = append_rule(spec, program, given, **LISTED)
    return Result(
        "inspect_append",
        lambda: _document(name, info, spec, rule, Program(program)),
        lambda: "".join(_lines(name, info, spec, given, rule, Program(program))),
    )


def _refused(spec: TokenizerSpec) -> str | None:
    if spec.truncation is None and spec.padding is None:
        return None
    return "the tokenizer.json stores truncation or padding, which a text that grows cannot have"


def _document(name: str, info: ProgramInfo, spec: TokenizerSpec, rule: AppendRule, program: Program) -> dict[str, Any]:
    return {
        "name": name,
        "sha256": info.artifact_sha256,
        "fingerprint": info.fingerprint,
        "sessions_refused": _refused(spec),
        "text": {"characters": rule.characters, "utf8_bytes": rule.utf8_bytes, "tokens": rule.tokens},
        "cuts": {"count": sum(rule.cuts.values()), "kinds": rule.cuts},
        "parts": {
            "count": sum(rule.cuts.values()) + 1,
            "last": [
                {
                    "at": part.at,
                    "cut": part.kind,
                    "characters": part.characters,
                    "text": part.text,
                    "pieces": None if part.pieces is None else list(part.pieces),
                    "tokens": part.tokens,
                    "ids": list(part.ids),
                    "token_strings": [program.id_to_token(identity) for identity in part.ids],
                }
                for part in rule.parts
            ],
        },
        "append": {
            "encodes_from": rule.open_from,
            "characters": rule.characters - rule.open_from,
            "tokens_kept": rule.kept_tokens,
            "tokens_encoded_again": rule.tokens - rule.kept_tokens,
            "no_cut": [{"at": row.at, "rule": row.rule, "reason": row.reason} for row in rule.positions],
            "no_cut_earlier": rule.earlier,
        },
    }


def _lines(
    name: str, info: ProgramInfo, spec: TokenizerSpec, text: str, rule: AppendRule, program: Program
) -> Iterator[str]:
    from toktier.inspection.append_rule import KINDS

    counts = ", ".join(f"{count:,} {kind}" for kind, count in rule.cuts.items() if count)
    again, rest = rule.tokens - rule.kept_tokens, rule.characters - rule.open_from
    yield f"tokenizer    {escaped(name)}, fingerprint {info.fingerprint}\n"
    whole = f"{_count(rule.characters, 'character')}, {_count(rule.utf8_bytes, 'byte')} of UTF-8"
    yield f"text         {whole}, {_count(rule.tokens, 'token')}\n"
    yield f"cuts         {sum(rule.cuts.values()):,}{': ' if counts else ''}{counts}\n"
    yield f"append       keeps {_count(rule.kept_tokens, 'token')} and encodes from {rule.open_from:,} on: "
    yield f"{_count(rest, 'character')}, {_count(again, 'token')}, and what is new\n"
    refused = _refused(spec)
    if refused is not None:
        yield f"sessions     refused: {refused}\n"
    parts = rule.parts[-SHOWN:]
    left_out = sum(rule.cuts.values()) + 1 - len(parts)
    yield f"\nParts that may be encoded apart{_last(left_out, len(parts))}; | between pieces\n"
    rows = [(f"{part.at:,}", part.kind, _pieces(part), _tokens(part, program)) for part in parts]
    yield columns(("AT", "CUT", "TEXT", "TOKENS"), rows, right=(0,))
    positions = rule.positions[-SHOWN:]
    if positions:
        left_out = rule.earlier + len(rule.positions) - len(positions)
        yield f"\nBehind the last cut there is none{_last(left_out, len(positions))}\n"
        reasons = [(f"{row.at:,}", _around(text, row.at), row.rule, escaped(row.reason)) for row in positions]
        yield columns(("AT", "BETWEEN", "RULE", "WHY"), reasons, right=(0,))
    yield "\nKinds of cuts\n"
    yield columns(("KIND", "WHAT HOLDS"), list(KINDS.items()))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _last(left_out: int, listed: int) -> str:
    return f", the last {listed} of {left_out + listed:,}" if left_out else ""


def _pieces(part: Part) -> str:
    """The text of a part with its pieces apart, each as a literal."""
    shown = part.text[:SHOWN_TEXT]
    inside = [at - part.at for at in part.pieces or () if 0 < at - part.at < len(shown)]
    literals = [repr(shown[a:b]) for a, b in zip([0, *inside], [*inside, len(shown)], strict=True)]
    more = f"... ({part.characters:,} characters)" if part.characters > len(shown) else ""
    return escaped(" | ".join(literals)) + more


def _tokens(part: Part, program: Program) -> str:
    some = [f"{quoted(program.id_to_token(i) or '', 24)} {i}" for i in part.ids[:SHOWN_TOKENS]]
    more = f", ... ({part.tokens:,})" if part.tokens > len(some) else ""
    return escaped(", ".join(some)) + more


def _around(text: str, at: int) -> str:
    return escaped(f"{text[at - 1]!r} | {repr(text[at]) if at < len(text) else 'end'}")
