"""The BPE model of a tokenizer.json: vocabulary, merge rules in rank order, switches. What is a model of another kind,
or has what BPE models here never have (dropout, subword prefixes and suffixes), is declined.

Not here: tables (`bpe_sections.py`) and the proof of which rules can fire (native/compile).
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toktier.errors import NotATokenizer, ProgramUnsupported
from toktier.labels import quoted, shown
from toktier.program.json_fields import MAX_U32, Fields, describe, malformed
from toktier.program.strict_json import RepeatedKeys

OTHER_MODELS = ("WordPiece", "WordLevel", "Unigram")


@dataclass(frozen=True)
class BpeModel:
    """`rules`: u32 rows (left, right, product) in rank order, each pair once. `written_rules`: how many are written."""

    vocabulary: Mapping[str, int]
    rules: array[int]
    written_rules: int
    unk_token: str | None
    fuse_unk: bool
    byte_fallback: bool
    ignore_merges: bool

    @cached_property
    def highest_id(self) -> int:
        """-1 where there is none."""
        return max(self.vocabulary.values(), default=-1)


def check_model_kind(value: Any, path: str = "model") -> None:
    """Raises NotATokenizer when `value` is no model of any kind, ProgramUnsupported for other kinds than BPE."""
    if not isinstance(value, dict):
        raise malformed(path, "an object", value)
    kind = value.get("type")
    if kind == "BPE":
        return
    if kind in OTHER_MODELS:
        raise ProgramUnsupported(f"{path}.type", describe(kind))
    if "type" in value:
        raise malformed(f"{path}.type", "BPE or another type of model", kind)
    if "vocab" not in value:
        raise malformed(f"{path}.vocab", "a vocabulary")
    if "merges" not in value:  # files of before the field `type`: the reference tries one kind after the other
        raise ProgramUnsupported(f"{path}.type", "missing")


def read_model(value: Any, path: str = "model") -> BpeModel:
    """Raises NotATokenizer for what the reference cannot load, ProgramUnsupported for what is not understood."""
    check_model_kind(value, path)
    fields = Fields(value, path)
    fields.take("type", "BPE")
    dropout = fields.take("dropout", None)
    if dropout is not None and (isinstance(dropout, bool) or dropout != 0):
        raise ProgramUnsupported(fields.place("dropout"), describe(dropout))
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        text = fields.take(name, None)
        if text not in (None, ""):
            raise ProgramUnsupported(fields.place(name), describe(text))
    unk_token = fields.take("unk_token", None)
    if unk_token is not None and not isinstance(unk_token, str):
        raise malformed(fields.place("unk_token"), "a string or null", unk_token)
    switches = {name: _switch(fields, name) for name in ("fuse_unk", "byte_fallback", "ignore_merges")}
    vocabulary = _read_vocabulary(fields.take("vocab"), fields.place("vocab"))
    merges = fields.array("merges")
    fields.done()
    rules = _read_rules(merges, vocabulary, fields.place("merges"))
    return BpeModel(vocabulary, rules, len(merges), unk_token, **switches)


def _switch(fields: Fields, name: str) -> bool:
    value = fields.take(name, None)  # null is false here
    if value is not None and not isinstance(value, bool):
        raise malformed(fields.place(name), "true, false or null", value)
    return bool(value)


def _read_vocabulary(value: Any, path: str) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise malformed(path, "an object", value)
    vocabulary = dict(value) if isinstance(value, RepeatedKeys) else value  # of a token written twice, the last counts
    if not vocabulary:
        raise ProgramUnsupported(path, "an empty vocabulary")
    ids = vocabulary.values()
    if set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) > MAX_U32:
        token, bad = next((t, i) for t, i in vocabulary.items() if type(i) is not int or not 0 <= i <= MAX_U32)
        raise malformed(f"{path}[{quoted(token)}]", f"an integer from 0 to {MAX_U32}", bad)
    if len(set(ids)) != len(vocabulary):
        seen: dict[int, str] = {}
        for token, identity in vocabulary.items():
            other = seen.setdefault(identity, token)
            if other != token:
                raise ProgramUnsupported(f"{path}[{quoted(token)}]", f"id {identity}, which {quoted(other)} has too")
    return vocabulary


def _read_rules(merges: list[Any], vocabulary: Mapping[str, int], path: str) -> array[int]:
    lefts, rights = _spelled_rules(merges, path)
    ids = vocabulary.__getitem__
    try:
        columns = [
            array("I", map(ids, lefts)),
            array("I", map(ids, rights)),
            array("I", map(ids, map(operator.add, lefts, rights))),
        ]
    except KeyError as error:
        token = error.args[0]
        rank = next(
            k for k, (a, b) in enumerate(zip(lefts, rights, strict=True)) if not {a, b, a + b} <= vocabulary.keys()
        )
        raise NotATokenizer(
            f"{path} holds the rule ({quoted(lefts[rank])}, {quoted(rights[rank])}),"
            f" but the vocabulary has no {quoted(token)}",
            details={"path": path, "rule": [shown(lefts[rank]), shown(rights[rank])], "token": shown(token)},
        ) from None
    count = len(lefts)
    pairs = array("I", bytes(8 * count))
    pairs[0::2], pairs[1::2] = columns[0], columns[1]
    keys = array("Q", pairs.tobytes())
    if len(set(keys)) != count:  # of a rule written twice, the last place counts
        last = {key: rank for rank, key in enumerate(keys)}
        kept = sorted(last.values())
        columns = [array("I", map(column.__getitem__, kept)) for column in columns]
        count = len(kept)
    rows = array("I", bytes(12 * count))
    rows[0::3], rows[1::3], rows[2::3] = columns
    return rows


def _spelled_rules(merges: list[Any], path: str) -> tuple[list[str], list[str]]:
    """Left and right sides. A rule is ["a", "b"] or "a b"; a file uses one spelling throughout."""
    kinds = set(map(type, merges))
    if not kinds:
        return [], []
    if kinds == {list}:
        if set(map(len, merges)) == {2}:
            lefts, rights = [pair[0] for pair in merges], [pair[1] for pair in merges]
            if set(map(type, lefts)) == {str} == set(map(type, rights)):
                return lefts, rights
        bad = next(k for k, pair in enumerate(merges) if list(map(type, pair)) != [str, str])
        raise malformed(f"{path}[{bad}]", "an array of two strings", merges[bad])
    if kinds == {str}:
        # In this spelling the reference takes a line that begins so for the head of a merges file.
        parts = [line.split(" ") for line in merges if not line.startswith("#version")]
        if set(map(len, parts)) <= {2}:
            return [pair[0] for pair in parts], [pair[1] for pair in parts]
        bad = next(k for k, line in enumerate(merges) if not line.startswith("#version") and line.count(" ") != 1)
        raise malformed(f"{path}[{bad}]", "two tokens with one blank between them", merges[bad])
    raise malformed(path, "an array of strings, or of pairs of strings", merges)
