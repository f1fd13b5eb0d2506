"""Families of the cache as a bundle. Not here: the bytes of bundles (`bundle_writer`), signing (`signatures`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toktier.artifacts.bundle_manifest import BundleFile, BundleManifest
from toktier.artifacts.bundle_writer import BundlePart, Written, check_target, compresses, write_bundle
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.inventory import survey
from toktier.artifacts.local_artifacts import ALIAS_PREFIX, PREFIX, find_local, is_local_name
from toktier.artifacts.pins import Family, Pins
from toktier.artifacts.resolve import on_this_host
from toktier.artifacts.signatures import load_private_key, sign_bundle, signature_path
from toktier.config import Settings
from toktier.errors import ArtifactNotFound, UsageError


@dataclass(frozen=True, slots=True)
class ExportedFamily:
    """`missing`: pinned files that the cache does not have; the bundle is made without them."""

    family: Family
    manifest: BundleManifest
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """`written` is None where a complete bundle was demanded and something is missing: then nothing was written."""

    families: tuple[ExportedFamily, ...]
    written: Written | None
    signature: Path | None
    signed_by: str | None

    @property
    def complete(self) -> bool:
        return not any(family.missing for family in self.families)


def export_bundle(
    families: Sequence[str],
    pins: Pins,
    settings: Settings,
    out: Path,
    *,
    sign_key: Path | None = None,
    complete: bool = False,
) -> ExportReport:
    """Writes what the cache has of these families (also "local/NAME") as one bundle; the suffix of `out` chooses .tar
    or .tar.zst. `complete`: nothing is written unless every pinned file is there.

    Raises UnknownFamily, ArtifactNotFound where a tokenizer.json is not on this host, ArtifactHashMismatch or
    ArtifactDamaged for a bad blob, UsageError for a bad target or key, EnvironmentFault.
    """
    names = list(dict.fromkeys(families))
    if not names:
        raise UsageError("no family is given", remedy="toktier artifacts list")
    compresses(out)
    check_target(out)
    key = None if sign_key is None else load_private_key(sign_key)
    cache = ArtifactCache.readable(settings)
    exported, parts = [], []
    for name in names:
        family = find_local(name, cache) if is_local_name(name) else pins.family(name)
        entry, part = _part(family, pins, settings, cache)
        exported.append(entry)
        parts.append(part)
    if complete and any(entry.missing for entry in exported):
        return ExportReport(tuple(exported), None, None, None)
    written = write_bundle(out, parts)
    signed_by = None if key is None else sign_bundle(out, [part.manifest for part in parts], key)
    return ExportReport(tuple(exported), written, None if key is None else signature_path(out), signed_by)


def _part(
    family: Family, pins: Pins, settings: Settings, cache: ArtifactCache | None
) -> tuple[ExportedFamily, BundlePart]:
    state = survey(family, cache, deep=False)
    if not state.loadable and not state.damaged and not family.name.startswith(PREFIX):
        on_this_host(family, settings, pins)  # an installed package or the hub's cache may have it
        state = survey(family, cache, deep=False)
    for file in state.damaged:
        if file.error is not None:
            raise file.error
    if not state.loadable:
        raise ArtifactNotFound(
            f"{family.name} is not on this host, so it cannot be exported",
            details={"family": family.name},
            remedy=f"toktier artifacts fetch {family.name} --complete",
        )
    there = {f.file.name: f for f in state.files if f.status != "missing"}
    sources = {name: f.path for name, f in sorted(there.items()) if f.path is not None}
    manifest = BundleManifest(
        _alias(family), tuple(BundleFile(n, there[n].file.sha256, there[n].file.size) for n in sources)
    )
    missing = tuple(name for name in family.files if name not in there)
    return ExportedFamily(family, manifest, missing), BundlePart(manifest, sources)


def _alias(family: Family) -> str:
    return ALIAS_PREFIX + family.name.removeprefix(PREFIX) if family.name.startswith(PREFIX) else family.alias
