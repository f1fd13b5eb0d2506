"""Typed reading of one JSON object: every field is taken by name and type, and what nobody took is declined.

The difference between the two refusals: `NotATokenizer` where the reference itself cannot load the file (a field that
it needs is missing or of another type), `ProgramUnsupported` where it may, but this compiler does not know what it
means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from toktier.errors import NotATokenizer, ProgramUnsupported
from toktier.labels import MAX_QUOTED, shown
from toktier.program.strict_json import RepeatedKeys

MAX_U32 = 0xFFFFFFFF
MAX_U64 = 0xFFFFFFFFFFFFFFFF
MAX_NESTING = 32  # Sequences in Sequences

_MISSING = object()


def describe(value: Any) -> str:
    """A JSON value in at most 60 characters of ASCII, for messages."""
    if isinstance(value, (dict, list)):
        return f"an {'object' if isinstance(value, dict) else 'array'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def malformed(path: str, expected: str, value: Any = _MISSING) -> NotATokenizer:
    """What the reference refuses to load: `path` should be `expected` and is `value` (absent when not given)."""
    found = "is missing" if value is _MISSING else f"is {describe(value)}"
    return NotATokenizer(f"{path} {found}, where {expected} is needed", details={"path": path, "expected": expected})


def integer(value: Any, path: str, highest: int = MAX_U32) -> int:
    """`value` as an integer from 0 to `highest`. Raises NotATokenizer for anything else, truth values included."""
    if type(value) is not int or not 0 <= value <= highest:
        raise malformed(path, f"an integer from 0 to {highest}", value)
    return value


class Fields:
    """The fields of the object at `path`; `take` what is known, then `done`."""

    def __init__(self, value: Any, path: str) -> None:
        """Raises NotATokenizer when `value` is no object, ProgramUnsupported when a key stands in it twice, and for an
        array: the reference takes many objects as the array of their fields."""
        if isinstance(value, list) and value:
            raise ProgramUnsupported(path, f"{describe(value)}, where an object is usual")
        if not isinstance(value, dict):
            raise malformed(path, "an object", value)
        self.path = path
        if isinstance(value, RepeatedKeys):
            raise ProgramUnsupported(self.place(value.repeated), "a repeated key")
        self._left = dict(value)

    def place(self, name: str) -> str:
        """JSON path of the field `name`."""
        name = shown(name, MAX_QUOTED)
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, default: Any = _MISSING) -> Any:
        """Any value. Raises NotATokenizer when it is absent and has no default."""
        value = self._left.pop(name, default)
        if value is _MISSING:
            raise malformed(self.place(name), "a value")
        return value

    def string(self, name: str) -> str:
        value = self.take(name)
        if not isinstance(value, str):
            raise malformed(self.place(name), "a string", value)
        return value

    def boolean(self, name: str, default: Any = _MISSING) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise malformed(self.place(name), "true or false", value)
        return value

    def integer(self, name: str, highest: int = MAX_U32) -> int:
        """An integer from 0 to `highest`; a number with a fraction or exponent is none, as the reference reads them."""
        return integer(self.take(name), self.place(name), highest)

    def array(self, name: str) -> list[Any]:
        value = self.take(name)
        if not isinstance(value, list):
            raise malformed(self.place(name), "an array", value)
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: Any = _MISSING) -> str:
        value = self.take(name, default)
        if value not in choices or not isinstance(value, str):
            raise malformed(self.place(name), "one of " + ", ".join(choices), value)
        return value

    def component_type(self) -> str:
        """The field `type` of a pipeline component. One that is absent or no string is declined: the reference then
        guesses from the other fields."""
        if not self.has("type"):
            raise ProgramUnsupported(self.place("type"), "missing")
        kind = self.take("type")
        if not isinstance(kind, str):
            raise ProgramUnsupported(self.place("type"), describe(kind))
        return kind

    def done(self) -> None:
        """Raises ProgramUnsupported when a field was not taken."""
        for name, value in self._left.items():
            raise ProgramUnsupported(self.place(name), describe(value))


def components(
    value: Any, path: str, member: str, check: Callable[[Fields, str], None] = lambda fields, kind: None, depth: int = 0
) -> Iterator[tuple[Fields, str]]:
    """The components of a part of the pipeline with their types, in order, Sequences flattened; each one's fields are
    done when the next is asked for.

    `member`: the field of a Sequence that holds its components. `check` sees every component before anything of it is
    read, Sequences too. None has no components.
    """
    if value is None:
        return
    fields = Fields(value, path)
    kind = fields.component_type()
    check(fields, kind)
    if kind != "Sequence":
        yield fields, kind
    elif depth == MAX_NESTING:
        raise ProgramUnsupported(path, "Sequences nested too deeply")
    else:
        for index, item in enumerate(fields.array(member)):
            if item is None:
                raise malformed(f"{path}.{member}[{index}]", "an object", item)
            yield from components(item, f"{path}.{member}[{index}]", member, check, depth + 1)
    fields.done()


def unsupported_type(fields: Fields, kind: str) -> ProgramUnsupported:
    """A component of a type that the compiler does not know."""
    return ProgramUnsupported(fields.place("type"), describe(kind))


def pattern(fields: Fields, name: str = "pattern") -> tuple[str, str]:
    """A pattern as the reference spells it, {"String": text} or {"Regex": text}: (kind, text)."""
    value = fields.take(name)
    path = fields.place(name)
    if not isinstance(value, dict) or len(value) != 1 or isinstance(value, RepeatedKeys):
        raise malformed(path, 'an object with one key, "String" or "Regex",', value)
    ((kind, text),) = value.items()
    if kind not in ("String", "Regex"):
        raise malformed(path, '"String" or "Regex"', kind)
    if not isinstance(text, str):
        raise malformed(f"{path}.{kind}", "a string", text)
    return kind, text
