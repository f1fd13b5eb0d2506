"""load(), from_file() and from_pretrained(): from a name or a path to a Tokenizer.

Settings are resolved once, the file is compiled or its program mapped, the plan decides who serves. Not here: the plan
(`toktier.routing`), the cache of artifacts (`toktier.artifacts`), compiling (`toktier.program`).
"""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier import diagnostics_ring, gpu_loading
from toktier.config import Config, Settings, resolve_settings
from toktier.errors import (
    ArtifactHashMismatch,
    ArtifactNotFound,
    BackendUnavailable,
    ConfigInvalid,
    ProgramCorrupt,
    ProgramUnsupported,
    ToktierError,
    ToktierWarning,
)
from toktier.evidence.admission import Admission, admission
from toktier.labels import quoted, shown_path
from toktier.program.side_file import beside
from toktier.program.store import ProgramInfo, load_or_compile
from toktier.routing.plan import Plan, ProgramFacts, Request, plan
from toktier.routing.probe import probe
from toktier.routing.vocabulary import (
    BackendId,
    Device,
    GpuDelivery,
    RoutingPolicy,
    Sidecar,
    parse_backend,
    parse_delivery,
    parse_device,
    parse_policy,
    parse_sidecar,
)

if TYPE_CHECKING:
    from toktier.evidence.kernels import KernelsHere
    from toktier.sessions.protocol import Store

try:
    from toktier._native import Program
    from toktier.backends.fast_cpu import FastCpuBackend
    from toktier.backends.hf import ArtifactSource, HfBackend
    from toktier.tokenizer import LOOKUPS, Tokenizer
except ImportError as error:
    raise BackendUnavailable(
        f"the native module of toktier cannot be imported: {error}",
        details={"backend": "fast_cpu"},
        remedy="install toktier again from the checkout or wheel at hand, for this Python",
    ) from error


def load(
    family: str,
    *,
    policy: RoutingPolicy | str = RoutingPolicy.CERTIFIED,
    tokenizer: BackendId | str | None = None,
    device: Device | str = Device.AUTO,
    sidecar: Sidecar | str = Sidecar.REPORT,
    store: str | os.PathLike[str] | Store | None = None,
    lookup: str = "auto",
    gpu_min_bytes: int | None = None,
    gpu_delivery: GpuDelivery | str | None = None,
    config: Config | None = None,
) -> Tokenizer:
    """The tokenizer of a pinned family, from the verified cache; fetched first when it is not there, unless offline.

    `tokenizer`: "auto" or the id of a backend. None leaves it to `config`, config.toml and TOKTIER_TOKENIZER.
    `sidecar`: "report" follows tokenizer.json alone and warns of added tokens that only tokenizer_config.json declares;
    "merge" adds them, as transformers does. `store`: a directory, or a URL of redis, where named sessions are kept, and
    prefixes of texts that `lookup="auto"` finds again (docs/session-store.md); None: what `config` and config.toml say,
    else nothing is kept. `gpu_min_bytes`: of a text or a batch, from which on a GPU serves that is admitted;
    `gpu_delivery`: where its kernels come from, "auto", "prebuilt" or "jit". None: what the settings say.

    Raises UnknownFamily, ArtifactNotFound, ArtifactHashMismatch, and what `from_file` raises.
    """
    settings = resolve_settings(config)
    with diagnostics_ring.recording(settings):
        request = _request(settings, policy, tokenizer, device, gpu_min_bytes, gpu_delivery)
        keeping = _keeping(store, lookup, settings)
        from toktier.artifacts.resolve import obtain

        artifact = obtain(family, settings)
        resolution = {"family": artifact.family.name, "source": artifact.source, "path": str(artifact.path)}
        from toktier.artifacts import side_files

        side = side_files.of_family(artifact.family, settings)
        path, sha256 = _followed(artifact.path, artifact.sha256, side, sidecar, settings, resolution, family)
        return _open(path, settings, request, resolution, family, sha256, keeping)


def from_file(
    path: str | os.PathLike[str],
    *,
    policy: RoutingPolicy | str = RoutingPolicy.CERTIFIED,
    tokenizer: BackendId | str | None = None,
    device: Device | str = Device.AUTO,
    sidecar: Sidecar | str = Sidecar.REPORT,
    store: str | os.PathLike[str] | Store | None = None,
    lookup: str = "auto",
    gpu_min_bytes: int | None = None,
    gpu_delivery: GpuDelivery | str | None = None,
    config: Config | None = None,
) -> Tokenizer:
    """The tokenizer of a tokenizer.json on this host; arguments as for `load`.

    Raises ArtifactNotFound, ArtifactDamaged (no JSON), NotATokenizer, UnsupportedConfig (undefined in the reference
    itself), ConfigInvalid; and, where the reference may not serve in its place, ProgramUnsupported,
    OracleVersionUnsupported, UncertifiedTokenizer or BackendUnavailable.
    """
    settings = resolve_settings(config)
    with diagnostics_ring.recording(settings):
        request = _request(settings, policy, tokenizer, device, gpu_min_bytes, gpu_delivery)
        keeping = _keeping(store, lookup, settings)
        resolution = {"family": None, "source": "file", "path": os.fspath(path)}
        name = shown_path(path)
        path, sha256 = _followed(path, None, beside(path), sidecar, settings, resolution, name)
        return _open(path, settings, request, resolution, name, sha256, keeping)


def from_pretrained(
    repo_id: str,
    revision: str | None = None,
    *,
    policy: RoutingPolicy | str = RoutingPolicy.CERTIFIED,
    tokenizer: BackendId | str | None = None,
    device: Device | str = Device.AUTO,
    sidecar: Sidecar | str = Sidecar.REPORT,
    store: str | os.PathLike[str] | Store | None = None,
    lookup: str = "auto",
    gpu_min_bytes: int | None = None,
    gpu_delivery: GpuDelivery | str | None = None,
    config: Config | None = None,
) -> Tokenizer:
    """The tokenizer of a hub repository: from the hub's cache on this host, the imported artifacts, or the hub.

    `revision`: a branch, a tag, a full or a short commit; None means the audited revision of a repository that the
    tables name, else main. Other arguments as for `load`. Bytes that no table names and whose fingerprint no family on
    this host has are served by the reference under policy certified (docs/artifacts.md). Raises ConfigInvalid for what
    is no repository or revision, ArtifactNotFound (offline), ArtifactHashMismatch (other bytes at an audited commit),
    SourceUnreachable, UncertifiedTokenizer where the reference may not serve, and what `from_file` raises.
    """
    settings = resolve_settings(config)
    with diagnostics_ring.recording(settings):
        request = _request(settings, policy, tokenizer, device, gpu_min_bytes, gpu_delivery)
        keeping = _keeping(store, lookup, settings)
        from toktier.artifacts import pretrained

        found = pretrained.find(repo_id, revision, settings)
        resolution = pretrained.resolution(found, pretrained.identify(found, settings))
        name = repo_id if found.revision is None else f"{repo_id}@{found.revision[:12]}"
        side = pretrained.side_file(found, settings, wanted=parse_sidecar(sidecar) is Sidecar.MERGE)
        path, sha256 = _followed(found.path, found.sha256, side, sidecar, settings, resolution, name)
        return _open(path, settings, request, resolution, name, sha256, keeping)


def _followed(
    path: str | os.PathLike[str],
    sha256: str | None,
    side: Path | None,
    sidecar: Sidecar | str,
    settings: Settings,
    resolution: dict[str, Any],
    name: str,
) -> tuple[str | os.PathLike[str], str | None]:
    """The file that is compiled and its digest where it is known: the tokenizer.json, or the one merged with its side
    file. Writes the member `side_file` of `resolution`."""
    merge = parse_sidecar(sidecar) is Sidecar.MERGE
    resolution["side_file"] = None if side is None else {"path": str(side), "merged": merge}
    if not merge:
        return path, sha256
    if side is None:
        raise ArtifactNotFound(
            f'{name}: sidecar is "merge", and there is no tokenizer_config.json beside it',
            details={"path": os.fspath(path)},
            remedy="leave sidecar out, or bring the file (a pinned family: `toktier artifacts fetch NAME --complete`)",
        )
    from toktier.artifacts.side_files import merged_file

    target = merged_file(path, side, settings, name)
    resolution["side_file"]["merged_path"] = str(target)
    return target, None


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


@dataclass(frozen=True, slots=True)
class _Keeping:
    """Where sessions are kept, and whether texts are looked up there."""

    store: str | Store | None
    lookup: str

    def opened(self, settings: Settings) -> Store | None:
        if self.store is None or not isinstance(self.store, str):
            return self.store
        from toktier.sessions.opening import open_store

        return open_store(self.store, settings)

    def __reduce__(self) -> tuple[type[_Keeping], tuple[str | None, str]]:
        """A pickle opens the same place again; an open store stays in its process."""
        return _Keeping, (self.store if isinstance(self.store, str) else None, self.lookup)


def _keeping(store: str | os.PathLike[str] | Store | None, lookup: str, settings: Settings) -> _Keeping:
    if lookup not in LOOKUPS:
        raise ConfigInvalid(
            f"lookup is {lookup!r}: expected one of {', '.join(LOOKUPS)}",
            details={"argument": "lookup"},
            remedy="leave lookup out",
        )
    if store is None:
        return _Keeping(settings.store, lookup)
    if isinstance(store, (str, os.PathLike)):
        from toktier.config import store_scheme

        place = os.fspath(store)
        return _Keeping(place if store_scheme(place) is not None else os.path.abspath(place), lookup)
    if not hasattr(store, "longest_prefix"):
        raise ConfigInvalid(
            f"store is of type {type(store).__name__}: expected a directory, a URL or an open store",
            details={"argument": "store"},
            remedy="give a directory as str or Path, or what open_store() gave",
        )
    return _Keeping(store, lookup)


def _request(
    settings: Settings,
    policy: RoutingPolicy | str,
    tokenizer: BackendId | str | None,
    device: Device | str,
    gpu_min_bytes: int | None,
    gpu_delivery: GpuDelivery | str | None,
) -> Request:
    if gpu_min_bytes is not None and (type(gpu_min_bytes) is not int or gpu_min_bytes < 1):
        raise ConfigInvalid(
            f"gpu_min_bytes is {quoted(str(gpu_min_bytes))}: expected a number of bytes from 1 on",
            details={"argument": "gpu_min_bytes"},
            remedy='leave gpu_min_bytes out; device="cpu" keeps texts from a GPU',
        )
    return Request(
        policy=parse_policy(policy),
        backend=parse_backend(settings.tokenizer if tokenizer is None else tokenizer),
        device=parse_device(device),
        fallback=settings.tokenizer_fallback,
        gpu_disabled=settings.disable_gpu,
        gpu_min_bytes=settings.gpu_min_bytes if gpu_min_bytes is None else gpu_min_bytes,
        gpu_delivery=parse_delivery(settings.gpu_delivery if gpu_delivery is None else gpu_delivery),
    )


def _open(
    path: str | os.PathLike[str],
    settings: Settings,
    request: Request,
    resolution: dict[str, Any],
    name: str,
    sha256: str | None,
    keeping: _Keeping,
    *,
    quiet: bool = False,
) -> Tokenizer:
    """`sha256`: of the file, where the caller has verified it. `quiet`: warnings were given before."""
    native: FastCpuBackend | None = None
    info: ProgramInfo | None = None
    seen = probe(request.gpu_delivery, look_for_gpu=not request.gpu_disabled and request.device is not Device.CPU)
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
    if decided.refusal is not None:
        raise decided.refusal
    reference = HfBackend(ArtifactSource(path, facts.artifact_sha256, name))
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
    )


def _open_again(
    path: str,
    settings: Settings,
    request: Request,
    resolution: dict[str, Any],
    name: str,
    sha256: str,
    keeping: _Keeping,
) -> Tokenizer:
    """What a pickle calls. The settings are those of the first load; the file must still be the same."""
    tokenizer = _open(path, settings, request, resolution, name, None, keeping, quiet=True)
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
