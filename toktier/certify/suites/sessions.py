"""Sessions: at every step of random edit scripts the ids are those of a fresh encoding of the whole text.

Short scripts are many, because what goes wrong at a cut shows in a few characters; some begin with a text in which a
session keeps places to begin; a few appends are longer than the blocks that a session encodes at once and than what
threads share. A script is what fails, and what is shortened (`edit_scripts`). Not here: stores, names, several threads
at one session (tests).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from toktier.certify.edit_scripts import Edit, Material, Script, long_text, random_script
from toktier.certify.levels import Level
from toktier.certify.representatives import NEIGHBOURS
from toktier.certify.suite import Suite, SuitePlan
from toktier.certify.suites.fuzz import vocabulary_texts

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

BLOCKS = {Level.QUICK: 4, Level.STANDARD: 40, Level.EXHAUSTIVE: 800}
SHORT, WITH_PLACES = 200, 9  # scripts of a block, about a quarter of a second
EDITS = 12  # of a script
BASE = (600, 1_100, 1_900)  # code points that a script with places begins with
LONG_BLOCKS = {Level.QUICK: 2, Level.STANDARD: 12, Level.EXHAUSTIVE: 80}
# Code points around which the work of an append changes: a block near the end and one before it, each with the half
# that is not worth a block of its own, and the stretch near the end (native/session/span_encoder.h).
SIZES = (512, 768, 4_096, 6_144, 65_536)
SHARED = 270_000  # what threads share


class SessionsSuite(Suite):
    name = "sessions"
    meaning = (
        "seeded random scripts of appends, edits at any code point, cuts of the end, whole texts and sessions opened "
        "again, of graphemes, line ends and added tokens half typed, edges of classes, runs without a place to cut; "
        "appends beyond the sizes of blocks and of what threads share: after every edit the patches alone give the ids "
        "of the whole text"
    )

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        if subject.on_device:
            return SuitePlan(0, why="sessions are of the engine on the CPU, whatever serves other calls")
        if subject.third_party is not None:
            return SuitePlan(0, why="sessions on an engine of others encode the whole text at every change")
        if subject.spec.truncation is not None or subject.spec.padding is not None:
            return SuitePlan(0, why="the file stores truncation or padding, and sessions are refused for it")
        material = Material(
            [placed.token.content for placed in subject.spec.added_tokens],
            class_edges(subject),
            vocabulary_texts(subject),
        )
        blocks, long = BLOCKS[level], LONG_BLOCKS[level]
        facts: dict[str, Any] = {
            "scripts": blocks * (SHORT + WITH_PLACES) + long,
            "added_tokens": len(material.added),
            "edges": len(material.edges),
        }
        return SuitePlan(blocks + long, facts, payload=material)

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        rng = random.Random(f"sessions {seed} {block}")
        material: Material = plan.payload
        if block >= BLOCKS[level]:
            shared = (block - BLOCKS[level]) % 2 == 0
            tally.script(_shared_script(rng, material) if shared else _blocks_script(rng, material))
            return
        for _ in range(SHORT):
            tally.script(random_script(rng, material, EDITS))
        for _ in range(WITH_PLACES):
            tally.script(random_script(rng, material, EDITS, rng.choice(BASE)))


def class_edges(subject: Subject) -> list[str]:
    """First and last characters of the ranges of the classes that the pre-tokenizer tells apart: of each class the
    first and the last ones, and some between. And what added tokens and normalizers look at."""
    if subject.boundary is None:
        return list(NEIGHBOURS)
    ranges: dict[int, list[tuple[int, int]]] = {}
    for low, high, number in subject.boundary.class_ranges:
        ranges.setdefault(number, []).append((low, high))
    edges = {
        point
        for parts in ranges.values()
        for part in (*parts[:4], *parts[4:-2:16], *parts[-2:])
        for point in part
        if not 0xD800 <= point <= 0xDFFF
    }
    return list(dict.fromkeys((*map(chr, sorted(edges)), *NEIGHBOURS)))


def _shared_script(rng: random.Random, material: Material) -> Script:
    """An append that threads share, and edits in what the first and a later one of them made."""
    text = long_text(rng, material, SHARED)
    return (
        Edit("append", text[:700]),
        Edit("append", text[700:]),
        Edit("append", rng.choice((" end", "\n", "s"))),
        Edit("replace", "x", rng.randint(SHARED // 2, SHARED - 40_000)),
        Edit("present", text[: rng.randint(2_000, 20_000)] + " y"),
    )


def _blocks_script(rng: random.Random, material: Material) -> Script:
    """Appends of about the sizes of blocks, then edits among the places that they left, near the end and before."""
    script = [Edit("append", long_text(rng, material, size + rng.randint(-3, 9))) for size in SIZES]
    size = sum(len(edit.text) for edit in script)
    whole = "".join(edit.text for edit in script)
    changed = rng.randint(4_096, 12_000)
    script.append(Edit("present", whole[:changed] + "q" + whole[changed + 1 :]))
    script += [Edit("replace", rng.choice(("", "z", "\u0301")), size - back) for back in (3, 9_000, 66_000)]
    return tuple(script)
