"""docs/routing.md names every policy, status, backend, device, gate, reason code and member, and no other code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import toktier
from tests.support.material import ROOT, small_tokenizers
from toktier.routing import vocabulary as v
from toktier.routing.gates import ProgramFacts, Request
from toktier.routing.plan import plan
from toktier.routing.probe import OpenedGpu, ProbeFacts, Problem, ThirdPartyFacts

PAGE = (ROOT / "docs" / "routing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("names", [v.RoutingPolicy, v.Status, v.BackendId, v.Device, v.GpuDelivery, v.Reason])
def test_every_name_is_there(names: type[v.Reason]) -> None:
    assert [member.value for member in names if f"`{member.value}`" not in PAGE] == []


def test_no_reason_code_that_does_not_exist() -> None:
    assert set(re.findall(r"\bR_[A-Z_]+", PAGE)) == {reason.value for reason in v.Reason}


def test_every_gate_and_certified_version_is_there() -> None:
    lost = OpenedGpu(self_tested=True, problem=Problem("execution", v.Reason.EXEC_FAULT, "it is lost"))
    facts = ProbeFacts("0.23.3", gpu_backend=True, gpu_count=1, gpu_delivery=v.GpuDelivery.JIT, gpu=lost)
    refused = Problem("file", v.Reason.BACKEND_REFUSED_FILE, "it cannot load the file")
    others = replace(facts, third_party=ThirdPartyFacts(v.BackendId.FASTOKENS, "1", refused))
    named = Request(backend=v.BackendId.FASTOKENS)
    gates = [*plan(facts, Request(), ProgramFacts("00")).gates, *plan(others, named, ProgramFacts("00")).gates]
    names = {gate.name for gate in gates if gate.backend is not v.BackendId.HF} | {"kernels"}
    row = re.compile(r"\| (\w+)( \((gpu|third party)\))? \| `R_")
    rows = {found[1] for line in PAGE.splitlines() if (found := row.match(line))}
    assert rows == names
    assert ", ".join(v.CERTIFIED_REFERENCE_VERSIONS) in PAGE


def test_every_member_of_explain_is_there() -> None:
    path: Path = small_tokenizers()[0]
    report = toktier.from_file(path).explain()
    members = [*report, *report["program"], *report["counters"]]
    assert [name for name in members if f"`{name}`" not in PAGE] == []
