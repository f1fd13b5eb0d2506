"""Boundary tables of whole pre-tokenizers: known sizes, known equalities, and the installed reference on every class
string, on hostile texts, for every behaviour, and for random patterns."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.boundary_cases import WRITTEN, SplitCase, shared_cases
from tests.support.boundary_reference import (
    BEHAVIORS,
    class_texts,
    first_mismatch,
    hostile_texts,
    pieces,
    texts_over,
)
from tests.support.material import SHARED
from tests.support.regex_oracle import split_all
from tests.support.regex_strategies import LETTERS, stages, try_compile
from toktier.program.boundary import BoundaryTables, Stage, compile_boundaries
from toktier.program.class_map import LAST_CODE_POINT

LONGEST_AT_ONCE = 250_000  # texts of one reference call: bounds the memory of the list of pieces
MANY_CLASSES = 10  # from here on the texts of five characters are 100,000 to millions
SAMPLED = 13  # one of so many of these in CI; shares no factor with 10, 11, 12, 19 and 21, the classes of these

# (classes, left, right) as ../shared/research found them with another program.
KNOWN_SIZES = {
    "gpt2": (10, 9, 10),
    "cl100k": (11, 13, 8),
    "one-digit": (11, 11, 8),
    "o200k": (19, 17, 25),
    "three-stage": (12, 15, 14),
}


def chain(case: tuple[tuple[str, str, bool], ...]) -> list[Stage]:
    return [Stage(f"stage {i}", pattern=p, behavior=b, invert=v) for i, (p, b, v) in enumerate(case)]


def pre_tokenizers() -> Iterator[tuple[str, tuple[tuple[str, str, bool], ...]]]:
    """Those written in the tests, and those of ../shared, by name; each distinct function once."""
    seen: set[BoundaryTables] = set()
    for name, case in [*WRITTEN.items(), *((f"shared {c.name}", c.stages) for c in shared_cases())]:
        tables = compile_boundaries(chain(case))
        if tables not in seen:
            seen.add(tables)
            yield name, case


each_pre_tokenizer = pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in pre_tokenizers()])
needs_shared = pytest.mark.skipif(SHARED is None, reason="needs ../shared/data/canonical_tables.json, not here")


@pytest.mark.parametrize("name", KNOWN_SIZES)
def test_sizes_are_the_known_ones(name: str) -> None:
    tables = compile_boundaries(chain(WRITTEN[name]))
    assert (tables.n_class, tables.n_left, tables.n_right) == KNOWN_SIZES[name]


@needs_shared
@pytest.mark.parametrize("case", shared_cases(), ids=lambda case: case.name)
def test_tables_are_those_found_by_another_program(case: SplitCase) -> None:
    ours, theirs = compile_boundaries(chain(case.stages)), case.tables
    assert (ours.n_class, ours.n_left, ours.n_right) == (theirs.n_class, theirs.n_left, theirs.n_right)
    class_of = [class_at(ours, code_point) for code_point in theirs.representatives]
    assert sorted(class_of) == list(range(ours.n_class))
    lefts = walk_together(theirs.left, theirs.left_start, ours.left, ours.left_start, class_of)
    rights = walk_together(theirs.right, theirs.right_end, ours.right, ours.right_end, class_of)
    assert sorted(lefts.values()) == list(range(ours.n_left))
    assert sorted(rights.values()) == list(range(ours.n_right))
    for i in range(theirs.n_left):
        for j in range(theirs.n_right):
            assert theirs.matrix[i * theirs.n_right + j] == ours.matrix[lefts[i] * ours.n_right + rights[j]]


def class_at(tables: BoundaryTables, code_point: int) -> int:
    return next(number for first, last, number in tables.class_ranges if first <= code_point <= last)


def walk_together(theirs: bytes, their_start: int, ours: bytes, our_start: int, class_of: list[int]) -> dict[int, int]:
    """Our state for each of their states; fails where the automata are not the same."""
    n = len(class_of)
    mapped, queue = {their_start: our_start}, [their_start]
    for state in queue:
        for c in range(n):
            target, our_target = theirs[state * n + c], ours[mapped[state] * n + class_of[c]]
            if target not in mapped:
                mapped[target] = our_target
                queue.append(target)
            assert mapped[target] == our_target
    return mapped


_CL100K = WRITTEN["cl100k"][0][0]
_O200K = WRITTEN["o200k"][0][0]
_ONE_DIGIT_POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            chain(WRITTEN["cl100k"]), [Stage("s", pattern=_CL100K, behavior="Removed", invert=True)], id="cl100k"
        ),
        pytest.param(
            chain(WRITTEN["o200k"]), [Stage("s", pattern=_O200K, behavior="Removed", invert=True)], id="o200k"
        ),
        pytest.param(
            chain(WRITTEN["one-digit"]), [Stage("s", pattern=_ONE_DIGIT_POSSESSIVE)], id="one digit, possessive"
        ),
        pytest.param(
            [Stage("s", pattern="a", behavior="Removed")], [Stage("s", pattern="a+", behavior="Removed")], id="one gap"
        ),
        pytest.param(
            [Stage("s", pattern=r"\p{N}", behavior="Isolated"), Stage("s", pattern="a", behavior="Removed")],
            [Stage("s", pattern="a", behavior="Removed"), Stage("s", pattern=r"\p{N}", behavior="Isolated")],
            id="order does not matter",
        ),
        pytest.param([Stage("s", literal="a+b")], [Stage("s", pattern=r"a\+b")], id="literal"),
        pytest.param([Stage("s", pattern="[^a-z&&[b-z]]")], [Stage("s", pattern="[a[^b-z]]")], id="set algebra"),
    ],
)
def test_equal_functions_have_equal_tables(one: list[Stage], other: list[Stage]) -> None:
    assert compile_boundaries(one) == compile_boundaries(other)


def test_unequal_functions_have_unequal_tables() -> None:
    patterns = [_CL100K, _O200K, WRITTEN["one-digit"][0][0], "a", "a+", "aa", "a|b", r"\s+", r"\s+(?!\S)|\s+"]
    found = {compile_boundaries([Stage("s", pattern=p)]) for p in patterns}
    found |= {compile_boundaries([Stage("s", pattern=p, behavior="Removed")]) for p in ("a", "aa", "a|b", r"\s+")}
    assert len(found) == len(patterns) + 4


def test_without_stages_a_text_is_one_piece() -> None:
    tables = compile_boundaries([])
    assert (tables.n_class, tables.n_left, tables.n_right) == (1, 2, 2)
    assert tables.class_ranges == ((0, LAST_CODE_POINT, 0),)
    assert pieces(tables, "one piece 1!") == [(0, 12)]
    assert compile_boundaries([Stage("s", pattern=r"[\s\S]", behavior="Contiguous")]) == tables


@each_pre_tokenizer
def test_every_class_string_splits_as_in_the_reference(case: tuple[tuple[str, str, bool], ...]) -> None:
    tables = compile_boundaries(chain(case))
    assert first_mismatch(chain(case), class_texts(tables, 4 if tables.n_class < 20 else 3), tables) is None


@pytest.mark.ci
@each_pre_tokenizer
def test_every_longer_class_string_splits_as_in_the_reference(case: tuple[tuple[str, str, bool], ...]) -> None:
    """Of those of five characters a sample where they are many: that no state is wrong is shown there by the suites
    for one extra state (test_coverage.py), with which the reference agrees in CI too."""
    tables = compile_boundaries(chain(case))
    five = class_texts_of(tables, 5)
    sampled = itertools.islice(five, 0, None, SAMPLED if tables.n_class >= MANY_CLASSES else 1)
    check_in_parts(case, tables, itertools.chain(class_texts(tables, 4), sampled))


@pytest.mark.full
@each_pre_tokenizer
def test_every_class_string_of_five_splits_as_in_the_reference(case: tuple[tuple[str, str, bool], ...]) -> None:
    tables = compile_boundaries(chain(case))
    check_in_parts(case, tables, class_texts_of(tables, 5))


def class_texts_of(tables: BoundaryTables, length: int) -> Iterator[str]:
    """Every text of `length` representatives."""
    return map("".join, itertools.product(map(chr, tables.representatives), repeat=length))


def check_in_parts(case: tuple[tuple[str, str, bool], ...], tables: BoundaryTables, texts: Iterable[str]) -> None:
    remaining = iter(texts)
    while part := list(itertools.islice(remaining, LONGEST_AT_ONCE)):
        assert first_mismatch(chain(case), part, tables) is None


@each_pre_tokenizer
def test_hostile_texts_split_as_in_the_reference(case: tuple[tuple[str, str, bool], ...]) -> None:
    tables = compile_boundaries(chain(case))
    texts = hostile_texts(tables, random.Random(20), 10_000)
    assert first_mismatch(chain(case), texts, tables) is None


@pytest.mark.ci
@each_pre_tokenizer
def test_many_hostile_texts_split_as_in_the_reference(case: tuple[tuple[str, str, bool], ...]) -> None:
    tables = compile_boundaries(chain(case))
    texts = hostile_texts(tables, random.Random(100), 30_000)
    assert first_mismatch(chain(case), texts, tables) is None


@pytest.mark.full
@each_pre_tokenizer
def test_very_many_hostile_texts_split_as_in_the_reference(case: tuple[tuple[str, str, bool], ...]) -> None:
    tables = compile_boundaries(chain(case))
    texts = hostile_texts(tables, random.Random(101), 100_000)
    assert first_mismatch(chain(case), texts, tables) is None


GAPPY = (
    "a", "ab", "a+", r"\s+", "[^a]", "[ab]1?", "a(?=b)", r"a(?!b)|\s", r"\d{1,2}|ab", r"[^ab]+$", "(?>a|ab)1|b",
)  # fmt: skip


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("pattern", GAPPY)
def test_every_behaviour_splits_as_in_the_reference(pattern: str, behavior: str, invert: bool) -> None:
    one = [Stage("stage", pattern=pattern, behavior=behavior, invert=invert)]
    tables = compile_boundaries(one)
    assert first_mismatch(one, texts_over(LETTERS, 5), tables) is None
    behind = [Stage("before", pattern=r"1| a?", behavior="MergedWithNext"), *one, Stage("behind", pattern="b")]
    assert first_mismatch(behind, texts_over(LETTERS, 4)) is None
    assert (2 in tables.matrix) == (behavior == "Removed")


@pytest.mark.parametrize("char_set", ["numeric", "punctuation"])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_character_sets_split_as_in_the_reference(char_set: str, behavior: str) -> None:
    if char_set == "numeric" and behavior not in ("Isolated", "Contiguous"):
        pytest.skip("the reference has no such Digits")
    one = [Stage("stage", char_set=char_set, behavior=behavior)]
    tables = compile_boundaries(one)
    edges = [chr(c) for first, last, _ in tables.class_ranges for c in (first, last) if not 0xD800 <= c < 0xE000]
    assert first_mismatch(one, [c + c + "a" + c for c in edges], tables) is None
    assert first_mismatch(one, texts_over("1²!$`a", 5), tables) is None


@pytest.mark.parametrize("char", [chr(c) for c in range(0x80)] + list("ßſK中é\u0301\U0001f600"))
def test_literals_mean_themselves(char: str) -> None:
    for literal in (char, char + "a", "a" + char):
        texts = [literal, literal * 2, "x" + literal + "y", literal.swapcase() + literal, literal.lower() + char]
        assert first_mismatch([Stage("stage", literal=literal, behavior="Removed")], texts) is None


@pytest.mark.parametrize("literal", [r"\p{N}{1,3}", r"\s+(?!\S)|\s+", "a|b", "[a]", "(?i:a)", "a{2}", ".", "▁▁"])
def test_literals_are_no_patterns(literal: str) -> None:
    texts = [literal, f"1{literal}1", literal * 3, "aab 12 ab", "A", "aa", "▁▁▁", " a\n"]
    assert first_mismatch([Stage("stage", literal=literal)], texts) is None


TEXTS = texts_over(LETTERS, 4) + [
    "".join(rng.choice(LETTERS) for _ in range(rng.randint(5, 14))) for rng in (random.Random(i) for i in range(400))
]
law = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@law
@given(st.lists(stages(), min_size=1, max_size=3))
def test_law_random_chains_split_as_in_the_reference(random_chain: list[Stage]) -> None:
    tables = try_compile(random_chain)
    assume(tables is not None)
    assert first_mismatch(random_chain, TEXTS, tables) is None


@law
@given(st.lists(stages(5), min_size=1, max_size=2), st.lists(st.text(LETTERS, max_size=8), min_size=10, max_size=20))
def test_law_random_chains_split_as_a_plain_backtracking_matcher(random_chain: list[Stage], texts: list[str]) -> None:
    tables = try_compile(random_chain)
    assume(tables is not None)
    assert tables is not None
    for text in texts:
        assert pieces(tables, text) == split_all(random_chain, text)


def _longer_chains_split_as_in_the_reference(random_chain: list[Stage]) -> None:
    tables = try_compile(random_chain)
    assume(tables is not None)
    assert first_mismatch(random_chain, TEXTS, tables) is None


longer_chains = given(st.lists(stages(14), min_size=1, max_size=4))


@pytest.mark.ci
@settings(law, max_examples=400)
@longer_chains
def test_law_many_random_chains_split_as_in_the_reference(random_chain: list[Stage]) -> None:
    _longer_chains_split_as_in_the_reference(random_chain)


@pytest.mark.full
@settings(law, max_examples=1_500)
@longer_chains
def test_law_very_many_random_chains_split_as_in_the_reference(random_chain: list[Stage]) -> None:
    _longer_chains_split_as_in_the_reference(random_chain)
