"""Every token of the vocabulary produced, every live merge rule fired, the order of overlapping rules told apart.

Texts come from native/coverage through `vocabulary_cache`; what no text can show is counted by its proof
(`vocabulary_outcomes`), and the rest as open. The claims are our engine's until the reference has given the same ids
for each text, which is what the blocks check. Not here: added tokens in context, pieces longer than any token, corpora.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toktier.certify.levels import Level
from toktier.certify.suite import SuitePlan, TextSuite, blocks_of
from toktier.certify.vocabulary_cache import VocabularyCoverage, vocabulary_coverage
from toktier.certify.vocabulary_outcomes import PROOFS, Outcome
from toktier.program.layout import TokenFlag

if TYPE_CHECKING:
    from toktier.certify.subject import Subject

BLOCK = 300_000  # code points, of which a call counts sixteen: about half a second
QUICK_RANK_ONE_IN = 8  # of the texts about ranks
TOGETHER = 64  # tokens of a document
LONG = 12  # characters
LISTED = 100  # open ids that are named


@dataclass(frozen=True, slots=True)
class _Texts:
    texts: list[str]
    blocks: list[tuple[int, int]]


class VocabularySuite(TextSuite):
    name = "vocabulary"
    meaning = (
        "each token produced and each live merge rule fired at least once, or proved impossible, or counted as open; "
        "overlapping rules told apart by rank. Quick joins the texts into documents in which all of it still shows, "
        "and takes one in eight of those about ranks; above it each text stands alone. A token for which no text was "
        "found is tried by its own; and every token stands inside a longer piece, where merges must make it"
    )
    version = 2

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        coverage = vocabulary_coverage(subject, self.version)
        texts = _texts(coverage, level) + _not_shown(subject, coverage) + _inside(subject)
        blocks = blocks_of(texts, BLOCK)
        facts = {**vocabulary_facts(subject, coverage), "documents": len(texts)}
        facts["code_points"] = sum(map(len, texts))
        why = None if blocks else "no token of the vocabulary can be produced"
        return SuitePlan(len(blocks), facts, why, _Texts(texts, blocks))

    def texts(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int) -> Iterable[str]:
        kept = plan.payload
        assert isinstance(kept, _Texts)
        begin, end = kept.blocks[block]
        return kept.texts[begin:end]


def _texts(coverage: VocabularyCoverage, level: Level) -> list[str]:
    if level is Level.QUICK:
        return coverage.documents + coverage.rank_texts[::QUICK_RANK_ONE_IN]
    return coverage.texts + coverage.rank_texts


def _not_shown(subject: Subject, coverage: VocabularyCoverage) -> list[str]:
    """The own text of each token that no text was found for: that there is none is our engine's word, and where a merge
    is missing it is wrong."""
    own = _own_texts(subject)
    claimed = [i for i, outcome in enumerate(coverage.tokens) if outcome not in (Outcome.SHOWN, Outcome.ABSENT)]
    return [own[token] for token in claimed if token in own]


def _inside(subject: Subject) -> list[str]:
    """Every token of the model with a character behind it that goes on with its piece, many to a document: a piece that
    is a token is looked up whole, and would hide a merge that is missing. Long pieces are cut where no merge crosses,
    so tokens of many bytes also stand before an ASCII character."""
    flags = subject.program_file.section("TFLG")
    shown: list[str] = []
    for token, text in _own_texts(subject).items():
        if flags[token] & TokenFlag.MODEL:
            letter = text[-1].isalpha()
            shown.append(text + ("\u01c2" if letter else "\u00a7"))
            if len(text) > LONG:
                shown.append(text + ("q" if letter else text[-1]))
    return ["\n".join(shown[begin : begin + TOGETHER]) for begin in range(0, len(shown), TOGETHER)]


def _own_texts(subject: Subject) -> dict[int, str]:
    """By id, the bytes that it reads, where they are a text and not empty."""
    program = subject.program_file
    starts, raw = memoryview(program.section("RAWO")).cast("I"), program.section("RAWB")
    texts: dict[int, str] = {}
    for token in range(len(starts) - 1):
        with contextlib.suppress(UnicodeDecodeError):
            texts[token] = bytes(raw[starts[token] : starts[token + 1]]).decode()
    return {token: text for token, text in texts.items() if text}


def vocabulary_facts(subject: Subject, coverage: VocabularyCoverage) -> dict[str, Any]:
    """Figures of coverage. Tokens are the model's; added tokens beyond it are counted apart. Rules are the live ones:
    dead ones are proved when the program is compiled. Texts are all that were found, whatever the level takes of them.
    """
    flags = subject.program_file.section("TFLG")
    model = [i for i, flag in enumerate(flags) if flag & TokenFlag.MODEL]
    added = [i for i, flag in enumerate(flags) if flag & TokenFlag.EXISTS and not flag & TokenFlag.MODEL]
    rules = [rank for rank, outcome in enumerate(coverage.rules) if outcome != Outcome.ABSENT]
    return {
        **_counted("tokens", "produced", "unreachable", model, coverage.tokens),
        **_counted("added_tokens", "produced", "unreachable", added, coverage.tokens),
        **_counted("rules", "fired", "blocked", rules, coverage.rules),
        "rules_dead": subject.meta["model"]["merges_dead"],
        "texts": len(coverage.texts),
        "rank_texts": len(coverage.rank_texts),
        **coverage.counts,
    }


def _counted(what: str, shown: str, impossible: str, members: list[int], outcomes: bytes) -> dict[str, Any]:
    counts = Counter(outcomes[member] for member in members)
    still_open = [member for member in members if outcomes[member] == Outcome.OPEN]
    return {
        what: len(members),
        f"{what}_{shown}": counts[Outcome.SHOWN],
        f"{what}_{impossible}": sum(counts[proof] for proof in PROOFS),
        **{f"{what}_{impossible}_{proof.name.lower()}": counts[proof] for proof in PROOFS if counts[proof]},
        f"{what}_open": len(still_open),
        **({f"{what}_open_first": " ".join(map(str, still_open[:LISTED]))} if still_open else {}),
    }
