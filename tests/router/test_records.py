"""Records under all that can happen to a file: requests never wait and never see it, what is lost is counted, and the
writer goes on when it can. D27 of the serving cases."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.command import validator
from tests.router.finished_requests import NOW, request, requests, three_slots
from tests.support import namespaces
from tests.support.material import ROOT
from toktier import errors
from toktier.router.records import Records
from toktier.router.records_file import KEEP_DAMAGED, RecordsFile, reading
from toktier.router.request_facts import RequestFacts
from toktier.router.stats import Stats

PATIENCE = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "requests.db"


@pytest.fixture
def kept(path: Path) -> Iterator[Records]:
    found = Records(path, clock=lambda: NOW)
    yield found
    found.close(PATIENCE)


def rows(path: Path, what: str = "count(*)", table: str = "requests") -> list[Any]:
    with reading(path) as connection:
        return connection.execute(f"SELECT {what} FROM {table}").fetchall()


def faults(records: Records) -> dict[str, int]:
    return {word: count for word, count in records.state()["faults"].items() if count}


def test_a_row_says_what_was_promised_and_what_was_measured(kept: Records, path: Path) -> None:
    kept.add(request(id="one", predicted=99, measured=4, stale=True))
    kept.add(request(id="two", slot=None, measured=None, status=None, router_ms=None))
    kept.slots(three_slots())
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


def removed(path: Path) -> None:
    path.unlink()


def its_directory_removed(path: Path) -> None:
    path.unlink()
    for left in path.parent.iterdir():
        left.unlink()
    path.parent.rmdir()


def another_put_in_its_place(path: Path) -> None:
    other = path.with_name("other")
    other.touch()
    os.replace(other, path)


def truncated(path: Path) -> None:
    os.truncate(path, 0)


def overwritten(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"\x07 no database \xff" * 2000)


@pytest.mark.parametrize(
    "happens",
    [
        *(removed, its_directory_removed),
        *(another_put_in_its_place, truncated, overwritten),
    ],
    ids=lambda f: f.__name__,
)
def test_what_happens_to_the_file_costs_no_request(kept: Records, path: Path, happens: Callable[[Path], None]) -> None:
    for _ in range(2000):
        kept.add(request(id="before"))
    assert kept.flush(PATIENCE)
    happens(path)
    for _ in range(10):
        kept.add(request(id="after"))
        kept.flush(PATIENCE)
    assert kept.state()["state"] == "writing"
    assert kept.state()["dropped"] == 0
    assert kept.close(PATIENCE)
    # And once more, by whoever opens it next: what is damaged is set aside, and nothing is written into it.
    again = Records(path)
    again.add(request(id="again"))
    assert again.flush(PATIENCE)
    assert rows(path, "id")[-1] == ("again",)
    assert again.close(PATIENCE)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    # What was in the other file is gone, and said to be.
    assert rows(path, "count(*) FILTER (WHERE id = 'before'), count(*)") == [(0, 11)]
    assert faults(kept) == {"damaged" if happens is overwritten else "removed": 1}


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_nothing_beside_the_file_can_end_the_process(kept: Records, path: Path, suffix: str) -> None:
    """Whoever truncates the index of a log (-shm) under a process that has it mapped ends that process."""
    beside = Path(f"{path}{suffix}")
    for content in (b"", b"junk" * 10_000, None):
        kept.add(request())
        assert kept.flush(PATIENCE)
        if content is None:
            beside.unlink(missing_ok=True)
        else:
            beside.write_bytes(content)
    kept.add(request())
    assert kept.flush(PATIENCE)
    assert kept.state()["written"] == 4


def a_directory_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link_in_its_place(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def nothing(path: Path) -> None:
    pass


HAPPENINGS = (
    nothing, removed, its_directory_removed, another_put_in_its_place, truncated, overwritten, a_directory_in_its_place,
    a_link_in_its_place,
)  # fmt: skip


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(happen=st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 3)), max_size=6))
def test_law_every_request_is_written_waiting_or_counted_as_dropped(
    happen: list[tuple[Callable[[Path], None], int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("law") / "state" / "requests.db"
    found, added = Records(path, queue_rows=5), 0
    for what, requests_then in happen:
        found.flush(PATIENCE)
        if path.is_file():
            what(path)
        for _ in range(requests_then):
            found.add(request())
            added += 1
    found.flush(PATIENCE)
    state = found.state()
    assert state["written"] + state["dropped"] + state["queued"] == added
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        path.rmdir()
    assert found.flush(PATIENCE)
    found.add(request())
    assert found.close(PATIENCE)
    state = found.state()
    assert (state["queued"], state["written"] + state["dropped"]) == (0, added + 1)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_damaged_file_is_set_aside_whole(path: Path) -> None:
    path.parent.mkdir()
    junk = b"these are no records" * 1000
    path.write_bytes(junk)
    found = Records(path)
    found.add(request())
    assert found.flush(PATIENCE)
    assert faults(found) == {"damaged": 1}
    (aside,) = [name for name in os.listdir(path.parent) if ".damaged-" in name]
    assert (path.parent / aside).read_bytes() == junk
    assert rows(path) == [(1,)]
    found.close(PATIENCE)


def test_pages_that_do_not_hold_are_found_when_it_is_opened(path: Path) -> None:
    found = Records(path)
    for _ in range(3000):
        found.add(request())
    assert found.close(PATIENCE)
    data = bytearray(path.read_bytes())
    half = len(data) // 2 // 4096 * 4096
    data[half : half + 4096] = bytes(range(256)) * 16
    path.write_bytes(data)
    found = Records(path)
    found.add(request())
    assert found.flush(PATIENCE)
    assert faults(found) == {"damaged": 1}
    assert rows(path) == [(1,)]
    found.close(PATIENCE)


def test_tables_that_are_others_are_damage(path: Path) -> None:
    found = Records(path)
    assert found.close(PATIENCE)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE requests ADD COLUMN more")
    found = Records(path)
    found.add(request())
    assert found.flush(PATIENCE)
    assert faults(found) == {"damaged": 1}
    found.close(PATIENCE)


def test_damaged_files_do_not_fill_the_disk(path: Path) -> None:
    path.parent.mkdir()
    for n in range(KEEP_DAMAGED + 2):
        path.write_bytes(b"junk" * 1000)
        found = Records(path)
        found.add(request())
        assert found.flush(PATIENCE) == (n < KEEP_DAMAGED)
        if n >= KEEP_DAMAGED:
            assert found.state()["fault"] == "damaged"
        found.close(PATIENCE)
    assert len([name for name in os.listdir(path.parent) if ".damaged-" in name]) == KEEP_DAMAGED
    assert path.read_bytes() == b"junk" * 1000  # left alone


@pytest.mark.parametrize("version", [0, 2])
def test_a_database_of_something_else_is_left_alone(path: Path, version: int) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("CREATE TABLE letters (text TEXT)")
    before = path.read_bytes()
    found = Records(path)
    found.add(request())
    assert not found.flush(PATIENCE)
    assert found.state()["fault"] == "foreign"
    assert not found.close(PATIENCE)
    assert found.state()["dropped"] == 1
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("kind", ["directory", "link", "pipe", "below a file"])
def test_what_is_no_plain_file_is_left_alone_until_it_is_gone(path: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"of somebody else")
    if kind == "below a file":
        path.parent.write_bytes(b"a file")
    else:
        path.parent.mkdir()
        {"directory": path.mkdir, "link": lambda: path.symlink_to(target), "pipe": lambda: os.mkfifo(path)}[kind]()
    found = Records(path)
    found.add(request())
    assert not found.flush(PATIENCE)
    assert (found.state()["state"], found.state()["fault"]) == ("failing", "not_a_file")
    if kind == "below a file":
        path.parent.unlink()
    elif kind == "directory":
        path.rmdir()
    else:
        path.unlink()
    assert found.flush(PATIENCE)
    assert found.state()["state"] == "writing"
    assert rows(path) == [(1,)]
    assert target.read_bytes() == b"of somebody else"
    found.close(PATIENCE)


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
    code = """
        from tests.router.finished_requests import request
        from toktier.router.records import Records
        found = Records(sys.argv[1])
        for _ in range(1500):
            found.add(request())
    """
    head = f"import sys; sys.path.append({str(ROOT)!r})\n"
    run = [sys.executable, "-c", head + textwrap.dedent(code), str(path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(path) == [(1500,)]


@pytest.mark.unsanitized
def test_after_a_fork_both_sides_go_on_and_no_row_is_twice(kept: Records, path: Path) -> None:
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


def test_two_routers_may_write_one_file(path: Path) -> None:
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
        assert found.flush(30)
        with open(sys.argv[1] + "/filler", "wb", buffering=0) as filler:
            try:
                while filler.write(b"x" * 4096):
                    pass
            except OSError:
                pass
            for _ in range(500):
                found.add(request())
            assert not found.flush(30)
            print(found.state()["fault"], found.state()["queued"], found.state()["dropped"])
            filler.truncate(0)
        assert found.flush(30)
        print(found.state()["state"], found.state()["written"])
        assert found.close(30)
    """
    head = f"import sys; sys.path.append({str(ROOT)!r})\n"
    command = namespaces.small_disk(tmp_path, "1m", sys.executable, "-c", head + textwrap.dedent(code), str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["full", "400", "100", "writing", "401"], done.stderr


@pytest.mark.skipif(not namespaces.can_unshare("--mount"), reason="needs a private mount namespace")
@pytest.mark.parametrize("exists", [False, True])
def test_a_read_only_file_system_is_told(tmp_path: Path, exists: bool) -> None:
    code = """
        from tests.router.finished_requests import request
        from toktier.router.records import Records
        found = Records(sys.argv[1] + "/requests.db")
        found.add(request())
        assert not found.flush(30)
        print(found.state()["fault"])
    """
    if exists:
        assert Records(tmp_path / "requests.db").close(PATIENCE)
    head = f"import sys; sys.path.append({str(ROOT)!r})\n"
    command = namespaces.read_only(tmp_path, sys.executable, "-c", head + textwrap.dedent(code), str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
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
