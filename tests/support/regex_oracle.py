"""A slow second opinion on a syntax tree: a plain backtracking matcher and the Split behaviours, written from their
definitions. It shares the parser and the character tables with the compiler, and nothing else: no classes, no automata.
"""

from __future__ import annotations

from collections.abc import Callable

from toktier.program import code_point_sets
from toktier.program.boundary import Stage
from toktier.program.class_map import CodePointSet, Complement, Intersection, Spans, Table, Union, table_ranges
from toktier.program.regex_syntax import parse, parse_literal
from toktier.program.regex_tree import Alternation, Atomic, Chars, Concat, EndOfText, Look, Node, Repeat

Span = tuple[int, int]
Then = Callable[[int], int | None]


def contains(chars: CodePointSet, code_point: int) -> bool:
    match chars:
        case Spans(ranges):
            return any(first <= code_point <= last for first, last in ranges)
        case Table():
            return code_point_sets.contains(table_ranges(chars), code_point)
        case Union(parts):
            return any(contains(part, code_point) for part in parts)
        case Intersection(parts):
            return all(contains(part, code_point) for part in parts)
        case Complement(part):
            return not contains(part, code_point)


def match(node: Node, text: str, at: int, then: Then) -> int | None:
    """End of the preferred match of `node` at `at` that `then` accepts, as `then` gives it."""
    match node:
        case Chars(chars, _):
            return then(at + 1) if at < len(text) and contains(chars, ord(text[at])) else None
        case Concat(items):
            if not items:
                return then(at)
            return match(items[0], text, at, lambda end: match(Concat(items[1:]), text, end, then))
        case Alternation(branches):
            for branch in branches:
                if (end := match(branch, text, at, then)) is not None:
                    return end
            return None
        case Repeat(body, low, high, lazy):
            rest = Repeat(body, max(low - 1, 0), None if high is None else high - 1, lazy)

            def again() -> int | None:
                return None if high == 0 else match(body, text, at, lambda end: match(rest, text, end, then))

            if low > 0:
                return again()
            if lazy and (end := then(at)) is not None:
                return end
            end = again()
            return then(at) if end is None and not lazy else end
        case Atomic(body):
            end = match(body, text, at, lambda end: end)
            return None if end is None else then(end)
        case Look(body, negative):
            found = match(body, text, at, lambda end: end) is not None
            return None if found == negative else then(at)
        case EndOfText():
            return then(at) if at == len(text) else None


def matches(tree: Node, text: str) -> list[Span]:
    """Leftmost matches, one after the other."""
    found: list[Span] = []
    at = 0
    while at < len(text):
        end = match(tree, text, at, lambda end: end)
        if end is not None:
            found.append((at, end))
        at = at + 1 if end is None else end
    return found


def split(stage: Stage, text: str) -> list[Span]:
    """Pieces that one stage keeps of a text."""
    if stage.char_set is not None:
        tree: Node = Chars(Table("char_set", stage.char_set))
    else:
        tree = parse(stage.pattern) if stage.pattern is not None else parse_literal(stage.literal or "")
    parts: list[tuple[Span, bool]] = []
    at = 0
    for begin, end in matches(tree, text):
        if at < begin:
            parts.append(((at, begin), False))
        parts.append(((begin, end), True))
        at = end
    if at < len(text):
        parts.append(((at, len(text)), False))
    parts = [(span, is_match != stage.invert) for span, is_match in parts]

    if stage.behavior == "Removed":
        return [span for span, is_match in parts if not is_match]
    joined: list[tuple[Span, bool]] = []
    for span, is_match in parts:
        before = joined[-1][1] if joined else None
        join = {
            "Isolated": False,
            "Contiguous": before == is_match,
            "MergedWithPrevious": is_match and before is False,
            "MergedWithNext": not is_match and before is True,
        }[stage.behavior]
        if join:
            joined[-1] = ((joined[-1][0][0], span[1]), is_match)
        else:
            joined.append((span, is_match))
    return [span for span, _ in joined]


def split_all(stages: list[Stage], text: str) -> list[Span]:
    """Pieces that a chain of stages keeps: each sees the pieces of the one before as texts of their own."""
    spans = [(0, len(text))] if text else []
    for stage in stages:
        spans = [(b + begin, b + end) for b, e in spans for begin, end in split(stage, text[b:e])]
    return spans
