"""What `toktier artifacts verify` says of a kit: the answers of its verifier, then those about the bundle in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toktier.errors import ArtifactNotFound, BundleInvalid, EnvironmentFault, ExitCode, ToktierError
from toktier.labels import shown_path

MANIFEST, VERIFIER, BUNDLE = "kit.json", "verify_kit.py", "bundle.tar"


def is_kit(path: Path) -> bool:
    """Whether this is a kit, be it a damaged one."""
    return path.is_dir() and any(os.path.lexists(path / name) for name in (MANIFEST, VERIFIER))


def kit_entry(path: Path, verify_path: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The entry of a kit in the document of `verify`. `verify_path` gives the entry of the bundle of a whole kit."""
    from toktier.artifacts import verify_kit

    outcome = verify_kit.check(path)
    problems = [
        {"kind": problem.kind, "path": verify_kit.shown(problem.path), "said": problem.said}
        for problem in outcome.problems[: verify_kit.MAX_NAMED]
    ]
    whole = outcome.exit_code == verify_kit.DONE
    bundle = verify_path(path / BUNDLE) if whole and (path / BUNDLE).exists() else None
    if bundle is not None:
        error, exit_code = bundle["error"], bundle["exit_code"]
    else:
        error = None if whole else _error(path, outcome.exit_code, problems).to_dict()
        exit_code = outcome.exit_code
    return {
        "path": str(path),
        "files": bundle["files"] if bundle else [],
        "error": error,
        "exit_code": exit_code,
        "kit": {
            "digest": outcome.digest,
            "complete": outcome.complete,
            "valid": outcome.valid,
            "files": outcome.files,
            "problems": problems,
            "bundle": bundle,
        },
    }


def _error(path: Path, exit_code: int, problems: list[dict[str, str]]) -> ToktierError:
    kind, what = {
        ExitCode.INTEGRITY: (BundleInvalid, "is not valid"),
        ExitCode.INCOMPLETE: (ArtifactNotFound, "is incomplete"),
        ExitCode.ENVIRONMENT: (EnvironmentFault, "cannot be read"),
    }[ExitCode(exit_code)]
    first = problems[0]
    return kind(
        f"the kit {shown_path(path)} {what}: {first['path']}: {first['said']}",
        details={"path": str(path), "problems": problems},
        remedy="carry it again, whole, and compare its digest",
    )


def kit_text(entry: dict[str, Any], path_text: Callable[[dict[str, Any]], str]) -> str:
    """What is said of the kit, and, with `path_text`, of the bundle in it."""
    kit = entry["kit"]
    said = {True: "yes", False: "no"}
    line = (
        f"{entry['path']}: kit, complete: {said[kit['complete']]}, valid: {said[kit['valid']]},"
        f" {kit['files']} files hashed, digest {kit['digest'] or 'unknown'}\n"
    )
    if kit["bundle"] is not None:
        return line + path_text(kit["bundle"])
    return line + (f"{entry['error']['message']}\n" if entry["error"] else "")
