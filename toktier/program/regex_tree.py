"""Syntax tree of a regular expression, and two facts about a tree: whether it can match the empty text, and which
case-insensitive characters may follow each other.

Not here: reading a pattern (`toktier.program.regex_syntax`), what a tree matches (`toktier.program.regex_program`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toktier.program.class_map import CodePointSet


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set. `folded`: the code points as written, when case is ignored."""

    set: CodePointSet
    folded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Concat:
    """Items one after the other; none: the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """The first branch is preferred."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times (None: no limit). The body cannot be empty unless high is 1."""

    body: Node
    low: int
    high: int | None
    lazy: bool


@dataclass(frozen=True, slots=True)
class Atomic:
    """The body's preferred match, never another."""

    body: Node


@dataclass(frozen=True, slots=True)
class Look:
    """Zero-width look-ahead."""

    body: Node
    negative: bool


@dataclass(frozen=True, slots=True)
class EndOfText:
    """Zero-width `\\z`."""


Node: TypeAlias = Chars | Concat | Alternation | Repeat | Atomic | Look | EndOfText

EMPTY = Concat(())


def nullable(node: Node) -> bool:
    """Whether the node may match without taking a character (True when that depends on the surroundings)."""
    match node:
        case Chars():
            return False
        case Concat(items):
            return all(nullable(item) for item in items)
        case Alternation(branches):
            return any(nullable(branch) for branch in branches)
        case Repeat(body, low, _, _):
            return low == 0 or nullable(body)
        case Atomic(body):
            return nullable(body)
        case Look() | EndOfText():
            return True


def literal_neighbours(tree: Node) -> set[tuple[int, int]]:
    """Pairs of case-insensitive characters, as written, that may follow each other in a match."""
    pairs: set[tuple[int, int]] = set()

    def visit(node: Node) -> tuple[set[int], set[int], bool]:
        """Literals that may come first, that may come last, and whether the node can be empty."""
        match node:
            case Chars(_, folded):
                return set(folded), set(folded), False
            case Concat(items):
                firsts: set[int] = set()
                lasts: set[int] = set()
                empty = True
                for item in items:
                    item_firsts, item_lasts, item_empty = visit(item)
                    pairs.update((a, b) for a in lasts for b in item_firsts)
                    firsts = firsts | item_firsts if empty else firsts
                    lasts = lasts | item_lasts if item_empty else item_lasts
                    empty = empty and item_empty
                return firsts, lasts, empty
            case Alternation(branches):
                parts = [visit(branch) for branch in branches]
                return (
                    set().union(*(p[0] for p in parts)),
                    set().union(*(p[1] for p in parts)),
                    any(p[2] for p in parts),
                )
            case Repeat(body, low, high, _):
                firsts, lasts, empty = visit(body)
                if high != 1:
                    pairs.update((a, b) for a in lasts for b in firsts)
                return firsts, lasts, empty or low == 0
            case Atomic(body):
                return visit(body)
            case Look(body, _):
                visit(body)
                return set(), set(), True
            case EndOfText():
                return set(), set(), True

    visit(tree)
    return pairs
