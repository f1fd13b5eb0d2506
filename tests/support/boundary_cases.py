"""Boundary tables to test with, the reference's own answer for their patterns, fast evaluation of many class strings.

Tables come from three places: patterns written here (compiled), ../shared/data/canonical_tables.json (tables that were
found and checked apart from this compiler), and random small machines.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizerSequence

from tests.support.material import SHARED
from toktier.program.boundary import BoundaryTables, Stage, compile_boundaries

BETWEEN = "\ue000"  # separates the texts of a batch; no representative is this character
_BEHAVIOR = {
    "Isolated": "isolated",
    "Removed": "removed",
    "MergedWithPrevious": "merged_with_previous",
    "MergedWithNext": "merged_with_next",
    "Contiguous": "contiguous",
}

Span = tuple[int, int]


@dataclass(frozen=True)
class SplitCase:
    """A pre-tokenizer: its Split stages (pattern, behavior, invert) and its boundary tables. Cuts where they are given:
    class tuples of (a|b), (ab|c) and (a|bc).
    """

    name: str
    stages: tuple[tuple[str, str, bool], ...]
    tables: BoundaryTables
    cuts: tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[tuple[int, ...]]] | None = None

    def text(self, classes: bytes, rng: random.Random | None = None) -> str:
        """Characters of these classes: the representatives, or any (a range, then one in it) where `rng` is given."""
        members = self._members if rng is not None else ()
        if rng is None or not members:
            return "".join([chr(self.tables.representatives[c]) for c in classes])
        ranges = [rng.choice(members[c]) for c in classes]
        return "".join([chr(rng.randint(first, last)) for first, last in ranges])

    @functools.cached_property
    def _members(self) -> tuple[list[Span], ...]:
        """Ranges of each class without surrogates and without the character that parts a batch."""
        members: tuple[list[Span], ...] = tuple([] for _ in range(self.tables.n_class))
        for first, last, c in self.tables.class_ranges:
            for low, high in ((0, 0xD7FF), (0xE001, 0x10FFFF)):
                if max(first, low) <= min(last, high):
                    members[c].append((max(first, low), min(last, high)))
        return members if all(members) else ()

    def reference(self, between: str = BETWEEN) -> PreTokenizer:
        splits = [Split(Regex(pattern), _BEHAVIOR[b], invert) for pattern, b, invert in self.stages]
        return PreTokenizerSequence([Split(between, "removed"), *splits])


_WORD = r"[^\r\n\p{L}\p{N}]?"
_O200K_WORD = (
    _WORD + r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    + _WORD + r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
)  # fmt: skip
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WRITTEN: dict[str, tuple[tuple[str, str, bool], ...]] = {
    "gpt2": ((r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", "Isolated", False),),
    "cl100k": (
        (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + _WORD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _TAIL,
            "Isolated",
            False,
        ),
    ),
    "one-digit": (
        (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + _WORD + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _TAIL,
            "Isolated",
            False,
        ),
    ),
    "o200k": ((_O200K_WORD + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _TAIL, "Isolated", False),),
    "three-stage": (
        (r"\p{N}{1,3}", "Isolated", False),
        (r"[一-龥぀-ゟ゠-ヿ]+", "Isolated", False),
        (
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
            r" ?[\p{P}\p{S}]+[\r\n]*|" + _TAIL,
            "Isolated",
            False,
        ),
    ),
    "merged-with-next": (
        (r"(?:\r?\n)+(?!\r?\n)", "MergedWithNext", False),
        (r"\p{L}+|\s+(?!\S)|\s+", "Isolated", False),
    ),
    "removed": ((r"\s+", "Removed", False),),
    "only words": ((r"\p{L}+(?!\p{N})", "Removed", True),),
}


@functools.cache
def written_cases() -> tuple[SplitCase, ...]:
    """The patterns above, compiled. Always there."""
    return tuple(
        SplitCase(
            name,
            stages,
            compile_boundaries(
                [Stage(f"pre_tokenizer[{i}]", pattern=p, behavior=b, invert=v) for i, (p, b, v) in enumerate(stages)]
            ),
        )
        for name, stages in WRITTEN.items()
    )


@functools.cache
def shared_cases() -> tuple[SplitCase, ...]:
    """Those of ../shared/data/canonical_tables.json with distinct tables; none where it is absent."""
    if SHARED is None:
        return ()
    document = json.loads((SHARED / "data" / "canonical_tables.json").read_text(encoding="utf-8"))
    cases: dict[tuple[object, ...], SplitCase] = {}
    for name, entry in document.items():
        representatives = tuple(int(r, 16) for r in entry["reps"])
        tables = BoundaryTables(
            n_class=len(representatives),
            n_left=len(entry["left"]),
            n_right=len(entry["right"]),
            left=bytes(v for row in entry["left"] for v in row),
            right=bytes(v for row in entry["right"] for v in row),
            matrix=bytes(v for row in entry["M"] for v in row),
            left_start=entry["l0"],
            right_end=entry["r0"],
            class_ranges=(),  # not in the file, and nothing here maps code points
            representatives=representatives,
        )
        pairs, left, right = ([tuple(t) for t in entry[key]] for key in ("pairs", "t21", "t12"))
        stages = tuple((pattern, behavior, invert) for pattern, behavior, invert in entry["stages"])
        cases.setdefault(
            (tables.left, tables.right, tables.matrix), SplitCase(name, stages, tables, (pairs, left, right))
        )
    return tuple(cases.values())


def parametrize_cases(*, shared_only: bool = False) -> pytest.MarkDecorator:
    """Over the patterns written here, and in CI those of ../shared whose tables have another shape; `shared_only`: all
    of these, in every tier. Says by a skipped parameter what is absent.
    """
    shared = [pytest.param(case, id=f"shared {case.name}") for case in shared_cases()]
    if SHARED is None:
        absent = pytest.mark.skip(reason="needs ../shared/data/canonical_tables.json, which is not here")
        shared.append(pytest.param(None, id="shared", marks=absent))
    if shared_only:
        return pytest.mark.parametrize("case", shared)
    written = [pytest.param(case, id=case.name) for case in written_cases()]
    shapes = {_shape(case) for case in written_cases()}
    other = [
        pytest.param(case, id=f"shared {case.name}", marks=pytest.mark.ci)
        for case in shared_cases()
        if _shape(case) not in shapes
    ]
    return pytest.mark.parametrize("case", written + other)


def _shape(case: SplitCase) -> tuple[int, int, int]:
    return case.tables.n_class, case.tables.n_left, case.tables.n_right


def reference_spans(reference: PreTokenizer, texts: Sequence[str], between: str = BETWEEN) -> list[list[Span]]:
    """Spans of the pieces of each text, by one call of the reference: its first stage parts the texts."""
    starts, position = [], 0
    for text in texts:
        assert between not in text
        starts.append(position)
        position += len(text) + 1
    result: list[list[Span]] = [[] for _ in texts]
    k = 0
    for _, (begin, end) in reference.pre_tokenize_str(between.join(texts)):
        while k + 1 < len(starts) and begin >= starts[k + 1]:
            k += 1
        result[k].append((begin - starts[k], end - starts[k]))
    return result


def spans(values: bytes) -> list[Span]:
    """Kept pieces of a text with these boundary values."""
    begins = [i for i, value in enumerate(values) if value]
    assert begins[:1] == [0] * bool(values), "position 0 starts a piece"
    return [(b, e) for b, e in zip(begins, [*begins[1:], len(values)][: len(begins)], strict=True) if values[b] == 1]


def random_tables(rng: random.Random, *, dropping: bool = True, max_states: int = 4) -> BoundaryTables:
    """A small machine of any shape, canonical or not, that keeps the rule: a piece starts at position 0."""
    n_class, n_left, n_right = rng.randint(2, 3), rng.randint(1, max_states), rng.randint(1, max_states)
    values = (0, 0, 1, 2) if dropping else (0, 1)
    start = rng.randrange(n_left)
    matrix = [rng.choice([v for v in values if v or state != start]) for state in range(n_left) for _ in range(n_right)]
    return BoundaryTables(
        n_class=n_class,
        n_left=n_left,
        n_right=n_right,
        left=bytes(rng.randrange(n_left) for _ in range(n_left * n_class)),
        right=bytes(rng.randrange(n_right) for _ in range(n_right * n_class)),
        matrix=bytes(matrix),
        left_start=start,
        right_end=rng.randrange(n_right),
        class_ranges=(),
        representatives=tuple(b"abc"[:n_class]),
    )


def random_classes(rng: random.Random, n_class: int, length: int) -> bytes:
    """Runs, alternations and noise: long runs of one class are where look-ahead is unbounded."""
    result = bytearray()
    while len(result) < length:
        kind, a, b = rng.randrange(3), rng.randrange(n_class), rng.randrange(n_class)
        if kind == 0:
            result += bytes([a]) * rng.randint(1, 12)
        elif kind == 1:
            result += bytes([a, b]) * rng.randint(1, 4)
        else:
            result += bytes(rng.randrange(n_class) for _ in range(rng.randint(1, 8)))
    return bytes(result[:length])


class Batch:
    """Many class strings evaluated at once on tables over the same classes: rows of classes, padded with `n_class`."""

    def __init__(self, strings: Sequence[bytes], n_class: int) -> None:
        self.n_class = n_class
        self.lengths = np.array([len(s) for s in strings])
        width = int(self.lengths.max(initial=0))
        self.classes = np.full((len(strings), width), n_class, dtype=np.intp)
        for row, string in enumerate(strings):
            self.classes[row, : len(string)] = list(string)

    def states(self, tables: BoundaryTables) -> tuple[np.ndarray, np.ndarray]:
        """Left state before and right state from each position on; padding keeps a state."""
        left = _padded(tables.left, tables.n_left, tables.n_class)
        right = _padded(tables.right, tables.n_right, tables.n_class)
        lefts, rights = np.empty_like(self.classes), np.empty_like(self.classes)
        state = np.full(len(self.classes), tables.left_start, dtype=np.intp)
        for j in range(self.classes.shape[1]):
            lefts[:, j] = state
            state = left[state, self.classes[:, j]]
        state = np.full(len(self.classes), tables.right_end, dtype=np.intp)
        for j in range(self.classes.shape[1] - 1, -1, -1):
            state = right[state, self.classes[:, j]]
            rights[:, j] = state
        return lefts, rights

    def observed(self, tables: BoundaryTables, rows: np.ndarray | None = None) -> np.ndarray:
        """Values as anybody sees them: a piece starts at position 0 whatever the matrix says; 0 in the padding."""
        batch = self if rows is None else self.subset(rows)
        lefts, rights = batch.states(tables)
        matrix = np.frombuffer(tables.matrix, dtype=np.uint8).reshape(tables.n_left, tables.n_right)
        values: np.ndarray = matrix[lefts, rights]
        values[batch.classes == self.n_class] = 0
        values[:, 0] = np.where(values[:, 0] == 2, 2, 1)
        return values

    def subset(self, rows: np.ndarray) -> Batch:
        part = Batch.__new__(Batch)
        part.n_class, part.lengths, part.classes = self.n_class, self.lengths[rows], self.classes[rows]
        return part


def _padded(table: bytes, n_state: int, n_class: int) -> np.ndarray:
    rows = np.frombuffer(table, dtype=np.uint8).reshape(n_state, n_class).astype(np.intp)
    return np.concatenate([rows, np.arange(n_state, dtype=np.intp)[:, None]], axis=1)


def chunks(items: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (items[i : i + size] for i in range(0, len(items), size))
