"""Checks that hang or crash are one row each; the others answer. The table of checks: frozen ids, declared facts."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.material import ROOT
from toktier.config import Config
from toktier.diagnosis import artifacts, report
from toktier.diagnosis.checks import CHECKS, selected
from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Check, Code, Finding, Reason, Status, ok, skip, worst
from toktier.diagnosis.redaction import Redaction
from toktier.diagnosis.runner import run
from toktier.errors import UsageError
from toktier.evidence.registry import shipped_registry

PATIENT = 600.0  # seconds for a report: its checks answer at once, on whatever host
# Never renamed, reused or removed; new ones are added here.
FROZEN = [
    "python.version", "python.platform", "build.native", "build.identity", "dependencies.reference",
    "dependencies.packages", "dependencies.pynvml", "config.settings", "config.variables", "directories.cache",
    "directories.state", "artifacts.pins", "artifacts.cache", "artifacts.shared", "artifacts.programs",
    "evidence.registry", "evidence.local", "sessions.store", "network.policy", "diagnostics.ring", "gpu.hardware",
    "gpu.driver", "gpu.devices", "gpu.binding", "gpu.nvrtc", "gpu.cubins", "gpu.certification", "gpu.route",
    "backends.fastokens", "backends.basetenkenizer", "backends.gigatoken", "family.artifact", "family.route",
]  # fmt: skip


def test_ids_are_frozen() -> None:
    assert [check.id for check in CHECKS] == FROZEN


def test_facts_by_name_are_of_checks_that_tell_them() -> None:
    by_id = {check.id: check for check in CHECKS}
    assert all(name in by_id[check].facts for name, check in report.FACTS.items())


def test_every_fact_that_is_reported_is_declared(tmp_path: Path) -> None:
    rows = run(CHECKS, Context(config=Config(home=tmp_path), family="toktier_mini"), PATIENT)
    assert [row.check for row in rows] == list(CHECKS)
    for row in rows:
        assert set(row.finding.facts) <= set(row.check.facts), row.check.id
        assert row.finding.status is not Status.FAIL, row
    assert list(tmp_path.iterdir()) == []


def test_an_undeclared_fact_never_leaves(tmp_path: Path) -> None:
    check = Check("a.b", "?", lambda _: ok("fine", told=1, secret="x"), facts=("told",))
    (row,) = run([check], Context(config=Config(home=tmp_path)), PATIENT)
    assert row.to_dict()["facts"] == {"told": 1}


def checks(**looks: Callable[[Context], Finding]) -> list[Check]:
    return [Check(f"test.{name}", "?", look) for name, look in looks.items()]


def test_a_check_that_hangs_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the runner stands still until the others have answered, and is past every deadline from then on."""
    end, answered, begun = threading.Event(), set[str](), time.monotonic()

    def hang(_: Context) -> Finding:
        end.wait(300)
        return ok("too late")

    def quick(_: Context) -> Finding:
        answered.add(threading.current_thread().name)
        return ok("here")

    def clock() -> float:
        working = {thread.name for thread in threading.enumerate()}
        return begun + 1000 if len(answered) == 2 and not answered & working else begun

    monkeypatch.setattr("toktier.diagnosis.runner.time", SimpleNamespace(monotonic=clock))
    try:
        rows = run(checks(first=hang, second=quick, third=hang, last=quick), Context(), 150.0)
    finally:
        end.set()
    assert [row.finding.status.value for row in rows] == ["unknown", "ok", "unknown", "ok"]
    late = rows[0].finding
    assert late.reasons[0].code is Code.CHECK_TIMED_OUT
    assert late.remedy is not None
    assert late.remedy.command == "toktier doctor --only test.first --timeout 30"


def test_the_line_that_asks_a_late_check_again_asks_of_the_same_home_and_family() -> None:
    given = Context(config=Config(home="a home"), family="it's.json")
    late = run(checks(never=lambda _: ok("here")), given, 0.0)[0].finding
    assert late.remedy is not None
    command = "toktier doctor --family 'it'\"'\"'s.json' --home 'a home' --only test.never --timeout 30"
    assert late.remedy.command == command


def test_evidence_of_another_engine_is_a_warning_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever builds from changed sources learns why everything has become slow."""
    registry = shipped_registry()
    for engine, status in ((registry.engine, "ok"), ("0" * 64, "warn")):
        monkeypatch.setattr("toktier.program.engine_identity.engine_identity", lambda engine=engine: engine)
        found = artifacts.registry(Context())
        assert found.status.value == status
    assert [reason.code for reason in found.reasons] == [Code.EVIDENCE_OF_OTHER_ENGINE]
    assert found.remedy is not None
    assert found.remedy.command == "toktier certify FAMILY"


def test_when_the_time_is_over_the_rest_is_told_as_not_asked() -> None:
    rows = run(checks(one=lambda _: ok("here"), two=lambda _: ok("here")), Context(), 0.0)
    assert {row.finding.status.value for row in rows} == {"unknown"}


def test_a_crash_tells_the_place_and_no_value() -> None:
    def crash(_: Context) -> Finding:
        raise ZeroDivisionError("secret value")

    rows = run(checks(bad=crash, good=lambda _: ok("here")), Context(), PATIENT)
    assert [row.finding.status.value for row in rows] == ["fail", "ok"]
    told = str(rows[0].to_dict())
    assert "ZeroDivisionError at test_runner.py:" in told
    assert "secret" not in told


def test_settings_that_cannot_be_read_are_one_failure(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("offline = 3\n")
    rows = {row.check.id: row.finding for row in run(CHECKS[:-2], Context(config=Config(home=tmp_path)), PATIENT)}
    assert rows["config.settings"].status is Status.FAIL
    assert rows["directories.cache"].status is Status.SKIP
    assert rows["directories.cache"].reasons[0].code is Code.CONFIG_INVALID
    assert rows["python.version"].status is Status.OK
    assert sum(finding.status is Status.FAIL for finding in rows.values()) == 1


def test_the_worst_of_the_required_rows_counts() -> None:
    def row(status: Status, required: bool) -> Check:
        return Check("a.b", "?", lambda _: Finding(status, ""), required=required)

    def told(*given: tuple[Status, bool]) -> Status:
        return worst(run([row(*one) for one in given], Context(), PATIENT))

    assert told((Status.FAIL, False), (Status.OK, True)) is Status.OK
    assert told((Status.SKIP, True)) is Status.OK
    assert told((Status.WARN, True), (Status.UNKNOWN, True)) is Status.UNKNOWN
    assert told((Status.FAIL, True), (Status.UNKNOWN, True)) is Status.FAIL


def test_selection() -> None:
    assert [c.id for c in selected(["gpu.driver, python"], [], with_family=False)] == [
        "python.version", "python.platform", "gpu.driver"
    ]  # fmt: skip
    ids = [c.id for c in selected([], ["gpu", "backends"], with_family=False)]
    assert not any(name.startswith(("gpu.", "backends.", "family.")) for name in ids)
    assert "family.route" in [c.id for c in selected([], [], with_family=True)]
    with pytest.raises(UsageError, match=r"did you mean gpu\.driver"):
        selected(["gpu.drivr"], [], with_family=False)


def test_differences_name_checks_by_id_and_leave_out_time() -> None:
    def made(version: str) -> dict[str, object]:
        check = Check(
            "a.b", "?", lambda _: Finding(Status.OK, "", {"v": version}, (Reason(Code.NOT_APPLICABLE),)), facts=("v",)
        )
        context = Context()
        return report.make_report(run([check], context, PATIENT), context, Redaction({}, enabled=False)).document

    assert report.differences(made("1"), made("1")) == []
    found = report.differences(made("1"), made("2"))
    assert found == [{"path": "checks.a.b.facts.v", "here": "1", "there": "2"}]


def test_once_is_once_and_an_error_is_told_to_everyone() -> None:
    context = Context(environ={"TOKTIER_OFFLINE": "maybe", "HOME": os.sep})
    calls = []
    assert [context.once("x", lambda: calls.append(1)) for _ in range(3)] == [None] * 3
    assert len(calls) == 1
    rows = run(
        [Check("a.b", "?", lambda c: skip(str(c.settings))), Check("a.c", "?", lambda c: skip(str(c.settings)))],
        context,
        PATIENT,
    )
    assert [row.finding.reasons[0].code for row in rows] == [Code.CONFIG_INVALID] * 2


def test_the_page_lists_every_check() -> None:
    """docs/doctor.md names ids, and whether they are required, as the table has them."""
    told = dict(
        re.findall(r"^\| `([a-z_.]+)` \|.*\| (yes|no) \|$", (ROOT / "docs" / "doctor.md").read_text("utf-8"), re.M)
    )
    assert told == {check.id: "yes" if check.required else "no" for check in CHECKS}


def test_codes_are_frozen() -> None:
    """Reason codes: append only."""
    assert len(Code) == len({code.value for code in Code}) == 38
    assert all(re.fullmatch(r"[A-Z_]+", code.value) for code in Code)
