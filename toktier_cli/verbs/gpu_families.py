"""Whether a device can run the tokenizers that a line names: for `toktier gpu compile FAMILY...`.

One cubin serves every tokenizer, so this decides nothing about compiling. Not here: the premises
(`toktier.gpu.suitability`), running them (`gpu_trial`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toktier.artifacts.resolve import obtain
from toktier.config import Settings
from toktier.errors import ProgramUnsupported
from toktier.labels import shown_path
from toktier.program.store import load_or_compile
from toktier_cli import options
from toktier_cli.invocation import Invocation

if TYPE_CHECKING:
    from toktier.backends.fast_cpu import FastCpuBackend


@dataclass(frozen=True)
class Named:
    """A tokenizer. `reason`: why no device can run it, a clause; None: one can. `native` None: it did not compile."""

    name: str
    reason: str | None
    native: FastCpuBackend | None

    def to_dict(self) -> dict[str, Any]:
        return {"family": self.name, "suitable": self.reason is None, "reason": self.reason}


def named_tokenizer(name: str, settings: Settings, invocation: Invocation) -> Named:
    """`name`: a family, or the path of a tokenizer.json. Raises what bringing and reading it raises."""
    from toktier._native import Program
    from toktier.backends.fast_cpu import FastCpuBackend
    from toktier.gpu.suitability import unsuitable

    path, sha256 = name, None
    if not options.looks_like_path(name):
        artifact = obtain(name, settings, notify=invocation.note)
        path, sha256 = str(artifact.path), artifact.sha256
    try:
        program, info = load_or_compile(path, settings.programs_dir, opener=Program, sha256=sha256)
    except ProgramUnsupported as error:
        return Named(name, error.message, None)
    return Named(name, unsuitable(program), FastCpuBackend(program, info.meta))


def families_text(named: Sequence[Named]) -> str:
    return "".join(
        f"{shown_path(one.name)}: "
        + ("a device can run it\n" if one.reason is None else f"no device runs it: {one.reason}\n")
        for one in named
    )
