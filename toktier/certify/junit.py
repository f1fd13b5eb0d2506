"""A run as JUnit XML, for the CI systems that show it: one test case a suite, failures and faults with their details.

A suite that has nothing to say is skipped with its reason. Times are left out: the file of one plan is the same on any
day. Texts are given as code points, because XML holds no control characters.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

from toktier.certify.outcome import Against, Reason, SuiteState
from toktier.certify.plan import Plan
from toktier.certify.summary import failure_line


def junit(
    plan: Plan, states: Sequence[SuiteState], reasons: Sequence[Reason], failures: Sequence[tuple[str, dict[str, Any]]]
) -> bytes:
    """The file. `failures`: paths and documents."""
    artifact = plan.document["artifact"]["name"]
    title = f"toktier certify {artifact} {plan.document['backend']}"
    cases: list[ElementTree.Element] = []
    for state in states:
        case = _case(artifact, state.name)
        own = [reason for reason in reasons if reason.suite == state.name]
        if own:
            _report(case, own, [f for f in failures if f[1]["suite"] == state.name])
        elif not state.planned:
            ElementTree.SubElement(case, "skipped", message=_clean(state.why or "no block in this shard"))
        counts = ", ".join(f"{key} {value}" for key, value in state.counts.to_dict().items())
        ElementTree.SubElement(case, "system-out").text = f"blocks {state.done} of {state.planned}, {counts}"
        cases.append(case)
    general = [reason for reason in reasons if reason.suite is None]
    if general:
        case = _case(artifact, "certification")
        _report(case, general, [])
        cases.append(case)
    counted = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
    }
    totals = {key: value for key, value in counted.items() if key != "skipped"}
    root = ElementTree.Element("testsuites", {"name": "toktier certify", **totals})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(title), **counted})
    properties = ElementTree.SubElement(suite, "properties")
    reference = plan.document["reference"]
    for name, value in (
        ("plan", plan.digest),
        ("artifact_sha256", plan.document["artifact"]["sha256"]),
        ("engine", plan.document["engine"]),
        ("reference", f"{reference['package']} {reference['version']}"),
        ("level", plan.level.value),
        ("seed", str(plan.seed)),
    ):
        ElementTree.SubElement(properties, "property", name=name, value=value)
    suite.extend(cases)
    ElementTree.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, "unicode")}\n'.encode()


def _case(artifact: str, name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname=_clean(f"toktier.certify.{artifact}"), name=name)


def _report(
    case: ElementTree.Element, reasons: Sequence[Reason], failures: Sequence[tuple[str, dict[str, Any]]]
) -> None:
    differs = any(reason.code is Against.MISMATCH for reason in reasons)
    message = "; ".join(reason.text for reason in reasons)
    element = ElementTree.SubElement(
        case, "failure" if differs else "error", message=_clean(message[:400]), type=reasons[0].code.value
    )
    lines = [reason.text for reason in reasons] + [failure_line(path, document) for path, document in failures]
    element.text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    """XML 1.0 has no way to write most control characters, nor lone surrogates."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
