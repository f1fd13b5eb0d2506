"""Says of a bundle, without extracting it, whether it is complete, valid, pinned and signed: four answers, not one.

Complete: every declared file is there and nothing else. Valid: every file that is there has its digest. Pinned: every
file is content that the shipped pins name, under the name that it claims. Signed: by one of the keys asked for. What
the format forbids altogether is raised as when importing. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toktier.artifacts.bundle_admission import Admission, judge
from toktier.artifacts.bundle_manifest import BundleFile, BundleManifest
from toktier.artifacts.bundle_reader import BundleContent, Visitor, read_bundle
from toktier.artifacts.pins import Pins
from toktier.artifacts.signatures import PublicKey, check_signature, read_envelope
from toktier.errors import BundleInvalid, ToktierError, UncertifiedTokenizer
from toktier.labels import escaped, shown, shown_path, typed


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """One declared file. `status`: ok, missing or damaged."""

    alias: str
    file: BundleFile
    status: str


@dataclass(slots=True)
class BundleReport:
    """`signed` is None where no key was given to check with; `signature` says whether there is one."""

    path: Path
    files: list[FileVerdict] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)
    content: BundleContent | None = None
    signature: bool = False
    signed: bool | None = None
    signed_by: str | None = None
    error: ToktierError | None = None

    @property
    def complete(self) -> bool:
        return self.content is not None and not self.extra and all(f.status != "missing" for f in self.files)

    @property
    def valid(self) -> bool:
        return self.content is not None and all(f.status != "damaged" for f in self.files)

    @property
    def pinned(self) -> bool:
        return self.content is not None and all(a.pinned for a in self.admissions)

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """For each family the pinned files that the bundle does not carry."""
        return {a.claimed.name: a.missing for a in self.admissions if a.claimed is not None}


def verify_bundle(path: Path, pins: Pins, keys: Sequence[Sequence[PublicKey]] = ()) -> BundleReport:
    """Reads all of a bundle. `keys`: sets of keys, one of each of which must have signed. What is wrong is in the
    report, `error` the first of it; raises EnvironmentFault and UsageError only."""
    report = BundleReport(path)
    try:
        report.content = read_bundle(path, _Looking(report, pins))
    except BundleInvalid as error:
        report.error = error
        return report
    report.error = report.error or _judgement(report)
    demands = [demand for demand in keys if demand]
    try:
        envelope = read_envelope(path)
        report.signature = envelope is not None
        for demand in demands:
            report.signed_by = check_signature(path, envelope, report.content.parts, demand).id
            report.signed = True
    except ToktierError as error:
        report.signed = False if demands else None
        report.signature = True if not demands else report.signature
        report.error = report.error or error
    return report


class _Looking(Visitor):
    def __init__(self, report: BundleReport, pins: Pins) -> None:
        self._report, self._pins = report, pins

    def part(self, manifest: BundleManifest) -> None:
        self._report.admissions.append(judge(manifest, self._pins))

    def file(self, manifest: BundleManifest, file: BundleFile, sha256: str, wrong: BundleInvalid) -> None:
        right = sha256 == file.sha256
        self._add(manifest, file, "ok" if right else "damaged", None if right else wrong)

    def missing(self, manifest: BundleManifest, file: BundleFile, fault: BundleInvalid) -> None:
        self._add(manifest, file, "missing", fault)

    def extra(self, name: str, fault: BundleInvalid) -> None:
        self._report.extra.append(shown(name))
        self._report.error = self._report.error or fault

    def _add(self, manifest: BundleManifest, file: BundleFile, status: str, error: BundleInvalid | None) -> None:
        self._report.files.append(FileVerdict(manifest.alias, file, status))
        self._report.error = self._report.error or error


def _judgement(report: BundleReport) -> ToktierError | None:
    for admission in report.admissions:
        if admission.problem is not None:
            return admission.problem
    unpinned = [f"{a.manifest.alias}/{f.path}" for a in report.admissions for f in a.unpinned]
    if not unpinned:
        return None
    return UncertifiedTokenizer(
        f"{shown_path(report.path)} is whole, and {len(unpinned)} of its files equal no pinned file: {unpinned[0]}",
        details={"path": escaped(report.path), "files": unpinned[:20]},
        remedy=f"toktier artifacts import {typed(report.path)} --as local/NAME, to use it uncertified",
    )
