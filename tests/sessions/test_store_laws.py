"""Laws of every session store, against a plain model."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, SCRIPTS, Model, Step
from tests.sessions.places import Place, Places
from toktier.sessions.protocol import Store
from toktier.sessions.records import Prefix

# A client of a cluster asks it for its shape first: laws that open store upon store would take minutes there.
without_cluster = pytest.mark.parametrize("places", ["sqlite", "redis"], indirect=True)
with_cluster = pytest.mark.parametrize(
    "places", ["sqlite", "redis", pytest.param("redis-cluster", marks=pytest.mark.ci)], indirect=True
)
quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@without_cluster
@quick
@given(SCRIPTS, st.booleans())
def test_restore_equals_live(places: Places, script: list[Step], keep_text: bool) -> None:
    with places.fresh() as place, place.open() as store:
        live, expected = store.open("s", FINGERPRINT, keep_text=keep_text), Model()
        for step in script:
            model.apply(live, expected, step)
            model.check(live, expected)
            with place.open() as other:
                restored = other.open("s", FINGERPRINT)
                assert restored.state == live.state
                model.check(restored, expected)
        assert store.verify() == []


@with_cluster
@quick
@given(SCRIPTS, st.booleans())
def test_replace_equals_fresh(places: Places, script: list[Step], keep_text: bool) -> None:
    with places.fresh() as place, place.open() as store:
        edited, expected = store.open("edited", FINGERPRINT, keep_text=keep_text), Model()
        for step in script:
            model.apply(edited, expected, step)
        fresh = store.open("fresh", FINGERPRINT, keep_text=keep_text)
        for part in expected.parts:
            fresh.append(model.change(fresh.state.revision, part, expected.tail))
        assert fresh.points() == edited.points()
        assert fresh.ids() == edited.ids()
        assert fresh.state.open_text == edited.state.open_text
        assert fresh.state.held == edited.state.held
        assert store.verify() == []
        store.remove("fresh")
        assert_finds(store, expected.text, [expected])


@without_cluster
@quick
@given(SCRIPTS, st.data(), st.booleans())
def test_compaction_changes_nothing(places: Places, script: list[Step], data: st.DataObject, keep_text: bool) -> None:
    with places.fresh() as place, (place / "a").open() as plain, (place / "b").open() as compacted:
        one, two = (store.open("s", FINGERPRINT, keep_text=keep_text) for store in (plain, compacted))
        first, second = Model(), Model()
        for step in script:
            model.apply(one, first, step)
            model.apply(two, second, step)
            if data.draw(st.booleans()):
                before = (two.ids(), two.points(), compacted.longest_prefix(first.text, FINGERPRINT))
                compacted.compact()
                assert (two.ids(), two.points(), compacted.longest_prefix(first.text, FINGERPRINT)) == before
            model.check(two, second)
            assert model.comparable(two.state) == model.comparable(one.state)
            assert two.refresh() == compacted.open("s", FINGERPRINT).state
            assert two.points() == one.points()
        assert compacted.verify() == []


def assert_finds(store: Store, text: bytes, held: list[Model]) -> Prefix | None:
    """The look-up gives the longest point that any of `held` has in common with the text, from 4 KiB of it on."""
    found = store.longest_prefix(text, FINGERPRINT)
    longest = max(
        (end for m in held for end in m.ends if shared(m.text, text) >= max(end, 4096)),
        default=0,
    )
    assert (found.text_bytes if found else 0) == longest
    if found is not None:
        assert found.ids == model.ids_of(text[: found.text_bytes])
    assert store.counters.failed_checks == 0
    return found


def shared(one: bytes, two: bytes) -> int:
    """Bytes that two texts begin with alike."""
    size = min(len(one), len(two))
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == two[:middle] else (low, middle - 1)
    return low


BRANCHES = st.lists(
    st.tuples(
        st.integers(0, 3), st.lists(st.sampled_from([100, 1000, 1024, 3000, 4096, 6000]), min_size=1, max_size=6)
    ),
    min_size=1,
    max_size=5,
)


def branched(branch: int, sizes: list[int]) -> Model:
    """Texts of one branch begin alike; all branches share 5,000 characters, and two of them 9,000."""
    text = ("c" * 5000) + ("d" * 4000 if branch < 2 else "e" * 4000) + str(branch) * 40_000
    entry, at = Model(), 0
    for size in sizes:
        entry.append(text[at : at + size], "")
        at += size
    return entry


@with_cluster
@quick
@given(BRANCHES, st.integers(0, 120_000))
def test_eviction_changes_nothing(places: Places, branches: list[tuple[int, list[int]]], budget: int) -> None:
    with places.fresh() as place, place.open() as store:
        named, expected = store.open("named", FINGERPRINT), branched(0, [3000, 3000])
        for part in expected.parts:
            named.append(model.change(named.state.revision, part))
        entries: dict[int, Model] = {}
        for branch, sizes in branches:
            entry = branched(branch, sizes)
            appends = [model.change(revision, part) for revision, part in enumerate(entry.parts)]
            number = store.remember(FINGERPRINT, appends)
            assert number is not None
            entries[number] = entry
        texts = [(branched(branch, [60_000]).text)[:50_000] for branch in range(4)]
        for text in texts:
            assert_finds(store, text, [expected, *entries.values()])
        for number in store.evict(budget):
            del entries[number]
        held = [info for info in store.sessions() if info.name is None]
        assert {info.number for info in held} == set(entries)
        assert sum(info.held_bytes for info in held) <= budget
        for text in texts:
            assert_finds(store, text, [expected, *entries.values()])
        assert named.ids() == model.ids_of(expected.text)
        assert store.verify() == []


@pytest.mark.parametrize("name", ["", "x" * 100_000, "a/b\0c", "\ud800", "é\u0301\n", "🦜" * 300])
def test_any_string_is_a_name(place: Place, name: str) -> None:
    model.filled(place, ["text"], name=name)
    with place.open() as store:
        assert store.open(name, FINGERPRINT).ids() == model.ids_of("text")
        assert [info.name for info in store.sessions()] == [name]
        assert store.show(name) == store.sessions()[0]
        assert store.show(name + "x") is None
        assert store.remove(name)
        assert not store.remove(name)
