"""Which slot a prompt takes: exact prefixes first, no long content for a short gain, waiting at its price."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.slot_tables import Table
from tests.router.token_prompts import after, unrelated
from toktier.router.candidates import Candidate
from toktier.router.decide import Decision, Policy, decide
from toktier.router.slot_view import View
from toktier.router.vocabulary import Choice


def view(
    slot: int = 0,
    *,
    upstream: int = 0,
    reusable: int = 0,
    length: int = 0,
    proven: int = 0,
    held: bool = False,
    wait: float = 0.0,
    waiting: int | None = None,
    load: float = 0.0,
    last_use: int = 0,
    chance: float = 0.5,
    n_ctx: int = 8192,
) -> View:
    return View(
        upstream=upstream,
        slot=slot,
        reusable=reusable,
        sure=reusable,
        length=length,
        proven=proven,
        held=held,
        wait=wait,
        waiting=int(wait > 0) if waiting is None else waiting,
        load=load,
        last_use=last_use,
        chance=chance,
        n_ctx=n_ctx,
    )


def taken(
    prompt_tokens: int, views: list[View], candidates: list[Candidate[tuple[int, int]]] | None = None
) -> Decision:
    decision = decide(prompt_tokens, views, candidates)
    assert isinstance(decision, Decision)
    return decision


# Exact prefixes


def test_the_slot_that_holds_the_conversation_is_taken() -> None:
    """D3."""
    decision = taken(128, [view(0, length=60, last_use=1), view(1, reusable=107, length=107, last_use=3), view(2)])
    assert (decision.slot, decision.choice, decision.predicted, decision.cost) == (1, Choice.EXACT, 107, 21)


@pytest.mark.parametrize(("shared", "slot", "choice"), [(9, 1, Choice.LEAST_RECENT), (10, 0, Choice.EXACT)])
def test_ten_tokens_are_worth_a_slot(shared: int, slot: int, choice: Choice) -> None:
    """D4: a leftover of 60 tokens does not stand in the way."""
    decision = taken(shared + 60, [view(0, reusable=shared, length=shared + 50, last_use=1), view(1)])
    assert (decision.slot, decision.choice) == (slot, choice)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_a_short_common_beginning_does_not_cost_a_long_conversation(chance: float) -> None:
    decision = taken(112, [view(0, reusable=12, length=5000, last_use=1, chance=chance), view(1)])
    assert (decision.slot, decision.choice) == (1, Choice.LEAST_RECENT)


def test_a_long_common_beginning_is_taken_where_tails_do_not_come_back() -> None:
    views = [view(0, reusable=1000, length=1300, last_use=1, chance=0.01), view(1)]
    assert taken(1300, views).slot == 0
    assert taken(1300, [views[0]._replace(length=6000, chance=0.9), views[1]]).slot == 1


def test_the_longer_of_two_prefixes_is_taken() -> None:
    decision = taken(500, [view(0, reusable=12, length=12), view(1, reusable=400, length=400)])
    assert (decision.slot, decision.predicted) == (1, 400)


def test_a_held_slot_is_not_taken_for_a_common_system_prompt() -> None:
    held = view(0, reusable=60, length=700, proven=650, held=True, last_use=1, chance=0.1)
    other = view(1, reusable=60, length=900, last_use=5, chance=0.5)
    assert taken(160, [held, other]).slot == 1
    # For its own conversation it is.
    assert taken(760, [held._replace(reusable=700), other]).slot == 0


# Misses


def test_a_miss_takes_the_least_recently_used_slot() -> None:
    """D5, D8, D10."""
    views = [view(slot, length=400, last_use=use) for slot, use in enumerate((7, 3, 9, 4))]
    decision = taken(100, views)
    assert (decision.slot, decision.choice, decision.predicted) == (1, Choice.LEAST_RECENT, 0)
    assert taken(100, [*views, view(4)]).slot == 4  # an empty one was never used


def test_a_miss_takes_no_held_slot_while_there_is_another() -> None:
    views = [view(0, length=400, proven=400, held=True, last_use=1), view(1, length=5000, last_use=9)]
    assert taken(100, views).slot == 1
    busy = views[1]._replace(wait=5000.0, waiting=1)
    assert taken(100, [views[0], busy]).slot == 0
    assert taken(100, [views[0], busy._replace(wait=200.0, length=100)]).slot == 1


def test_of_two_slots_the_one_that_was_touched_stays() -> None:
    """D10: P0 is touched between, so P1 goes, then P2 …"""
    table = Table(slots=2)
    prompts = [unrelated(number, 100) for number in range(5)]
    slot = table.send(prompts[0]).slot
    assert table.send(prompts[1]).slot != slot
    for prompt in prompts[2:]:
        assert table.send(prompts[0])[:4] == (0, slot, Choice.EXACT, 99)
        assert table.send(prompt).slot != slot
    decision = table.send(prompts[1])
    assert (decision.choice, decision.predicted) == (Choice.LEAST_RECENT, 0)


# Busy slots


def test_two_with_one_prefix_take_two_slots_while_one_is_free() -> None:
    """D12: 0.145 s side by side, 0.204 s one behind the other."""
    table = Table()
    prefix = unrelated(1, 300)
    first = table.decision(after(prefix, [1]))
    table.reserve(0, first.slot, after(prefix, [1]), limit=8)
    second = table.decision(after(prefix, [2]))
    assert second.slot != first.slot
    assert second.choice is Choice.LEAST_RECENT


def test_two_with_one_prefix_wait_for_one_another_in_one_slot() -> None:
    """D12: no deadlock, the second reuses what the first leaves."""
    table = Table(slots=1)
    prefix = unrelated(1, 300)
    first = table.reserve(0, 0, after(prefix, [1]), limit=8)
    second = table.decision(after(prefix, [2]))
    assert (second.slot, second.choice, second.predicted) == (0, Choice.EXACT, 300)
    assert second.wait > 300
    waiting = table.reserve(0, 0, after(prefix, [2]), second.predicted)
    table.settle(first, generated=[5], measured=0, finished=True)
    assert table.settle(waiting, generated=[5], measured=300, finished=True) == (300, False, False, True)


def test_the_second_waits_where_the_first_is_nearly_done() -> None:
    table = Table(n_ctx=8192)
    prefix = unrelated(1, 3000)
    first = table.reserve(0, 0, after(prefix, [1]), limit=64)
    assert table.decision(after(prefix, [2])).slot == 1
    first.seen = 60
    assert table.decision(after(prefix, [2])).slot == 0


def test_a_busy_slot_has_a_price() -> None:
    """D13: behind a generation of 600 tokens 0.48 s, in another slot 0.02 s."""
    busy = view(0, reusable=90, length=90, wait=600 * 8.0, last_use=3)
    assert taken(100, [busy, view(1, length=500, last_use=1)]).slot == 1
    assert taken(5000, [busy._replace(reusable=4990, length=4990, wait=100.0), view(1)]).slot == 0


def test_where_all_are_busy_the_shortest_queue_is_taken() -> None:
    views = [view(slot, length=300, wait=wait, last_use=1) for slot, wait in enumerate((900.0, 500.0, 700.0))]
    assert taken(100, views).slot == 1


# Upstreams


def test_of_upstreams_the_one_with_an_empty_slot_is_taken() -> None:
    full = [view(slot, length=2000, last_use=slot + 1, load=0.0) for slot in range(2)]
    assert taken(100, [*full, view(0, upstream=1)]).upstream == 1


def test_the_prefix_is_found_on_whichever_upstream_has_it() -> None:
    views = [view(0), view(0, upstream=1, reusable=400, length=400, last_use=1)]
    assert (taken(500, views).upstream, taken(500, views).choice) == (1, Choice.EXACT)


def test_a_busy_upstream_is_not_taken_for_a_few_tokens() -> None:
    busy = [view(0, reusable=12, length=60, load=0.75, last_use=1)]
    assert taken(1000, [*busy, view(0, upstream=1)]).upstream == 1
    assert taken(1000, [busy[0]._replace(load=0.0), view(0, upstream=1)]).upstream == 0


def test_similarity_breaks_ties_between_upstreams_alone() -> None:
    """D8: what is similar is no reuse."""
    similar = [Candidate((1, 0), 0.93, 400)]
    equal = [view(0), view(0, upstream=1, length=50, last_use=1)]
    decision = taken(100, equal, similar)
    assert (decision.upstream, decision.slot, decision.choice, decision.predicted) == (1, 0, Choice.SIMILAR, 0)
    assert taken(100, equal).choice is Choice.LEAST_RECENT
    assert taken(100, equal, [Candidate((7, 0), 0.99, 400)]).choice is Choice.LEAST_RECENT
    assert taken(100, [view(0), view(1)], similar).choice is Choice.LEAST_RECENT  # one upstream
    dear = [view(0), view(0, upstream=1, length=4000, last_use=1)]
    assert taken(100, dear, similar).upstream == 0
    exact = [view(0, reusable=50, length=50), view(0, upstream=1)]
    assert taken(100, exact, similar).choice is Choice.EXACT


def test_the_first_candidate_counts() -> None:
    views = [view(0, upstream=upstream) for upstream in range(3)]
    ranked = [Candidate((2, 0), 0.96, 400), Candidate((1, 0), 1.0, 12)]
    assert taken(100, views, ranked).upstream == 2


def test_without_an_upstream_there_is_no_decision() -> None:
    assert decide(100, []) is None


# Prompts that do not fit


def test_a_prompt_that_fits_nowhere_costs_nobody_anything() -> None:
    """D15."""
    table = Table()
    for number in range(4):
        table.send(unrelated(number, 200))
    contents = [table.content(slot) for slot in range(4)]
    decision = table.decision(unrelated(9, 1500))
    assert (decision.fits, decision.predicted, decision.choice) == (False, 0, Choice.LEAST_RECENT)
    table.settle(table.reserve(0, decision.slot, unrelated(9, 1500)), refused=True)
    assert [table.content(slot) for slot in range(4)] == contents


def test_a_prompt_that_does_not_fit_does_not_wait() -> None:
    views = [view(0, n_ctx=1024, wait=10.0, reusable=1000, length=1000), view(1, n_ctx=1024, length=50, last_use=9)]
    assert taken(1500, views).slot == 1


def test_a_prompt_goes_where_it_fits() -> None:
    views = [view(0, n_ctx=1024), view(0, upstream=1, n_ctx=4096, length=2000, last_use=1, wait=9000.0)]
    decision = taken(1024, views)
    assert (decision.upstream, decision.fits) == (1, True)
    assert taken(1023, views).upstream == 0


# Conversations


def test_eight_conversations_in_turn_over_four_slots_keep_three_or_four() -> None:
    """Taking the least recently used alone would lose every one of them; who knows the future keeps three of seven."""
    table = Table(n_ctx=8192)
    talks = [unrelated(number, 150) for number in range(8)]
    reused = []
    for turn in range(10):
        for number in range(8):
            decision = table.send(talks[number])
            reused.append((turn, number, decision.predicted))
            talks[number] = after(talks[number], range(1, 9), unrelated(100 + 10 * number + turn, 100))
    kept = {(turn, number) for turn, number, predicted in reused if predicted}
    assert {turn for turn, _ in kept} == set(range(2, 10))
    assert {len([1 for at, _ in kept if at == turn]) for turn in range(2, 10)} == {3, 4}


def test_a_finished_conversation_does_not_keep_its_slot() -> None:
    table = Table(slots=2)
    talk = unrelated(1, 100)
    for _ in range(3):
        table.send(talk)
        talk = after(talk, range(1, 9), [50])
    assert table.view(talk, 0).held
    for number in range(2, 20):
        table.send(unrelated(number, 100))
    assert table.view(talk, 0).length == 107  # of somebody else


VIEWS = st.lists(
    st.builds(
        view,
        st.integers(0, 3),
        upstream=st.integers(0, 2),
        reusable=st.integers(0, 300),
        length=st.integers(300, 5000) | st.just(0),
        proven=st.integers(0, 300),
        held=st.booleans(),
        wait=st.floats(0, 10_000) | st.just(0.0),
        load=st.floats(0, 1),
        last_use=st.integers(0, 9),
        chance=st.floats(0, 1),
        n_ctx=st.integers(200, 1000),
    ).map(lambda v: v._replace(reusable=min(v.reusable, v.length))),
    min_size=1,
    max_size=10,
    unique_by=lambda v: (v.upstream, v.slot),
)


@given(VIEWS, st.integers(301, 1200), st.randoms(use_true_random=False))
def test_a_decision_is_of_the_views_and_does_not_hang_on_their_order(
    views: list[View], prompt_tokens: int, order: random.Random
) -> None:
    decision = taken(prompt_tokens, views)
    chosen = next(v for v in views if (v.upstream, v.slot) == (decision.upstream, decision.slot))
    assert decision.predicted == (chosen.reusable if decision.fits else 0)
    assert decision.fits == (prompt_tokens < chosen.n_ctx)
    assert decision.fits or all(prompt_tokens >= v.n_ctx for v in views)
    assert (decision.choice is Choice.EXACT) <= (decision.predicted >= Policy().min_reuse)
    shuffled = list(views)
    order.shuffle(shuffled)
    assert taken(prompt_tokens, shuffled) == decision


@given(VIEWS, st.integers(301, 1200))
def test_a_free_slot_with_nothing_to_lose_is_never_waited_for(views: list[View], prompt_tokens: int) -> None:
    """Whoever waits expects to be served sooner than in an empty slot beside it."""
    empty = view(9, upstream=0, n_ctx=1 << 20)
    decision = taken(prompt_tokens, [*views, empty])
    assert decision.wait <= prompt_tokens
