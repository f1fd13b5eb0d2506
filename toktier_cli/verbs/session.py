"""`toktier session list`, `show`, `remove`, `verify` and `compact`: what programs keep in a store of sessions.

Nothing is made by looking, and no text of a session is shown. Not here: what a store does (`toktier.sessions`), what is
said of a session (`session_text`).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toktier.config import without_credentials
from toktier.errors import ExitCode, SessionNotFound, StoreCorrupt, ToktierError, UsageError
from toktier.labels import quoted
from toktier.sessions.opening import open_store, place_of
from toktier.sessions.protocol import Store
from toktier.sessions.records import SessionInfo
from toktier.sessions.store import SessionStore
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result, exit_code_of
from toktier_cli.table import size
from toktier_cli.verbs.session_text import described, findings_text, line, list_text, show_text, sum_of, totals

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="DIR|URL", help="Where the sessions are kept. Default: what the settings say."),
]


def _opened(invocation: Invocation, store: str | None) -> tuple[Store, str]:
    """The store, and how documents name it."""
    if store is not None:
        options.path_of(store, "--store")
    settings = options.settings_of(invocation)
    return open_store(store, settings, create=False), without_credentials(place_of(store, settings))


def _disk_bytes(opened: Store) -> int | None:
    """Of a store in a directory; a server's is its own affair."""
    return opened.disk_bytes if isinstance(opened, SessionStore) else None


def _not_found(name: str, store: str | None) -> SessionNotFound:
    return SessionNotFound(
        f"the store has no session {quoted(name)}", details={"session": name}, remedy=line("list", store)
    )


def list_(
    ctx: typer.Context,
    store: StoreOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Also anonymous sessions, which look-ups use.")] = False,
) -> Result:
    """The sessions of a store, last used first. Nothing is verified.

    Names stand in quotes, with escapes for what does not print. TOKENS and TEXT are of the whole session, its open tail
    included; HELD is what it takes in the store.
    """
    invocation: Invocation = ctx.obj
    opened, place = _opened(invocation, store)
    with opened:
        infos, disk = opened.sessions(), _disk_bytes(opened)
    infos.sort(key=lambda info: (info.last_use, info.number), reverse=True)
    anonymous = [info for info in infos if info.name is None]
    shown = infos if everything else [info for info in infos if info.name is not None]
    if not infos:
        invocation.note("the store holds no session")
    return Result(
        "session_list",
        lambda: {
            "store": place,
            "disk_bytes": disk,
            "sessions": [described(info) for info in shown],
            "anonymous": {"sessions": len(anonymous), "held_bytes": sum_of(anonymous, "held_bytes")},
        },
        lambda: list_text(shown, [] if everything else anonymous),
    )


def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    store: StoreOption = None,
) -> Result:
    """What a store knows of a session: counts, revision, last use, fingerprint. No text, and nothing is verified."""
    invocation: Invocation = ctx.obj
    opened, place = _opened(invocation, store)
    with opened:
        info = opened.show(name)
        if info is None:
            raise _unreadable(opened, name, store)
    return Result(
        "session_show",
        lambda: {"store": place, "session": described(info)},
        lambda: show_text(info),
    )


def _unreadable(opened: Store, name: str, store: str | None) -> ToktierError:
    """Of a name that cannot be shown: whether nothing is there, or something without its state."""
    findings = opened.verify(name)
    if not findings:
        return _not_found(name, store)
    return StoreCorrupt(
        f"the session {quoted(name)} is damaged: {findings[0].sentence}",
        details={"session": name},
        remedy=line("remove", store, name),
    )


def remove(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", show_default=False)] = None,
    store: StoreOption = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="All sessions without a name.")] = False,
) -> Result:
    """Remove sessions, also damaged ones. A program that has one open gets SESSION_REVISION_CONFLICT.

    The space is used again; `session compact` gives it back. Exit code 3: no such session; 6: some of several.
    """
    invocation: Invocation = ctx.obj
    wanted = list(dict.fromkeys(names or []))
    if not wanted and not anonymous:
        raise UsageError("expected names of sessions, or --anonymous", remedy="toktier session remove --help")
    removed: list[str] = []
    errors: list[ToktierError] = []
    opened, place = _opened(invocation, store)
    with opened:
        for name in wanted:
            if opened.remove(name):
                removed.append(name)
            else:
                errors.append(_not_found(name, store))
        evicted = opened.evict(0) if anonymous else []
    if len(errors) == len(wanted) == 1 and not anonymous:
        raise errors[0]
    for error in errors:
        invocation.report(error, hint=error is errors[-1])
    return Result(
        "session_remove",
        lambda: {
            "store": place,
            "removed": removed,
            "anonymous_removed": len(evicted),
            "errors": [error.to_dict() for error in errors],
        },
        lambda: (
            "".join(f"{quoted(name)}: removed\n" for name in removed)
            + (f"{len(evicted)} without a name: removed\n" if anonymous else "")
        ),
        exit_code_of(errors, done=len(removed) + anonymous),
    )


def verify(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Default: the whole store.", show_default=False)
    ] = None,
    store: StoreOption = None,
) -> Result:
    """Prove a store, or one session: seals, digests of ids and points, entries of the look-up, kept text.

    Reads everything and changes nothing. Exit code 5: something does not hold.
    """
    invocation: Invocation = ctx.obj
    opened, place = _opened(invocation, store)
    with opened:
        findings = opened.verify(name)
        infos = _checked(opened, name)
        lost = _lost(opened, infos, {finding.session for finding in findings})
    if name is not None and not infos and not findings:
        raise _not_found(name, store)
    names = {info.number: info.name for info in infos}
    return Result(
        "session_verify",
        lambda: {
            "store": place,
            "session": name,
            "checked": totals(infos),
            "findings": [
                {
                    "session": finding.session,
                    "name": name if name is not None else names.get(finding.session or 0),
                    "finding": finding.sentence,
                }
                for finding in findings
            ],
        },
        lambda: findings_text(findings, infos, lost, name, store),
        ExitCode.INTEGRITY if findings else ExitCode.DONE,
    )


def _checked(opened: Store, name: str | None) -> list[SessionInfo]:
    """The sessions that were verified and have a row that can be listed."""
    if name is None:
        return opened.sessions()
    info = opened.show(name)
    return [] if info is None else [info]


def _lost(opened: Store, infos: list[SessionInfo], damaged: set[int | None]) -> set[int]:
    """Numbers of damaged sessions whose own name does not lead to them any more."""
    named = [info for info in infos if info.number in damaged and info.name is not None]
    found = {info.number: opened.show(info.name) for info in named if info.name is not None}
    return {number for number, shown in found.items() if shown is None or shown.number != number}


def compact(ctx: typer.Context, store: StoreOption = None) -> Result:
    """Merge small rows of a store and give free space back. No session, revision or id changes.

    Programs may use the store meanwhile.
    """
    invocation: Invocation = ctx.obj
    opened, place = _opened(invocation, store)
    with opened:
        before = _disk_bytes(opened)
        merged = opened.compact()
        after = _disk_bytes(opened)
    document: dict[str, Any] = {"rows_merged": merged, "bytes_before": before, "bytes_after": after}
    return Result(
        "session_compact",
        lambda: {"store": place, **document},
        lambda: (
            f"{merged} rows merged"
            + ("" if before is None or after is None else f", {size(before)} on disk before, {size(after)} now")
            + "\n"
        ),
    )
