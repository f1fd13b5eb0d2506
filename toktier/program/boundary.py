"""Pre-tokenizer stages → canonical boundary tables: the entry of the boundary compiler.

pattern → `regex_syntax` (tree) → `class_map` (classes of all stages) → `regex_program` → `right_automaton` →
`left_automaton` (tables of one stage) → `compose` → `canonical_tables`. Two pre-tokenizers do the same exactly when
their tables are equal. Not here: reading stages from tokenizer.json, the token automaton, cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toktier.errors import ProgramUnsupported
from toktier.program.boundary_limits import Budget, Unsupported
from toktier.program.canonical_tables import TwoSided, join_dropped, merge_classes, minimize
from toktier.program.class_map import SURROGATES, ClassMap, Table, classify, join_ranges
from toktier.program.compose import compose
from toktier.program.left_automaton import boundary_values, build_tables
from toktier.program.regex_program import Program, compile_program
from toktier.program.regex_syntax import parse, parse_literal
from toktier.program.regex_tree import Chars, Node
from toktier.program.right_automaton import build_right_automaton


@dataclass(frozen=True)
class Stage:
    """One pre-tokenizer step: exactly one of `pattern` (Oniguruma source), `literal` (the text itself), `char_set`
    ("numeric" or "punctuation": every single character of that table is a match) and `tree` (what no source can spell)
    is given.

    `path`: JSON path of the step, for refusals. `behavior`: Isolated, Removed, MergedWithPrevious, MergedWithNext or
    Contiguous; `invert` exchanges matches and gaps.
    """

    path: str
    pattern: str | None = None
    literal: str | None = None
    char_set: str | None = None
    tree: Node | None = None
    behavior: str = "Isolated"
    invert: bool = False


@dataclass(frozen=True)
class BoundaryTables:
    """`boundary(i) = matrix[left state after x[0..i)][right state of x[i..n)]`, read from `left_start` forwards and
    from `right_end` backwards: 0 no piece starts at i, 1 one does, 2 one does and is dropped. Position 0 of a text that
    is not empty is 1 or 2. Canonical: equal functions give equal tables.

    `left` is [n_left * n_class], `right` [n_right * n_class], `matrix` [n_left * n_right]. `class_ranges`: (first,
    last, class), ascending over 0..0x10FFFF; classes are numbered by smallest code point. `representatives`: one code
    point a class, the smallest printable ASCII one if there is one, else the smallest.
    """

    n_class: int
    n_left: int
    n_right: int
    left: bytes
    right: bytes
    matrix: bytes
    left_start: int
    right_end: int
    class_ranges: tuple[tuple[int, int, int], ...]
    representatives: tuple[int, ...]


def compile_boundaries(stages: Sequence[Stage]) -> BoundaryTables:
    """Tables of all stages in order; without stages, of "a text is one piece". Raises ProgramUnsupported with the path
    of the stage that is beyond the compiler."""
    budget = Budget()
    programs = [_compile_stage(stage) for stage in stages]
    sets = [chars for program in programs for chars in program.sets]
    last_path = stages[-1].path if stages else "pre_tokenizer"
    try:
        classes = classify(sets)
        tables = _one_piece(classes.n_class)
        first_set = 0
    except Unsupported as refusal:
        raise _refused(last_path, refusal) from None
    for stage, program in zip(stages, programs, strict=True):
        try:
            members = classes.members[first_set : first_set + len(program.sets)]
            first_set += len(program.sets)
            single = _stage_tables(program, members, classes.n_class, stage, budget)
            tables = single if stage is stages[0] else compose(tables, single, budget)
        except Unsupported as refusal:
            raise _refused(stage.path, refusal) from None
    try:
        tables, merged = merge_classes(join_dropped(tables, budget))
        tables = minimize(tables, budget)
    except Unsupported as refusal:
        raise _refused(last_path, refusal) from None
    return _pack(tables, classes, merged)


def _refused(path: str, refusal: Unsupported) -> ProgramUnsupported:
    message = f"{path}: {refusal.component} is beyond the compiler ({refusal.reason})"
    return ProgramUnsupported(path, refusal.component, message)


def _compile_stage(stage: Stage) -> Program:
    if sum(given is not None for given in (stage.pattern, stage.literal, stage.char_set, stage.tree)) != 1:
        raise ValueError("a stage has exactly one of pattern, literal, char_set and tree")
    if stage.char_set not in (None, "numeric", "punctuation"):
        raise ValueError(f"no character set {stage.char_set!r}: expected numeric or punctuation")
    try:
        try:
            boundary_values(stage.behavior, stage.invert)
        except KeyError:
            raise Unsupported(f"behavior {stage.behavior}", "no behaviour of a Split") from None
        tree: Node
        if stage.pattern is not None:
            tree = parse(stage.pattern)
        elif stage.literal is not None:
            tree = parse_literal(stage.literal)
        elif stage.tree is not None:
            tree = stage.tree
        else:
            assert stage.char_set is not None
            tree = Chars(Table("char_set", stage.char_set))
        return compile_program(tree)
    except Unsupported as refusal:
        raise _refused(stage.path, refusal) from None


def _stage_tables(program: Program, members: tuple[int, ...], n_class: int, stage: Stage, budget: Budget) -> TwoSided:
    """Tables over all classes. They are built over the classes that this stage tells apart."""
    number: dict[tuple[int, ...], int] = {}
    own = [number.setdefault(tuple(m >> c & 1 for m in members), len(number)) for c in range(n_class)]
    own_members = tuple(sum(1 << k for k, key in enumerate(number) if key[s]) for s in range(len(members)))
    right = build_right_automaton(program, own_members, len(number), budget)
    tables = build_tables(program, right, len(number), stage.behavior, stage.invert, budget)
    left = tuple(tuple(row[k] for k in own) for row in tables.left)
    return TwoSided(left, tuple(tuple(row[k] for k in own) for row in tables.right), tables.matrix)


def _one_piece(n_class: int) -> TwoSided:
    """A text is one piece: left 0 at its start, right 0 at its end."""
    step = ((1,) * n_class,) * 2
    return TwoSided(step, step, (bytes((0, 1)), bytes((0, 0))))


def _pack(tables: TwoSided, classes: ClassMap, merged: tuple[int, ...]) -> BoundaryTables:
    ranges = join_ranges((first, last, merged[c]) for first, last, c in classes.ranges)
    smallest: dict[int, int] = {}
    printable: dict[int, int] = {}
    for first, last, c in ranges:
        smallest.setdefault(c, first)
        if first <= 0x7E and last >= 0x20:
            printable.setdefault(c, max(first, 0x20))
    assert not any(c in SURROGATES for c in smallest.values())
    return BoundaryTables(
        n_class=tables.n_class,
        n_left=len(tables.left),
        n_right=len(tables.right),
        left=b"".join(map(bytes, tables.left)),
        right=b"".join(map(bytes, tables.right)),
        matrix=b"".join(tables.matrix),
        left_start=0,
        right_end=0,
        class_ranges=ranges,
        representatives=tuple(printable.get(c, smallest[c]) for c in range(tables.n_class)),
    )
