"""A tokenizer.json changed in one place: every field, every entry of its lists, and spellings that mean the same.

The walk covers all of a document but the entries of `model.vocab` and `model.merges`, which are sampled, as are added
tokens beyond a bound: one of each set of flags first. Not here: what a change must do to the fingerprint
(`suites/fingerprint`).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]

UNKNOWN_FIELD = "a field that nobody knows"
MAX_ENTRIES = 8  # of a list that are dropped, exchanged with the next and doubled; fields of all entries are changed

# Values that may stand for each other: each is changed into all others of its group.
_GROUPS: tuple[tuple[str, ...], ...] = (
    ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"),
    ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"),
    ("Left", "Right"),
    ("LongestFirst", "OnlyFirst", "OnlySecond"),
    ("ByteFallback", "Fuse"),
    ("A", "B"),
)

# What an absent part is changed into, by its name; anything else that is null becomes each of the last three.
_PARTS: Mapping[str, Any] = {
    "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {"type": "Digits", "individual_digits": True},
    "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "Fuse"},
    "truncation": {"direction": "Right", "max_length": 7, "strategy": "LongestFirst", "stride": 0},
    "dropout": 0.1,
}
_INSTEAD_OF_NULL = (True, 1, "x")


@dataclass(frozen=True)
class Mutant:
    """One change: what is at `path` is set to `value`, dropped, exchanged with its successor, doubled, or (`add`) given
    an unknown field."""

    path: Path
    change: str
    value: Any = None

    @property
    def name(self) -> str:
        shown = f" to {json.dumps(self.value)[:60]}" if self.change == "set" else ""
        return f"{spelled(self.path)} {self.change}{shown}"

    @property
    def field(self) -> str:
        """The path without the numbers of entries."""
        return re.sub(r"\[\d+\]", "[]", spelled(self.path))

    def apply(self, document: Any) -> Any:
        """The changed document. Shares what it does not change with the given one."""
        return _changed(document, self.path, self)


def spelled(path: Path) -> str:
    """`added_tokens[3].content`."""
    return (
        "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".") or "the file"
    )


def _changed(node: Any, path: Path, mutant: Mutant) -> Any:
    if not path:
        if mutant.change == "add":
            return {**node, UNKNOWN_FIELD: 1}
        return mutant.value
    step: Any = path[0]
    copy: Any = list(node) if isinstance(node, list) else dict(node)
    if len(path) > 1 or mutant.change in ("set", "add"):
        copy[step] = _changed(node[step], path[1:], mutant)
    elif mutant.change == "drop":
        del copy[step]
    elif mutant.change == "swap":
        copy[step], copy[step + 1] = copy[step + 1], copy[step]
    else:
        copy.insert(step, copy[step])
    return copy


def walk(document: Mapping[str, Any], added_tokens: Sequence[int]) -> Iterator[Mutant]:
    """Every mutant outside of vocabulary and merges; of added tokens only the entries `added_tokens`."""
    for name in document:
        if name != "added_tokens":
            yield from _walk(document[name], (name,), document)
        else:
            if document[name]:  # else it changes nothing
                yield Mutant((name,), "set", [])
            for index in added_tokens:
                place = (name, index)
                yield from _entry(place, index, len(document[name]))
                yield from _walk(document[name][index], place, document)
        yield Mutant((name,), "drop")
    yield Mutant((), "add")
    for name, part in _PARTS.items():
        if document.get(name, UNKNOWN_FIELD) is UNKNOWN_FIELD and name != "dropout":
            yield Mutant((name,), "set", part)


def _walk(node: Any, path: Path, document: Mapping[str, Any]) -> Iterator[Mutant]:
    if path in (("model", "vocab"), ("model", "merges")):
        return
    if isinstance(node, dict):
        yield Mutant(path, "add")
        if len(path) == 1 and path != ("model",):
            yield Mutant(path, "set", None)
        for name, value in node.items():
            yield from _walk(value, (*path, name), document)
            if (*path, name) not in (("model", "vocab"), ("model", "merges")):
                yield Mutant((*path, name), "drop")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            if index < MAX_ENTRIES:
                yield from _entry((*path, index), index, len(node))
            yield from _walk(value, (*path, index), document)
    else:
        for value in _others(node, path, document):
            yield Mutant(path, "set", value)


def _entry(path: Path, index: int, length: int) -> Iterator[Mutant]:
    yield Mutant(path, "drop")
    yield Mutant(path, "double")
    if index + 1 < length:
        yield Mutant(path, "swap")


def _others(value: Any, path: Path, document: Mapping[str, Any]) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        if value:
            yield value - 1
    elif isinstance(value, float):
        yield value + 0.5
    elif isinstance(value, str):
        group = next((group for group in _GROUPS if value in group), ())
        yield from (other for other in group if other != value)
        yield value + "x"
        if value:
            yield value[:-1]
            yield value.swapcase() if value.swapcase() != value else "y" + value[1:]
    elif value is None:
        if path[-1] == "unk_token":
            yield next(iter(document["model"]["vocab"]))
        elif path[-1] == "padding":
            token, identity = next(iter(document["model"]["vocab"].items()))
            yield {
                "strategy": {"Fixed": 9},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": identity,
                "pad_type_id": 0,
                "pad_token": token,
            }
        elif path[-1] in _PARTS:
            yield _PARTS[str(path[-1])]
        else:
            yield from _INSTEAD_OF_NULL


def sampled_tokens(tokens: Sequence[Mapping[str, Any]], bound: int | None, seed: int) -> list[int]:
    """Indices of at most `bound` added tokens: the first of each set of flags, the last, then others by the seed."""
    if bound is None or len(tokens) <= bound:
        return list(range(len(tokens)))
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    first: dict[tuple[Any, ...], int] = {}
    for index, token in enumerate(tokens):
        first.setdefault(tuple(token.get(flag) for flag in flags), index)
    chosen = {*first.values(), len(tokens) - 1}
    others = [index for index in range(len(tokens)) if index not in chosen]
    chosen.update(random.Random(seed).sample(others, max(0, min(bound - len(chosen), len(others)))))
    return sorted(chosen)


def backwards(node: Any) -> Any:
    """The same document with the keys of all objects in the opposite order."""
    if isinstance(node, dict):
        return {key: backwards(value) for key, value in reversed(node.items())}
    if isinstance(node, list) and node and not isinstance(node[0], (str, list)):  # merges need no walk
        return [backwards(value) for value in node]
    return node


def other_spelling_of_merges(document: Mapping[str, Any]) -> Any | None:
    """The same document with merges as pairs where they are texts, and the other way; None where a blank forbids it."""
    merges = document["model"]["merges"]
    if not merges:
        return None
    if isinstance(merges[0], str):
        changed: list[Any] = [merge.split(" ") for merge in merges]
    elif any(" " in part for pair in merges for part in pair):
        return None
    else:
        changed = [" ".join(pair) for pair in merges]
    return {**document, "model": {**document["model"], "merges": changed}}


def escaped(document: Any) -> bytes:
    r"""The document with every character of every string as \uXXXX."""

    def one(match: re.Match[str]) -> str:
        units = json.loads(match[0]).encode("utf-16-be")
        return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)) + '"'

    return re.sub(r'"(?:[^"\\]|\\.)*"', one, json.dumps(document)).encode()


SPELLINGS: dict[str, Callable[[Any], bytes]] = {
    "compact": lambda document: json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(),
    "indented, with line ends of both kinds": lambda document: (
        # Not by `indent`, for which Python has no fast encoder: 5 s of a large vocabulary.
        json.dumps(document, separators=(",\r\n   ", "\t: "), ensure_ascii=False).encode() + b"\n\n"
    ),
    "non-ASCII characters escaped": lambda document: json.dumps(document, ensure_ascii=True).encode(),
    "every character escaped": escaped,
}
