"""What a bundle's content is, judged by the shipped pins: whose it claims to be, and whose it is.

A claim is an alias that is a pinned family's or begins with `<family>-`. It must hold in full: every file one of the
family's, under its own name. Everything else is known by its digest or not at all. Not here: reading, storing.
"""

from __future__ import annotations

from dataclasses import dataclass

from toktier.artifacts.bundle_manifest import BundleFile, BundleManifest
from toktier.artifacts.pins import Family, PinnedFile, Pins
from toktier.errors import ArtifactHashMismatch, ToktierError


@dataclass(frozen=True, slots=True)
class Admission:
    """The judgement on one part. `claimed`: the family that its alias names; `pins`: for each path the pinned files
    with that content; `problem`: why a claim does not hold; `missing`: pinned files that a claim's part lacks."""

    manifest: BundleManifest
    claimed: Family | None
    pins: dict[str, tuple[PinnedFile, ...]]
    problem: ToktierError | None
    missing: tuple[str, ...]

    @property
    def pinned(self) -> bool:
        """Whether every file is pinned content, and a claim holds."""
        return self.problem is None and all(self.pins.values())

    @property
    def unpinned(self) -> list[BundleFile]:
        return [file for file in self.manifest.files if not self.pins[file.path]]


def judge(manifest: BundleManifest, pins: Pins) -> Admission:
    """The judgement by what a manifest declares; the reader sees to it that the content is as declared."""
    family = _claimed(manifest.alias, pins)
    if family is None:
        recognised = {f.path: tuple(p for p in pins.of_digest(f.sha256) if p.size == f.size) for f in manifest.files}
        return Admission(manifest, None, recognised, None, ())
    problem: ToktierError | None = None
    if manifest.alias != family.alias:
        problem = _mismatch(manifest, family, f"the pinned revision is {family.alias}")
    matched: dict[str, tuple[PinnedFile, ...]] = {}
    for file in manifest.files:
        pin = family.files.get(file.path)
        right = pin is not None and (pin.sha256, pin.size) == (file.sha256, file.size)
        matched[file.path] = (pin,) if right and pin is not None else ()
        if not right and problem is None:
            problem = _wrong_file(manifest, family, file, pin)
    missing = tuple(name for name in family.files if name not in matched)
    return Admission(manifest, family, matched, problem, missing)


def _claimed(alias: str, pins: Pins) -> Family | None:
    """The pinned family whose name an alias uses, in any case: the longest, where one name begins with another."""
    folded = alias.casefold()
    using = [f for n, f in pins.families.items() if folded == n.casefold() or folded.startswith(f"{n.casefold()}-")]
    return max(using, key=lambda family: len(family.name), default=None)


def _wrong_file(
    manifest: BundleManifest, family: Family, file: BundleFile, pin: PinnedFile | None
) -> ArtifactHashMismatch:
    if pin is None:
        return _mismatch(manifest, family, f"{file.path} is none of its pinned files", file=file.path)
    return _mismatch(
        manifest,
        family,
        f"its {file.path} has {pin.size:,} bytes and the SHA-256 {pin.sha256}, the bundle declares {file.size:,} and "
        f"{file.sha256}",
        file=file.path,
        expected_sha256=pin.sha256,
        observed_sha256=file.sha256,
    )


def _mismatch(manifest: BundleManifest, family: Family, problem: str, **facts: str) -> ArtifactHashMismatch:
    return ArtifactHashMismatch(
        f"the bundle's {manifest.alias} claims to be the pinned {family.name} and is not: {problem}",
        details={"reason": "pin_mismatch", "family": family.name, "alias": manifest.alias, **facts},
        remedy="export it again on a host where `toktier artifacts verify` passes",
    )
