"""`toktier certify forget`: takes back what this host certified, so that the registry alone speaks again."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

import typer

from toktier.errors import ArtifactNotFound
from toktier.evidence import local
from toktier.evidence.local import Found
from toktier.labels import shown
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.verbs.certify import artifact


def forget(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="FAMILY|FILE|SHA256", show_default=False)],
) -> Result:
    """Remove the evidence that this host made of a tokenizer, for every backend and reference version.

    Runs and their reports stay. Exit code 3: there is none.
    """
    invocation: Invocation = ctx.obj
    state = options.settings_of(invocation).require_state()
    sha256 = name if re.fullmatch("[0-9a-f]{64}", name) else _digest(invocation, name)
    found = local.of_artifact(state, sha256)
    if not found:
        raise ArtifactNotFound(
            f"this host has certified nothing with the SHA-256 {sha256} ({shown(name)})",
            details={"sha256": sha256},
            remedy="toktier certify show",
        )
    local.remove(state, sha256)
    entries = [entry(one) for one in found]

    def text() -> str:
        lines = [f"forgotten: {e['backend'] or e['path']} beside {e['reference_version'] or '?'}" for e in entries]
        return "\n".join(lines) + "\n"

    return Result("certify_forget", lambda: {"sha256": sha256, "forgotten": entries}, text)


def _digest(invocation: Invocation, name: str) -> str:
    path, _ = artifact(invocation, name)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry(found: Found) -> dict[str, Any]:
    """One file of local evidence, for documents."""
    told = found.evidence
    return {
        "path": str(found.path),
        "name": None if told is None else told.artifact_name,
        "backend": None if told is None else told.backend.value,
        "reference_version": None if told is None else told.reference_version,
        "engine_identity": None if told is None else told.engine,
        "level": None if told is None else told.level,
        "digest": None if told is None else told.digest,
        "problem": found.problem,
    }
