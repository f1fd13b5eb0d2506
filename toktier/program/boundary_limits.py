"""What the boundary compiler refuses, and how far it goes before it does: one exception and the bounds of the work.

The bounds are far above every published pre-tokenizer (at most 130 program points, 70 automaton states) and low enough
that a hostile pattern is refused within about a second and 50 MB. They count work, not time, so that a file is
accepted on every host or on none. Not here: the JSON path of the refusal, which `toktier.program.boundary` adds.
"""

from __future__ import annotations

MAX_PATTERN_LENGTH = 20_000  # code points of one pattern
MAX_NESTING = 24  # groups and sets inside each other: keeps recursion over the tree far from Python's limit of 1,000
MAX_QUANTIFIERS = 3  # on one atom, for the same reason
MAX_SETS = 1_000  # different sets, spans and tables of all patterns, and ways in which they overlap
MAX_POINTS = 3_000  # program points after the expansion of {n,m}
MAX_CLASSES = 255  # canonical ones must fit a byte; raw ones are bounded alike
MAX_STATES = 255  # of a minimal automaton: must fit a byte
MAX_RAW_STATES = 4_000  # of an automaton under construction
MAX_WORK = 2_000_000  # table entries computed for one pre-tokenizer; published ones need up to 285,000


class Unsupported(Exception):
    """`component` is beyond the compiler because of `reason`. Internal: becomes ProgramUnsupported with a path."""

    def __init__(self, component: str, reason: str) -> None:
        super().__init__(f"{component}: {reason}")
        self.component = component
        self.reason = reason


class Budget:
    """Work left for one pre-tokenizer; every construction pays before it computes."""

    def __init__(self, work: int = MAX_WORK) -> None:
        self._left = work

    def spend(self, entries: int) -> None:
        """Raises Unsupported when the bound is passed."""
        self._left -= entries
        if self._left < 0:
            raise Unsupported("regex too large", f"its automata need more than {MAX_WORK:,} table entries")


def check_raw_states(n: int) -> None:
    """Raises Unsupported for an automaton that grows past MAX_RAW_STATES before it is minimal."""
    if n > MAX_RAW_STATES:
        raise Unsupported("regex too large", f"more than {MAX_RAW_STATES:,} automaton states")
