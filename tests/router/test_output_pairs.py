"""Pairs out of JSON lines and out of records: what is refused, by line or row, and in how much memory."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from toktier.errors import ArtifactNotFound, InvalidText, LockTimeout, OutputsInvalid
from toktier.router import output_pairs
from toktier.router.output_pairs import OutputPair, pairs_of_lines, pairs_of_records

GOOD = b'{"cached": "a", "uncached": "b"}\n'


def of(data: bytes) -> list[OutputPair]:
    return list(pairs_of_lines(io.BytesIO(data), "pairs.jsonl"))


def test_a_line_is_a_pair_and_empty_lines_count() -> None:
    assert of(GOOD + b"\n  \n" + GOOD.replace(b"}", b', "id": 7}').rstrip()) == [
        OutputPair(1, "a", "b"),
        OutputPair(4, "a", "b"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"no json", "no JSON at character 0"),
        (b'{"cached": "a", "uncached": "b"', "no JSON at character"),
        (b"[" * 100_000, "no JSON"),
        (b"9" * 5000, "no JSON"),
        (b'["a", "b"]', "no JSON object"),
        (b'{"cached": "a"}', "'uncached' is missing"),
        (b'{"cached": null, "uncached": "b"}', "'cached' is no text"),
        (b"\xef\xbb\xbf" + GOOD.strip(), "no JSON"),
        (b"\x00\x01\x02", "no JSON at character 0"),
    ],
    ids=range(9),
)
def test_a_line_that_is_no_pair_is_refused_by_its_number(line: bytes, said: str) -> None:
    with pytest.raises(OutputsInvalid, match=r"pairs\.jsonl, line 3: ") as raised:
        of(GOOD + GOOD + line + b"\n" + GOOD)
    assert said in raised.value.message
    assert raised.value.details["line"] == 3
    assert "cached" in (raised.value.remedy or "")


@pytest.mark.parametrize(
    ("line", "position"),
    [(b'{"cached": "a\xff", "uncached": "b"}', 13), (b'{"cached": "ab\\ud800", "uncached": "b"}', 2)],
    ids=["not UTF-8", "surrogate"],
)
def test_a_line_that_is_no_text_is_refused_by_its_number(line: bytes, position: int) -> None:
    with pytest.raises(InvalidText, match="line 2") as raised:
        of(GOOD + line)
    assert raised.value.details == {"path": "pairs.jsonl", "line": 2, "position": position}


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_a_file_without_a_pair_is_refused(data: bytes) -> None:
    with pytest.raises(OutputsInvalid, match="no pair"):
        of(data)


def test_a_line_beyond_the_bound_is_refused_before_more_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_pairs, "MAX_BYTES", 100)
    stream = io.BytesIO(GOOD + b"x" * 10_000)
    with pytest.raises(OutputsInvalid, match="line 2: more than 100 bytes"):
        list(pairs_of_lines(stream, "-"))
    assert stream.tell() == len(GOOD) + 101


def test_memory_does_not_grow_with_the_number_of_lines() -> None:
    class Endless(io.RawIOBase):
        left = 3000

        def readline(self, size: int | None = -1, /) -> bytes:
            self.left -= 1
            return b"" if self.left < 0 else b'{"cached": "%s", "uncached": "b"}\n' % (b"x" * 10_000)

    tracemalloc.start()
    try:
        assert sum(1 for _ in pairs_of_lines(Endless(), "-")) == 3000  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


Row = tuple[bytes | None, int | None, object, float, str]


def database(path: Path, rows: list[Row]) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE outputs (prompt_digest BLOB, reused INTEGER, output TEXT, started REAL, request_id TEXT)"
        )
        connection.executemany("INSERT INTO outputs VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()
    return path


def test_outputs_with_reuse_are_paired_with_the_first_without_of_the_same_prompt(tmp_path: Path) -> None:
    rows: list[Row] = [
        (b"p", 50, "warm", 2.0, "r1"),
        (b"p", 0, "later cold", 3.0, "r2"),
        (b"p", 0, "cold", 1.0, "r3"),
        (b"q", 0, "alone", 1.0, "r4"),
        (b"r", 9, "alone", 1.0, "r5"),
        (b"p", 7, "warmer", 4.0, "r6"),
        (b"p", None, "unmeasured", 5.0, "r7"),
        (None, 5, "no prompt", 1.0, "r8"),
        (None, 0, "no prompt", 1.0, "r9"),
    ]
    path = database(tmp_path / "odd ?#% name.sqlite", rows)
    assert list(pairs_of_records(path)) == [OutputPair(1, "warm", "cold"), OutputPair(6, "warmer", "cold")]


def test_records_are_read_while_a_router_writes_them_and_nothing_is_written(tmp_path: Path) -> None:
    path = database(tmp_path / "requests.sqlite", [(b"p", 0, "cold", 1.0, ""), (b"p", 9, "warm", 2.0, "")])
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO outputs VALUES (?, ?, ?, ?, ?)", (b"p", 9, "of an open transaction", 3.0, ""))
    before = path.read_bytes()
    assert [pair.cached for pair in pairs_of_records(path)] == ["warm"]
    writer.commit()
    found: Iterator[OutputPair] = pairs_of_records(path)
    assert next(found).cached == "warm"
    writer.execute("DELETE FROM outputs")  # after the first pair: all are of one moment
    writer.commit()
    assert [pair.cached for pair in found] == ["of an open transaction"]
    assert path.read_bytes() == before
    writer.close()


def test_outputs_that_are_no_text_are_refused_by_their_row(tmp_path: Path) -> None:
    for output in (None, b"\xff"):
        path = database(tmp_path / f"{output!r}.sqlite", [(b"p", 0, "cold", 1.0, ""), (b"p", 9, output, 2.0, "")])
        with pytest.raises(OutputsInvalid, match="row 2") as raised:
            list(pairs_of_records(path))
        assert raised.value.details["row"] == 2


def test_what_holds_no_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFound):
        list(pairs_of_records(tmp_path / "absent.sqlite"))
    assert not (tmp_path / "absent.sqlite").exists()
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "text.sqlite").write_bytes(b"no database at all, " * 500)
    os.mkfifo(tmp_path / "fifo.sqlite")
    (tmp_path / "directory.sqlite").mkdir()
    for name in ("empty", "text", "fifo", "directory"):
        with pytest.raises(OutputsInvalid):
            list(pairs_of_records(tmp_path / f"{name}.sqlite"))


def test_a_view_in_place_of_the_table_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "view.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE VIEW outputs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT zeroblob(1) AS prompt_digest, i AS reused, '' AS output, i AS started, i AS rowid FROM n"
        )
    connection.close()
    with pytest.raises(OutputsInvalid, match="no recorded outputs"):
        list(pairs_of_records(path))


def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    rows: list[Row] = [(b"%d" % i, i % 2, "x" * 500, 1.0, "") for i in range(200)]
    path = database(tmp_path / "requests.sqlite", rows)
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xa5" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(OutputsInvalid, match="no whole database"):
        list(pairs_of_records(path))


def test_an_output_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database(tmp_path / "requests.sqlite", [(b"p", 0, "x" * 5000, 1.0, ""), (b"p", 9, "warm", 2.0, "")])
    monkeypatch.setattr(output_pairs, "MAX_BYTES", 4000)
    with pytest.raises(OutputsInvalid, match="SQLITE_TOOBIG"):
        list(pairs_of_records(path))


def test_a_database_that_another_process_has_locked_is_a_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = database(tmp_path / "requests.sqlite", [(b"p", 0, "cold", 1.0, "")])
    monkeypatch.setattr(output_pairs, "TIMEOUT_SECONDS", 0.0)
    writer = sqlite3.connect(path)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LockTimeout):
        list(pairs_of_records(path))
    writer.close()
    assert json.dumps([pair.place for pair in pairs_of_records(path)]) == "[]"
