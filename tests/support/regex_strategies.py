"""Random patterns of the supported subset, and random chains of stages, for laws. A pattern may still be refused (it
can match the empty text, or repeats what can): laws assume that `try_compile` gives tables."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.support.boundary_reference import BEHAVIORS
from toktier.errors import ProgramUnsupported
from toktier.program.boundary import BoundaryTables, Stage, compile_boundaries

LETTERS = "ab\n 1"
_ATOMS = (
    "a", "b", "1", " ", r"\n", ".", "[ab]", "[^a]", r"\s", r"\S", r"\d", r"[a1\n]", r"[^\s1]", r"\p{L}", r"\P{L}",
    r"[^\p{L}\n]", r"[\p{L}&&[^a]]", "(?i:A)", r"(?i:[A1])",
)  # fmt: skip
_QUANTIFIERS = (
    "?", "*", "+", "??", "*?", "+?", "?+", "*+", "++", "{2}", "{1,2}", "{,2}", "{2,}", "{1,3}+", "{1,2}?", "{2}?",
)  # fmt: skip


def _extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map(lambda p: f"(?:{p})")
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda branches: f"({'|'.join(branches)})"),
        st.tuples(group, st.sampled_from(_QUANTIFIERS)).map("".join),
        inner.map(lambda p: f"(?>{p})"),
        inner.map(lambda p: f"(?={p})"),
        inner.map(lambda p: f"(?!{p})"),
        inner.map(lambda p: f"(?:{p}|)"),
        st.tuples(inner, st.sampled_from(("$", r"\z", r"\Z"))).map("".join),
    )


def patterns(max_leaves: int = 8) -> st.SearchStrategy[str]:
    """Whole patterns, mostly of a few alternatives as pre-tokenizers have them."""
    branch = st.recursive(st.sampled_from(_ATOMS), _extend, max_leaves=max_leaves)
    # A character in front or behind lets most patterns take at least one.
    branch = st.one_of(branch, st.tuples(st.sampled_from(_ATOMS), branch).map("".join))
    return st.lists(branch, min_size=1, max_size=3).map("|".join)


def stages(max_leaves: int = 8) -> st.SearchStrategy[Stage]:
    behavior = st.sampled_from(sorted(BEHAVIORS))
    return st.one_of(
        st.builds(
            lambda p, b, i: Stage("stage", pattern=p, behavior=b, invert=i),
            patterns(max_leaves),
            behavior,
            st.booleans(),
        ),
        st.builds(
            lambda p, b, i: Stage("stage", literal=p, behavior=b, invert=i),
            st.text(LETTERS, min_size=1, max_size=3),
            behavior,
            st.booleans(),
        ),
        st.sampled_from(("Isolated", "Contiguous")).map(lambda b: Stage("stage", char_set="numeric", behavior=b)),
        st.sampled_from(sorted(BEHAVIORS)).map(lambda b: Stage("stage", char_set="punctuation", behavior=b)),
    )


def try_compile(chain: Sequence[Stage]) -> BoundaryTables | None:
    """The tables; None where the compiler refuses."""
    try:
        return compile_boundaries(chain)
    except ProgramUnsupported:
        return None
