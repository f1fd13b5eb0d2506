"""`toktier artifacts kit`: a folder to carry to a host without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toktier.artifacts.kit import DEFAULT_TIMEOUT, KitReport, make_kit
from toktier.labels import escaped, shown_path
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.table import size


def kit(
    ctx: typer.Context,
    families: Annotated[list[str], typer.Argument(metavar="FAMILY...", show_default=False)],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to make.", show_default=False)],
    python: Annotated[
        str | None, typer.Option("--python", metavar="3.N", help="Python there. Default: the wheel's.")
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option("--platform", metavar="P", help="Such as manylinux_2_28_x86_64. Default: the wheel's."),
    ] = None,
    wheel: Annotated[
        Path | None, typer.Option("--wheel", metavar="FILE", help="Our own wheel. Default: built from the checkout.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", metavar="KEY", help="Sign the bundle with this Ed25519 key (PEM).")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Seconds for the build, and for each round of downloads.",
            min=1,
            callback=options.finite,
        ),
    ] = DEFAULT_TIMEOUT,
) -> Result:
    """Make a folder that brings a bare disconnected host to a running toktier.

    Our own wheel, the wheels that it needs (brought by pip, from the index that pip is set up for), a bundle of the
    families, checksums, a verifier that needs only Python, and INSTALL.txt with the lines to type there.
    """
    invocation: Invocation = ctx.obj
    report = make_kit(
        families, options.settings_of(invocation), out,
        python=python, platform=platform, wheel=wheel, sign_key=sign, timeout=timeout, notify=invocation.note,
    )  # fmt: skip
    return Result("artifacts_kit", lambda: _document(report), lambda: _text(report))


def _document(report: KitReport) -> dict[str, Any]:
    return {"out": escaped(report.path), "digest": report.digest, "bytes": report.size, "kit": report.manifest}


def _text(report: KitReport) -> str:
    lines = []
    for entry in report.manifest["families"]:
        without = f", without {', '.join(entry['missing'])}" if entry["missing"] else ""
        lines.append(f"{entry['family']}: in {entry['comes_in']}{without}")
    own, wheels = report.manifest["toktier"], len(report.manifest["wheels"])
    lines += [
        f"toktier {own['version']} and {wheels} wheels for {report.target} or newer; cubins: none",
        f"{shown_path(report.path)}: {report.files} files, {size(report.size)}",
        f"kit digest: {report.digest}",
        "Carry the folder; INSTALL.txt in it has the lines to type there.",
    ]
    return "".join(f"{line}\n" for line in lines)
