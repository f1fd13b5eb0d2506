"""From a tokenizer.json on this host to a Tokenizer: compile it or map its program, plan who serves, say what is not as
asked. Also what a pickle calls to do that again.

Not here: which file (`toktier.api`), the plan (`toktier.routing`), compiling (`toktier.program`).
"""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier import diagnostics_ring, gpu_loading, third_party_loading
from toktier._native import Program
from toktier.backends.fast_cpu import FastCpuBackend
from toktier.backends.hf import ArtifactSource, HfBackend
from toktier.config import Settings
from toktier.errors import (
    ArtifactHashMismatch,
    ArtifactNotFound,
    ProgramCorrupt,
    ProgramUnsupported,
    ToktierError,
    ToktierWarning,
)
from toktier.evidence.admission import Admission, admission
from toktier.labels import quoted, shown_path
from toktier.program.store import ProgramInfo, load_or_compile
from toktier.routing.gates import ProgramFacts, Request
from toktier.routing.plan import Plan, plan
from toktier.routing.probe import probe
from toktier.routing.vocabulary import THIRD_PARTY, BackendId, Device
from toktier.tokenizer import Tokenizer

if TYPE_CHECKING:
    from toktier.evidence.kernels import KernelsHere
    from toktier.load_arguments import Keeping


def open_tokenizer(
    path: str | os.PathLike[str],
    settings: Settings,
    request: Request,
    resolution: dict[str, Any],
    name: str,
    sha256: str | None,
    keeping: Keeping,
    *,
    quiet: bool = False,
) -> Tokenizer:
    """`sha256`: of the file, where the caller has verified it. `quiet`: warnings were given before."""
    native: FastCpuBackend | None = None
    info: ProgramInfo | None = None
    look_for_gpu = not request.gpu_disabled and request.device is not Device.CPU
    seen = probe(request.gpu_delivery, look_for_gpu=look_for_gpu, backend=request.backend)
    unidentified = resolution.get("not_admitted_because")
    # Only load() found the family's own bytes; a repository's, or a merged file, may be others.
    own = resolution["family"] and "basis" not in resolution and not (resolution.get("side_file") or {}).get("merged")
    called = resolution["family"] if own else os.fspath(path)
    try:
        program, info = load_or_compile(path, settings.programs_dir, opener=Program, name=name, sha256=sha256)
    except ProgramUnsupported as error:
        facts = ProgramFacts(sha256 or _digest(path), unsupported=(error.path, error.component, error.message))
    except ValueError as error:
        # A cached program that the engine refuses is compiled again; this one was.
        raise ProgramCorrupt(
            f"{name}: the engine refuses the program compiled from it: {error}",
            remedy="report it with the tokenizer.json; policy reference serves in the meantime",
        ) from error
    else:
        native = FastCpuBackend(program, info.meta)
        facts = ProgramFacts(
            info.artifact_sha256,
            info.fingerprint,
            decode_by_reference=not native.decodes,
            unidentified=unidentified,
            named=called,
            gpu_unsuitable=gpu_loading.unsuitable(program) if seen.gpu_count else None,
        )

    def admit(kernels: KernelsHere | None = None) -> Admission:
        return admission(
            facts.artifact_sha256,
            facts.fingerprint,
            seen.reference_version,
            settings.state_dir,
            programs_dir=settings.programs_dir,
            gpu=bool(seen.gpu_count),
            kernels=kernels,
        )

    decided = plan(seen, request, facts, admit())
    source = ArtifactSource(path, facts.artifact_sha256, name)
    reference = HfBackend(source)
    third_party = None
    if decided.serves in THIRD_PARTY:
        decided, third_party = third_party_loading.opened(decided, source, native, reference)
    if decided.refusal is not None:
        raise decided.refusal
    if native is None:
        reference.load()  # a file that the reference cannot load either is refused now, not at the first text
    _report_side_file(resolution, native or reference)
    if not quiet:
        _record(decided, settings)
        _warn(decided, info, name, (resolution.get("side_file") or {}).get("missing") or [])
    gpu = None
    if decided.serves is BackendId.GPU and native is not None:
        gpu = gpu_loading.route(decided, native, settings, admit, None if quiet else name)
    place = os.path.abspath(path)
    return Tokenizer(
        decided,
        native,
        reference,
        program=_program_facts(info),
        resolution=resolution,
        recipe=(_open_again, (place, settings, request, resolution, name, facts.artifact_sha256, keeping)),
        store=keeping.opened(settings),
        lookup=keeping.lookup,
        gpu=gpu,
        prefix_cache=keeping.prefix_cache,
        quiet=quiet,
        third_party=third_party,
    )


def _open_again(
    path: str,
    settings: Settings,
    request: Request,
    resolution: dict[str, Any],
    name: str,
    sha256: str,
    keeping: Keeping,
) -> Tokenizer:
    """What a pickle calls. The settings are those of the first load; the file must still be the same."""
    tokenizer = open_tokenizer(path, settings, request, resolution, name, None, keeping, quiet=True)
    if tokenizer.artifact_sha256 != sha256:
        raise ArtifactHashMismatch(
            f"{name}: expected the file with SHA-256 {sha256}, found {tokenizer.artifact_sha256}",
            details={"path": path, "expected": sha256, "found": tokenizer.artifact_sha256},
            remedy="load the tokenizer in this process",
        )
    return tokenizer


def _digest(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactNotFound(
            f"{shown_path(path)} has vanished: {error.strerror}", details={"path": os.fspath(path)}
        ) from None


def _program_facts(info: ProgramInfo | None) -> dict[str, Any] | None:
    if info is None:
        return None
    return {
        "path": None if info.path is None else str(info.path),
        "from_cache": info.from_cache,
        "trusted": info.trusted,
        "notice": info.notice,
    }


def _record(decided: Plan, settings: Settings) -> None:
    """A fallback is known at the load: who serves then serves every call."""
    gate = decided.involuntary
    if settings.diagnostics and gate is not None and gate.reason is not None:
        diagnostics_ring.record(settings, diagnostics_ring.FALLBACK, gate.reason.value, backend=gate.backend.value)


def _warn(decided: Plan, info: ProgramInfo | None, name: str, undeclared: list[str]) -> None:
    """At most one warning for a tokenizer and a reason, attributed to the caller of load() and its like."""
    gate = decided.involuntary
    if gate is not None and gate.reason is not None:
        text = f"{name}: the reference serves, not {gate.backend.value}: {gate.summary} ({gate.reason.value})"
        if decided.mend is not None:
            text += f"; mended by `{decided.mend}`"
        warnings.warn(text, ToktierWarning, stacklevel=4)
    elif decided.asked_for_gpu and decided.serves is BackendId.FAST_CPU:
        gpu_loading.warn(decided, next(g for g in decided.closed if g.backend is BackendId.GPU), name, stacklevel=5)
    if info is not None and info.notice is not None:
        text = f"{name}: {info.notice}; mended by a TOKTIER_HOME that can be written, with space"
        warnings.warn(text, ToktierWarning, stacklevel=4)
    if undeclared:
        some = ", ".join(quoted(content) for content in undeclared[:3]) + (", ..." if len(undeclared) > 3 else "")
        text = (
            f"{name}: tokenizer_config.json declares {len(undeclared)} added tokens that tokenizer.json has not"
            f' ({some}); they are ordinary text here, as for the reference; sidecar="merge" adds them as transformers'
            " does"
        )
        warnings.warn(text, ToktierWarning, stacklevel=4)


def _report_side_file(resolution: dict[str, Any], facts: FastCpuBackend | HfBackend) -> None:
    """Writes down which tokens the side file declares and the tokenizer has not; a side file that cannot be read is no
    reason to refuse the tokenizer.json."""
    told = resolution.get("side_file")
    if told is None or told["merged"] or "missing" in told:
        return
    from toktier.artifacts.side_files import read_declared
    from toktier.program.side_file import missing

    told["missing"], told["problem"] = [], None
    try:
        told["missing"] = missing(read_declared(Path(told["path"])), facts.token_to_id, facts.special_tokens)
    except ToktierError as error:
        told["problem"] = error.message
