"""load(), from_file() and from_pretrained(): from a name or a path to a Tokenizer.

Settings are resolved once and the file is found. Not here: what becomes of it (`toktier.opening`), the cache of
artifacts (`toktier.artifacts`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier import diagnostics_ring
from toktier.config import Config, Settings, resolve_settings
from toktier.conversion.recognise import vocabulary_format
from toktier.errors import ArtifactNotFound, BackendUnavailable
from toktier.labels import shown_path
from toktier.program.side_file import beside
from toktier.routing.vocabulary import BackendId, Device, GpuDelivery, RoutingPolicy, Sidecar, parse_sidecar

if TYPE_CHECKING:
    from toktier.cache.setting import PrefixCacheArgument
    from toktier.sessions.protocol import Store
    from toktier.tokenizer import Tokenizer

try:
    from toktier.load_arguments import keeping_of, request_of
    from toktier.opening import open_tokenizer
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
    prefix_cache: PrefixCacheArgument = None,
    gpu_min_bytes: int | None = None,
    gpu_delivery: GpuDelivery | str | None = None,
    config: Config | None = None,
) -> Tokenizer:
    """The tokenizer of a pinned family, from the verified cache; fetched first when it is not there, unless offline.

    `tokenizer`: "auto" or the id of a backend. None leaves it to `config`, config.toml and TOKTIER_TOKENIZER.
    `sidecar`: "report" follows tokenizer.json alone and warns of added tokens that only tokenizer_config.json declares;
    "merge" adds them, as transformers does. `store`: a directory, or a URL of redis, where named sessions are kept, and
    prefixes of texts that `lookup="auto"` finds again (docs/session-store.md); None: what `config` and config.toml say,
    else nothing is kept. `prefix_cache`: a budget in bytes for ids of
    prefixes in memory, a PrefixCache or PrefixStorage to share, or "auto": on where the reference serves
    (docs/prefix-cache.md); None: off. `gpu_min_bytes`: of a text or a batch, from which on a GPU serves that is
    admitted; `gpu_delivery`: where its kernels come from, "auto", "prebuilt" or "jit". None: what the settings say.

    Raises UnknownFamily, ArtifactNotFound, ArtifactHashMismatch, and what `from_file` raises.
    """
    settings = resolve_settings(config)
    with diagnostics_ring.recording(settings):
        request = request_of(settings, policy, tokenizer, device, gpu_min_bytes, gpu_delivery)
        keeping = keeping_of(store, lookup, settings, prefix_cache)
        from toktier.artifacts.resolve import obtain

        artifact = obtain(family, settings)
        resolution = {"family": artifact.family.name, "source": artifact.source, "path": str(artifact.path)}
        from toktier.artifacts import side_files

        side = side_files.of_family(artifact.family, settings)
        path, sha256 = _followed(artifact.path, artifact.sha256, side, sidecar, settings, resolution, family)
        return open_tokenizer(path, settings, request, resolution, family, sha256, keeping)


def from_file(
    path: str | os.PathLike[str],
    *,
    policy: RoutingPolicy | str = RoutingPolicy.CERTIFIED,
    tokenizer: BackendId | str | None = None,
    device: Device | str = Device.AUTO,
    sidecar: Sidecar | str = Sidecar.REPORT,
    store: str | os.PathLike[str] | Store | None = None,
    lookup: str = "auto",
    prefix_cache: PrefixCacheArgument = None,
    gpu_min_bytes: int | None = None,
    gpu_delivery: GpuDelivery | str | None = None,
    config: Config | None = None,
) -> Tokenizer:
    """The tokenizer of a tokenizer.json on this host; arguments as for `load`. A tekken file, or a file of ranks
    (tiktoken) with what it does not say beside it, is converted and then a tokenizer.json like any other
    (docs/artifacts.md).

    Raises ArtifactNotFound, ArtifactDamaged (no JSON), NotATokenizer, UnsupportedConfig (undefined in the reference
    itself), ConfigInvalid; and, where the reference may not serve in its place, ProgramUnsupported,
    OracleVersionUnsupported, UncertifiedTokenizer or BackendUnavailable.
    """
    settings = resolve_settings(config)
    with diagnostics_ring.recording(settings):
        request = request_of(settings, policy, tokenizer, device, gpu_min_bytes, gpu_delivery)
        keeping = keeping_of(store, lookup, settings, prefix_cache)
        resolution = {"family": None, "source": "file", "path": os.fspath(path)}
        name = shown_path(path)
        path, side = _tokenizer_json(path, settings, resolution, name)
        path, sha256 = _followed(path, None, side, sidecar, settings, resolution, name)
        return open_tokenizer(path, settings, request, resolution, name, sha256, keeping)


def _tokenizer_json(
    path: str | os.PathLike[str], settings: Settings, resolution: dict[str, Any], name: str
) -> tuple[str | os.PathLike[str], Path | None]:
    """The tokenizer.json that a path names, and the side file beside it: of a vocabulary of another format the one
    that it is converted to, which has none. Writes the member `converted` of `resolution`."""
    form = vocabulary_format(path)
    if form is None:
        return path, beside(path)
    from toktier.conversion.vocabulary_files import converted_file

    made = converted_file(path, form, settings, name)
    resolution["converted"] = {"from": form.value, "converter": made.converter, "path": str(made.path)}
    return made.path, None


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
    prefix_cache: PrefixCacheArgument = None,
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
        request = request_of(settings, policy, tokenizer, device, gpu_min_bytes, gpu_delivery)
        keeping = keeping_of(store, lookup, settings, prefix_cache)
        from toktier.artifacts import pretrained

        found = pretrained.find(repo_id, revision, settings)
        resolution = pretrained.resolution(found, pretrained.identify(found, settings))
        name = repo_id if found.revision is None else f"{repo_id}@{found.revision[:12]}"
        side = pretrained.side_file(found, settings, wanted=parse_sidecar(sidecar) is Sidecar.MERGE)
        path, sha256 = _followed(found.path, found.sha256, side, sidecar, settings, resolution, name)
        return open_tokenizer(path, settings, request, resolution, name, sha256, keeping)


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
