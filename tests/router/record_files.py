"""A file of records in a directory of its own, and what tests read of it.

Not here: tests (`test_records`, `test_records_damage`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.router.finished_requests import NOW
from toktier.router.records import Records
from toktier.router.records_file import reading

PATIENCE = 180.0  # seconds until a test gives up


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
