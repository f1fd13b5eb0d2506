"""Syntax tree → prioritized program: points with explicit continuations, in which backtracking order is data.

Every point stands for "match the rest of the pattern from here". A SPLIT prefers its first branch. The body of an
atomic group lies one *level* deeper than the group, ends in ATOM_END and continues at the group's level; the body of a
look-ahead is a program of its own that ends in MATCH at level 0. Every cycle passes a CHAR, because the body of a
repetition takes at least one character. Not here: where it matches (`toktier.program.right_automaton`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from toktier.program.boundary_limits import MAX_POINTS, Unsupported
from toktier.program.class_map import CodePointSet
from toktier.program.regex_tree import Alternation, Atomic, Chars, Concat, EndOfText, Look, Node, Repeat


class Op(enum.IntEnum):
    """What a point does; `first` and `second` are points unless said otherwise."""

    MATCH = 0  # the match ends
    CHAR = 1  # take a character of set number `second`, continue at `first`
    SPLIT = 2  # `first`, and only if nothing matches there, `second`
    ATOMIC = 3  # enter the body at `first`, one level deeper
    ATOM_END = 4  # leave the body: `first` continues one level higher
    LOOK = 5  # `first` if the program at `second` matches here
    NOT_LOOK = 6  # `first` if it does not
    END = 7  # `first` at the end of the text


@dataclass(slots=True)
class Program:
    """Points by number. `order` lists the points that take no character, each after those it depends on."""

    op: list[Op] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    sets: list[CodePointSet] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    start: int = 0

    def add(self, op: Op, first: int, second: int, level: int) -> int:
        self.op.append(op)
        self.first.append(first)
        self.second.append(second)
        self.level.append(level)
        return len(self.op) - 1


MATCH_POINT = 0


def compile_program(tree: Node) -> Program:
    """Raises Unsupported for a program of more than MAX_POINTS points; its size is known before it is built."""
    if _size(tree) >= MAX_POINTS:
        raise Unsupported("regex too large", f"its intervals expand to {MAX_POINTS:,} program points or more")
    program = Program()
    program.add(Op.MATCH, 0, 0, 0)
    numbers: dict[CodePointSet, int] = {}

    def emit(node: Node, after: int, level: int) -> int:
        """Entry point of `node` followed by `after`."""
        match node:
            case Chars(chars, _):
                number = numbers.setdefault(chars, len(numbers))
                return program.add(Op.CHAR, after, number, level)
            case Concat(items):
                for item in reversed(items):
                    after = emit(item, after, level)
                return after
            case Alternation(branches):
                entry = emit(branches[-1], after, level)
                for branch in reversed(branches[:-1]):
                    entry = program.add(Op.SPLIT, emit(branch, after, level), entry, level)
                return entry
            case Atomic(body):
                end = program.add(Op.ATOM_END, after, 0, level + 1)
                return program.add(Op.ATOMIC, emit(body, end, level + 1), 0, level)
            case Look(body, negative):
                ahead = emit(body, MATCH_POINT, 0)
                return program.add(Op.NOT_LOOK if negative else Op.LOOK, after, ahead, level)
            case EndOfText():
                return program.add(Op.END, after, 0, level)
            case Repeat(body, low, high, lazy):
                return emit_repeat(body, low, high, lazy, after, level)

    def emit_repeat(body: Node, low: int, high: int | None, lazy: bool, after: int, level: int) -> int:
        entry = after
        if high is None:
            loop = program.add(Op.SPLIT, after, after, level)
            again = emit(body, loop, level)
            program.first[loop], program.second[loop] = (after, again) if lazy else (again, after)
            # X+ enters the loop through its body: one copy serves both.
            entry, low = (loop, 0) if low == 0 else (again, low - 1)
        else:
            for _ in range(high - low):
                optional = emit(body, entry, level)
                entry = program.add(Op.SPLIT, *((after, optional) if lazy else (optional, after)), level)
        for _ in range(low):
            entry = emit(body, entry, level)
        return entry

    program.start = emit(tree, MATCH_POINT, 0)
    program.sets = list(numbers)
    program.order = _dependency_order(program)
    return program


def _size(node: Node) -> int:
    """Points that `compile_program` makes for the node."""
    match node:
        case Chars() | EndOfText():
            return 1
        case Concat(items):
            return sum(_size(item) for item in items)
        case Alternation(branches):
            return sum(_size(branch) for branch in branches) + len(branches) - 1
        case Atomic(body):
            return _size(body) + 2
        case Look(body, _):
            return _size(body) + 1
        case Repeat(body, low, high, _):
            if high is None:
                return _size(body) * max(low, 1) + 1
            return _size(body) * high + high - low


def _dependency_order(program: Program) -> list[int]:
    """Points that take no character, in post-order of their edges."""
    both = (Op.SPLIT, Op.LOOK, Op.NOT_LOOK)
    done = [op in (Op.CHAR, Op.MATCH) for op in program.op]
    order: list[int] = []
    for root in range(len(program.op)):
        stack = [(root, False)]
        while stack:
            point, expanded = stack.pop()
            if done[point]:
                continue
            if expanded:
                done[point] = True
                order.append(point)
                continue
            stack.append((point, True))
            stack.append((program.first[point], False))
            if program.op[point] in both:
                stack.append((program.second[point], False))
    return order
