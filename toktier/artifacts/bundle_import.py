"""Takes a bundle into the cache: everything verified first, then moved under its digest, or nothing at all.

Files are written to a staging directory beside the blobs under numbers, never under names that the bundle gives. Only
when the whole archive was read to its end, every file is what the shipped pins say, and a required signature holds, do
they move, the tokenizer.json last: a run that is killed leaves a family loadable as before or as after. Not here: the
archive (`bundle_reader`), the judgement (`bundle_admission`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from toktier.artifacts.bundle_admission import Admission, judge
from toktier.artifacts.bundle_manifest import BundleFile, BundleManifest, IndexEntry
from toktier.artifacts.bundle_reader import BundleContent, Visitor, read_bundle
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.containers import bounded_read
from toktier.artifacts.import_paths import MAX_TOKENIZER_BYTES, Imported, ImportReport
from toktier.artifacts.local_artifacts import ALIAS_PREFIX, PREFIX, check_free, local_family, parse_name, register
from toktier.artifacts.pins import TOKENIZER_FILE, Family, PinnedFile, Pins, shipped_pins
from toktier.artifacts.signatures import PublicKey, check_signature, load_public_keys, read_envelope
from toktier.artifacts.staging_directory import staging_directory
from toktier.config import Settings
from toktier.errors import (
    ArtifactDamaged,
    BundleInvalid,
    NotATokenizer,
    ProgramUnsupported,
    UncertifiedTokenizer,
    UsageError,
)
from toktier.labels import escaped, shown, shown_path, typed
from toktier.regular_files import open_regular
from toktier.storage import environment_fault, require_space


@dataclass(frozen=True, slots=True)
class BundleImport:
    """What a bundle gave. `local`: the name under which it was registered, `signed_by`: id of the key that was
    demanded and holds, `missing`: for each family the pinned files that the bundle lacks."""

    report: ImportReport
    content: BundleContent
    local: str | None
    signed_by: str | None
    missing: dict[str, tuple[str, ...]]


def import_bundle(
    path: Path,
    settings: Settings,
    *,
    pins: Pins | None = None,
    local: str | None = None,
    keys: Sequence[PublicKey] = (),
) -> BundleImport:
    """Stores a bundle's pinned content, or with `local` ("local/NAME") registers it as an uncertified local artifact.

    `keys`: one of them must have signed it, beside what the settings demand. Raises BundleInvalid, ArtifactHashMismatch
    for a false claim to a pin, UncertifiedTokenizer for unpinned content without `local`, SignatureMissing,
    SignatureInvalid, AliasConflict, EnvironmentFault. Whatever is raised, the cache is as it was.
    """
    pins = pins or shipped_pins()
    demands = [list(keys), load_public_keys(settings.signature_keys)]
    envelope = read_envelope(path) if any(demands) else None
    cache = ArtifactCache.of(settings)
    with staging_directory(cache) as directory:
        visitor = _Staging(path, directory, cache, pins, None if local is None else parse_name(local))
        try:
            content = read_bundle(path, visitor)
        finally:
            visitor.close()
        signed_by = None
        for demand in demands:
            if demand:
                signed_by = check_signature(path, envelope, content.parts, demand).id
        report = ImportReport(path, looked_at=sum(len(part.files) for part in content.parts))
        for admission in visitor.admissions:
            _commit(admission, visitor, report)
        if visitor.local is not None:
            visitor.commit_local(report)
    missing = {a.claimed.name: a.missing for a in visitor.admissions if a.claimed is not None}
    return BundleImport(report, content, local, signed_by, missing)


class _Staging(Visitor):
    """Judges each part before its files are read, and writes what the cache lacks."""

    def __init__(self, path: Path, directory: Path, cache: ArtifactCache, pins: Pins, local: str | None) -> None:
        self.path, self.directory, self.cache = path, directory, cache
        self.admissions: list[Admission] = []
        self.local: Family | None = None
        self.staged: dict[str, Path] = {}  # by digest
        self.states: dict[str, str] = {}
        self._pins, self._local_name = pins, local
        self._descriptor: int | None = None
        self._several = False

    def index(self, entries: Sequence[IndexEntry]) -> None:
        self._several = True
        if self._local_name is not None:
            raise UsageError(
                f"{shown_path(self.path)} holds several bundles; --as names one artifact",
                details={"path": escaped(self.path), "parts": [entry.path for entry in entries[:20]]},
                remedy=f"take out the part that is meant: tar -xf {typed(self.path)} {entries[0].path}",
            )

    def part(self, manifest: BundleManifest) -> None:
        admission = judge(manifest, self._pins)
        if admission.problem is not None:
            raise admission.problem
        if self._local_name is not None:
            self._admit_local(manifest, self._local_name)
        elif admission.unpinned:
            raise _unpinned(self.path, admission, several=self._several)
        self.admissions.append(admission)
        needed = 0
        for file in manifest.files:
            if file.sha256 not in self.states:
                self.states[file.sha256] = self._state(admission, file)
                needed += file.size if self._is_wanted(file) else 0
        require_space(self.cache.root, needed)

    def _admit_local(self, manifest: BundleManifest, name: str) -> None:
        files = {f.path: (f.sha256, f.size) for f in manifest.files}
        if TOKENIZER_FILE not in files:
            raise NotATokenizer(
                f"{shown_path(self.path)} holds no {TOKENIZER_FILE}", details={"path": escaped(self.path)}
            )
        self.local = local_family(name, files)
        check_free(self.local, self.cache)

    def _state(self, admission: Admission, file: BundleFile) -> str:
        """What the cache has of this content: ok, missing, damaged, or shipped."""
        pins = admission.pins[file.path]
        if self.local is None and all(self._pins.families[p.family].shipped for p in pins):
            return "shipped"
        pin = PinnedFile(admission.manifest.alias, file.path, file.sha256, file.size)
        return self.cache.state(pin, trust_hint=False).status

    def _is_wanted(self, file: BundleFile) -> bool:
        return self.states[file.sha256] in ("missing", "damaged") and file.sha256 not in self.staged

    def sink(self, manifest: BundleManifest, file: BundleFile) -> Callable[[bytes], object]:
        if not self._is_wanted(file):
            return super().sink(manifest, file)
        path = self.directory / str(len(self.staged))
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise environment_fault(error, "write in", self.directory) from None
        self._descriptor = descriptor
        self.staged[file.sha256] = path

        def write(data: bytes) -> None:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(descriptor, view) :]
            except OSError as error:
                raise environment_fault(error, "write", path) from None

        return write

    def file(self, manifest: BundleManifest, file: BundleFile, sha256: str, wrong: BundleInvalid) -> None:
        try:
            super().file(manifest, file, sha256, wrong)
            if self._descriptor is not None:
                os.fchmod(self._descriptor, self.cache.modes.file)
                os.fsync(self._descriptor)
        except OSError as error:
            raise environment_fault(error, "write in", self.directory) from None
        finally:
            self.close()

    def close(self) -> None:
        """Closes the file that is being written, also where the reading ended in the middle of it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def adopt(self, file: PinnedFile) -> str:
        """Moves one file into the cache; gives the outcome as reports name it."""
        state = self.states[file.sha256]
        staged = self.staged.get(file.sha256)
        if staged is None:
            return "shipped" if state == "shipped" else "cached"
        stored = staged.exists() and self.cache.adopt(file, staged)
        return ("replaced" if state == "damaged" else "stored") if stored else "cached"

    def commit_local(self, report: ImportReport) -> None:
        assert self.local is not None
        data = _read(self.staged.get(self.local.tokenizer.sha256) or self._blob(self.local.tokenizer))
        _check_tokenizer(data, self.path)
        for file in _last_is_the_tokenizer(self.local.files.values()):
            report.imported.append(Imported(file, self.adopt(file), f"{shown_path(self.path)}!{file.name}"))
        register(self.local, self.cache, f"import: {shown(self.path.name)}")

    def _blob(self, file: PinnedFile) -> Path:
        return self.cache.state(file).path


def _commit(admission: Admission, visitor: _Staging, report: ImportReport) -> None:
    """Moves the pinned files of one part and notes where they came from; a local artifact has its own way."""
    if visitor.local is not None:
        return
    for file in _last_is_the_tokenizer(p for pins in admission.pins.values() for p in pins):
        report.imported.append(
            Imported(file, visitor.adopt(file), f"{shown_path(visitor.path)}!{admission.manifest.alias}/{file.name}")
        )
    names = {i.file.family for i in report.imported if i.outcome != "shipped"}
    for family in names:
        files = {i.file.name: i.file.sha256 for i in report.imported if i.file.family == family}
        visitor.cache.note(family, files, f"import: {shown(visitor.path.name)}")


def _last_is_the_tokenizer(files: Iterable[PinnedFile]) -> list[PinnedFile]:
    return sorted(files, key=lambda file: (file.name == TOKENIZER_FILE, file.name))


def _unpinned(path: Path, admission: Admission, *, several: bool) -> UncertifiedTokenizer:
    alias = admission.manifest.alias
    names = [file.path for file in admission.unpinned]
    name = alias.removeprefix(ALIAS_PREFIX)
    taken_out = f"tar -xf {typed(path)} {alias}.tar; " if several else ""
    bundle = f"{alias}.tar" if several else typed(path)
    return UncertifiedTokenizer(
        f"{shown_path(path)} holds content that equals no pinned file: {', '.join(names[:5])} of {alias}",
        details={"path": escaped(path), "alias": alias, "files": names[:20]},
        remedy=f"{taken_out}toktier artifacts import {bundle} --as {PREFIX}{name}, to use it uncertified",
    )


def import_local_file(path: Path, settings: Settings, local: str) -> ImportReport:
    """Registers a bare tokenizer.json as the local artifact `local` ("local/NAME").

    Raises ArtifactDamaged, NotATokenizer, UnsupportedConfig, UsageError for anything but a file, AliasConflict.
    """
    import hashlib

    name = parse_name(local)
    if settings.signature_keys:
        raise UsageError(
            "`signature_keys` demands signed bundles; a bare file has no signature",
            details={"setting": "signature_keys"},
            remedy="export it as a bundle with --sign KEY, and import that",
        )
    if not path.is_file():
        raise UsageError(
            f"{shown_path(path)} is no file: --as takes a bundle or a bare tokenizer.json",
            details={"path": escaped(path)},
            remedy=f"toktier artifacts import tokenizer.json --as {local}",
        )
    data = _read(path)
    _check_tokenizer(data, path)
    cache = ArtifactCache.of(settings)
    family = local_family(name, {TOKENIZER_FILE: (hashlib.sha256(data).hexdigest(), len(data))})
    check_free(family, cache)
    damaged = cache.state(family.tokenizer).status == "damaged"
    stored = cache.store(family.tokenizer, data)
    register(family, cache, f"import: {shown(path.name)}")
    outcome = "replaced" if damaged else "stored" if stored else "cached"
    return ImportReport(path, [Imported(family.tokenizer, outcome, shown_path(path))], 1)


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as stream:
            data = bounded_read(stream, MAX_TOKENIZER_BYTES)
    except OSError as error:
        raise environment_fault(error, "read", shown_path(path)) from None
    if not data:
        problem = "is empty (0 bytes)" if data == b"" else f"has more than {MAX_TOKENIZER_BYTES:,} bytes"
        raise ArtifactDamaged(f"{shown_path(path)} {problem}", details={"path": escaped(path)})
    return data


def _check_tokenizer(data: bytes, path: Path) -> None:
    """What the reference alone can serve is admitted; what is no tokenizer is not."""
    from toktier.program.tokenizer_json import read_tokenizer  # heavy, and pinned content never needs it

    try:
        read_tokenizer(data, shown_path(path))
    except ProgramUnsupported:
        return
