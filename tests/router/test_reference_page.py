"""docs/router-reference.md has the tables of the code."""

from __future__ import annotations

import os
import re

import pytest

from tests.support.material import ROOT
from toktier.router.metrics import METRICS
from toktier.router.refusals import REFUSALS

PAGE = ROOT / "docs" / "router-reference.md"


def errors() -> str:
    rows = ["| code | status | type | meaning |", "|---|---|---|---|"]
    rows += [f"| `{code}` | {status} | `{kind}` | {meaning} |" for code, (status, kind, meaning) in REFUSALS.items()]
    return "\n".join(rows)


def metrics() -> str:
    rows = ["| name | kind | labels | |", "|---|---|---|---|"]
    for metric in METRICS:
        unit = f"_{metric.unit}" if metric.unit and not metric.name.endswith(f"_{metric.unit}") else ""
        name = metric.name + unit + ("_total" if metric.kind == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(rows)


@pytest.mark.parametrize(("name", "table"), [("errors", errors()), ("metrics", metrics())], ids=["errors", "metrics"])
def test_the_tables_of_the_page_are_those_of_the_code(name: str, table: str) -> None:
    """UPDATE_DOCS=1 writes them."""
    begin, end = f"<!-- router:{name} -->", f"<!-- /router:{name} -->"
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    found, after = rest.split(end)
    if os.environ.get("UPDATE_DOCS") == "1":
        PAGE.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")
    else:
        assert found.strip() == table


def test_codes_that_clients_see_for_those_of_the_library_are_named() -> None:
    from toktier.router.refusals import _REFUSAL_OF_CODE

    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"`([A-Z]+_[A-Z]+)`", text)) == set(_REFUSAL_OF_CODE)
    assert all(f"`{refusal}`" in text.split("Errors of the library")[1] for refusal in _REFUSAL_OF_CODE.values())
