"""`toktier artifacts mirror`: a static tree from the cache, for a file server or a shared directory."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.mirror_tree import MirrorReport, write_family, write_sums
from toktier.artifacts.pins import shipped_pins
from toktier.errors import ArtifactNotFound, ExitCode, ToktierError
from toktier.labels import escaped
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result, exit_code_of


def mirror(
    ctx: typer.Context,
    families: Annotated[list[str], typer.Argument(metavar="FAMILY...", show_default=False)],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="The root of the tree; made when needed.")],
    complete: Annotated[bool, typer.Option("--complete", help="Demand every pinned file.")] = False,
) -> Result:
    """Write a static tree that `artifacts fetch --from URL` reads: REPOSITORY/resolve/REVISION/FILE.

    From the cache, every file hashed. Files of the tree that are right are left alone; nothing is removed.
    """
    invocation: Invocation = ctx.obj
    pins = shipped_pins()
    wanted = [pins.family(name) for name in dict.fromkeys(families)]
    root = options.path_of(out, "--out")
    cache = ArtifactCache.readable(options.settings_of(invocation))
    if cache is None:
        raise ArtifactNotFound("there is no cache to mirror", remedy="set TOKTIER_HOME, or give --home DIR")
    reports: list[MirrorReport] = []
    errors: list[ToktierError] = []
    for family in wanted:
        try:
            reports.append(write_family(family, cache, root))
        except ToktierError as error:
            if len(wanted) == 1:
                raise
            errors.append(error)
            invocation.report(error)
    if reports:
        write_sums(root)
    code = exit_code_of(errors, done=len(reports))
    if complete and code is ExitCode.DONE and not all(r.complete for r in reports):
        code = ExitCode.INCOMPLETE
    return Result(
        "artifacts_mirror",
        lambda: {
            "out": escaped(out),
            "families": [_mirrored(r) for r in reports],
            "errors": [e.to_dict() for e in errors],
        },
        lambda: "".join(_text(r) for r in reports),
        code,
    )


def _mirrored(report: MirrorReport) -> dict[str, Any]:
    return {
        "family": report.family.name,
        "repo_id": report.family.repo_id,
        "revision": report.family.revision,
        "complete": report.complete,
        "files": [
            {
                "name": entry.file.name,
                "sha256": entry.file.sha256,
                "size": entry.file.size,
                "path": entry.path,
                "outcome": entry.outcome,
            }
            for entry in report.files
        ],
    }


def _text(report: MirrorReport) -> str:
    name = report.family.name
    lines = [f"{name}: {e.path} {e.outcome}, SHA-256 as pinned\n" for e in report.files if e.outcome != "missing"]
    missing = [e.file.name for e in report.files if e.outcome == "missing"]
    if missing:
        lines.append(
            f"{name}: not in the cache, so not in the tree: {', '.join(missing)} "
            f"(toktier artifacts fetch {name} --complete)\n"
        )
    return "".join(lines)
