"""Hostile stages are refused by counted work, in bounded memory; published pre-tokenizers stay far below the bounds."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.support.boundary_cases import WRITTEN, shared_cases
from toktier.errors import ProgramUnsupported
from toktier.program import boundary
from toktier.program.boundary import Stage, compile_boundaries
from toktier.program.boundary_limits import MAX_RAW_STATES, MAX_WORK, Budget, Unsupported, check_raw_states

MOST_MEMORY = 50 << 20  # bytes

IDEOGRAPHS = [chr(0x4E00 + 7 * i) for i in range(2_500)]
PAIRS = list(zip(IDEOGRAPHS[::2], IDEOGRAPHS[1::2], strict=True))
REFUSED = {
    "nested intervals": r"a{1000}{1000}{1000}",
    "intervals of groups": r"(?:(?:(?:a{100}){100}){100}){100}",
    "an interval longer than a byte": r"a{1,255}",
    "a long interval": r"a{1,1000}",
    "remembering what is ahead": r"(?:a|b){12}a(?:a|b)*c",
    "remembering what is behind": r"(?:a|b)*a(?:a|b){12}c",
    "many look-aheads": "|".join(f"(?=.*{c})a" for c in IDEOGRAPHS[:12]),
    "counters in counters": r"(?:(?:a{1,9}?){1,9}?){1,9}?b",
    "two long counters": r"[ab]{200}c|[bc]{201}a",
    "many alternatives": "|".join(IDEOGRAPHS),
    "many classes": "".join(f"[{a}-{b}]" for a, b in zip(IDEOGRAPHS[:300], IDEOGRAPHS[600:900], strict=True)),
    "many sets in one": "[" + "".join(f"[{c}]" for c in IDEOGRAPHS[:1_500]) + r"\s[\d]]" + "".join(IDEOGRAPHS[:1_200]),
    "a long literal": "ab" * 400,
    "many atomic ways": "(?>" * 20 + r"[ab]{1,9}c?" + "){1,2}d" * 20,
}
COMPILED = {
    "a set of thousands": "[" + "".join(IDEOGRAPHS) + "]",
    "a set of thousands of ranges": "[" + "".join(f"{a}-{b}" for a, b in PAIRS) + "]",
    "nested repetition": r"(?:a+)+(?:a+)+(?:a+)+b",
    "nested lazy repetition": "(?:" * 20 + "a" + ")+?+" * 20,
    "counters that do not count": r"(?:(?:a|b)+c?){1,40}d",
    "unmeetable look-aheads": r"(?=a{50}b)(?=a{30}c)[abc]+",
    "an interval that fits a byte": r"a{1,250}",
}  # fmt: skip


@pytest.mark.parametrize("pattern", REFUSED.values(), ids=REFUSED)
def test_hostile_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ProgramUnsupported) as refused:
        compile_boundaries([Stage("stage", pattern=pattern)])
    assert refused.value.path == "stage"
    assert refused.value.component in ("regex too large", "character classes")


@pytest.mark.parametrize("name", ["remembering what is behind", "many alternatives", "many classes"])
def test_hostile_patterns_are_refused_in_little_memory(name: str) -> None:
    """The ones that allocate most; tracing is too slow for all of them."""
    tracemalloc.start()
    try:
        with pytest.raises(ProgramUnsupported):
            compile_boundaries([Stage("stage", pattern=REFUSED[name])])
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pattern", COMPILED.values(), ids=COMPILED)
def test_patterns_that_only_look_hostile_are_compiled(pattern: str) -> None:
    tables = compile_boundaries([Stage("stage", pattern=pattern)])
    assert max(tables.n_left, tables.n_right, tables.n_class) <= 255


def test_stages_that_multiply_are_refused() -> None:
    """Each stage counts modulo another prime: two count modulo the product, and three are too many."""
    chain = [Stage(f"stage {n}", pattern=f"a{{{n}}}", behavior="Contiguous") for n in (11, 13, 17)]
    assert compile_boundaries(chain[:2]).n_left > 11 * 13
    with pytest.raises(ProgramUnsupported) as refused:
        compile_boundaries(chain)
    assert refused.value.component == "regex too large"


def test_published_pre_tokenizers_need_a_fifth_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "Budget", lambda: Budget(MAX_WORK // 5))
    for case in [*WRITTEN.values(), *(c.stages for c in shared_cases())]:
        compile_boundaries([Stage("s", pattern=p, behavior=b, invert=v) for p, b, v in case])
    monkeypatch.setattr(boundary, "Budget", lambda: Budget(MAX_WORK // 500))
    with pytest.raises(ProgramUnsupported, match="table entries"):
        compile_boundaries([Stage("s", pattern=WRITTEN["o200k"][0][0])])


def test_bounds() -> None:
    budget = Budget(10)
    budget.spend(10)
    with pytest.raises(Unsupported):
        budget.spend(1)
    check_raw_states(MAX_RAW_STATES)
    with pytest.raises(Unsupported):
        check_raw_states(MAX_RAW_STATES + 1)


@pytest.mark.parametrize(
    "stage",
    [
        Stage("s"),
        Stage("s", pattern="a", literal="a"),
        Stage("s", literal="a", char_set="numeric"),
        Stage("s", char_set="letters"),
    ],
)
def test_a_stage_that_is_none_is_a_fault_of_the_caller(stage: Stage) -> None:
    with pytest.raises(ValueError, match=r"exactly one of|no character set"):
        compile_boundaries([stage])


def test_unknown_behaviour_is_refused() -> None:
    with pytest.raises(ProgramUnsupported) as refused:
        compile_boundaries([Stage("pre_tokenizer.behavior", pattern="a", behavior="Shuffled")])
    assert refused.value.component == "behavior Shuffled"
