"""Checks of pins, cached artifacts, compiled programs, and what evidence there is. Everything is read, nothing kept."""

from __future__ import annotations

import os
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.inventory import cached_families
from toktier.artifacts.pins import Pins, shipped_pins
from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Code, Finding, Reason, Remedy, Status, counted, ok, skip
from toktier.errors import EnvironmentFault, RegistryInvalid, ToktierError
from toktier.evidence import local
from toktier.evidence.registry import shipped_registry
from toktier.labels import shown_path
from toktier.program.trust import only_owner_writes

# Bytes that a report hashes of files whose stat says nothing about their content; the rest is compared by size. A third
# of a second at 200 MB/s, and enough for two of the largest published files.
MAX_HASHED = 64 << 20
_AGAIN = Remedy("install toktier again from the checkout or wheel at hand")


def pins(context: Context) -> Finding:
    try:
        table = _pins(context)
    except RegistryInvalid as error:
        reason = Reason(Code.PINS_INVALID, error.code, "a table that holds")
        return Finding(Status.FAIL, error.message, {}, (reason,), _AGAIN)
    facts = {"pins_root_digest": table.root_digest, "families": len(table.families)}
    return ok(f"{counted(len(table.families), 'family', 'families')} pinned", **facts)


def _pins(context: Context) -> Pins:
    return context.once("pins", shipped_pins)


def cache(context: Context) -> Finding:
    store = ArtifactCache.readable(context.settings)
    if store is None:
        return skip("there is no cache directory", cached=[])
    try:
        return _cached(_pins(context), store)
    except EnvironmentFault as error:
        return Finding(
            Status.UNKNOWN,
            error.message,
            {},
            (Reason(Code.DIRECTORY_UNREADABLE, error.code, "a cache that this user can read"),),
            Remedy(error.remedy or "make it readable", "toktier artifacts verify"),
        )


def _cached(table: Pins, store: ArtifactCache) -> Finding:
    told, damaged, hashed, compared = [], [], 0, 0
    for state in cached_families(table, store):
        broken = {entry.file.name for entry in state.damaged}
        for entry in state.files:
            if entry.status != "present" or store.verified_at(entry.file.sha256) is not None:
                continue
            if hashed + entry.file.size > MAX_HASHED:
                compared += 1
                continue
            hashed += entry.file.size
            if store.inspect(entry.file).status == "damaged":
                broken.add(entry.file.name)
        told.append({"family": state.family.name, "loadable": state.loadable and not broken, "damaged": sorted(broken)})
        damaged += [(state.family.name, name) for name in sorted(broken)]
    facts = {"cached": told, "compared_by_size": compared}
    if damaged:
        names = sorted({family for family, _ in damaged})
        family = names[0]
        mend = f"import PATH --as {family}" if family.startswith("local/") else f"fetch {' '.join(names)}"
        return Finding(
            Status.FAIL,
            f"damaged: {', '.join(f'{family} {name}' for family, name in damaged)}",
            facts,
            tuple(Reason(Code.ARTIFACT_DAMAGED, f"{family}/{name}", "the pinned SHA-256") for family, name in damaged),
            Remedy("bring the right bytes; the damaged file is set aside", f"toktier artifacts {mend}"),
        )
    more = f"; {counted(compared, 'file')} compared by size alone" if compared else ""
    return ok(
        f"{counted(len(told), 'family', 'families')} on this host, every byte as pinned{more}"
        if told
        else "no family yet; toktier artifacts list --available shows which there are",
        **facts,
    )


def shared(context: Context) -> Finding:
    places = [path / "artifacts" for path in context.settings.shared_caches]
    if not places:
        return skip("none is configured", shared_caches=[])
    told = [{"path": str(place), "readable": os.access(place, os.R_OK | os.X_OK)} for place in places]
    dumb = [place for place, entry in zip(places, told, strict=True) if not entry["readable"]]
    if dumb:
        return Finding(
            Status.WARN,
            f"passed over: {', '.join(shown_path(place) for place in dumb)}",
            {"shared_caches": told},
            tuple(Reason(Code.DIRECTORY_UNREADABLE, "not readable", "a readable directory") for _ in dumb),
            Remedy("mount or share it, or take it out of shared_caches", "toktier config show --origin"),
        )
    return ok(f"{len(told)} are readable", shared_caches=told)


def programs(context: Context) -> Finding:
    directory = context.settings.programs_dir
    if directory is None:
        return skip("there is no cache directory", programs=0)
    count = size = 0
    strange: list[Path] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".program"):
                    status = entry.stat(follow_symlinks=False)
                    count, size = count + 1, size + status.st_size
                    if not only_owner_writes(status):
                        strange.append(Path(entry.path))
    except FileNotFoundError:
        pass
    except OSError as error:
        reason = Reason(Code.DIRECTORY_UNREADABLE, error.strerror, "a readable directory")
        return Finding(Status.WARN, f"{shown_path(directory)}: {error.strerror}", {}, (reason,))
    facts = {"programs_dir": str(directory), "programs": count, "program_bytes": size}
    if strange:
        return Finding(
            Status.WARN,
            f"{len(strange)} of {count} programs could have been written by others: they are compiled again",
            facts,
            (Reason(Code.PROGRAM_NOT_OWN, len(strange), 0),),
            Remedy("remove them, and keep the directory to this user", f"rm {shown_path(directory)}/*.program"),
        )
    return ok(f"{count} compiled", **facts)


def registry(context: Context) -> Finding:
    try:
        table = shipped_registry()
    except RegistryInvalid as error:
        reason = Reason(Code.REGISTRY_INVALID, error.code, "a table that holds")
        return Finding(Status.FAIL, error.message, {}, (reason,), _AGAIN)
    facts = {"registry_root_digest": table.root_digest, "rows": len(table.rows), "registry_engine": table.engine}
    if not table.rows:
        return ok("no row yet: admission by the compiler's proofs and the suites of the build", **facts)
    from toktier.program.engine_identity import engine_identity

    told, installed = f"{counted(len(table.rows), 'row')} of shipped evidence", engine_identity()
    if table.engine != installed:
        return Finding(
            Status.WARN,
            f"{told}, of another engine: under the default policy the reference serves, slowly",
            facts,
            (Reason(Code.EVIDENCE_OF_OTHER_ENGINE, installed, table.engine),),
            Remedy("install a released build, or certify on this host what it serves", "toktier certify FAMILY"),
        )
    return ok(told, **facts)


def own_evidence(context: Context) -> Finding:
    state = context.settings.state_dir
    if state is None:
        return skip("there is no state directory")
    from toktier.program.engine_identity import engine_identity

    found = list(local.everything(state))
    believed = [one.evidence for one in found if one.evidence is not None]
    stale = sum(1 for evidence in believed if evidence.engine != engine_identity())
    facts = {"local_evidence": len(believed) - stale, "of_another_engine": stale}
    problems = [one for one in found if one.evidence is None]
    if problems:
        return Finding(
            Status.WARN,
            f"{counted(len(problems), 'file')} not believed: {problems[0].problem}",
            facts,
            tuple(Reason(Code.EVIDENCE_NOT_BELIEVED, one.problem, "evidence that holds") for one in problems[:10]),
            Remedy("certify again, or forget it", "toktier certify show"),
        )
    if not found:
        return skip("none was made on this host (toktier certify FAMILY)", **facts)
    more = f", {stale} of another engine" if stale else ""
    return ok(f"{counted(len(believed) - stale, 'tokenizer')} certified on this host{more}", **facts)


def refused(error: ToktierError) -> Finding:
    """A file that is no tokenizer, or not the right one."""
    return Finding(
        Status.FAIL,
        error.message,
        {},
        (Reason(Code.ARTIFACT_REFUSED, error.code, "a tokenizer.json that holds"),),
        None if error.remedy is None else Remedy(error.remedy),
    )
