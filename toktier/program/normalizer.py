"""The normalizer of a tokenizer.json: its steps, typed; what they do to a short text; their sections of a program.

`normalize` is the slow form, for the contents of added tokens and for tests; texts are normalized by native/engine from
the sections that `normalizer_sections` lays out. The Unicode tables are the reference's own (`unicode.py`), which are
neither Python's nor current.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from toktier.errors import ProgramUnsupported
from toktier.program import unicode
from toktier.program.byte_trie import little_endian
from toktier.program.code_point_sets import contains, marks
from toktier.program.code_point_trie import build_trie
from toktier.program.json_fields import Fields, components, pattern, unsupported_type
from toktier.program.layout import NormalizerOp

MAX_GROWTH = 256  # times that replacements in a row may lengthen a text; real ones: 3
UNICODE_FORMS = {
    NormalizerOp.NFC: "NFC",
    NormalizerOp.NFKC: "NFKC",
    NormalizerOp.NFD: "NFD",
    NormalizerOp.NFKD: "NFKD",
}
_FORM_OPS = {name: op for op, name in UNICODE_FORMS.items()}

# Characters that stand for themselves in a regular expression, so that a pattern of them alone is a literal.
_REGEX_SPECIAL = frozenset(r"\^$.|?*+()[]{}")


@dataclass(frozen=True)
class NormalizerStep:
    """One step. Replace: every `text` becomes `replacement`. Prepend: `text`. Strip: the sides."""

    op: NormalizerOp
    path: str
    text: str = ""
    replacement: str = ""
    left: bool = False
    right: bool = False

    def to_json(self) -> dict[str, Any]:
        """For `inspect` and the fingerprint; without the path."""
        if self.op is NormalizerOp.REPLACE:
            return {"type": "Replace", "text": self.text, "replacement": self.replacement}
        if self.op is NormalizerOp.PREPEND:
            return {"type": "Prepend", "text": self.text}
        if self.op is NormalizerOp.STRIP:
            return {"type": "Strip", "left": self.left, "right": self.right}
        return {"type": UNICODE_FORMS.get(self.op, "Lowercase")}


def read_normalizer(value: Any, path: str = "normalizer") -> tuple[NormalizerStep, ...]:
    """The steps in order, Sequences flattened; steps that change nothing are left out.

    Raises NotATokenizer for what the reference cannot load, ProgramUnsupported for what is not understood.
    """
    steps: list[NormalizerStep] = []
    for fields, kind in components(value, path, "normalizers"):
        _read(fields, kind, steps)
    growth = 1.0
    for step in steps:
        if step.op is NormalizerOp.REPLACE:
            growth *= max(1.0, len(step.replacement.encode()) / len(step.text.encode()))
            if growth > MAX_GROWTH:
                raise ProgramUnsupported(step.path, f"replacements that lengthen a text more than {MAX_GROWTH} times")
    forms = {step.op: step for step in reversed(steps) if step.op in UNICODE_FORMS}
    if len(forms) > 1:
        later = next(iter(forms.values()))
        raise ProgramUnsupported(later.path, "a second Unicode form")
    return tuple(steps)


def _read(fields: Fields, kind: str, steps: list[NormalizerStep]) -> None:
    path = fields.path
    if kind in _FORM_OPS:
        steps.append(NormalizerStep(_FORM_OPS[kind], path))
    elif kind == "Lowercase":
        steps.append(NormalizerStep(NormalizerOp.LOWERCASE, path))
    elif kind == "Strip":
        left, right = fields.boolean("strip_left"), fields.boolean("strip_right")
        if left or right:
            steps.append(NormalizerStep(NormalizerOp.STRIP, path, left=left, right=right))
    elif kind == "Prepend":
        text = fields.string("prepend")
        if not text:  # not "nothing": it breaks the reference's alignment, which then panics or drops characters
            raise ProgramUnsupported(fields.place("prepend"), "an empty text")
        steps.append(NormalizerStep(NormalizerOp.PREPEND, path, text))
    elif kind == "Replace":
        regex, text = literal_pattern(fields)
        replacement = fields.string("content")
        if regex and "$" in replacement:
            raise ProgramUnsupported(fields.place("content"), "a replacement with groups")
        steps.append(NormalizerStep(NormalizerOp.REPLACE, path, text, replacement))
    else:
        raise unsupported_type(fields, kind)


def literal_pattern(fields: Fields) -> tuple[bool, str]:
    """A pattern that is a literal: whether it is spelled as a regular expression, and its text.

    Raises ProgramUnsupported for other regular expressions and for an empty pattern.
    """
    kind, text = pattern(fields)
    if not text:
        raise ProgramUnsupported(f"{fields.place('pattern')}.{kind}", "an empty pattern")
    if kind == "Regex" and not _REGEX_SPECIAL.isdisjoint(text):
        raise ProgramUnsupported(f"{fields.place('pattern')}.Regex", "a regular expression that is no literal")
    return kind == "Regex", text


def normalize(steps: Sequence[NormalizerStep], text: str) -> str:
    """`text` as the reference normalizes it: for short texts, slow."""
    for step in steps:
        text = _APPLY[step.op](step, text)
    return text


def _unicode_form(step: NormalizerStep, text: str) -> str:
    tables = unicode.normalization(UNICODE_FORMS[step.op])
    decomposed: list[int] = []
    for character in text:
        decomposed.extend(tables.decompositions.get(ord(character), (ord(character),)))
    classes = [tables.ccc.get(cp, 0) for cp in decomposed]
    start = 0
    while start < len(decomposed):  # sorts each run of marks, stably
        end = start + 1
        if classes[start]:
            while end < len(decomposed) and classes[end]:
                end += 1
            run = sorted(range(start, end), key=classes.__getitem__)
            decomposed[start:end], classes[start:end] = [decomposed[i] for i in run], [classes[i] for i in run]
        start = end
    if not tables.compositions:
        return "".join(map(chr, decomposed))
    composed: list[int] = []
    starter = -1  # index in `composed` of the last starter
    blocked = -1  # class of the last mark kept after it; -1: none, 0 would be a starter
    for cp, ccc in zip(decomposed, classes, strict=True):
        if starter >= 0 and (blocked < ccc or blocked == -1):
            whole = tables.compositions.get((composed[starter], cp))
            if whole is not None:
                composed[starter] = whole
                continue
        if ccc == 0:
            starter, blocked = len(composed), -1
        else:
            blocked = ccc
        composed.append(cp)
    return "".join(map(chr, composed))


def _lowercase(_: NormalizerStep, text: str) -> str:
    changed = unicode.lowercase()
    return "".join("".join(map(chr, changed.get(ord(c), (ord(c),)))) for c in text)


def _strip(step: NormalizerStep, text: str) -> str:
    begin, end = 0, len(text)
    white = unicode.white_space()
    if step.left:
        while begin < end and contains(white, ord(text[begin])):
            begin += 1
    if step.right:
        while end > begin and contains(white, ord(text[end - 1])):
            end -= 1
    return text[begin:end]


_APPLY: dict[NormalizerOp, Callable[[NormalizerStep, str], str]] = {
    **dict.fromkeys(UNICODE_FORMS, _unicode_form),
    NormalizerOp.REPLACE: lambda step, text: text.replace(step.text, step.replacement),
    NormalizerOp.PREPEND: lambda step, text: step.text + text if text else text,
    NormalizerOp.LOWERCASE: _lowercase,
    NormalizerOp.STRIP: _strip,
}


def normalizer_sections(steps: Sequence[NormalizerStep]) -> dict[str, bytes]:
    """NOPS, NSTR and the Unicode tables that the steps need."""
    if not steps:
        return {}
    strings = bytearray()
    records: list[int] = []

    def place(text: str) -> tuple[int, int]:
        data = text.encode("utf-8")
        strings.extend(data)
        return len(strings) - len(data), len(data)

    for step in steps:
        if step.op is NormalizerOp.STRIP:
            records += [step.op, step.left, step.right, 0, 0]
        else:
            records += [step.op, *place(step.text), *place(step.replacement)]
    sections = {"NOPS": _words(records), "NSTR": bytes(strings)}
    for step in steps:
        if step.op in UNICODE_FORMS and "NQC1" not in sections:
            sections |= _form_sections(UNICODE_FORMS[step.op])
        elif step.op is NormalizerOp.LOWERCASE and "NLOW" not in sections:
            sections |= _lowercase_sections()
    return sections


@cache
def _form_sections(form: str) -> Mapping[str, bytes]:
    tables = unicode.normalization(form)
    stages = build_trie(marks(tables.not_inert, tables.no_boundary_before), 0, 1)
    sections = dict(zip(("NQC1", "NQC2"), stages, strict=True))
    sections["NCCC"] = _words(value for pair in sorted(tables.ccc.items()) for value in pair)
    sections["NDEC"], sections["NDCP"] = _code_point_map(tables.decompositions)
    compositions = sorted((a, b, whole) for (a, b), whole in tables.compositions.items())
    sections["NCMP"] = _words(value for row in compositions for value in row)
    return sections


@cache
def _lowercase_sections() -> Mapping[str, bytes]:
    return dict(zip(("NLOW", "NLCP"), _code_point_map(unicode.lowercase()), strict=True))


def _code_point_map(mapping: dict[int, tuple[int, ...]]) -> tuple[bytes, bytes]:
    records = array("I")
    targets = array("I")
    for cp, target in sorted(mapping.items()):
        records.extend((cp, len(targets), len(target)))
        targets.extend(target)
    return little_endian(records), little_endian(targets)


def _words(values: Iterable[int]) -> bytes:
    return little_endian(array("I", values))
