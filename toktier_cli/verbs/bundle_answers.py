"""What `artifacts import` and `artifacts verify` say of bundles, and the keys that they demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.artifacts.pins import Pins
from toktier.config import Settings
from toktier.errors import ExitCode

if TYPE_CHECKING:  # the readers of bundles are not loaded where none is read
    from toktier.artifacts.bundle_import import BundleImport
    from toktier.artifacts.bundle_verify import BundleReport
    from toktier.artifacts.signatures import PublicKey

Keys = list[list["PublicKey"]]
VerifyKey = Annotated[
    list[str] | None,
    typer.Option("--verify-key", metavar="PUB", help="A bundle must be signed by this key (PEM); several: by any."),
]


def given_keys(paths: list[str] | None) -> list[PublicKey]:
    """The keys of --verify-key."""
    if not paths:
        return []
    from toktier.artifacts.signatures import load_public_keys

    return load_public_keys(Path(path) for path in paths)


def demanded_keys(paths: list[str] | None, settings: Settings) -> Keys:
    """The keys of --verify-key and those of the settings: one of each set must have signed."""
    if not paths and not settings.signature_keys:
        return []
    from toktier.artifacts.signatures import load_public_keys

    return [given_keys(paths), load_public_keys(settings.signature_keys)]


def imported_bundle(imported: BundleImport) -> dict[str, Any]:
    """The `bundle` member of an import's document."""
    content = imported.content
    return {
        "aliases": [part.alias for part in content.parts],
        "content_digest": f"sha256:{content.content_digest}",
        "signed_by": imported.signed_by,
        "local": imported.local,
        "missing": [{"family": family, "files": list(files)} for family, files in imported.missing.items()],
    }


def verified_bundle(path: Path, pins: Pins, keys: Keys, complete: bool) -> dict[str, Any]:
    """The entry of one bundle in a document of `artifacts verify`."""
    from toktier.artifacts.bundle_verify import verify_bundle

    report = verify_bundle(path, pins, keys)
    code = ExitCode.DONE
    if report.error is not None:
        code = report.error.exit_code
    elif complete and any(report.missing.values()):
        code = ExitCode.INCOMPLETE
    return {
        "path": str(path),
        "files": [
            {"family": pin.family, "name": pin.name, "sha256": pin.sha256, "where": f"{path}!{f.alias}/{f.file.path}"}
            for f, pin in _pinned_files(report)
        ],
        "error": None if report.error is None else report.error.to_dict(),
        "exit_code": int(code),
        "bundle": _bundle(report),
    }


def _pinned_files(report: BundleReport) -> list[tuple[Any, Any]]:
    admissions = {a.manifest.alias: a for a in report.admissions}
    right = (f for f in report.files if f.status == "ok")
    return [(f, pin) for f in right for pin in admissions[f.alias].pins[f.file.path]]


def _bundle(report: BundleReport) -> dict[str, Any]:
    content = report.content
    return {
        "complete": report.complete,
        "valid": report.valid,
        "pinned": report.pinned,
        "signed": report.signed,
        "signature": report.signature,
        "signed_by": report.signed_by,
        "content_digest": None if content is None else f"sha256:{content.content_digest}",
        "compressed": None if content is None else content.compressed,
        "uncompressed_bytes": None if content is None else content.uncompressed,
        "parts": [_part(report, admission) for admission in report.admissions],
        "extra": report.extra,
    }


def _part(report: BundleReport, admission: Any) -> dict[str, Any]:
    manifest = admission.manifest
    return {
        "alias": manifest.alias,
        "family": None if admission.claimed is None else admission.claimed.name,
        "root_digest": manifest.root_digest,
        "files": [
            {
                "path": f.file.path,
                "sha256": f.file.sha256,
                "size": f.file.size,
                "status": f.status,
                "pinned": bool(admission.pins[f.file.path]),
            }
            for f in report.files
            if f.alias == manifest.alias
        ],
        "missing": list(admission.missing),
    }


def bundle_text(entry: dict[str, Any]) -> str:
    """The lines of one bundle."""
    path, bundle = entry["path"], entry["bundle"]
    signed = {True: "signed", False: "NOT SIGNED as demanded", None: "no signature"}[bundle["signed"]]
    if bundle["signed"] is None and bundle["signature"]:
        signed = "signature not checked (--verify-key PUB)"
    answers = [word if bundle[word] else f"NOT {word.upper()}" for word in ("complete", "valid", "pinned")]
    lines = [f"{path}: {', '.join([*answers, signed])}\n"]
    for part in bundle["parts"]:
        right = sum(file["status"] == "ok" for file in part["files"])
        count = len(part["files"])
        lines.append(f"{path}: {part['alias']}: {right} of {count} file{'s' if count > 1 else ''} right\n")
        if part["missing"]:
            lines.append(f"{path}: {part['alias']}: pinned and not carried: {', '.join(part['missing'])}\n")
    lines += [f"{path}: extra: {name}\n" for name in bundle["extra"]]
    if entry["error"] is not None:
        lines.append(f"{entry['error']['message']}\n")
    return "".join(lines)
