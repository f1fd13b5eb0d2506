"""Failure documents: one difference, minimised, with what anyone needs to see it again.

A text is given as code points, both rows of ids around the first difference, and the offsets there; so is a script of
edits, with both rows behind the edit that differs first. A difference of something else is its name and both values;
its replay runs the block. Not here: counting (`tally`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier.canonical import canonical_json
from toktier.certify.checkpoint import BlockResult
from toktier.certify.edit_scripts import Edit, Script, Step, difference, from_rows, play, to_rows
from toktier.certify.minimise import MAX_CALLS, minimise
from toktier.certify.plan import Plan
from toktier.certify.run_files import read_at_most
from toktier.errors import EvidenceInvalid
from toktier.labels import shown_path, typed
from toktier.routing.vocabulary import BackendId

if TYPE_CHECKING:
    from toktier.certify.subject import Subject

SCHEMA = "toktier.certify_failure"
MAX_FAILURE_BYTES = 64 << 20
WINDOW = 8  # ids shown on either side of the first difference
MORE_SECONDS = 30.0  # for failures beyond as many as are kept, while those before came to the same texts
MINIMISED_CODE_POINTS = 6_000_000  # encoded in the search for the shortest text: about 2 s of the reference


def comparison(subject: Subject, text: str, add_special_tokens: bool, plain: bool = False) -> dict[str, Any]:
    """Both rows of a text. `differs`: None, "ids" or "offsets"; windows begin at `from`."""
    got = subject.encode(text, add_special_tokens, plain)
    expected = subject.expected(text, add_special_tokens, plain)
    # Where the ids are right with offsets, the row without them, or at another level, may be the one to show.
    rows_of_ids = [got.ids, subject.encode_ids(text, add_special_tokens, plain).ids]
    rows_of_ids += [other.encode(text, add_special_tokens, plain=plain).ids for _, other in subject.other_levels]
    row = next((row for row in rows_of_ids if row != expected.ids), got.ids)
    ids: tuple[list[int], list[int]] = (row, expected.ids)
    offsets: tuple[list[list[int]], list[list[int]]] = ([], [])
    if subject.gives_offsets:
        offsets = ([list(pair) for pair in got.offsets], [list(pair) for pair in expected.offsets])
    differs = "ids" if ids[0] != ids[1] else "offsets" if offsets[0] != offsets[1] else None
    rows: Any = offsets if differs == "offsets" else ids
    first = next((i for i, (a, b) in enumerate(zip(*rows, strict=False)) if a != b), min(map(len, rows)))
    begin = max(0, first - WINDOW)
    end = first + WINDOW + 1
    return {
        "differs": differs,
        "served_by": got.backend,
        "first_difference": first if differs else None,
        "from": begin if differs else 0,
        "got_ids": ids[0][begin:end] if differs else ids[0][:end],
        "expected_ids": ids[1][begin:end] if differs else ids[1][:end],
        "got_offsets": offsets[0][begin:end] if differs else offsets[0][:end],
        "expected_offsets": offsets[1][begin:end] if differs else offsets[1][:end],
        "got_count": len(ids[0]),
        "expected_count": len(ids[1]),
    }


def script_comparison(subject: Subject, script: Script) -> dict[str, Any]:
    """Both rows behind the first edit at which a session differs, else behind the last. `differs`: None, "ids",
    "lengths" or "error"; a session that the reference would serve has nothing to compare."""
    session = subject.session
    step: Step | None = None
    what, expected = None, list[int]()
    for step in () if session is None else play(session, script):
        expected = subject.expected(step.text).ids
        what = difference(step, expected)
        if what is not None:
            break
    got = [] if step is None else step.ids
    first = next(
        (i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), min(len(got), len(expected))
    )
    begin = max(0, first - WINDOW) if what else 0
    return {
        "differs": what.split()[0] if what else None,
        "served_by": subject.served_as if session is not None else BackendId.HF.value,
        "edit": step.edit if step is not None and what else None,
        "first_difference": first if what else None,
        "from": begin,
        "error": step.error if step is not None else None,
        "got_ids": got[begin : first + WINDOW + 1],
        "expected_ids": expected[begin : first + WINDOW + 1],
        "got_lengths": [] if step is None else list(step.lengths),
        "expected_lengths": [] if step is None else [len(expected), len(step.text), len(step.text.encode())],
    }


def failure_documents(
    plan: Plan, results: Mapping[int, BlockResult], subject: Subject, target: Mapping[str, Any], limit: int
) -> Iterable[tuple[str, dict[str, Any]]]:
    """File names and documents of the first `limit` different failures in plan order, minimised. Where many come to the
    same shortest text, the search for others ends after MORE_SECONDS."""
    found: list[tuple[str, dict[str, Any]]] = []
    whole: dict[str, int] = {}
    candidates: list[tuple[str, dict[str, Any]]] = []
    for index in sorted(results):
        for number, failure in enumerate(results[index].failures):
            key = _whole_key(failure)
            if key in whole:
                candidates[whole[key]][1]["times"] += failure["times"]
                continue
            whole[key] = len(candidates)
            candidates.append((f"{failure['suite']}-{failure['block']}-{number}.json", dict(failure)))
    end = time.monotonic() + MORE_SECONDS
    for number, (name, failure) in enumerate(candidates):
        if len(found) >= limit or (number >= limit and time.monotonic() >= end):
            break
        found = distinct([*found, (name, failure_document(plan, failure, subject, target))])
    return found


def distinct(documents: Iterable[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Each shortest text or script, or other subject, once, by its first document, with how often it was found."""
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, document in documents:
        key = _whole_key(document)
        if key in first:
            kept = first[key]
            first[key] = (kept[0], {**kept[1], "times": kept[1]["times"] + document["times"]})
        else:
            first[key] = (name, document)
    return list(first.values())


def _whole_key(failure: Mapping[str, Any]) -> str:
    key = next(key for key in ("text", "script", "subject") if key in failure)
    return f"{key} {failure[key]}"


def failure_document(
    plan: Plan, failure: Mapping[str, Any], subject: Subject, target: Mapping[str, Any]
) -> dict[str, Any]:
    """The document of one failure as a tally keeps it."""
    content = plan.document
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": 1,
        "plan": plan.digest,
        "artifact": content["artifact"],
        "backend": content["backend"],
        "engine": content["engine"],
        "reference": content["reference"],
        "level": content["level"],
        "seed": content["seed"],
        "target": dict(target),
        "suite": failure["suite"],
        "block": failure["block"],
        "what": failure["what"],
        "times": failure["times"],
    }
    if "script" in failure:
        return document | _of_script(from_rows(failure["script"]), subject)
    if "text" not in failure:
        return document | {
            "subject": failure["subject"],
            "got": failure["got"],
            "expected": failure["expected"],
        }
    text, mode = failure["text"], (bool(failure["add_special_tokens"]), bool(failure["plain"]))
    kind = comparison(subject, text, *mode)["differs"]
    shortest = text
    if kind is not None:
        calls = min(MAX_CALLS, MINIMISED_CODE_POINTS // (len(text) + 16))
        shortest = minimise(text, lambda t: comparison(subject, t, *mode)["differs"] == kind, calls)
    return document | {
        "text": [ord(c) for c in shortest],
        "found_in_code_points": len(text),
        "add_special_tokens": mode[0],
        "plain": mode[1],
        "comparison": comparison(subject, shortest, *mode),
    }


def _of_script(script: Script, subject: Subject) -> dict[str, Any]:
    """The fewest edits that still differ, then the shortest text of each, within as much work as for a text."""
    whole = sum(len(edit.text) for edit in script)
    kind = script_comparison(subject, script)["differs"]
    shortest = script
    if kind is not None:
        calls = min(MAX_CALLS, MINIMISED_CODE_POINTS // (len(script) * (whole + 16)))

        def differs(tried: Script) -> bool:
            return bool(script_comparison(subject, tried)["differs"] == kind)

        shortest = minimise(script, differs, calls)
        for number in range(len(shortest)):
            edit = shortest[number]

            def with_text(text: str, number: int = number, edit: Edit = edit, of: Script = shortest) -> Script:
                return (*of[:number], replace(edit, text=text), *of[number + 1 :])

            def differs_with(text: str, made: Callable[[str], Script] = with_text) -> bool:
                return differs(made(text))

            shortest = with_text(minimise(edit.text, differs_with, calls // len(shortest)))
    return {
        "script": to_rows(shortest),
        "found_in_edits": len(script),
        "found_in_code_points": whole,
        "comparison": script_comparison(subject, shortest),
    }


def repro(path: str | Path) -> str:
    """The one line that runs a failure again."""
    return f"toktier certify replay {typed(path)}"


def to_bytes(document: Mapping[str, Any]) -> bytes:
    return canonical_json(dict(document)) + b"\n"


def read_failure(path: Path) -> dict[str, Any]:
    """A failure document. Raises EvidenceInvalid for anything else."""
    data = read_at_most(path, MAX_FAILURE_BYTES)
    try:
        document = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and document.get("schema") == SCHEMA and _well_formed(document):
        return document
    raise EvidenceInvalid(
        f"{shown_path(path)} is no failure of a certification",
        details={"path": str(path)},
        remedy="give a file of the directory failures/ of a run",
    )


def text_of(document: Mapping[str, Any]) -> str | None:
    """The text of a failure; None where it is of something else."""
    return "".join(map(chr, document["text"])) if "text" in document else None


def script_of(document: Mapping[str, Any]) -> Script | None:
    """The script of a failure; None where it is of something else."""
    return from_rows(document["script"]) if "script" in document else None


def _well_formed(document: Mapping[str, Any]) -> bool:
    try:
        named = all(isinstance(document[key], str) for key in ("plan", "backend", "engine", "level", "suite", "what"))
        sound = named and isinstance(document["artifact"]["sha256"], str) and isinstance(document["block"], int)
        sound = (
            sound
            and isinstance(document["times"], int)
            and isinstance(document["seed"], int)
            and isinstance(document["target"], dict)
        )
        if "script" in document:
            return sound and bool(from_rows(document["script"]))
        if "text" in document:
            points = document["text"]
            sound = sound and all(isinstance(document[mode], bool) for mode in ("add_special_tokens", "plain"))
            return sound and all(isinstance(p, int) and 0 <= p <= 0x10FFFF and not 0xD800 <= p < 0xE000 for p in points)
        return sound and isinstance(document["subject"], str)
    except (KeyError, TypeError, ValueError):
        return False
