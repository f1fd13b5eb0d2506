"""What is said of stored sessions, to people and in documents.

Rows of a damaged store are listed without being verified, so no value is taken for what it should be: a count that is
none is null, and "?" for people.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from toktier.labels import MAX_MEMBER, quoted, shown, typed
from toktier.sessions.records import Finding, SessionInfo
from toktier_cli.table import columns, size

DIGEST_SHOWN = 12
_COUNTS = ("revision", "appends", "tokens", "text_bytes", "code_points", "tail_bytes", "tail_tokens", "held_bytes")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def sum_of(infos: Sequence[SessionInfo], name: str) -> int:
    return sum(_count(getattr(info, name)) or 0 for info in infos)


def _together(info: SessionInfo, *names: str) -> int | None:
    counts = [_count(getattr(info, name)) for name in names]
    return None if None in counts else sum(count for count in counts if count is not None)


def last_use(info: SessionInfo) -> str | None:
    """RFC 3339, UTC."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.last_use))
    except (OverflowError, ValueError, OSError, TypeError):
        return None


def described(info: SessionInfo) -> dict[str, Any]:
    """All of it, for documents."""
    return {
        "name": info.name,
        "number": info.number,
        "fingerprint": str(info.fingerprint),
        "keep_text": bool(info.keep_text),
        **{name: _count(getattr(info, name)) for name in _COUNTS},
        "last_use": last_use(info),
    }


def totals(infos: Sequence[SessionInfo]) -> dict[str, Any]:
    return {
        "sessions": len(infos),
        "anonymous": sum(info.name is None for info in infos),
        "with_text": sum(bool(info.keep_text) for info in infos),
        **{name: sum_of(infos, name) for name in ("appends", "tokens", "text_bytes")},
    }


def _named(info: SessionInfo) -> str:
    return f"anonymous {info.number}" if info.name is None else quoted(info.name)


def _plain(count: int | None) -> str:
    return "?" if count is None else str(count)


def _size(count: int | None) -> str:
    return "?" if count is None else size(count)


def list_text(infos: Sequence[SessionInfo], left_out: Sequence[SessionInfo]) -> str:
    rows = [
        (
            _plain(_together(info, "tokens", "tail_tokens")),
            _size(_together(info, "text_bytes", "tail_bytes")),
            _plain(_count(info.revision)),
            last_use(info) or "?",
            _size(_count(info.held_bytes)),
            shown(str(info.fingerprint)[:DIGEST_SHOWN]),
            _named(info),
        )
        for info in infos
    ]
    header = ("TOKENS", "TEXT", "REVISION", "LAST USE", "HELD", "FINGERPRINT", "NAME")
    table = columns(header, rows, right=(0, 1, 2, 4)) if rows else ""
    if left_out:
        held = size(sum_of(left_out, "held_bytes"))
        table += f"without a name: {_counted(len(left_out), 'session')}, {held} held (--all lists them)\n"
    return table


def _counted(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"


def show_text(info: SessionInfo) -> str:
    count = {name: _plain(_count(getattr(info, name))) for name in _COUNTS}
    kept = "kept" if info.keep_text else "not kept"
    points = f"{count['appends']} commit point{'' if count['appends'] == '1' else 's'}"
    rows = (
        ("name", f"anonymous {info.number}" if info.name is None else quoted(info.name, MAX_MEMBER)),
        ("number", str(info.number)),
        ("fingerprint", shown(str(info.fingerprint))),
        ("tokens", f"{count['tokens']}, and {count['tail_tokens']} of the open tail"),
        ("text", f"{count['text_bytes']} bytes, and {count['tail_bytes']} of the open tail; {kept}"),
        ("code points", f"{count['code_points']}, without the open tail"),
        ("revision", f"{count['revision']}, with {points}"),
        ("held", f"{count['held_bytes']} bytes"),
        ("last use", last_use(info) or "?"),
    )
    return "".join(f"{label:<13}{value}\n" for label, value in rows)


def findings_text(
    findings: Sequence[Finding], infos: Sequence[SessionInfo], lost: set[int], name: str | None, store: str | None
) -> str:
    """Each finding with what mends it, then what was read. `lost`: numbers of sessions that no name leads to."""
    by_number = {info.number: info for info in infos}
    lines = []
    for finding in findings:
        said, mend = _said_and_mended(finding, by_number, name, store)
        if finding.session in lost:
            mend = "its name does not lead to it: restore the store from a copy, or begin another"
        lines.append(f"{said}: DAMAGED: {finding.sentence}{f' ({mend})' if mend else ''}\n")
    verdict = _counted(len(findings), "finding") if findings else "ok"
    return "".join([*lines, f"{verdict}: {_read(infos, name)}\n"])


def _said_and_mended(
    finding: Finding, infos: dict[int, SessionInfo], name: str | None, store: str | None
) -> tuple[str, str | None]:
    if finding.session is None:
        return "the database", "move its directory away, or restore it from a copy"
    info = infos.get(finding.session)
    if name is None and info is not None:
        name = info.name
    if name is not None:
        return quoted(name), line("remove", store, name)
    if info is not None:
        return _named(info), line("remove", store, option="--anonymous")
    return f"session number {finding.session}", None


def _read(infos: Sequence[SessionInfo], name: str | None) -> str:
    sums = totals(infos)
    what = f"digests of {_counted(sums['tokens'], 'id')} in {_counted(sums['appends'], 'append')}, look-up entries"
    if name is not None:
        return f"{quoted(name)}: {what}{', kept text' if sums['with_text'] else ''}"
    text = f", kept text of {sums['with_text']}" if sums["with_text"] else ""
    who = f"{_counted(sums['sessions'], 'session')}, {sums['anonymous']} without a name"
    return f"{who}: {what}{text}, the database"


def line(verb: str, store: str | None, *names: str, option: str | None = None) -> str:
    """The command for somebody to paste. Of a name that no shell can pass only its place is there."""
    words = ["toktier", "session", verb, *([option] if option else [])]
    if store is not None:
        words += ["--store", typed(store)]
    if any(name.startswith("-") for name in names):
        words.append("--")
    return " ".join([*words, *map(_argument, names)])


def _argument(name: str) -> str:
    try:
        if b"\0" in os.fsencode(name):
            return "NAME"
    except UnicodeEncodeError:
        return "NAME"
    rest = name.lstrip("-")  # a path that begins so is typed as ./-x, a name is not
    return "-" * (len(name) - len(rest)) + (typed(rest) if rest or not name else "")
