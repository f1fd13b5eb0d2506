"""Stages in the installed reference, and the comparison of compiled tables with it over many texts in one call."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, PreTokenizer, Punctuation, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizerSequence

from toktier.program.boundary import BoundaryTables, Stage, compile_boundaries

BETWEEN = "\ue000"  # parts the texts of a batch; texts do not hold it
BEHAVIORS = {
    "Isolated": "isolated",
    "Removed": "removed",
    "MergedWithPrevious": "merged_with_previous",
    "MergedWithNext": "merged_with_next",
    "Contiguous": "contiguous",
}
Span = tuple[int, int]


def reference_stage(stage: Stage) -> PreTokenizer:
    if stage.pattern is not None:
        return Split(Regex(stage.pattern), BEHAVIORS[stage.behavior], stage.invert)
    if stage.literal is not None:
        return Split(stage.literal, BEHAVIORS[stage.behavior], stage.invert)
    assert not stage.invert
    if stage.char_set == "punctuation":
        return Punctuation(BEHAVIORS[stage.behavior])
    return Digits(individual_digits={"Isolated": True, "Contiguous": False}[stage.behavior])


def first_mismatch(
    stages: Sequence[Stage], texts: Sequence[str], tables: BoundaryTables | None = None
) -> tuple[str, list[Span], list[Span]] | None:
    """(text, our pieces, the reference's) of the first text where they differ; None when there is none. Work is linear
    in the texts, a microsecond or two a character."""
    tables = compile_boundaries(stages) if tables is None else tables
    reference = PreTokenizerSequence([Split(BETWEEN, "removed"), *map(reference_stage, stages)])
    joined = BETWEEN.join(texts)
    expected = np.array([span for _, span in reference.pre_tokenize_str(joined)], dtype=np.intp).reshape(-1, 2)
    found = _pieces(tables, joined)
    if np.array_equal(found, expected):
        return None
    start = 0
    for text in texts:
        ours, theirs = (_within(spans, start, len(text)) for spans in (found, expected))
        if ours != theirs:
            return text, ours, theirs
        start += len(text) + 1
    raise AssertionError("spans differ between the texts")


def pieces(tables: BoundaryTables, text: str) -> list[Span]:
    """Pieces that the tables keep of one text."""
    return [(int(begin), int(end)) for begin, end in _pieces(tables, text)]


def class_numbers(tables: BoundaryTables, text: str) -> list[int]:
    """The class of each code point; n_class for BETWEEN."""
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    starts = np.array([first for first, _, _ in tables.class_ranges])
    classes = np.array([number for _, _, number in tables.class_ranges])
    numbers = classes[np.searchsorted(starts, code_points, side="right") - 1]
    numbers[code_points == ord(BETWEEN)] = tables.n_class
    result: list[int] = numbers.tolist()
    return result


def class_texts(tables: BoundaryTables, longest: int) -> list[str]:
    """Every text of 1..`longest` representatives."""
    letters = [chr(c) for c in tables.representatives]
    return texts_over(letters, longest)


def texts_over(letters: Iterable[str], longest: int) -> list[str]:
    return ["".join(t) for n in range(1, longest + 1) for t in itertools.product(letters, repeat=n)]


def hostile_texts(tables: BoundaryTables, rng: random.Random, count: int) -> list[str]:
    """Runs, alternations and noise of up to 24 characters. Half of the characters come from anywhere in their class, a
    third of those from the edge of a range."""
    by_class: list[list[tuple[int, int]]] = [[] for _ in range(tables.n_class)]
    for first, last, number in tables.class_ranges:
        by_class[number].append((first, last))

    def character() -> str:
        number = rng.randrange(tables.n_class)
        if rng.random() < 0.5:
            return chr(tables.representatives[number])
        first, last = rng.choice(by_class[number])
        code_point = rng.choice((first, last)) if rng.random() < 0.33 else rng.randint(first, last)
        return " " if 0xD800 <= code_point < 0xE000 or code_point == ord(BETWEEN) else chr(code_point)

    texts = []
    for _ in range(count):
        text = ""
        for _ in range(rng.randint(1, 6)):
            part = "".join(character() for _ in range(rng.choice((1, 1, 2, 3))))
            text += part * rng.choice((1, 1, 1, 2, 4))
        texts.append(text[:24])
    return texts


def _pieces(tables: BoundaryTables, text: str) -> np.ndarray:
    """Kept spans of the texts that BETWEEN parts, as rows (begin, end)."""
    numbers = class_numbers(tables, text)
    n, n_right = tables.n_class, tables.n_right
    lefts = [[*tables.left[i * n : i * n + n], tables.left_start] for i in range(tables.n_left)]
    rights = [[*tables.right[i * n : i * n + n], tables.right_end] for i in range(n_right)]
    right_states = bytearray(len(numbers))
    state = tables.right_end
    for i in range(len(numbers) - 1, -1, -1):
        right_states[i] = state = rights[state][numbers[i]]
    left_states = bytearray(len(numbers))
    state = tables.left_start
    for i, number in enumerate(numbers):
        left_states[i] = state
        state = lefts[state][number]
    matrix = np.frombuffer(tables.matrix, dtype=np.uint8).reshape(tables.n_left, n_right)
    values = matrix[np.frombuffer(left_states, dtype=np.uint8), np.frombuffer(right_states, dtype=np.uint8)]
    # A separator ends a piece and starts none, as 2 does.
    values = np.where(np.array(numbers) == n, 2, values)
    changes = np.nonzero(values)[0]
    ends = np.append(changes[1:], len(numbers))
    kept = values[changes] == 1
    return np.stack([changes[kept], ends[kept]], axis=1)


def _within(spans: np.ndarray, start: int, length: int) -> list[Span]:
    inside = spans[(spans[:, 0] >= start) & (spans[:, 0] < start + length)]
    return [(int(b) - start, int(e) - start) for b, e in inside]
