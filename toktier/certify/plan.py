"""The plan of a certification: everything that decides its counts and digests, addressed by its own digest.

Two runs with one plan digest make the same checks, so their evidence is comparable, and parts of them can be put
together. Shards are ranges of the flattened blocks of all suites. Not here: running (`workers`), results (`evidence`).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from toktier import resources
from toktier.canonical import TAG_CERTIFY_PLAN, canonical_json, document_digest
from toktier.certify.levels import Level
from toktier.certify.suite import Suite, SuitePlan
from toktier.errors import BackendUnavailable, EvidenceInvalid, UsageError
from toktier.labels import shown
from toktier.routing.vocabulary import Compared

if TYPE_CHECKING:
    from toktier.certify.subject import Subject

SCHEMA = "toktier.certify_plan"
REFERENCE_PACKAGE = "tokenizers"
MAX_BLOCKS = 1 << 24  # of a plan that others wrote: a pass over them takes seconds


@dataclass(frozen=True, slots=True)
class PlannedSuite:
    """What is planned of one suite. `blocks` 0: it has nothing to say of this subject, and `why` says so."""

    name: str
    version: int
    meaning: str
    blocks: int
    facts: Mapping[str, Any]
    why: str | None


@dataclass(frozen=True, slots=True)
class CorpusRecord:
    """What a plan says of a corpus: never a text of it, nor what anyone calls it. `sha256` is over the digests of its
    files, which are over those of their documents."""

    sha256: str
    documents: int
    utf8_bytes: int


@dataclass(frozen=True)
class Plan:
    """`document` is the canonical form with its digest; the rest is read from it."""

    document: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.document["digest"])

    @property
    def level(self) -> Level:
        return Level(self.document["level"])

    @property
    def seed(self) -> int:
        return int(self.document["seed"])

    @cached_property
    def suites(self) -> tuple[PlannedSuite, ...]:
        return tuple(PlannedSuite(**suite) for suite in self.document["suites"])

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(suite.blocks for suite in self.suites))

    @property
    def blocks(self) -> int:
        """Blocks of all suites."""
        return self._ends[-1] if self._ends else 0

    def locate(self, index: int) -> tuple[int, int]:
        """Number of the suite, and block within it, of a block of the whole plan."""
        suite = bisect_right(self._ends, index)
        return suite, index - (self._ends[suite] - self.suites[suite].blocks)

    def range_of(self, suite: int) -> range:
        """The blocks of the whole plan that are those of a suite."""
        return range(self._ends[suite] - self.suites[suite].blocks, self._ends[suite])

    def to_json(self) -> bytes:
        return canonical_json(self.document)


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` of `count`, counted from 1."""

    number: int = 1
    count: int = 1

    def range_of(self, total: int) -> range:
        """Every block lies in exactly one of the `count` ranges."""
        return range((self.number - 1) * total // self.count, self.number * total // self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """K/N with K from 1 to N. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(
            f"{shown(text)!r} is no shard: expected K/N with K from 1 to N, such as 2/7",
            remedy="toktier certify --help",
        )
    return Shard(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class Prepared:
    """A plan with what only the process that made it has: the subject and the payloads of its suites."""

    plan: Plan
    subject: Subject
    suites: tuple[Suite, ...]
    plans: tuple[SuitePlan, ...]


def make_plan(
    subject: Subject,
    suites: Sequence[Suite],
    level: Level,
    seed: int,
    name: str,
    planned: Callable[[], None] = lambda: None,
) -> Prepared:
    """Plans every suite; corpora are those of the subject. `planned` is called after each. Raises ProgramUnsupported
    for what does not compile, BackendUnavailable where the backend under test would not serve."""
    explained = subject.tokenizer.explain()
    if explained["backend"] != subject.backend.value:
        _ = subject.program_file  # says what the compiler does not know, where that is the reason
        gate = next((g for g in explained["gates"] if g["backend"] == subject.backend.value and not g["open"]), None)
        why = "" if gate is None else f": {gate['summary']}"
        raise BackendUnavailable(
            f"{subject.backend.value} is to be certified and would not serve {shown(name)}: "
            f"{explained['backend']} would{why}",
            details={"backend": subject.backend.value, "serves": explained["backend"]},
            remedy="toktier inspect FILE shows which gate closed",
        )
    plans = []
    for suite in suites:
        if suite.of_tables and subject.third_party is not None:
            plans.append(SuitePlan(0, why="it is about tables that an engine of others does not read"))
        else:
            plans.append(suite.plan(subject, level, seed))
        planned()
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": 1,
        "artifact": {
            "sha256": subject.sha256,
            "size": len(subject.data),
            "name": name,
            "fingerprint": subject.fingerprint,
        },
        "backend": subject.backend.value,
        "engine": installed_engine(),
        "reference": {"package": REFERENCE_PACKAGE, "version": installed_reference()},
        "level": level.value,
        "seed": seed,
        "suites": [
            asdict(PlannedSuite(suite.name, suite.version, suite.meaning, plan.blocks, dict(plan.facts), plan.why))
            for suite, plan in zip(suites, plans, strict=True)
        ],
        "corpora": [asdict(corpus) for corpus in _corpora(subject)],
    }
    if subject.kernels is not None:
        document["kernels"] = subject.kernels.to_dict()
    if subject.third_party is not None:
        document["third_party"] = {
            "distribution": subject.backend.value,
            "version": explained["probe"]["third_party"]["version"],
        }
    document["digest"] = document_digest(TAG_CERTIFY_PLAN, document)
    return Prepared(Plan(document), subject, tuple(suites), tuple(plans))


def _corpora(subject: Subject) -> list[CorpusRecord]:
    return [CorpusRecord(c.sha256, c.documents, c.utf8_bytes) for c in subject.read_corpora]


def read_plan(document: Any, where: str) -> Plan:
    """A plan that others wrote. Raises EvidenceInvalid unless it has the form and the digest of one."""
    try:
        content = {key: value for key, value in document.items() if key != "digest"}
        digest = document_digest(TAG_CERTIFY_PLAN, content)
        plan = Plan(dict(document))
        sound = content["schema"] == SCHEMA and content["schema_version"] == 1 and plan.level is not None
        sound = sound and plan.seed >= 0 and all(suite.blocks >= 0 for suite in plan.suites)
        names = [suite.name for suite in plan.suites]
        sound = sound and len(set(names)) == len(names) and plan.blocks <= MAX_BLOCKS
        sound = sound and content["backend"] in set(Compared)
        sound = sound and _fits_schema(document) and all(map(str.isprintable, _strings(document)))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise EvidenceInvalid(f"{shown(where)} holds no plan of a certification", remedy="run it again") from None
    if not sound or document["digest"] != digest:
        raise EvidenceInvalid(
            f"the plan in {shown(where)} is not what its digest says: it was edited or damaged",
            details={"expected": digest, "found": str(document["digest"])},
            remedy="bring it again from where it was made, or run it again",
        )
    return plan


def _fits_schema(document: Any) -> bool:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    schema = json.loads((resources.tables_dir() / "schemas" / "certify_plan.schema.json").read_text("utf-8"))
    return bool(Draft202012Validator(schema).is_valid(document))


def _strings(node: Any) -> Iterator[str]:
    """Every string in a document but its keys: terminals and pages show them, and no plan is made with control
    characters in one."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, (list, dict)):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _strings(item)


def installed_engine() -> str:
    """Identity of what is certified: everything that decides ids, offsets or decoding."""
    from toktier.program.engine_identity import engine_identity

    return engine_identity()


def installed_reference() -> str:
    """Version of the reference that is installed."""
    import tokenizers

    return str(tokenizers.__version__)


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where two documents differ: path and both values, None where there is none. Digests follow from the rest."""
    return [entry for entry in _walk(a, b, "") if entry["path"] != "digest"]


def _walk(a: Any, b: Any, path: str) -> Iterator[dict[str, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*a, *b}):
            yield from _walk(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and _named(a) and _named(b):
        yield from _walk({item["name"]: item for item in a}, {item["name"]: item for item in b}, path)
    elif a != b:
        yield {"path": path, "a": a, "b": b}


def _named(items: Sequence[Any]) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items)
