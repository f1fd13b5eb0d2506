"""What `toktier inspect` shows beside a program's own lines: who serves and why, and the long tables.

Not here: deciding who serves (`toktier.routing.plan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from toktier.labels import escaped
from toktier.routing.vocabulary import BackendId
from toktier_cli.table import columns

if TYPE_CHECKING:
    from toktier.routing.plan import Plan

LISTED = 100  # rows of one table for people; --json has all


def served_lines(plans: list[Plan]) -> Iterator[str]:
    """Who serves under which policy, and for each backend under which it could not, by the first closed gate."""
    by_backend: dict[str, list[str]] = {}
    for decided in plans:
        nobody = "" if decided.refusal is None else f"nothing ({decided.refusal.code})"
        by_backend.setdefault(nobody or str(decided.serves), []).append(decided.request.policy.value)
    for label, (backend, policies) in zip(("serves", *[""] * len(by_backend)), by_backend.items(), strict=False):
        yield f"{label:<13}{backend} under policy {', '.join(policies)}\n"
    label = "closed"
    for backend in BackendId:
        reasons: dict[str, list[str]] = {}
        for decided in plans:
            gate = next((gate for gate in decided.gates if gate.backend is backend and not gate.is_open), None)
            if gate is not None:
                policy, told = decided.request.policy.value, f"{gate.summary} ({gate.reason})"
                reasons.setdefault(told.replace(f"policy {policy}: ", ""), []).append(policy)
        for reason, policies in reasons.items():
            under = "every policy" if len(policies) == len(plans) else f"policy {', '.join(policies)}"
            yield f"{label:<13}{backend} under {under}: {reason}\n"
            label = ""


def table_lines(meta: dict[str, Any], tables: dict[str, Any]) -> Iterator[str]:
    """The tables of `toktier.inspection.listing`."""
    stages = meta["pre_tokenizer"]["stages"]
    rows: list[tuple[str, ...]]
    if stages:
        rows = [
            (str(n), *(str(sizes[key] or "-") for key in ("classes", "left_states", "right_states")),
             stage["behavior"] + (" inverted" if stage["invert"] else ""), escaped(stage["pattern"] or stage["kind"]))
            for n, (stage, sizes) in enumerate(zip(stages, tables["stages"], strict=True), 1)
        ]  # fmt: skip
        header = ("STAGE", "CLASSES", "LEFT", "RIGHT", "BEHAVIOR", "PATTERN")
        yield f"\nAutomata of each split stage\n{columns(header, rows, right=(0, 1, 2, 3))}"
    cuts = tables["cuts"]
    if cuts is not None:
        names = [_character(code_point) for code_point in cuts["representatives"]]
        rows = [(name, *row) for name, row in zip(names, cuts["pairs"], strict=True)]
        yield "\nCuts by class, each named by one of its characters: | where a text may be cut between row and column\n"
        yield columns(("", *names), rows)
    if tables["added_tokens"]:
        rows = [
            (str(token["id"]), escaped(token["content"]), ", ".join(k for k, v in token.items() if v is True) or "-")
            for token in tables["added_tokens"]
        ]
        yield f"\nAdded tokens\n{_shortened(('ID', 'CONTENT', 'FLAGS'), rows)}"
    if tables["unreachable_tokens"]:
        rows = [
            (str(token["id"]), escaped(token["token"]), "whole pieces only" if token["whole_piece"] else "never")
            for token in tables["unreachable_tokens"]
        ]
        yield f"\nTokens that no merge makes\n{_shortened(('ID', 'TOKEN', 'COMES UP FOR'), rows)}"


def _shortened(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    more = f"and {len(rows) - LISTED} more: --json lists all\n" if len(rows) > LISTED else ""
    return columns(header, rows[:LISTED], right=(0,)) + more


def _character(code_point: int) -> str:
    """Itself where it is a visible ASCII character, else its number."""
    return chr(code_point) if 0x21 <= code_point <= 0x7E else f"{code_point:04X}"
