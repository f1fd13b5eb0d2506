"""The longest stored prefix: found, verified, or a counted miss."""

from __future__ import annotations

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, OTHER, TEXT, change, filled, remembered
from tests.sessions.places import Place
from toktier.errors import InvalidText
from toktier.sessions import lookup, redis_lookup


@pytest.mark.parametrize("size", [1000, 4096, 7000, 40_000])
def test_the_last_point_of_the_text_is_found(place: Place, size: int) -> None:
    store = place.open()
    remembered(store, TEXT, size)
    for length in (40_000, 39_999, 20_000, 5000):
        found = store.longest_prefix(TEXT[:length] + "what comes after", FINGERPRINT)
        expected = length if length == len(TEXT) else length // size * size
        assert (found.text_bytes if found else 0) == (expected if expected >= 4096 else 0)
        if found:
            assert found.ids == model.ids_of(TEXT[:expected])
            assert found.tokens == found.code_points == expected
    assert store.longest_prefix("x" + TEXT, FINGERPRINT) is None
    assert store.longest_prefix(TEXT, OTHER) is None
    assert store.longest_prefix("", FINGERPRINT) is None
    assert store.counters.failed_checks == 0
    assert store.counters.lookups == store.counters.hits + store.counters.misses == 7


def test_named_sessions_are_found_too(place: Place) -> None:
    filled(place, [TEXT[:5000], TEXT[5000:9000]])
    found = place.open().longest_prefix(TEXT, FINGERPRINT)
    assert found is not None
    assert found.text_bytes == 9000


def test_a_session_that_shares_more_but_has_no_point_there_hides_no_other(place: Place) -> None:
    store = place.open()
    remembered(store, TEXT[:12_000], 6000)
    remembered(store, TEXT, 40_000)
    found = store.longest_prefix(TEXT[:30_000], FINGERPRINT)
    assert found is not None
    assert found.text_bytes == 12_000


def test_an_edited_session_is_found_by_its_new_text_alone(place: Place) -> None:
    session = filled(place, [TEXT[:9000], TEXT[9000:20_000]], keep_text=True)
    session.replace(session.points()[0], change(2, "y" * 11_000))
    store = place.open()
    for text, size in ((TEXT, 9000), (TEXT[:9000] + "y" * 12_000, 20_000)):
        found = store.longest_prefix(text, FINGERPRINT)
        assert found is not None
        assert (found.text_bytes, found.ids) == (size, model.ids_of(text[:size]))


def test_what_was_used_last_is_evicted_last(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lookup, redis_lookup):
        monkeypatch.setattr(module, "TOUCH_NANOSECONDS", 0)
    store = place.open()
    texts = [str(k) * 10_000 for k in range(4)]
    numbers = [remembered(store, text, 5000) for text in texts]
    held = store.sessions()[0].held_bytes
    assert store.longest_prefix(texts[0], FINGERPRINT) is not None
    store.budget_bytes = 4 * held
    numbers.append(remembered(store, "4" * 10_000, 5000))
    assert {info.number for info in store.sessions()} == set(numbers) - {numbers[1]}
    assert store.evict(2 * held) == numbers[2:4]
    assert store.remember(FINGERPRINT, [change(0, "x" * 100_000)]) is None
    assert {info.number for info in store.sessions()} == {numbers[0], numbers[4]}


def test_a_lone_surrogate_is_refused_with_its_position(place: Place) -> None:
    with pytest.raises(InvalidText) as caught:
        place.open().longest_prefix("ab\ud800", FINGERPRINT)
    assert caught.value.details == {"position": 2}


def test_what_was_found_is_extended_unless_it_has_changed(place: Place) -> None:
    store = place.open()
    remembered(store, TEXT[:20_000], 5000)
    found = store.longest_prefix(TEXT, FINGERPRINT)
    assert found is not None
    more = [change(0, TEXT[20_000:30_000]), change(0, TEXT[30_000:])]
    assert store.extend(found, more)
    longer = store.longest_prefix(TEXT, FINGERPRINT)
    assert longer is not None
    assert (longer.session, longer.text_bytes, longer.ids) == (found.session, len(TEXT), model.ids_of(TEXT))
    assert not store.extend(found, more)  # it has grown since
    (info,) = store.sessions()
    assert (info.text_bytes, info.name) == (len(TEXT), None)
    assert store.verify() == []
    store.evict(0)
    assert not store.extend(longer, more)
    assert store.sessions() == []


def test_a_named_session_is_not_extended_by_a_look_up(place: Place) -> None:
    filled(place, [TEXT[:9000]])
    store = place.open()
    found = store.longest_prefix(TEXT, FINGERPRINT)
    assert found is not None
    assert not store.extend(found, [change(0, TEXT[9000:])])
    assert store.open("chat", FINGERPRINT).ids() == model.ids_of(TEXT[:9000])


def test_what_is_extended_counts_with_all_it_holds_and_stays(place: Place) -> None:
    store = place.open()
    numbers = [remembered(store, str(k) * 10_000, 5000) for k in range(3)]
    found = store.longest_prefix("2" * 10_000, FINGERPRINT)
    assert found is not None
    store.budget_bytes = sum(info.held_bytes for info in store.sessions())
    assert store.extend(found, [change(0, "2" * 8000)])
    assert {info.number for info in store.sessions()} == set(numbers[1:])
    assert sum(info.held_bytes for info in store.sessions()) <= store.budget_bytes
