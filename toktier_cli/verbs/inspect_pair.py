"""`toktier inspect A B`: where the ids of two tokenizers can differ, with texts that both encoded differently."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier.artifacts.inventory import survey
from toktier.artifacts.pins import TOKENIZER_FILE, Pins
from toktier.errors import ArtifactNotFound, ExitCode, ProgramUnsupported
from toktier.labels import escaped, shown_path
from toktier_cli import options
from toktier_cli.inputs import read_file
from toktier_cli.invocation import Result

if TYPE_CHECKING:
    from toktier.artifacts.cache import ArtifactCache
    from toktier.config import Settings
    from toktier.inspection.compare import Difference, Example, Side

SHOWN_TOKENS = 12
# Facts that are lists of names.
_LISTS = {
    "only_a": "only in A", "only_b": "only in B", "other_id": "other id", "other_flags": "other flags",
    "other_order": "other order", "other_settings": "other settings",
}  # fmt: skip


def inspect_pair(first: str, second: str, pins: Pins, settings: Settings, cache: ArtifactCache | None) -> Result:
    """Exit code 0: one tokenizer, whatever the spelling. 1: they differ in some part."""
    from toktier.inspection.compare import differences

    a, b = (_side(name, pins, settings, cache) for name in (first, second))
    found = differences(a, b)
    code = ExitCode.NO if found else ExitCode.DONE
    return Result(
        "inspect_pair",
        lambda: {
            "a": _named(first, a),
            "b": _named(second, b),
            "same": not found,
            "differences": [_document(difference) for difference in found],
        },
        lambda: "".join(_lines(first, second, a, b, found)),
        code,
    )


def _side(name: str, pins: Pins, settings: Settings, cache: ArtifactCache | None) -> Side:
    from toktier.inspection.compare import Side

    path = path_of_one(name, pins, settings, cache)
    try:
        return Side.of(read_file(str(path)), name)
    except ProgramUnsupported as error:
        error.message = f"{shown_path(name)} cannot be compared: {error.message}"
        error.remedy = f"toktier inspect {shlex.quote(name)}"
        raise


def path_of_one(name: str, pins: Pins, settings: Settings, cache: ArtifactCache | None) -> Path:
    """Of a family that is on this host, or a path. Raises ArtifactNotFound."""
    if name not in pins.families and (options.looks_like_path(name) or Path(name).exists()):
        return options.tokenizer_json(Path(name), settings)
    state = survey(pins.family(name), cache, deep=True, trust_hint=True)
    for entry in state.files:
        if entry.file.name == TOKENIZER_FILE and entry.status == "ok" and entry.path is not None:
            return entry.path
    raise ArtifactNotFound(
        f"the tokenizer.json of {name} is not on this host",
        details={"family": name},
        remedy=f"toktier artifacts fetch {name}",
    )


def _named(name: str, side: Side) -> dict[str, Any]:
    return {"name": name, "sha256": side.spec.sha256, "fingerprint": side.fingerprint}


def _document(difference: Difference) -> dict[str, Any]:
    example = difference.example
    return {
        "part": difference.part,
        "affects": difference.affects,
        "summary": difference.summary,
        "facts": difference.facts,
        "texts_tried": difference.tried,
        "example": None if example is None else {"text": example.text, "a": example.a, "b": example.b},
    }


def _lines(first: str, second: str, a: Side, b: Side, found: list[Difference]) -> Iterator[str]:
    yield f"A            {escaped(first)}, fingerprint {a.fingerprint}\n"
    yield f"B            {escaped(second)}, fingerprint {b.fingerprint}\n"
    if not found:
        bytes_too = ", byte for byte" if a.spec.sha256 == b.spec.sha256 else ", spelled differently"
        yield f"same         in every id, offset and decoded text{bytes_too}\n"
        return
    for difference in found:
        yield f"\n{difference.part + ':':<14}{difference.summary}; affects {difference.affects}\n"
        if difference.example is None:
            yield f"  {'example':<16}none among {difference.tried} texts made to show it\n"
        else:
            yield from _example(difference.example)
        for key, value in difference.facts.items():
            if key in _LISTS and value:
                yield f"  {_LISTS[key]:<16}{_listed(value)}\n"


def _example(example: Example) -> Iterator[str]:
    yield f"  {'example':<16}{escaped(repr(example.text))}\n"
    for label, seen in (("A", example.a), ("B", example.b)):
        more = f" ... ({len(seen)})" if len(seen) > SHOWN_TOKENS else ""
        yield f"  {label + ' gives':<16}{escaped(' '.join(map(_token, seen[:SHOWN_TOKENS])) or 'nothing')}{more}\n"


def _token(token: Any) -> str:
    return repr(token) if isinstance(token, str) else str(token)


def _listed(values: list[Any]) -> str:
    some = [" + ".join(map(repr, value)) if isinstance(value, list) else repr(value) for value in values[:5]]
    return escaped(", ".join(some)) + (", ..." if len(values) > len(some) else "")
