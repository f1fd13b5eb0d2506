"""`toktier artifacts export`: families of the cache as one file to carry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toktier.artifacts.export import ExportedFamily, ExportReport, export_bundle
from toktier.artifacts.pins import shipped_pins
from toktier.artifacts.signatures import signature_path
from toktier.errors import ExitCode
from toktier.labels import escaped, shown_path
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.table import size


def export(
    ctx: typer.Context,
    families: Annotated[list[str], typer.Argument(metavar="FAMILY...", show_default=False)],
    out: Annotated[str, typer.Option("--out", metavar="BUNDLE", help="Ends in .tar, or .tar.zst for compression.")],
    sign: Annotated[
        str | None, typer.Option("--sign", metavar="KEY", help="Sign with this Ed25519 key (PEM): BUNDLE.sig.json.")
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Demand every pinned file.")] = False,
) -> Result:
    """Write families, or local/NAME, as a bundle: the same bytes wherever it is made.

    A family of which some pinned files are not here is exported without them, and they are named; with --complete
    nothing is written then.
    """
    invocation: Invocation = ctx.obj
    settings = options.settings_of(invocation)
    key = None if sign is None else Path(sign)
    report = export_bundle(families, shipped_pins(), settings, Path(out), sign_key=key, complete=complete)
    old = signature_path(Path(out))
    if report.written is not None and report.signature is None and old.exists():
        invocation.warn(f"{shown_path(old)} is of an earlier bundle; remove it, or export with --sign KEY")
    return Result(
        "artifacts_export",
        lambda: _document(report),
        lambda: _text(report),
        ExitCode.INCOMPLETE if report.written is None else ExitCode.DONE,
    )


def _document(report: ExportReport) -> dict[str, Any]:
    written = report.written
    return {
        "complete": report.complete,
        "bundle": None
        if written is None
        else {
            "path": escaped(written.path),
            "size": written.size,
            "uncompressed_bytes": written.uncompressed,
            "content_digest": f"sha256:{written.content_digest}",
            "signature": None if report.signature is None else escaped(report.signature),
            "signed_by": report.signed_by,
        },
        "families": [_family(entry) for entry in report.families],
    }


def _family(entry: ExportedFamily) -> dict[str, Any]:
    return {
        "family": entry.family.name,
        "alias": entry.manifest.alias,
        "root_digest": entry.manifest.root_digest,
        "files": [{"path": f.path, "sha256": f.sha256, "size": f.size} for f in entry.manifest.files],
        "missing": list(entry.missing),
    }


def _text(report: ExportReport) -> str:
    lines = []
    for entry in report.families:
        lacking = f"; loadable, not here: {', '.join(entry.missing)}" if entry.missing else ", complete"
        count = len(entry.manifest.files)
        lines.append(f"{entry.family.name}: {count} file{'s' if count > 1 else ''}{lacking}\n")
    written = report.written
    if written is None:
        return "".join([*lines, "nothing was written (toktier artifacts fetch FAMILY --complete)\n"])
    lines.append(f"{shown_path(written.path)}: {size(written.size)}, content sha256:{written.content_digest}\n")
    if report.signature is not None:
        lines.append(f"{shown_path(report.signature)}: signed by {report.signed_by}\n")
    return "".join(lines)
