"""The pre-tokenizer of a tokenizer.json as stages of the boundary compiler, Sequences flattened.

A ByteLevel step maps each byte of the text to a character of its alphabet. The program never does that: its vocabulary
is turned into bytes instead, once. So a step after a ByteLevel, which the reference runs on mapped characters, is taken
only where the mapping provably makes no difference, or splits bytes in a way that has an exact form (`byte_runs.py`).
Not here: what a stage does to a text (`boundary.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from toktier.errors import ProgramUnsupported
from toktier.program import unicode
from toktier.program.boundary import Stage
from toktier.program.byte_runs import ByteRuns, byte_runs, stage_tree
from toktier.program.json_fields import Fields, components, pattern, unsupported_type

BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")

# Whether these split at a place depends on nothing but whether matches lie beside it.
_LOCAL = ("Isolated", "Contiguous")

# What a ByteLevel step with `use_regex` splits by: the pattern of the reference, checked against it by a test.
BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Printable ASCII except space is mapped to itself, and nothing else is mapped to it. So a pattern that can match no
# other character does on mapped text what it does on the text: literals, and expressions of letters, digits, sets of
# them without negation, groups, alternatives and quantifiers.
_UNMAPPED_LITERAL = re.compile(r"[!-~]+")
_UNMAPPED_REGEX = re.compile(
    r"(?:[A-Za-z0-9]|\[(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9])+\]|\(\?:|[)|?*+]|\{\d+(?:,\d*)?\})+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """`byte_level`: pieces are mapped to the byte alphabet. `prefix_space`: a segment that does not begin with a space
    gets one before the first stage. `byte_runs`: steps that also split inside characters; `stages` holds what they do
    between characters."""

    stages: tuple[Stage, ...] = ()
    byte_level: bool = False
    prefix_space: bool = False
    byte_runs: tuple[ByteRuns, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For `inspect`."""
        return {
            "byte_level": self.byte_level,
            "prefix_space": self.prefix_space,
            "stages": [
                {"path": stage.path, **_splits_by(stage), "behavior": stage.behavior, "invert": stage.invert}
                for stage in self.stages
            ],
        }


def _splits_by(stage: Stage) -> dict[str, str | None]:
    for kind, text in (("regex", stage.pattern), ("literal", stage.literal), ("set", stage.char_set)):
        if text is not None:
            return {"kind": kind, "pattern": text}
    return {"kind": "bytes", "pattern": None}


def read_pre_tokenizer(value: Any, path: str = "pre_tokenizer") -> PreTokenizer:
    """Raises NotATokenizer for what the reference cannot load, ProgramUnsupported for what is not understood."""
    reader = _Reader()
    for fields, kind in components(value, path, "pretokenizers"):
        reader.read(fields, kind)
    return PreTokenizer(tuple(reader.stages), reader.byte_level, reader.prefix_space, tuple(reader.byte_runs))


class _Reader:
    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.byte_level = False
        self.prefix_space = False
        self.byte_runs: list[ByteRuns] = []

    def read(self, fields: Fields, kind: str) -> None:
        path = fields.path
        if kind == "ByteLevel":
            self._byte_level(fields)
        elif kind == "Split":
            self._split(fields)
        elif kind == "Digits":
            self._char_set(path, "numeric", "Isolated" if fields.boolean("individual_digits") else "Contiguous")
        elif kind == "Punctuation":
            self._char_set(path, "punctuation", fields.choice("behavior", BEHAVIORS, "Isolated"))
        else:
            raise unsupported_type(fields, kind)

    def _byte_level(self, fields: Fields) -> None:
        if self.byte_level:
            raise ProgramUnsupported(fields.path, "ByteLevel after ByteLevel")
        self.byte_level = True
        if fields.boolean("add_prefix_space"):
            if self.stages:
                raise ProgramUnsupported(fields.place("add_prefix_space"), "a prefix space for every piece")
            self.prefix_space = True
        fields.boolean("trim_offsets")  # means something in a post-processor only
        if fields.boolean("use_regex", True):
            self.stages.append(Stage(fields.path, pattern=BYTE_LEVEL_PATTERN))

    def _char_set(self, path: str, name: str, behavior: str) -> None:
        if not self.byte_level:
            self.stages.append(Stage(path, char_set=name, behavior=behavior))
            return
        if behavior not in _LOCAL:
            raise ProgramUnsupported(path, f"{behavior} after ByteLevel")
        table = unicode.numeric() if name == "numeric" else unicode.punctuation()
        runs = byte_runs(table, joined=behavior == "Contiguous", path=path)
        self.byte_runs.append(runs)
        self.stages.append(Stage(path, tree=stage_tree(runs)))

    def _split(self, fields: Fields) -> None:
        kind, text = pattern(fields)
        behavior = fields.choice("behavior", BEHAVIORS)
        invert = fields.boolean("invert")
        place = f"{fields.place('pattern')}.{kind}"
        if not text:
            raise ProgramUnsupported(place, "an empty pattern")
        if self.byte_level:
            if self.byte_runs and behavior not in _LOCAL:
                raise ProgramUnsupported(fields.place("behavior"), f"{behavior} after a step that splits bytes")
            harmless = _UNMAPPED_LITERAL if kind == "String" else _UNMAPPED_REGEX
            if not harmless.fullmatch(text):
                raise ProgramUnsupported(place, "a pattern after ByteLevel that could match mapped characters")
        if kind == "String":
            self.stages.append(Stage(place, literal=text, behavior=behavior, invert=invert))
        else:
            self.stages.append(Stage(place, pattern=text, behavior=behavior, invert=invert))
