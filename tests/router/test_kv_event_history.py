"""What is kept for replays is bounded, begins with an announcement, and is given again as it was."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.router.kv_event_history import History

FIRST = 1_000_000
SIZES = st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=60)


@settings(deadline=None)
@given(SIZES, st.integers(2, 8), st.integers(0, 200), st.booleans())
def test_law_it_is_bounded_and_begins_with_an_announcement(
    sizes: list[tuple[int, bool]], most: int, most_bytes: int, keep: bool
) -> None:
    history = History(most, most_bytes, keep=keep)
    sent: list[tuple[int, bytes, bool]] = []

    def append(size: int, announces: bool) -> None:
        number = FIRST + len(sent)
        payload = number.to_bytes(4, "big") + bytes(size)
        sent.append((number, payload, announces))
        history.append(number, payload, announces=announces)

    append(0, True)
    for size, announces in sizes:
        append(size, announces)
        if history.wants_announcement:
            append(20, True)
        assert not history.wants_announcement
        latest = max(len(payload) for _, payload, announces in sent if announces)
        assert len(history) <= most
        assert history.bytes <= max(most_bytes, 2 * latest)
        kept = sent[-len(history) :]
        assert kept[0][2]
        as_kept = [(number, payload if keep else b"") for number, payload, _ in kept]
        for number, _, _ in kept:
            assert history.since(number) == as_kept[number - kept[0][0] :]
        # What is gone is told by the latest announcement and what follows it.
        last = max(at for at, (_, _, announces) in enumerate(kept) if announces)
        for gone in {0, FIRST - 1, kept[0][0] - 1}:
            assert history.since(gone) == as_kept[last:]
        assert history.since(sent[-1][0] + 1) == history.since(2**64 - 1) == []


def test_nothing_is_kept_before_the_first_batch() -> None:
    assert History(4, 100, keep=True).since(0) == []


def test_a_large_announcement_is_not_followed_by_the_next_at_once() -> None:
    history = History(100, 10, keep=True)
    history.append(FIRST, bytes(1000), announces=True)
    history.append(FIRST + 1, bytes(1000), announces=False)
    assert not history.wants_announcement
    history.append(FIRST + 2, bytes(1), announces=False)
    assert history.wants_announcement
