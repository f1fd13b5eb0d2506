"""The generated vocabulary suite of a program, kept on disk: a few seconds of search, once a tokenizer and compiler.

The key is the fingerprint, the suite's version and the digest of the compiler (which covers the native module, so the
generator too). A file is believed when its own digest holds, it names its key, and nobody else could have written it;
otherwise the suite is generated again. A cache that cannot be written costs the search, never an answer.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier import storage
from toktier.config import Config, resolve_settings
from toktier.errors import EnvironmentFault
from toktier.program.compiler_identity import compiler_digest
from toktier.program.trust import only_owner_writes
from toktier.regular_files import open_regular

if TYPE_CHECKING:
    from toktier._native import Program
    from toktier.certify.subject import Subject

MUTANTS = 200  # exchanged ranks, drawn at random: the measured strength of the texts about ranks
COUNTS = ("rank_pairs", "rank_pairs_told", "rank_pairs_blocked", "mutants", "mutants_killed", "mutants_apart")


@dataclass(frozen=True, slots=True)
class VocabularyCoverage:
    """`texts` show tokens and rules, `documents` are the same joined, `rank_texts` tell ranks apart. `tokens` (by id)
    and `rules` (by rank) hold an `Outcome` a byte. `counts`: see COUNTS."""

    texts: list[str]
    documents: list[str]
    rank_texts: list[str]
    tokens: bytes
    rules: bytes
    counts: Mapping[str, int]


def generate(program: Program) -> VocabularyCoverage:
    """The search itself; deterministic, seconds."""
    from toktier._native import cover_vocabulary

    found = cover_vocabulary(program, MUTANTS)
    return VocabularyCoverage(
        found["texts"],
        found["documents"],
        found["rank_texts"],
        found["tokens"],
        found["rules"],
        {name: found[name] for name in COUNTS},
    )


def vocabulary_coverage(subject: Subject, version: int) -> VocabularyCoverage:
    """The suite of a subject, from the cache where there is one that holds. `version`: of the suite."""
    key = f"{subject.fingerprint}.{compiler_digest()[:32]}.v{version}"
    directory = _directory(subject.home)
    path = None if directory is None else directory / f"{key}.vocabulary"
    if path is not None:
        known = _read(path, key)
        if known is not None:
            return known
    made = generate(subject.native)
    if path is not None:
        with contextlib.suppress(EnvironmentFault):
            storage.make_directory(path.parent)
            storage.atomic_write(path, _packed(made, key))
    return made


def _directory(home: Path | None) -> Path | None:
    settings = resolve_settings(Config(home=home))
    programs = settings.programs_dir  # each user has one of his own
    return None if programs is None else programs.with_name(programs.name.replace("programs", "suites"))


def _packed(coverage: VocabularyCoverage, key: str) -> bytes:
    document = asdict(coverage)
    document |= {"key": key, "tokens": coverage.tokens.hex(), "rules": coverage.rules.hex()}
    body = json.dumps(document, separators=(",", ":")).encode("ascii")
    return hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body


def _read(path: Path, key: str) -> VocabularyCoverage | None:
    """None for what is absent, damaged, of another key, or could have been written by someone else."""
    try:
        with open_regular(path) as file:
            if not only_owner_writes(os.fstat(file.fileno())):
                raise OSError(errno.EPERM, "another user could have written it")
            digest, _, body = file.readall().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(body).hexdigest().encode("ascii") != digest:
        return None
    try:
        document: dict[str, Any] = json.loads(body)
        if document.pop("key") != key:
            return None
        document |= {name: bytes.fromhex(document[name]) for name in ("tokens", "rules")}
        return VocabularyCoverage(**document)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
