"""What will run for one tokenizer here, and why nothing faster: the artifact, what evidence says, every gate.

The plan decides, as at a load; here it is asked and told. A program that is not in the cache is compiled in memory and
thrown away. Not here: bringing an artifact, keeping a program.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toktier._native import Program
from toktier.artifacts.cache import ArtifactCache, hash_file
from toktier.artifacts.inventory import survey
from toktier.artifacts.local_artifacts import find_local, is_local_name
from toktier.artifacts.pins import TOKENIZER_FILE, shipped_pins
from toktier.diagnosis import artifacts
from toktier.diagnosis.context import Context
from toktier.diagnosis.gpu_hardware import gpu_facts
from toktier.diagnosis.model import Code, Finding, Reason, Remedy, Status, ok, skip
from toktier.errors import ConfigInvalid, ProgramCorrupt, ProgramUnsupported, ToktierError
from toktier.evidence.admission import admission
from toktier.gpu.suitability import Suitability, of_unsupported, suitability
from toktier.labels import shown_path
from toktier.program import engine_identity
from toktier.program.file import read_program
from toktier.program.store import program_path
from toktier.program.trust import only_owner_writes
from toktier.regular_files import open_regular
from toktier.routing.explain import status_of
from toktier.routing.gates import ProgramFacts, Request
from toktier.routing.plan import Plan, plan
from toktier.routing.probe import probe
from toktier.routing.vocabulary import THIRD_PARTY, BackendId, Device, parse_backend
from toktier.storage import environment_fault

MAX_PROGRAM_BYTES = 1 << 30


@dataclass(frozen=True)
class Look:
    """A tokenizer as this host has it. `status`: ok, missing, damaged, or refused (it cannot be read, or nothing has
    this name; `error` says why); `path` None unless ok."""

    name: str
    is_family: bool
    status: str
    sha256: str | None
    path: Path | None
    source: str | None = None
    error: ToktierError | None = None


def look(context: Context) -> Look:
    """Raises ConfigInvalid alone."""
    return context.once("family.look", lambda: _look_or_refusal(context))


def _look_or_refusal(context: Context) -> Look:
    name = context.family or ""
    try:
        return _look(context, name)
    except ConfigInvalid:
        raise
    except ToktierError as error:
        return Look(name, False, "refused", None, None, error=error)
    except OSError as error:
        return Look(name, False, "refused", None, None, error=environment_fault(error, "read", name))


def _look(context: Context, name: str) -> Look:
    store = ArtifactCache.readable(context.settings)
    local_name = is_local_name(name)
    if not local_name and name not in shipped_pins().families:
        path = Path(name)
        try:
            return Look(name, False, "ok", hash_file(path)[0], path, "file")
        except FileNotFoundError:
            return Look(name, False, "missing", None, None)
    family = find_local(name, store) if local_name else shipped_pins().family(name)
    state = survey(family, store, deep=True)
    entry = next(one for one in state.files if one.file.name == TOKENIZER_FILE)
    sha256, right = family.tokenizer.sha256, entry.status == "ok"
    return Look(name, True, entry.status, sha256, entry.path if right else None, state.source, entry.error)


def artifact(context: Context) -> Finding:
    found = look(context)
    facts = {
        "family": found.name,
        "artifact_sha256": found.sha256,
        "cached": found.status == "ok",
        "verified": found.status == "ok",
    }
    if found.status == "ok":
        assert found.sha256 is not None
        return ok(f"{found.name} is here, SHA-256 {found.sha256[:12]} hashed now", **facts)
    if found.status == "refused":
        assert found.error is not None
        return replace(artifacts.refused(found.error), facts=facts)
    if found.status == "damaged":
        assert found.error is not None
        told = artifacts.refused(found.error)
        command = f"toktier artifacts fetch {found.name}" if not found.name.startswith("local/") else None
        reason = Reason(Code.ARTIFACT_DAMAGED, "other bytes", found.sha256)
        return Finding(Status.FAIL, told.summary, facts, (reason,), Remedy("bring the right bytes", command))
    if not found.is_family:
        return Finding(
            Status.FAIL,
            f"there is no file {shown_path(found.name)}",
            facts,
            (Reason(Code.ARTIFACT_ABSENT, "no file", "a file"),),
        )
    offline = context.settings.offline
    then = "the network may not be used" if offline else "the first load brings it"
    return Finding(
        Status.FAIL if offline else Status.WARN,
        f"{found.name} is not on this host; {then}",
        facts,
        (Reason(Code.ARTIFACT_ABSENT, "not cached", found.sha256),),
        Remedy(
            "import it from a bundle or a wheel" if offline else "bring it",
            "toktier artifacts import PATH" if offline else f"toktier artifacts fetch {found.name}",
        ),
    )


def route(context: Context) -> Finding:
    found = look(context)
    if found.path is None:
        return skip("not asked: the artifact is not here", block=_block(context, found, None, None, None, None))
    try:
        program, held, suits = context.once("family.program", lambda: _program(context, found))
    except ToktierError as error:
        return artifacts.refused(error)
    seen = gpu_facts(context)
    known = admission(
        program.artifact_sha256,
        program.fingerprint,
        seen.reference_version,
        context.settings.state_dir,
        gpu=bool(seen.gpu_count),
    )
    settings = context.settings
    asked = Request(
        backend=parse_backend(settings.tokenizer),
        fallback=settings.tokenizer_fallback,
        gpu_disabled=settings.disable_gpu,
    )
    decided = plan(seen, asked, program, known)
    below = plan(seen, Request(backend=asked.backend, device=Device.CPU, fallback=asked.fallback), program, known)
    facts = {"block": _block(context, found, decided, below, held, suits)}
    if decided.serves is None:
        assert decided.refusal is not None
        told = decided.refusal
        remedy = Remedy(told.remedy or "change the settings", decided.mend)
        return Finding(Status.FAIL, told.message, facts, (Reason(Code.NOTHING_SERVES, told.code, "a backend"),), remedy)
    gate = decided.involuntary
    if gate is not None:
        reason = None if gate.reason is None else gate.reason.value
        if gate.backend in THIRD_PARTY:
            remedy = Remedy("name an engine of others beside the policy experimental, in the call or on the line")
        else:
            remedy = Remedy(_REMEDIES.get(gate.name, "the ids are the same, slower"), decided.mend)
        return Finding(
            Status.WARN,
            f"the reference serves, not {gate.backend.value}: {gate.summary} ({reason})",
            facts,
            (Reason(Code.OTHER_BACKEND_SERVES, BackendId.HF.value, gate.backend.value),),
            remedy,
        )
    return ok(f"{decided.serves.value} serves, status {decided.status.value}", **facts)


_REMEDIES = {
    "registry": "compare it with the reference on this host",
    "program": "nothing mends it here: the compiler does not know this component; the ids are the same, slower",
    "reference_version": "install a certified version of tokenizers",
}


def _program(context: Context, found: Look) -> tuple[ProgramFacts, str, Suitability]:
    """What compiling gives, where from ("cached", "compiled_now" or "unsupported"), and whether kernels can follow
    it."""
    assert found.path is not None
    assert found.sha256 is not None
    image, held = _cached_program(context.settings.programs_dir, found.sha256), "cached"
    if image is not None:
        return _facts(found, image, held)
    from toktier.program.compile import compile_tokenizer

    with open_regular(found.path) as stream:
        data = stream.readall()
    if hashlib.sha256(data).hexdigest() != found.sha256:
        raise ProgramCorrupt(f"{found.name} changed while it was looked at", remedy="ask again")
    try:
        image = compile_tokenizer(data, found.name, sha256=found.sha256)
    except ProgramUnsupported as error:
        unsupported = (error.path, error.component, error.message)
        told = ProgramFacts(found.sha256, unsupported=unsupported, named=found.name)
        return told, "unsupported", of_unsupported(error)
    return _facts(found, image, "compiled_now")


def _facts(found: Look, image: bytes, held: str) -> tuple[ProgramFacts, str, Suitability]:
    assert found.sha256 is not None
    fingerprint = read_program(image, verify_digest=False).fingerprint
    gpu = suitability(Program(image))
    return ProgramFacts(found.sha256, fingerprint, named=found.name, gpu_unsuitable=gpu.reason), held, gpu


def _cached_program(directory: Path | None, sha256: str) -> bytes | None:
    """Of the program that a load would map, whole and this user's own; None where it would compile."""
    if directory is None:
        return None
    try:
        with open_regular(program_path(directory, sha256)) as stream:
            if not only_owner_writes(os.fstat(stream.fileno())):
                return None
            image = stream.read(MAX_PROGRAM_BYTES) or b""
            program = read_program(image)
    except (OSError, ProgramCorrupt):
        return None
    return image if program.artifact_sha256 == sha256 else None


def _block(
    context: Context,
    found: Look,
    decided: Plan | None,
    below: Plan | None,
    held: str | None,
    suits: Suitability | None,
) -> dict[str, Any]:
    """The `family` member of a report; what a plan would say is None where there is no artifact to plan for."""
    statuses = {} if decided is None else {backend: status_of(decided, backend).value for backend in BackendId}
    native = None if decided is None else decided.admission.finding(BackendId.FAST_CPU)
    gates = [] if decided is None else [gate.to_dict() for gate in decided.gates]
    serves = None if decided is None or decided.serves is None else decided.serves.value
    return {
        "family": found.name,
        "artifact_sha256": found.sha256,
        "fingerprint": None if decided is None else decided.program.fingerprint,
        "cached": found.status == "ok",
        "verified": found.status == "ok",
        "source": found.source,
        "program": held,
        "certification_identity": {
            "engine_identity": engine_identity.engine_identity(),
            "engine_bound": engine_identity.is_bound(),
            "reference_version": probe().reference_version,
        },
        "evidence_id": None if native is None else native.evidence,
        "fast_cpu_status": statuses.get(BackendId.FAST_CPU),
        "gpu_status": statuses.get(BackendId.GPU),
        "gpu_kernels": None if suits is None else suits.to_dict(),
        "effective_backend": serves,
        "effective_backend_below_crossover": None if below is None or below.serves is None else below.serves.value,
        "gates": gates,
        "first_closed_gate": next((gate for gate in gates if not gate["open"]), None),
    }
