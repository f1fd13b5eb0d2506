"""Whether a device can run the tokenizers that a line names: for `toktier gpu compile FAMILY...`.

One cubin serves every tokenizer, so this decides nothing about compiling. Not here: the premises
(`toktier.gpu.suitability`).
"""

from __future__ import annotations

from typing import Any

from toktier.artifacts.resolve import obtain
from toktier.config import Settings
from toktier.errors import ProgramUnsupported
from toktier.labels import shown_path
from toktier.program.store import load_or_compile
from toktier_cli import options
from toktier_cli.invocation import Invocation


def family_row(name: str, settings: Settings, invocation: Invocation) -> dict[str, Any]:
    """`name`: a family, or the path of a tokenizer.json. Raises what bringing and reading it raises."""
    from toktier._native import Program
    from toktier.gpu.suitability import unsuitable

    path, sha256 = name, None
    if not options.looks_like_path(name):
        artifact = obtain(name, settings, notify=invocation.note)
        path, sha256 = str(artifact.path), artifact.sha256
    try:
        program, _ = load_or_compile(path, settings.programs_dir, opener=Program, sha256=sha256)
        reason = unsuitable(program)
    except ProgramUnsupported as error:
        reason = error.message
    return {"family": name, "suitable": reason is None, "reason": reason}


def families_text(rows: list[dict[str, Any]]) -> str:
    return "".join(
        f"{shown_path(row['family'])}: "
        + ("a device can run it\n" if row["suitable"] else f"no device runs it: {row['reason']}\n")
        for row in rows
    )
