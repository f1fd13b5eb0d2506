"""One failure run again: the text or script on both sides, or, where it is of neither, the block that found it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toktier.certify.failures import comparison, script_comparison, script_of, text_of
from toktier.certify.levels import Level
from toktier.certify.suites import suite_named
from toktier.certify.tally import Tally
from toktier.errors import ArtifactHashMismatch, EvidenceInvalid
from toktier.labels import shown, shown_path

if TYPE_CHECKING:
    from toktier.certify.subject import Subject


def replay(document: Mapping[str, Any], subject: Subject) -> dict[str, Any]:
    """`differs` says whether it still does; with `comparison` for a text or script, else `got` and `expected`."""
    if subject.sha256 != document["artifact"]["sha256"]:
        raise ArtifactHashMismatch(
            f"{shown_path(subject.path)} is not the tokenizer.json of this failure",
            details={"expected_sha256": document["artifact"]["sha256"], "observed_sha256": subject.sha256},
            remedy="give the file that was certified with --file PATH",
        )
    text = text_of(document)
    if text is not None:
        now = comparison(subject, text, bool(document["add_special_tokens"]), bool(document["plain"]))
        return {"differs": now["differs"] is not None, "comparison": now, "got": None, "expected": None}
    script = script_of(document)
    if script is not None:
        now = script_comparison(subject, script)
        return {"differs": now["differs"] is not None, "comparison": now, "got": None, "expected": None}
    try:
        suite = suite_named(document["suite"])
        level = Level(document["level"])
    except (KeyError, ValueError):
        raise EvidenceInvalid(
            f"suite {shown(document['suite'])} at level {shown(document['level'])} is not of this installation",
            remedy="replay it with the toktier that wrote it",
        ) from None
    tally = Tally(subject, suite.name, document["block"])
    plan = suite.plan(subject, level, document["seed"])
    if not 0 <= document["block"] < plan.blocks:
        raise EvidenceInvalid(
            f"suite {suite.name} has {plan.blocks} blocks here, and the failure is of block {document['block']}",
            remedy="replay it with the toktier that wrote it",
        )
    suite.run(subject, level, document["seed"], plan, document["block"], tally)
    for failure in tally.failures:
        if failure["what"] == document["what"] and failure.get("subject") == document["subject"]:
            return {"differs": True, "comparison": None, "got": failure["got"], "expected": failure["expected"]}
    return {"differs": False, "comparison": None, "got": None, "expected": None}
