"""From a repository's name to a tokenizer.json on this host, and from its bytes to what it is.

The tables say which revision of a repository was audited; without a revision that one is meant, `main` for a
repository that no table names. Asked are, in this order: the hub client's cache, the imported cache (only where the
repository's bytes are the pinned family's), the hub. A name admits nothing: what was found is identified by its digest,
else by its fingerprint (`identify`). Not here: compiling what serves, and the plan (`toktier.api`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toktier.artifacts import side_files
from toktier.artifacts.cache import ArtifactCache, hash_file
from toktier.artifacts.hub_refs import (
    COMMIT,
    Revisions,
    checked_repository,
    checked_revision,
    local_revisions,
    snapshot_file,
)
from toktier.artifacts.local_sources import hub_cache_root
from toktier.artifacts.pins import TOKENIZER_FILE, Family, Pins, shipped_file, shipped_pins
from toktier.artifacts.resolve import Artifact, obtain, on_this_host
from toktier.artifacts.siblings import SAME_BYTES, Basis, Siblings, shipped_siblings
from toktier.config import Settings
from toktier.errors import ArtifactHashMismatch, ArtifactNotFound, ProgramUnsupported
from toktier.labels import quoted, shown_path
from toktier.program.side_file import SIDE_FILE, beside
from toktier.storage import environment_fault

DEFAULT_REVISION = "main"
EQUIVALENT = "equivalent"  # the basis of an equal fingerprint; the others are the audit's (`Basis`)


@dataclass(frozen=True, slots=True)
class Audited:
    """What the tables say of one repository: at `revision` its `file` has these bytes and is the family's by `basis`.
    `family` None: the canonical family (`canonical`) is not pinned here."""

    revision: str
    file: str
    sha256: str
    canonical: str
    basis: Basis
    family: Family | None

    @property
    def same_bytes(self) -> Family | None:
        """The pinned family whose tokenizer.json is this repository's: by its bytes, not by a claim about others."""
        return self.family if self.basis in SAME_BYTES else None


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A tokenizer.json of a repository. `revision`: its commit, None where the source did not say. `source`: hub-cache,
    hub, or where the imported artifact is."""

    repo_id: str
    requested: str | None
    revision: str | None
    path: Path
    sha256: str
    size: int
    source: str
    audited: Audited | None


@dataclass(frozen=True, slots=True)
class Identity:
    """What bytes are: a family and the basis for saying so; or neither, and why not (`problem`)."""

    family: str | None
    basis: str | None
    sha256: str | None
    problem: str | None = None


def audited(repo_id: str, pins: Pins, siblings: Siblings) -> Audited | None:
    """What the tables say of a repository: its pin, else its line among the siblings."""
    for family in pins.families.values():
        if family.repo_id == repo_id and family.revision is not None:
            basis = Basis.IDENTICAL_SOURCE if family.derived else Basis.IDENTICAL
            return Audited(family.revision, TOKENIZER_FILE, family.tokenizer.sha256, family.name, basis, family)
    sibling = siblings.by_repository.get(repo_id)
    if sibling is None:
        return None
    return Audited(
        sibling.revision,
        sibling.source_file,
        sibling.source_sha256,
        sibling.canonical_family,
        sibling.basis,
        pins.families.get(sibling.canonical_family),
    )


def find(
    repo_id: str,
    revision: str | None,
    settings: Settings,
    *,
    pins: Pins | None = None,
    siblings: Siblings | None = None,
    network: bool = True,
    timeout: float | None = None,
) -> Pretrained:
    """The tokenizer.json of a repository, from the first place that has it.

    `network` False: this host alone, whatever the settings say. `timeout` in seconds for the hub. Raises ConfigInvalid
    for what is no repository, no revision or several commits; ArtifactNotFound for what is not here while offline,
    naming the revisions that are; ArtifactHashMismatch for other bytes at an audited commit; SourceUnreachable.
    """
    search = _Search(checked_repository(repo_id), revision, settings, pins or shipped_pins(), siblings)
    found = search.in_hub_cache() or search.imported()
    if found is not None:
        return found
    if settings.offline or not network:
        raise search.not_here()
    return search.from_hub(timeout)


class _Search:
    """One look-up; `commit` is what the revision means on this host, None where nothing here tells."""

    def __init__(
        self, repo_id: str, revision: str | None, settings: Settings, pins: Pins, siblings: Siblings | None
    ) -> None:
        self.repo_id, self.requested, self.settings, self.pins = repo_id, revision, settings, pins
        self.audited = audited(repo_id, pins, siblings or shipped_siblings())
        of_table = None if self.audited is None else self.audited.revision
        self.revision = checked_revision(revision) if revision is not None else of_table or DEFAULT_REVISION
        root = hub_cache_root(os.environ)
        if root is None and settings.cache_dir is not None:
            root = settings.cache_dir / "hub"
        self.root = root
        self.present = Revisions({}, ()) if root is None else local_revisions(root, repo_id)
        self.commit = self.present.commit(self.revision, also=of_table)
        self.at_audit = self.commit is not None and self.commit == of_table

    def in_hub_cache(self) -> Pretrained | None:
        if self.root is None or self.commit is None:
            return None
        path = snapshot_file(self.root, self.repo_id, self.commit, TOKENIZER_FILE)
        return None if path is None else self._hashed(path, self.commit, "hub-cache")

    def imported(self) -> Pretrained | None:
        family = self._family_of_these_bytes()
        artifact = None if family is None else on_this_host(family, self.settings, self.pins)
        return None if artifact is None else self._of(artifact)

    def from_hub(self, timeout: float | None) -> Pretrained:
        from toktier.artifacts.network_sources import DEFAULT_TIMEOUT, hub_file

        family = self._family_of_these_bytes()
        if family is not None and family.derived:  # the hub has no such tokenizer.json: it is made from what it has
            return self._of(obtain(family.name, self.settings, pins=self.pins))
        root = self.root or self.settings.require_cache() / "hub"
        short = self.commit is not None and self.commit.startswith(self.revision)
        path = hub_file(
            self.repo_id,
            self.commit if short and self.commit is not None else self.revision,
            TOKENIZER_FILE,
            root,
            DEFAULT_TIMEOUT if timeout is None else timeout,
            remedy="try again, or bring the file by hand and open it with toktier.from_file(PATH)",
        )
        commit = path.parent.name if COMMIT.fullmatch(path.parent.name) else None
        return self._hashed(path, commit, "hub")

    def not_here(self) -> ArtifactNotFound:
        from toktier.artifacts.staging import offline_by, staging_remedy

        present = self.present.described()
        here = f"; here are {', '.join(present[:20])}" if present else "; no revision of it is here"
        why = f", and toktier is offline ({offline_by(self.settings)})" if self.settings.offline else ""
        known = self.audited
        ways = [f"give a revision that is here: {present[0].split()[0]}"] if present and not self.at_audit else []
        if (family := self._family_of_these_bytes()) is not None:
            ways.append(staging_remedy(family, self.settings))
        else:
            ways.append(
                f"toktier.from_pretrained({self.repo_id!r}) brings it where there is a network, or bring the file by "
                "hand and open it with toktier.from_file(PATH)"
            )
            if known is not None and known.family is not None:
                ways.append(f"toktier.load({known.canonical!r}) opens the family that the audit names ({known.basis})")
        return ArtifactNotFound(
            f"{self.repo_id} at {quoted(self.revision)} is not on this host{why}{here}",
            details={
                "repo_id": self.repo_id,
                "revision": self.revision,
                "present": {"names": self.present.names, "commits": list(self.present.commits)},
                "audited_revision": None if known is None else known.revision,
            },
            remedy="; or ".join(ways),
        )

    def _family_of_these_bytes(self) -> Family | None:
        """The pinned family whose bytes the repository has at the revision that is asked for."""
        return self.audited.same_bytes if self.at_audit and self.audited is not None else None

    def _of(self, artifact: Artifact) -> Pretrained:
        return self._found(self.commit, artifact.path, artifact.sha256, artifact.size, artifact.source)

    def _hashed(self, path: Path, commit: str | None, source: str) -> Pretrained:
        try:
            sha256, size = hash_file(path)
        except OSError as error:
            raise environment_fault(error, "read", path) from None
        known = self.audited
        if known is not None and commit == known.revision and known.file == TOKENIZER_FILE and sha256 != known.sha256:
            raise ArtifactHashMismatch(
                f"{shown_path(path)} ({size:,} bytes) is damaged: {TOKENIZER_FILE} of {self.repo_id} at {commit} has "
                f"the SHA-256 {known.sha256}, this file has {sha256}",
                details={"path": str(path), "expected_sha256": known.sha256, "observed_sha256": sha256, "size": size},
                remedy="remove that file and load again",
            )
        return self._found(commit, path, sha256, size, source)

    def _found(self, commit: str | None, path: Path, sha256: str, size: int, source: str) -> Pretrained:
        return Pretrained(self.repo_id, self.requested, commit, path, sha256, size, source, self.audited)


def identify(
    found: Pretrained, settings: Settings, *, pins: Pins | None = None, siblings: Siblings | None = None
) -> Identity:
    """What the bytes are: by their digest, else by their fingerprint beside the families on this host.

    Of a repository that the tables name only its canonical family is compared. Compiles what was not compiled before.
    """
    pins, siblings = pins or shipped_pins(), siblings or shipped_siblings()
    family = pins.tokenizer_family(found.sha256)
    if family is not None:
        return Identity(family.name, Basis.IDENTICAL.value, found.sha256)
    for sibling in siblings.by_repository.values():
        if sibling.source_sha256 == found.sha256:
            canonical = pins.families.get(sibling.canonical_family)
            digest = None if canonical is None else canonical.tokenizer.sha256
            return Identity(sibling.canonical_family, sibling.basis.value, digest)
    known = found.audited
    if known is None:
        candidates = [f for _, f in sorted(pins.families.items())]
    else:
        candidates = [] if known.family is None else [known.family]
    fingerprint = _fingerprint(found.path, settings, found.sha256)
    compared: list[str] = []
    for family, path in _on_host(candidates, settings):
        compared.append(family.name)
        digest = family.tokenizer.sha256
        if fingerprint is not None and _fingerprint(path, settings, digest) == fingerprint:
            return Identity(family.name, EQUIVALENT, digest)
    return Identity(None, None, None, _problem(found, fingerprint, compared))


def side_file(found: Pretrained, settings: Settings, *, wanted: bool) -> Path | None:
    """The tokenizer_config.json of the same revision where it is on this host; with `wanted` the hub is asked too.

    None where it is nowhere; SourceUnreachable where it is wanted and the hub does not give it.
    """
    if found.source not in ("hub-cache", "hub"):
        pinned = found.audited
        return None if pinned is None or pinned.family is None else side_files.of_family(pinned.family, settings)
    here = beside(found.path)
    if here is not None or not wanted or settings.offline or found.revision is None:
        return here
    from toktier.artifacts.network_sources import DEFAULT_TIMEOUT, hub_file

    # .../models--ORG--NAME/snapshots/COMMIT/tokenizer.json
    root, remedy = found.path.parents[3], "leave sidecar out: the tokenizer.json alone is followed then"
    return hub_file(found.repo_id, found.revision, SIDE_FILE, root, DEFAULT_TIMEOUT, remedy=remedy)


def _problem(found: Pretrained, fingerprint: str | None, compared: list[str]) -> str:
    """Why bytes are not admitted, in one line."""
    known = found.audited
    said = f"{found.repo_id} was audited with other bytes" if known else f"no table names {found.repo_id} or its bytes"
    if fingerprint is None:
        return f"{said}, and what does not compile has no fingerprint to compare"
    if known is not None and known.family is not None and not compared:
        return f"{said}, and {known.canonical}, to compare the fingerprint with, is not on this host"
    beside = f" beside {', '.join(compared)}" if compared else ", and no pinned family is on this host to compare with"
    return f"{said}, and its fingerprint is new{beside}"


def _on_host(families: list[Family], settings: Settings) -> Iterator[tuple[Family, Path]]:
    """Families whose tokenizer.json is shipped or in the cache: only of those a fingerprint can be known."""
    cache = ArtifactCache.readable(settings)
    for family in families:
        if family.shipped:
            yield family, shipped_file(family)
        elif cache is not None and (state := cache.state(family.tokenizer)).status == "ok":
            yield family, state.path


def _fingerprint(path: Path, settings: Settings, sha256: str) -> str | None:
    """Of a file with a known digest; None for one beyond the compiler. Raises what reading a tokenizer.json raises."""
    from toktier.program.store import load_or_compile

    try:
        return load_or_compile(path, settings.programs_dir, sha256=sha256)[1].fingerprint
    except ProgramUnsupported:
        return None


def resolution(found: Pretrained, identity: Identity) -> dict[str, Any]:
    """`explain()["model_resolution"]`: where the file came from, what it is, and on which ground."""
    return {
        "family": identity.family,
        "source": found.source,
        "path": str(found.path),
        "repo_id": found.repo_id,
        "requested_revision": found.requested,
        "revision": found.revision,
        "audited_revision": None if found.audited is None else found.audited.revision,
        "basis": identity.basis,
        "canonical_sha256": identity.sha256,
        "admitted": identity.problem is None,
        "not_admitted_because": identity.problem,
    }
