"""`toktier inspect`: what the package pins, or what a tokenizer.json is, and what serves it under each policy."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.inventory import FamilyState, survey
from toktier.artifacts.licences import licence_of
from toktier.artifacts.pins import TOKENIZER_FILE, Pins, shipped_pins
from toktier.config import Settings
from toktier.errors import ArtifactNotFound, ProgramUnsupported, UsageError
from toktier.labels import escaped
from toktier.routing.vocabulary import BackendId, Reason, RoutingPolicy, Status
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.table import columns, size
from toktier_cli.verbs.inspect_text import served_lines, table_lines
from toktier_cli.verbs.program_text import program_lines

if TYPE_CHECKING:
    from toktier.gpu.suitability import Suitability
    from toktier.routing.plan import Plan


@dataclass(frozen=True, slots=True)
class _File:
    """A tokenizer.json as the compiler sees it. `meta` None: beyond the compiler, `unsupported` says why. `named`: what
    commands call it. `gpu`: whether the kernels of the GPU can follow it."""

    path: Path
    size: int
    sha256: str
    fingerprint: str | None
    meta: dict[str, Any] | None
    unsupported: ProgramUnsupported | None
    named: str
    gpu: Suitability
    image: bytes | mmap.mmap | None = None

    def tables(self) -> dict[str, Any] | None:
        """The long tables; None beyond the compiler."""
        if self.image is None or self.meta is None:
            return None
        from toktier.inspection.listing import listing, stages

        return {**listing(memoryview(self.image), self.meta), "stages": stages(self.meta)}


def inspect(
    ctx: typer.Context,
    what: Annotated[
        list[str] | None, typer.Argument(metavar="[FAMILY|FILE|REPO_ID] [OTHER]", show_default=False)
    ] = None,
    family: options.Family = None,
    file: options.File = None,
    revision: Annotated[
        str | None, typer.Option(metavar="REV", help="Branch, tag or commit of REPO_ID.", show_default=False)
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables", help="Also the long tables, which --json always has: patterns, cuts, added tokens, ..."
        ),
    ] = False,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Explain where this text may be cut, and what an append to it encodes again. -: stdin.",
            show_default=False,
        ),
    ] = None,
) -> Result:
    """What is pinned (without an argument: everything), or what a tokenizer.json is.

    For a file: pipeline, automata, merges, added tokens, fingerprint, which pinned artifact it equals, what serves it.

    For two files or families: every part in which they differ, with a text that both encode differently. Exit code 0:
    the same tokenizer; 1: not.

    With --text: the parts of the text that may be encoded apart, with their pieces and tokens, and why behind the last
    cut there is none. An append to the text encodes from there on.

    For a repository (OWNER/NAME): which revision was audited and as which family, and the file where this host has it,
    in the hub's cache or among the imported artifacts. Nothing is downloaded.

    automata: classes of characters that the patterns tell apart; left and right states are the two sides of a position;
    "in one pass" counts the states that find every boundary reading forwards once, without it the engine reads twice.

    boundaries: digest of these tables in canonical form, whole in --json: equal for tokenizers that split alike.

    merges: a rule that can never fire is proved dead. "not monotone": some rule ranks before one that makes a side of
    it, so that applying rules once in rank order would not do.
    """
    invocation: Invocation = ctx.obj
    given = [value for value in (*(what or ()), family, file) if value is not None]
    if len(given) > 2:
        raise UsageError("expected one or two of FAMILY, FILE and REPO_ID", remedy="toktier inspect --help")
    if len(given) == 2 and (revision is not None or tables):
        raise UsageError("--revision and --tables are of one tokenizer", remedy="toktier inspect --help")
    if text is not None and (len(given) != 1 or tables):
        raise UsageError(
            f"--text needs one tokenizer, got {len(given)}" if len(given) != 1 else "--text goes without --tables",
            remedy="toktier inspect --help",
        )
    pins = shipped_pins()
    settings = options.settings_of(invocation)
    cache = ArtifactCache.readable(settings)
    if text is not None:
        path = _path_of(given[0], bool(what), file is not None, revision, pins, settings, cache)
        from toktier_cli.verbs.inspect_append import inspect_append

        return inspect_append(given[0], path, text, settings)
    if not given:
        return _all(pins)
    if len(given) == 2:
        from toktier_cli.verbs.inspect_pair import inspect_pair

        return inspect_pair(given[0], given[1], pins, settings, cache)
    name = given[0]
    if what and _is_repository(name):
        return _one_repository(name, revision, pins, settings, tables)
    if revision is not None:
        raise UsageError("--revision is of a repository (OWNER/NAME)", remedy="toktier inspect --help")
    if file is not None or (name not in pins.families and options.looks_like_path(name)):
        return _one_file(options.tokenizer_json(Path(name), settings), pins, settings, cache, tables)
    return _one_family(survey(pins.family(name), cache, deep=True, trust_hint=True), settings, tables)


def _path_of(
    name: str,
    positional: bool,
    is_file: bool,
    revision: str | None,
    pins: Pins,
    settings: Settings,
    cache: ArtifactCache | None,
) -> Path:
    """The tokenizer.json that the line names. Raises ArtifactNotFound where it is not on this host."""
    from toktier_cli.verbs.inspect_pair import path_of_one

    if positional and _is_repository(name):
        from toktier.artifacts import pretrained

        return pretrained.find(name, revision, settings, network=False).path
    if revision is not None:
        raise UsageError("--revision is of a repository (OWNER/NAME)", remedy="toktier inspect --help")
    return options.tokenizer_json(Path(name), settings) if is_file else path_of_one(name, pins, settings, cache)


def _is_repository(name: str) -> bool:
    """OWNER/NAME, unless a file or directory of that name is here."""
    owner, _, rest = name.partition("/")
    return (
        bool(owner.strip(".")) and bool(rest) and "/" not in rest and rest[-5:] != ".json" and not Path(name).exists()
    )


def _all(pins: Pins) -> Result:
    families = [f for _, f in sorted(pins.families.items())]
    rows = [
        (f.name, (f.revision or "-")[:12], size(f.tokenizer.size), f.tokenizer.sha256, f.repo_id or "-")
        for f in families
    ]
    return Result(
        "inspect_pins",
        lambda: {"root_digest": pins.root_digest, "families": [_pinned(survey(f, None, deep=False)) for f in families]},
        lambda: columns(("FAMILY", "REVISION", "SIZE", "SHA-256 OF TOKENIZER.JSON", "REPOSITORY"), rows, right=(2,)),
    )


def _pinned(state: FamilyState) -> dict[str, Any]:
    family = state.family
    return {
        "family": family.name,
        "repo_id": family.repo_id,
        "revision": family.revision,
        "shipped": family.shipped,
        "derived": family.derived,
        "licence": licence_of(family.name).to_dict(),
        "files": [{"name": n, "sha256": f.sha256, "size": f.size} for n, f in family.files.items()],
        "published_in": [
            {"kind": p.kind, "package": p.package, "version": p.version, "path": p.path} for p in family.publications
        ],
    }


def _one_family(state: FamilyState, settings: Settings, tables: bool) -> Result:
    """Pins of a family, and the file itself where it is on this host."""
    here = next((f.path for f in state.files if f.file.name == TOKENIZER_FILE and f.status == "ok"), None)
    sha256 = state.family.tokenizer.sha256  # of the file that is here: its status is "ok"
    file = None if here is None else _examine(here, settings, sha256=sha256, named=state.family.name)
    files = {f.file.name: "present" if f.status == "ok" else f.status for f in state.files}

    def document() -> dict[str, Any]:
        return {
            **_pinned(state),
            "on_this_host": files,
            "source": state.source,
            "program": None if file is None else _program(file),
            "gpu": None if file is None else file.gpu.to_dict(),
            "serves": None if file is None else _serves(file, settings),
            "certification": None if file is None else _certification(file, settings),
        }

    return Result("inspect_family", document, lambda: "".join(_family_text(state, file, settings, tables)))


def _family_text(state: FamilyState, file: _File | None, settings: Settings, tables: bool) -> Iterator[str]:
    family = state.family
    yield f"family       {family.name}\n"
    if family.repo_id is not None:
        yield f"repository   {family.repo_id} at {family.revision}\n"
    yield f"licence      {licence_of(family.name)}\n"
    for entry in state.files:
        where = "on this host" if entry.status == "ok" else entry.status
        yield f"file         {entry.file.name}, {entry.file.size:,} bytes, SHA-256 {entry.file.sha256}, {where}\n"
    for publication in family.publications:
        yield f"also in      {publication.kind} {publication.requirement}, {publication.path}\n"
    if file is None:
        yield f"not here     toktier artifacts fetch {family.name}\n"
    else:
        yield from _file_lines(file, settings, tables)


def _one_repository(repo_id: str, revision: str | None, pins: Pins, settings: Settings, tables: bool) -> Result:
    """What the tables say of a repository, and its tokenizer.json where it is on this host."""
    from toktier.artifacts import pretrained
    from toktier.artifacts.siblings import BASIS_MEANINGS, shipped_siblings

    known = pretrained.audited(repo_id, pins, shipped_siblings())
    absent: ArtifactNotFound | None = None
    try:
        found = pretrained.find(repo_id, revision, settings, network=False)
    except ArtifactNotFound as error:
        if known is None:
            raise
        absent = error
        resolution, file = None, None
    else:
        resolution = pretrained.resolution(found, pretrained.identify(found, settings))
        file = _examine(found.path, settings, sha256=found.sha256)
    unidentified = None if resolution is None else resolution["not_admitted_because"]
    audit = None if known is None else {
        "revision": known.revision,
        "file": known.file,
        "sha256": known.sha256,
        "family": known.canonical,
        "pinned": known.family is not None,
        "basis": known.basis.value,
        "basis_meaning": BASIS_MEANINGS[known.basis],
    }  # fmt: skip

    def document() -> dict[str, Any]:
        return {
            "repo_id": repo_id,
            "requested_revision": revision,
            "audited": audit,
            "resolution": resolution,
            "sha256": None if file is None else file.sha256,
            "program": None if file is None else _program(file),
            "gpu": None if file is None else file.gpu.to_dict(),
            "serves": None if file is None else _serves(file, settings, unidentified),
            "certification": None if file is None else _certification(file, settings),
        }

    def text() -> Iterator[str]:
        yield f"repository   {repo_id}\n"
        if known is None:
            yield "audited      no: no table names it\n"
        else:
            where = "" if known.family is not None else ", which is not pinned here"
            yield f"audited      {known.file} at {known.revision}, SHA-256 {known.sha256}\n"
            yield f"family       {known.canonical}{where}: {BASIS_MEANINGS[known.basis]}\n"
        if absent is not None:
            yield f"not here     {escaped(absent.message)}\n"
            return
        assert file is not None
        assert resolution is not None
        at = "" if resolution["revision"] is None else f" at {resolution['revision']}"
        yield f"found        {resolution['source']}{at}\n"
        yield f"file         {escaped(file.path)}, {file.size:,} bytes, SHA-256 {file.sha256}\n"
        if unidentified is None:
            yield f"equals       {resolution['family']}, {resolution['basis']}\n"
        else:
            yield f"equals       nothing known: {unidentified}\n"
        yield from _file_lines(file, settings, tables, unidentified)

    return Result("inspect_repository", document, lambda: "".join(text()))


def _one_file(path: Path, pins: Pins, settings: Settings, cache: ArtifactCache | None, tables: bool) -> Result:
    file = _examine(path, settings, sha256=None)
    equals = pins.tokenizer_family(file.sha256)
    basis, compared = "identical", []
    if equals is None and file.fingerprint is not None:
        basis = "equivalent"
        for candidate in _present(pins, cache):
            compared.append(candidate.family.name)
            blob = next(f.path for f in candidate.files if f.file.name == TOKENIZER_FILE)
            assert blob is not None
            if _examine(blob, settings, sha256=candidate.family.tokenizer.sha256).fingerprint == file.fingerprint:
                equals = candidate.family
                break
    equal_to = None if equals is None else {"family": equals.name, "basis": basis}

    def document() -> dict[str, Any]:
        return {
            "path": str(path),
            "size": file.size,
            "sha256": file.sha256,
            "equals": equal_to,
            "compared_with": compared,
            "program": _program(file),
            "gpu": file.gpu.to_dict(),
            "serves": _serves(file, settings),
            "certification": _certification(file, settings),
        }

    def text() -> str:
        lines = [f"file         {escaped(path)}, {file.size:,} bytes, SHA-256 {file.sha256}\n"]
        if equal_to is not None:
            how = "byte for byte" if basis == "identical" else "in every id, offset and decoded text (same fingerprint)"
            lines.append(f"equals       the pinned {equal_to['family']}, {how}\n")
        else:
            others = f"; not the same tokenizer as {', '.join(compared)} on this host" if compared else ""
            lines.append(f"equals       no pinned file{others}\n")
        return "".join([*lines, *_file_lines(file, settings, tables)])

    return Result("inspect_file", document, text)


def _present(pins: Pins, cache: ArtifactCache | None) -> Iterator[FamilyState]:
    """Families whose tokenizer.json is on this host: only their fingerprints can be known."""
    for _, family in sorted(pins.families.items()):
        state = survey(family, cache, deep=False)
        if state.loadable:
            yield state


def _examine(path: Path, settings: Settings, *, sha256: str | None, named: str | None = None) -> _File:
    """Compiles, or maps what was compiled before. Raises what reading the file raises, but not ProgramUnsupported."""
    import hashlib

    from toktier._native import Program
    from toktier.gpu.suitability import of_unsupported, suitability
    from toktier.program.store import load_or_compile

    try:
        image, info = load_or_compile(path, settings.programs_dir, sha256=sha256)
    except ProgramUnsupported as error:
        data = path.read_bytes()
        sha256, gpu = hashlib.sha256(data).hexdigest(), of_unsupported(error)
        return _File(path, len(data), sha256, None, None, error, named or str(path), gpu)
    size_, gpu = path.stat().st_size, suitability(Program(image))
    return _File(path, size_, info.artifact_sha256, info.fingerprint, info.meta, None, named or str(path), gpu, image)


def _program(file: _File) -> dict[str, Any]:
    unsupported = file.unsupported
    return {
        "compiled": file.meta is not None,
        "fingerprint": file.fingerprint,
        "meta": file.meta,
        "tables": file.tables(),
        "unsupported": None
        if unsupported is None
        else {"path": unsupported.path, "component": unsupported.component, "message": unsupported.message},
    }


def _plans(file: _File, settings: Settings, unidentified: str | None = None) -> list[Plan]:
    """The plan under each policy. `unidentified`: see `ProgramFacts`."""
    from toktier.evidence.admission import admission
    from toktier.routing.gates import ProgramFacts, Request
    from toktier.routing.plan import plan
    from toktier.routing.probe import probe

    unsupported = file.unsupported
    facts = ProgramFacts(
        file.sha256,
        file.fingerprint,
        None if unsupported is None else (unsupported.path, unsupported.component, unsupported.message),
        decode_by_reference=file.meta is not None and file.meta["decode"] == "reference",
        unidentified=unidentified,
        named=file.named,
        gpu_unsuitable=None if file.meta is None else file.gpu.reason,
    )
    seen = probe()
    known = admission(
        file.sha256, file.fingerprint, seen.reference_version, settings.state_dir, gpu=bool(seen.gpu_count)
    )
    return [plan(seen, Request(policy=policy), facts, known) for policy in RoutingPolicy]


def _serves(file: _File, settings: Settings, unidentified: str | None = None) -> list[dict[str, Any]]:
    """Who serves under each policy, with every gate, and the gates that closed."""
    return [
        {
            "policy": decided.request.policy.value,
            "backend": None if decided.serves is None else decided.serves.value,
            "status": decided.status.value,
            "closed": [gate.to_dict() for gate in decided.closed],
            "gates": [gate.to_dict() for gate in decided.gates],
            "error": None if decided.refusal is None else decided.refusal.to_dict(),
        }
        for decided in _plans(file, settings, unidentified)
    ]


def _certification(file: _File, settings: Settings) -> dict[str, Any]:
    from toktier.routing.explain import certification

    return certification(_plans(file, settings)[0])


def _evidence_lines(plan: Plan) -> Iterator[str]:
    """What evidence says of the CPU engine, and the command that makes or forgets evidence of this host."""
    found = plan.admission.finding(BackendId.FAST_CPU)
    yield f"evidence     {found.status.value}: {found.summary}\n"
    command = plan.program.certify
    if found.status is Status.LOCALLY_CERTIFIED:
        if found.basis == "equivalent":  # the evidence is of other bytes, and goes by their digest
            command = f"toktier certify {found.artifact_sha256}"
        yield f"undo         {command.replace('certify', 'certify forget', 1)}\n"
    elif found.status is Status.UNTESTED and found.reason is not Reason.REGISTRY_INVALID:
        yield f"certify      {command}\n"


def _file_lines(file: _File, settings: Settings, tables: bool, unidentified: str | None = None) -> Iterator[str]:
    if file.meta is not None:
        assert file.fingerprint is not None
        yield f"fingerprint  {file.fingerprint}\n"
        yield from program_lines(file.meta)
    else:
        assert file.unsupported is not None
        yield f"compiled     no: {file.unsupported.message}\n"
    plans = _plans(file, settings, unidentified)
    if file.meta is not None:
        yield from _evidence_lines(plans[0])
    yield f"gpu          {file.gpu.to_text()}\n"
    yield from served_lines(plans)
    if tables:
        found = file.tables()
        if found is not None and file.meta is not None:
            yield from table_lines(file.meta, found)
