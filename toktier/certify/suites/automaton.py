"""Every entry of the pre-tokenizer's tables, in the W-method sense, and the mutation score: the texts see them all.

The suites of `toktier/program/coverage.py`: the two-sided one of the boundary tables, with 0 (quick), 1 (standard) or 2
(exhaustive) extra states, and that of the one-pass form. Agreement on them says: if the reference's boundary function
has at most that many more states over these classes, it is ours. Each string is a text twice, of representatives and of
other members of its classes, and is compared twice: by its pieces (`boundaries`) and as a full encoding.

The mutation score needs no reference: the tables that it starts from are those that the reference has confirmed.
Not here: whether code points have the right class (`code_points`).
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toktier._native import boundary_mutants, token_mutants
from toktier.certify.boundaries import boundary_facts, check_boundaries, class_choices, texts_of, why_not
from toktier.certify.levels import Level
from toktier.certify.suite import Suite, SuitePlan
from toktier.program.boundary import BoundaryTables
from toktier.program.coverage import characterising_before, characterising_behind, token_suite, w_suite
from toktier.program.equivalence import first_difference

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally
    from toktier.program.token_automaton import TokenAutomaton

BLOCK = 10_000  # strings, two texts each: about half a second
MAX_STRINGS = 2_000_000
EXTRA_STATES = {Level.QUICK: 0, Level.STANDARD: 1, Level.EXHAUSTIVE: 2}
_TABLES = ("left", "right", "matrix")


@dataclass(frozen=True, slots=True)
class _Strings:
    strings: list[bytes]
    choices: list[list[str]]


class AutomatonSuite(Suite):
    name = "automaton"
    meaning = (
        "every entry of the pre-tokenizer's tables: two-sided W-method with 0, 1 or 2 extra states by level, and the "
        "one-pass form, by pieces and by full encodings; the k = 0 suite must notice every changed entry"
    )

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        tables = subject.boundary
        why = why_not(subject)
        if tables is None or why is not None:
            return SuitePlan(0, why=why)
        facts: dict[str, Any] = boundary_facts(subject)
        extra = EXTRA_STATES[level]
        while extra and (bound := most_strings(tables, extra)) > MAX_STRINGS:
            facts[f"extra_{extra}_not_run"] = f"up to {bound} strings, over the limit of {MAX_STRINGS}"
            extra -= 1
        basic, strings = w_suite(tables), w_suite(tables, extra)
        one_pass = [] if subject.automaton is None else token_suite(subject.automaton)
        facts |= {"extra_states": extra, "two_pass_strings": len(strings), "one_pass_strings": len(one_pass)}
        facts |= two_pass_score(tables, basic)
        if subject.automaton is not None:
            facts |= one_pass_score(subject.automaton, one_pass)
        strings = sorted({*strings, *one_pass} - {b""}, key=lambda string: (len(string), string))
        facts |= {"strings": len(strings), "texts": 2 * len(strings)}
        return SuitePlan(-(-len(strings) // BLOCK), facts, None, _Strings(strings, class_choices(tables, f"{seed}")))

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        kept = plan.payload
        assert isinstance(kept, _Strings)
        strings = kept.strings[block * BLOCK : (block + 1) * BLOCK]
        texts = list(texts_of(strings, kept.choices))
        texts += texts_of(strings, kept.choices, random.Random(f"automaton {seed} {block}"))
        check_boundaries(tally, texts)
        for text in texts:
            tally.text(text)


def most_strings(tables: BoundaryTables, extra: int) -> int:
    """What a W-method suite has at most, before equal strings fall together."""
    middles: int = sum(tables.n_class**length for length in range(extra + 2))
    behind, before = len(characterising_behind(tables)), len(characterising_before(tables))
    left, right = tables.n_left + 1, tables.n_right + 1
    return middles * (left * behind + right * before + left * right)


def two_pass_score(tables: BoundaryTables, strings: list[bytes]) -> dict[str, Any]:
    """Of all single-entry changes of the boundary tables: killed by the strings, equal on every text, or survivors."""
    score = boundary_mutants(
        tables.n_class, tables.n_left, tables.n_right, tables.left, tables.right, tables.matrix,
        tables.left_start, tables.right_end, strings,
    )  # fmt: skip
    survivors = [m for m in score["survivors"] if first_difference(tables, _changed(tables, *m)) is not None]
    facts = {
        "two_pass_mutants": score["tested"],
        "two_pass_mutants_killed": score["killed"],
        "two_pass_mutants_equivalent": len(score["survivors"]) - len(survivors),
        "two_pass_mutants_survived": len(survivors),
    }
    if survivors:
        facts["two_pass_survivors_first"] = " ".join(f"{_TABLES[t]}[{place}]={v}" for t, place, v in survivors[:20])
    return facts


def _changed(tables: BoundaryTables, table: int, place: int, value: int) -> BoundaryTables:
    old: bytes = getattr(tables, _TABLES[table])
    change: dict[str, Any] = {_TABLES[table]: old[:place] + bytes((value,)) + old[place + 1 :]}
    return dataclasses.replace(tables, **change)


def one_pass_score(automaton: TokenAutomaton, strings: list[bytes]) -> dict[str, Any]:
    """The same of the one-pass form, its own suite, among the changes that the program reader would take."""
    score = token_mutants(
        automaton.n_class, automaton.n_state, automaton.start, automaton.next, automaton.actions,
        automaton.eof, automaton.pending, strings,
    )  # fmt: skip
    return {
        "one_pass_mutants": score["tested"],
        "one_pass_mutants_killed": score["killed"],
        "one_pass_mutants_equivalent": score["equivalent"],
        "one_pass_mutants_survived": len(score["survivors"]),
        "one_pass_mutants_refused_by_reader": score["refused"],
    }
