"""Records of requests: rows, bounds, locks, queues and the end. Requests never wait and never see a fault of the file.

Not here: what happens to the file itself (`test_records_damage`).
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.command import validator
from tests.router.finished_requests import NOW, request, requests, three_slots
from tests.router.record_files import PATIENCE, faults, kept, path, rows
from tests.support import namespaces
from tests.support.material import ROOT
from toktier import errors
from toktier.router import records, records_file
from toktier.router.records import Records
from toktier.router.records_file import RecordsFile, reading
from toktier.router.request_facts import RequestFacts
from toktier.router.stats import Stats

__all__ = ["kept", "path"]  # fixtures


def test_a_row_says_what_was_promised_and_what_was_measured(kept: Records, path: Path) -> None:
    kept.slots(three_slots())  # before the rows that they come with, which may be written at once
    kept.add(request(id="one", predicted=99, measured=4, stale=True))
    kept.add(request(id="two", slot=None, measured=None, status=None, router_ms=None))
    assert kept.flush(PATIENCE)
    assert rows(path, "id, slot, choice, outcome, predicted, measured, reuse, stale, router_ms") == [
        ("one", 1, "exact", "done", 99, 4, "soft_hit", 1, 0.3),
        ("two", None, "exact", "done", 99, None, "unmeasured", 0, None),
    ]
    assert rows(path, "upstream, slot, state, tokens, sure, held, reuses, last_use", "slots")[0] == (
        *(0, 0, "known", 107, 100, 1, 5, NOW - 90),
    )
    state = kept.state()
    assert (state["state"], state["written"], state["dropped"], state["queued"]) == ("writing", 2, 0, 0)
    assert state["bytes"] > 0
    assert not rows(path, table="outputs")[0][0]


def test_what_slots_hold_at_the_end_is_written_and_wakes_nobody_before(path: Path) -> None:
    found = Records(path, clock=lambda: NOW)
    found.slots(three_slots())
    assert found.flush(PATIENCE)
    assert rows(path, table="slots") == [(0,)]
    found.slots(three_slots()[:2])
    assert found.close(PATIENCE)
    assert rows(path, "tokens, written", "slots") == [(107, NOW), (0, NOW)]


def test_nobody_else_may_read_the_file(kept: Records, path: Path) -> None:
    kept.add(request())
    assert kept.flush(PATIENCE)
    for name in os.listdir(path.parent):
        assert os.stat(path.parent / name).st_mode & 0o777 == 0o600, name
    assert os.stat(path.parent).st_mode & 0o777 == 0o700


def test_a_file_that_others_could_read_is_theirs_no_longer(path: Path) -> None:
    path.parent.mkdir()
    path.touch(0o666)
    os.chmod(path, 0o666)
    found = Records(path)
    assert found.flush(PATIENCE)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert found.close(PATIENCE)


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(facts=st.lists(requests(), min_size=1, max_size=8))
def test_law_whatever_a_request_says_becomes_a_row(kept: Records, facts: list[RequestFacts]) -> None:
    before = kept.state()["written"]
    for one in facts:
        kept.add(one)
    assert kept.flush(PATIENCE)
    state = kept.state()
    assert (state["written"] - before, state["dropped"]) == (len(facts), 0)
    validator("serve_stats").validate(Stats().document(records=state))


def test_what_can_be_no_row_keeps_no_other_out(kept: Records, path: Path) -> None:
    kept.add(request(choice="no word of the table"))
    kept.add(object())  # type: ignore[arg-type]
    kept.add(request())
    assert kept.flush(PATIENCE)
    assert rows(path) == [(1,)]
    assert kept.state()["dropped"] == 2


def test_behind_a_lock_rows_wait_and_requests_do_not(kept: Records, path: Path) -> None:
    kept.add(request())
    assert kept.flush(PATIENCE)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        kept.add(request())
        assert not kept.flush(PATIENCE)
        assert kept.state()["fault"] == "locked"
        assert kept.state()["queued"] == 1
        holder.rollback()
    assert kept.flush(PATIENCE)
    assert kept.state()["written"] == 2


def test_a_full_queue_drops_and_counts(path: Path) -> None:
    path.parent.mkdir()
    path.mkdir()
    found = Records(path, queue_rows=5, outputs=True)
    for n in range(12):
        found.add(request(id=str(n)))
        found.add_output(str(n), b"digest", reused=True, text="x" * 900_000, started=NOW)
    state = found.state()
    assert (state["queued"], state["dropped"], state["outputs_dropped"]) == (5, 7, 0)
    for n in range(12):
        found.add_output(str(n), b"digest", reused=True, text="x" * 900_000, started=NOW)
    assert found.state()["outputs_dropped"] == 24 - 18  # of 16 MiB
    path.rmdir()
    assert found.flush(PATIENCE)
    assert rows(path, "id") == [(str(n),) for n in range(5)]
    found.close(PATIENCE)


def test_a_report_sees_one_state_and_stops_nobody(kept: Records, path: Path) -> None:
    kept.add(request())
    assert kept.flush(PATIENCE)
    with reading(path) as connection:
        kept.add(request())
        assert kept.flush(PATIENCE)
        assert connection.execute("SELECT count(*) FROM requests").fetchone() == (1,)
    assert faults(kept) == {}
    assert rows(path) == [(2,)]


def test_a_reader_that_does_not_end_is_a_lock(kept: Records, path: Path) -> None:
    kept.add(request())
    assert kept.flush(PATIENCE)
    with closing(sqlite3.connect(path)) as reader:
        cursor = reader.execute("SELECT 1 FROM requests")
        kept.add(request())
        assert not kept.flush(PATIENCE)
        assert kept.state()["fault"] == "locked"
        assert cursor.fetchone() == (1,)
    assert kept.flush(PATIENCE)
    assert rows(path) == [(2,)]


def test_a_reader_writes_nothing(kept: Records, path: Path) -> None:
    assert kept.flush(PATIENCE)
    with pytest.raises(errors.ToktierError), reading(path) as connection:
        connection.execute("DELETE FROM requests")


def test_rows_and_bytes_are_bounded(path: Path) -> None:
    found = Records(path, keep_rows=500, clock=lambda: NOW)
    sizes = []
    for start in range(0, 6000, 500):
        for n in range(start, start + 500):
            found.add(request(id=str(n)))
        assert found.flush(PATIENCE)
        sizes.append(found.state()["bytes"])
    assert rows(path, "count(*), min(CAST(id AS INTEGER)), max(CAST(id AS INTEGER))") == [(500, 5500, 5999)]
    assert found.close(PATIENCE)
    assert path.stat().st_size < 150_000
    # A smaller bound gives room back.
    found = Records(path, keep_rows=10, clock=lambda: NOW)
    found.add(request(id="last"))
    assert found.close(PATIENCE)
    assert rows(path) == [(10,)]
    assert path.stat().st_size < 40_000


def test_old_rows_are_forgotten(path: Path) -> None:
    now = [NOW]
    found = Records(path, keep_days=2, clock=lambda: now[0])
    for day in range(5):
        now[0] = NOW + day * 86_400
        found.add(request(id=str(day), started=now[0]))
        assert found.flush(PATIENCE)
    assert rows(path, "id") == [("2",), ("3",), ("4",)]
    now[0] = NOW + 100 * 86_400
    found.add(request(id="late", started=now[0]))
    assert found.close(PATIENCE)
    assert rows(path, "id") == [("late",)]


def test_outputs_are_kept_only_where_somebody_asked(kept: Records, path: Path) -> None:
    kept.add_output("r1", b"digest", reused=True, text="secret", started=NOW)
    kept.add(request())
    assert kept.flush(PATIENCE)
    assert kept.close(PATIENCE)
    assert b"secret" not in path.read_bytes()
    assert kept.state()["outputs_written"] == 0


def test_outputs_are_kept_within_their_budget(path: Path) -> None:
    found = Records(path, outputs=True, keep_output_bytes=10_000)
    found.add_output("surrogates", b"d", reused=False, text="\ud800", started=NOW)
    found.add_output("long", b"d", reused=False, text="x" * (1 << 20) + "x", started=NOW)
    for n in range(100):
        found.add_output(f"r{n}", bytes([n]), reused=n % 2 == 0, text=f"\0é{n}" + "x" * 868, started=NOW + n)
    assert found.close(PATIENCE)
    assert (found.state()["outputs_written"], found.state()["outputs_dropped"]) == (100, 2)
    kept = rows(path, "request_id, prompt_digest, reused, output, started", "outputs")
    assert kept[-1] == ("r99", b"c", 0, "\0é99" + "x" * 868, NOW + 99)
    assert len(kept) == 10  # 873 bytes and 128 each
    assert kept[0][0] == "r90"


def test_closing_writes_what_is_queued_and_after_it_nothing_is_taken(path: Path) -> None:
    found = Records(path)
    for _ in range(2500):
        found.add(request())
    assert found.close(PATIENCE)
    assert found.close(PATIENCE)
    assert rows(path) == [(2500,)]
    found.add(request())
    assert not found.flush(PATIENCE)
    assert found.state()["dropped"] == 1
    assert found.state()["state"] == "closed"


def test_closing_in_time_says_what_was_lost(path: Path) -> None:
    found = Records(path)
    assert found.flush(PATIENCE)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        found.add(request())
        assert not found.close(PATIENCE)
        assert found.state()["dropped"] == 1


def test_an_interpreter_that_ends_writes_what_is_queued(path: Path) -> None:
    """Within two seconds, which a busy host may need more of: here it has them."""
    code = """
        from tests.router.finished_requests import request
        from toktier.router import records
        from toktier.router.records import Records
        records._AT_EXIT = 180.0
        found = Records(sys.argv[1])
        for _ in range(1500):
            found.add(request())
    """
    head = f"import sys; sys.path.append({str(ROOT)!r})\n"
    run = [sys.executable, "-c", head + textwrap.dedent(code), str(path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(path) == [(1500,)]


@pytest.mark.unsanitized
def test_after_a_fork_both_sides_go_on_and_no_row_is_twice(
    kept: Records, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_AT_EXIT", PATIENCE)  # for what is being written to be done before the fork
    kept.add(request(id="queued"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            kept.add(request(id="child"))
            if kept.flush(PATIENCE) and kept.state()["written"] == 1 and kept.close(PATIENCE):
                code = 0
        finally:
            os._exit(code)
    kept.add(request(id="parent"))
    assert kept.flush(PATIENCE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kept.add(request(id="later"))
    assert kept.flush(PATIENCE)
    assert sorted(rows(path, "id")) == [("child",), ("later",), ("parent",), ("queued",)]
    assert faults(kept) == {}


def test_two_routers_may_write_one_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits while the other writes: for a second, and here as long as a busy disk takes."""
    connect = records_file._connect
    monkeypatch.setattr(records_file, "_connect", lambda path, _=0.0: connect(path, PATIENCE))
    both = [Records(path), Records(path)]
    for found in both:
        for _ in range(700):
            found.add(request())
    assert all(found.close(PATIENCE) for found in both)
    assert rows(path) == [(1400,)]


def test_add_goes_on_while_the_thread_is_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request never waits for the file: here one transaction does not end until all requests were taken."""
    entered, go_on = threading.Event(), threading.Event()
    write = RecordsFile.write

    def held(*arguments: Any) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)
        write(*arguments)

    monkeypatch.setattr(RecordsFile, "write", held)
    found = Records(path)
    found.add(request())
    assert entered.wait(PATIENCE)
    for _ in range(3000):
        found.add(request())
        found.state()
    go_on.set()
    assert found.close(PATIENCE)
    assert rows(path) == [(3001,)]


@pytest.mark.skipif(not namespaces.can_unshare("--mount"), reason="needs a private mount namespace")
def test_a_full_disk_is_told_and_rows_wait_until_there_is_room(tmp_path: Path) -> None:
    code = """
        from tests.router.finished_requests import request
        from toktier.router.records import Records
        found = Records(sys.argv[1] + "/requests.db", queue_rows=400)
        found.add(request())
        assert found.flush(180)
        with open(sys.argv[1] + "/filler", "wb", buffering=0) as filler:
            try:
                while filler.write(b"x" * 4096):
                    pass
            except OSError:
                pass
            for _ in range(500):
                found.add(request())
            assert not found.flush(180)
            print(found.state()["fault"], found.state()["queued"], found.state()["dropped"])
            filler.truncate(0)
        assert found.flush(180)
        print(found.state()["state"], found.state()["written"])
        assert found.close(180)
    """
    head = f"import sys; sys.path.append({str(ROOT)!r})\n"
    command = namespaces.small_disk(tmp_path, "1m", sys.executable, "-c", head + textwrap.dedent(code), str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.stdout.split() == ["full", "400", "100", "writing", "401"], done.stderr


@pytest.mark.skipif(not namespaces.can_unshare("--mount"), reason="needs a private mount namespace")
@pytest.mark.parametrize("exists", [False, True])
def test_a_read_only_file_system_is_told(tmp_path: Path, exists: bool) -> None:
    code = """
        from tests.router.finished_requests import request
        from toktier.router.records import Records
        found = Records(sys.argv[1] + "/requests.db")
        found.add(request())
        assert not found.flush(180)
        print(found.state()["fault"])
    """
    if exists:
        assert Records(tmp_path / "requests.db").close(PATIENCE)
    head = f"import sys; sys.path.append({str(ROOT)!r})\n"
    command = namespaces.read_only(tmp_path, sys.executable, "-c", head + textwrap.dedent(code), str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["unwritable"], done.stderr


def test_readers_are_told_what_is_no_file_of_records(tmp_path: Path) -> None:
    def read(name: str) -> None:
        with reading(tmp_path / name):
            pass

    with pytest.raises(errors.StoreNotFound):
        read("none")
    (tmp_path / "junk").write_bytes(b"secret" * 1000)
    with pytest.raises(errors.StoreCorrupt) as caught:
        read("junk")
    assert "secret" not in str(caught.value.to_dict())
    with closing(sqlite3.connect(tmp_path / "other")) as connection:
        connection.execute("CREATE TABLE letters (text TEXT)")
    with pytest.raises(errors.StoreFormatUnsupported):
        read("other")
    (tmp_path / "directory").mkdir()
    with pytest.raises(errors.EnvironmentFault):
        read("directory")


@pytest.mark.parametrize("bound", ["keep_rows", "keep_days", "queue_rows"])
def test_bounds_that_hold_nothing_are_refused(path: Path, bound: str) -> None:
    with pytest.raises(errors.ConfigInvalid, match=f"{bound} is 0: expected more than 0"):
        Records(path, **{bound: 0})  # type: ignore[arg-type]
