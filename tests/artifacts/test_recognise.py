"""Recognition by content: names are never believed, sizes decide what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifacts.conftest import World
from toktier.artifacts.containers import Candidate, candidates
from toktier.artifacts.recognise import Tally, recognise


def test_a_name_is_never_believed(world: World, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "tokenizer.json").write_bytes(world.alpha[:-1] + b"!")
    (tmp_path / "d" / "holiday.jpg").write_bytes(world.alpha)
    tally = Tally()
    found = list(recognise(candidates(tmp_path / "d"), world.pins, tally=tally))
    assert [(f.files[0].family, f.files[0].name, Path(f.where).name) for f in found] == [
        ("alpha", "tokenizer.json", "holiday.jpg")
    ]
    assert [m.files[0].family for m in tally.near_misses] == ["alpha"]


def test_files_of_other_sizes_are_not_read(world: World) -> None:
    def never(limit: int) -> bytes:
        raise AssertionError("read")

    stream = [Candidate("weights", 10**12, never), Candidate("small", len(world.alpha) - 1, never)]
    tally = Tally()
    assert list(recognise(stream, world.pins, tally=tally)) == []
    assert (tally.looked_at, tally.hashed) == (2, 0)


def test_a_read_never_asks_for_more_than_the_largest_pin(world: World) -> None:
    asked: list[int] = []

    def read(limit: int) -> bytes | None:
        asked.append(limit)
        return None

    assert list(recognise([Candidate("stream", None, read)], world.pins)) == []
    assert asked == [max(world.pins.sizes)]


@pytest.mark.parametrize("wanted", [None, {"0" * 64}])
def test_wanted_limits_what_is_given(world: World, wanted: set[str] | None) -> None:
    stream = [Candidate("a", len(world.alpha), lambda limit: world.alpha)]
    assert len(list(recognise(stream, world.pins, wanted=wanted))) == (1 if wanted is None else 0)


def test_a_small_file_of_a_pinned_size_is_no_near_miss(world: World) -> None:
    tally = Tally()
    other = b"x" * len(world.alpha_config)
    assert not list(recognise([Candidate("c", len(other), lambda limit: other)], world.pins, tally=tally))
    assert tally.near_misses == []
