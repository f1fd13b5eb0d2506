"""Planting the faults of native/faults/faults.def in a build with TOKTIER_FAULTS, and finding them by certification.

`python -S -P -m tests.support.planted KIND...` in such a build prints the first suite that finds each fault, cheap
suites first: the last column of docs/certification-faults.md.
Not here: the assertions (tests/certify/test_planted_faults.py), the faults themselves.
"""

from __future__ import annotations

import copy
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.certify_runs import changed_file
from tests.support.material import ROOT, SHARED, SMALL_DIR, Artifacts
from toktier import _native
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suite import Suite, SuitePlan
from toktier.certify.suites import SUITES
from toktier.certify.tally import Tally

SEED = 1
MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
FAULTS_FILE = ROOT / "native" / "faults" / "faults.def"
DOCUMENT = ROOT / "docs" / "certification-faults.md"
CHEAP = (
    "cases", "automaton", "classes", "added", "scanner", "normalization", "decoding", "vocabulary", "fuzz",
    "code-points", "sessions",
)  # fmt: skip
# What a faulted engine has no part in planning: planned once. The others are planned by the engine under test, as they
# would be if the fault were real.
PLANNED_ONCE = frozenset(
    ("tables", "cases", "automaton", "classes", "added", "decoding", "normalization", "fuzz", "code-points", "sessions")
)


@dataclass(frozen=True)
class Kind:
    """A subject. `lacks`: what the published ones lack and this one has; None for those every fault is tried on."""

    make: Callable[[Path], Path | None]
    lacks: str | None = None


def _with_template(document: Any) -> None:
    def special(token: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": 0}}

    ids = {a["content"]: a["id"] for a in document["added_tokens"]}
    names = ("<|im_start|>", "<|im_end|>")
    text = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [special(names[0]), text[0], special(names[1])],
        "pair": [special(names[0]), *text, special(names[1])],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in names},
    }


def _with_settings(document: Any) -> None:
    pad = document["added_tokens"][0]
    document["truncation"] = {"direction": "Right", "max_length": 40, "strategy": "LongestFirst", "stride": 0}
    document["padding"] = {
        "strategy": {"Fixed": 10}, "direction": "Right", "pad_to_multiple_of": 8, "pad_id": pad["id"],
        "pad_type_id": 0, "pad_token": pad["content"],
    }  # fmt: skip


def _without_merges(document: Any) -> None:
    """Every tenth product of merges, of those that no other merge uses, can only be taken whole."""
    model = document["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    used = {part for merge in merges for part in merge}
    ends = [merge for merge in merges if "".join(merge) not in used]
    gone = set(ends[::10])
    assert gone
    model["merges"] = [list(merge) for merge in merges if merge not in gone]


def _without_fallback(document: Any) -> None:
    document["model"]["byte_fallback"] = False


def _qwen3(directory: Path) -> Path | None:
    return None if SHARED is None else Artifacts(SHARED, directory).path("qwen3")


def _changed(base: Path, change: Callable[[Any], None]) -> Callable[[Path], Path]:
    return lambda directory: changed_file(base, directory / "tokenizer.json", change)


KINDS: dict[str, Kind] = {
    "mini": Kind(lambda _: MINI),
    "qwen3": Kind(_qwen3),
    "llama": Kind(lambda _: SMALL_DIR / "llama_like.json", "byte fallback, Replace and a template"),
    "flags": Kind(
        lambda _: SMALL_DIR / "gpt2_like.json", "strip and word flags, normalized added tokens, prefix space, trimming"
    ),
    "template": Kind(_changed(MINI, _with_template), "special tokens before and behind the text"),
    "settings": Kind(_changed(MINI, _with_settings), "truncation and padding"),
    "unmerged": Kind(
        _changed(SMALL_DIR / "o200k_like.json", _without_merges), "`ignore_merges` with tokens that no merges make"
    ),
    "unknown": Kind(_changed(SMALL_DIR / "llama_like.json", _without_fallback), "characters that have no token"),
}


@dataclass
class Found:
    """What found a fault, and one failure as the tally kept it."""

    suite: Suite
    plan: SuitePlan
    block: int
    failure: dict[str, Any]


class Bench:
    """A subject under planted faults. `directory`: for programs and generated suites."""

    def __init__(self, path: Path, directory: Path) -> None:
        _native.set_fault("")
        self._directory, self._plans = directory, dict[str, SuitePlan]()
        self._base = Subject(path, home=directory)
        for fact in ("spec", "boundary", "automaton", "program_file", "meta", "reference"):
            getattr(self._base, fact)

    def look(self, fault: str, suites: Sequence[Suite]) -> Iterator[Found]:
        """Plants `fault` ("": none) and runs suites at the quick level; of each the first block that fails."""
        try:
            subject = self._opened(fault)
            for suite in suites:
                plan = self._plan(suite, subject)
                for block in range(plan.blocks):
                    tally = _run(suite, plan, block, subject)
                    if tally.failures:
                        yield Found(suite, plan, block, tally.failures[0])
                        break
        finally:
            _native.set_fault("")

    def agrees_without(self, found: Found) -> bool:
        """Whether the block that found a fault passes where none is planted."""
        return not _run(found.suite, found.plan, found.block, self._opened("")).failures

    def _opened(self, fault: str) -> Subject:
        """The subject opened with a fault planted. What suites generate with the engine is kept apart."""
        _native.set_fault(fault)
        subject = copy.copy(self._base)
        assert subject.tokenizer
        subject.home = Path(tempfile.mkdtemp(dir=self._directory))
        return subject

    def _plan(self, suite: Suite, subject: Subject) -> SuitePlan:
        if suite.name not in PLANNED_ONCE:
            return suite.plan(subject, Level.QUICK, SEED)
        if suite.name not in self._plans:
            self._plans[suite.name] = suite.plan(subject, Level.QUICK, SEED)
        return self._plans[suite.name]


def _run(suite: Suite, plan: SuitePlan, block: int, subject: Subject) -> Tally:
    tally = Tally(subject, suite.name, block)
    suite.run(subject, Level.QUICK, SEED, plan, block, tally)
    assert tally.counts.routed == 0, "the reference served"
    return tally


def ordered() -> list[Suite]:
    """All suites, those that cost little first."""
    places = {name: place for place, name in enumerate(CHEAP)}
    return sorted(SUITES, key=lambda suite: places.get(suite.name, len(CHEAP)))


def recorded() -> dict[str, tuple[str, dict[str, str]]]:
    """By fault, what the document says: its meaning, and by kind the names of the suites that find it."""
    rows = [line.strip("|").split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    return {
        cells[0].strip().strip("`"): (cells[1].strip(), dict(part.strip().split(": ") for part in cells[2].split("; ")))
        for cells in rows
    }


def finder(name: str, kind: str) -> Suite:
    """The suite that finds a fault first, as the document has it."""
    wanted = recorded()[name][1][kind].split(", ")[0]
    return next(suite for suite in SUITES if suite.name == wanted)


def listed() -> list[tuple[str, str, str]]:
    """Name, kinds and meaning of every fault, read from the table: any build can."""
    rows = re.findall(r'TOKTIER_FAULT_ROW\((\w+),\s*"([^"]*)",\s*"((?:[^"\\]|\\.)*)"\)', FAULTS_FILE.read_text())
    return [(name, on, meaning.replace('\\"', '"').replace("\\\\", "\\")) for name, on, meaning in rows]


def places(name: str) -> list[str]:
    """Files, of the engine or beside the list, in which a fault is planted."""
    mark = f"TOKTIER_FAULT({name})"
    parts = (FAULTS_FILE.parent, *(ROOT / "native" / part for part in ("engine", "session", "bind")))
    sources = [path for part in parts for path in sorted(part.rglob("*.[ch]*"))]
    return [path.name for path in sources if mark in path.read_text()]


def main(kinds: Sequence[str]) -> None:
    """Prints a line for each fault that can show on one of the kinds."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as directory:
            path = KINDS[kind].make(Path(directory))
            assert path is not None, f"{kind} is not here"
            bench = Bench(path, Path(directory))
            for name, on, _ in listed():
                if kind in on.split():
                    found = next(bench.look(name, ordered()), None)
                    print(name, kind, found.suite.name if found else "NOT FOUND", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
