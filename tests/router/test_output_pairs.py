"""Pairs out of JSON lines and out of records: what is refused, by line or row, and in how much memory."""

from __future__ import annotations

import io
import os
import sqlite3
import tracemalloc
from pathlib import Path

import pytest

from tests.router.record_files import PATIENCE
from toktier.errors import (
    InvalidText,
    OutputsInvalid,
    StoreCorrupt,
    StoreFormatUnsupported,
    StoreNotFound,
    ToktierError,
)
from toktier.router import output_pairs
from toktier.router.output_pairs import OutputPair, pairs_of_lines, pairs_of_records
from toktier.router.records import Records

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


Row = tuple[bytes, int, object, float]


def records(path: Path, rows: list[Row]) -> Path:
    """Records of a router, with these rows of outputs, at positions from 1 on."""
    kept = Records(path, outputs=True)
    assert kept.flush(PATIENCE)
    assert kept.close(PATIENCE)
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "INSERT INTO outputs (prompt_digest, reused, output, started, request_id) VALUES (?, ?, ?, ?, '')", rows
        )
    connection.close()
    return path


def test_outputs_with_reuse_are_paired_with_the_first_without_of_the_same_prompt(tmp_path: Path) -> None:
    rows: list[Row] = [
        (b"p", 1, "warm", 2.0),
        (b"p", 0, "later cold", 3.0),
        (b"p", 0, "cold", 1.0),
        (b"q", 0, "alone", 1.0),
        (b"r", 1, "alone", 1.0),
        (b"p", 1, "warmer", 4.0),
    ]
    path = records(tmp_path / "odd ?#% name.sqlite", rows)
    assert list(pairs_of_records(path)) == [OutputPair(1, "warm", "cold"), OutputPair(6, "warmer", "cold")]


def test_what_a_router_records_is_what_is_read_while_it_goes_on(tmp_path: Path) -> None:
    kept = Records(tmp_path / "requests.sqlite", outputs=True)
    try:
        kept.add_output("a", b"p", reused=False, text="kalt \u2603", started=1.0)
        kept.add_output("b", b"p", reused=True, text="warm \u2603", started=2.0)
        kept.add_output("c", b"p", reused=True, text="wärmer", started=3.0)
        assert kept.flush(PATIENCE)
        found = pairs_of_records(tmp_path / "requests.sqlite")
        assert next(found).cached == "warm \u2603"
        kept.add_output("d", b"p", reused=True, text="later", started=4.0)
        assert kept.flush(PATIENCE)
        assert [(pair.cached, pair.uncached) for pair in found] == [("wärmer", "kalt \u2603")]
        assert sum(1 for _ in pairs_of_records(tmp_path / "requests.sqlite")) == 3
    finally:
        kept.close(PATIENCE)


@pytest.mark.parametrize("output", [b"\xff", b"\xed\xa0\x80"], ids=["not UTF-8", "surrogate"])
def test_an_output_that_is_no_text_is_refused_by_its_position(tmp_path: Path, output: bytes) -> None:
    path = records(tmp_path / "requests.sqlite", [(b"p", 0, "cold", 1.0), (b"p", 1, output, 2.0)])
    with pytest.raises(OutputsInvalid, match="position 2") as raised:
        list(pairs_of_records(path))
    assert raised.value.details["position"] == 2


def test_what_is_no_file_of_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound):
        list(pairs_of_records(tmp_path / "absent.sqlite"))
    assert not (tmp_path / "absent.sqlite").exists()
    os.mkfifo(tmp_path / "fifo.sqlite")
    (tmp_path / "directory.sqlite").mkdir()
    (tmp_path / "text.sqlite").write_bytes(b"no database at all, " * 500)
    for name in ("fifo", "directory", "text"):
        with pytest.raises((StoreFormatUnsupported, StoreCorrupt)):
            list(pairs_of_records(tmp_path / f"{name}.sqlite"))


def test_an_output_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = records(tmp_path / "requests.sqlite", [(b"p", 0, "x" * 5000, 1.0), (b"p", 1, "warm", 2.0)])
    monkeypatch.setattr(output_pairs, "MAX_BYTES", 4000)
    with pytest.raises(ToktierError):
        list(pairs_of_records(path))
