"""Records whose file is removed, damaged or replaced: requests go on, what is lost is counted, and the writer goes on
when it can. D27 of the serving cases.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.router.finished_requests import request
from tests.router.record_files import PATIENCE, faults, kept, path, rows
from toktier.router.records import Records
from toktier.router.records_file import KEEP_DAMAGED

__all__ = ["kept", "path"]  # fixtures


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
