"""The post-processor of a tokenizer.json: ids around the text when special tokens are asked for, and trimmed offsets.

Not here: truncation and padding (`length_limits.py`), which come before and after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toktier.errors import ProgramUnsupported
from toktier.labels import quoted
from toktier.program.json_fields import MAX_U32, Fields, components, malformed, unsupported_type

MAX_TEMPLATE_IDS = 4096


@dataclass(frozen=True)
class PostProcessor:
    """`before`, `after`: (id, token) around a single text. `trim_offsets`, and how it treats a first space that
    `add_prefix_space` may have added."""

    before: tuple[tuple[int, str], ...] = ()
    after: tuple[tuple[int, str], ...] = ()
    trim_offsets: bool = False
    add_prefix_space: bool = False
    path: str = field(default="post_processor", compare=False)  # of the template

    @property
    def special_count(self) -> int:
        """How many ids are added to a single text."""
        return len(self.before) + len(self.after)

    def to_json(self) -> dict[str, Any]:
        """For `inspect` and the fingerprint."""
        return {
            "before": [list(pair) for pair in self.before],
            "after": [list(pair) for pair in self.after],
            "trim_offsets": self.trim_offsets,
            "add_prefix_space": self.add_prefix_space and self.trim_offsets,
        }


def read_post_processor(value: Any, path: str = "post_processor") -> PostProcessor:
    """Raises NotATokenizer for what the reference cannot load, ProgramUnsupported for what is not understood."""
    reader = _Reader()
    for fields, kind in components(value, path, "processors", check=_check_fields):
        reader.read(fields, kind)
    before, after, place = reader.template or ((), (), path)
    trim, prefix = reader.trim or (False, False)
    return PostProcessor(before, after, trim, prefix, place)


_Pairs = tuple[tuple[int, str], ...]


# What each kind cannot do without. The reference goes by these fields, and not by the type.
_NEEDED = {
    "ByteLevel": ("add_prefix_space", "trim_offsets"),
    "TemplateProcessing": ("single", "pair", "special_tokens"),
    "Sequence": ("processors",),
    "BertProcessing": ("sep", "cls"),
}


def _check_fields(fields: Fields, kind: str) -> None:
    """Declines a component that is, by its fields, of another kind than it says."""
    complete = [name for name, needed in _NEEDED.items() if all(map(fields.has, needed))]
    if kind in _NEEDED and complete and kind not in complete:
        raise ProgramUnsupported(fields.place("type"), f"{kind}, with the fields of {complete[0]}")


class _Reader:
    def __init__(self) -> None:
        self.template: tuple[_Pairs, _Pairs, str] | None = None
        self.trim: tuple[bool, bool] | None = None

    def read(self, fields: Fields, kind: str) -> None:
        path = fields.path
        if kind == "ByteLevel":
            prefix, trim = fields.boolean("add_prefix_space"), fields.boolean("trim_offsets")
            fields.boolean("use_regex", True)
            if trim:
                if self.trim or self.template:
                    raise ProgramUnsupported(path, "trimmed offsets after another step")
                self.trim = (trim, prefix)
        elif kind == "TemplateProcessing":
            # After one template the reference holds several encodings, and takes the next one for a pair.
            if self.template:
                raise ProgramUnsupported(path, "a second template")
            before, after = _template(fields)
            self.template = (before, after, path)
        else:
            raise unsupported_type(fields, kind)


def _template(fields: Fields) -> tuple[_Pairs, _Pairs]:
    tokens = _special_tokens(fields)
    parts = _pieces(fields, "single", tokens)
    _pieces(fields, "pair", tokens)
    sequences = [index for index, part in enumerate(parts) if isinstance(part, str)]
    if len(sequences) != 1 or parts[sequences[0]] != "A":
        raise ProgramUnsupported(fields.place("single"), "a template without exactly one $A")
    # Counted before it is laid out: a token of j ids named k times is j times k ids.
    if sum(len(part) for part in parts if not isinstance(part, str)) > MAX_TEMPLATE_IDS:
        raise ProgramUnsupported(fields.place("single"), f"a template of more than {MAX_TEMPLATE_IDS} ids")
    at = sequences[0]
    return _joined(parts[:at]), _joined(parts[at + 1 :])


def _joined(parts: list[_Pairs | str]) -> _Pairs:
    return tuple(pair for part in parts if not isinstance(part, str) for pair in part)


def _special_tokens(fields: Fields) -> dict[str, _Pairs]:
    value = fields.take("special_tokens")
    path = fields.place("special_tokens")
    names = Fields(value, path)
    tokens: dict[str, _Pairs] = {}
    for name in value:
        entry = Fields(names.take(name), f"{path}[{quoted(name)}]")
        entry.string("id")  # the key is what counts
        ids, texts = entry.array("ids"), entry.array("tokens")
        entry.done()
        for item in ids:
            if type(item) is not int or not 0 <= item <= MAX_U32:
                raise malformed(entry.place("ids"), "an array of ids", item)
        for item in texts:
            if not isinstance(item, str):
                raise malformed(entry.place("tokens"), "an array of strings", item)
        if len(ids) != len(texts):
            raise ProgramUnsupported(entry.path, "ids and tokens of unequal number")
        tokens[name] = tuple(zip(ids, texts, strict=True))
    return tokens


def _pieces(fields: Fields, name: str, tokens: dict[str, _Pairs]) -> list[_Pairs | str]:
    """The pieces of a template: ids with their tokens, or "A" or "B"."""
    pieces: list[_Pairs | str] = []
    for index, item in enumerate(fields.array(name)):
        piece = Fields(item, f"{fields.place(name)}[{index}]")
        if piece.has("Sequence"):
            inner = Fields(piece.take("Sequence"), piece.place("Sequence"))
            pieces.append(inner.choice("id", ("A", "B")))
        elif piece.has("SpecialToken"):
            inner = Fields(piece.take("SpecialToken"), piece.place("SpecialToken"))
            identity = inner.string("id")
            if identity not in tokens and name == "single":  # the reference loads it, and fails at its first use
                raise ProgramUnsupported(inner.place("id"), f"{quoted(identity)}, which special_tokens does not hold")
            pieces.append(tokens.get(identity, ()))
        else:
            raise malformed(piece.path, 'an object with one key, "Sequence" or "SpecialToken",', item)
        inner.integer("type_id")
        inner.done()
        piece.done()
    return pieces
