"""Which slot a prompt goes to: a pure function of what the slots hold, in tokens of prefill.

The cost of a slot is what has to be evaluated, what has to be waited for, and what is lost by taking it: tokens that it
holds beyond the common prefix, by the chance that they are asked for again.

- A slot that shares `min_reuse` tokens or more with the prompt is taken (EXACT), the cheapest of several, unless the
  one that a miss would take is cheaper: a short common system prompt does not cost somebody a long conversation.
- A miss takes the least recently used slot that is free and not held (LEAST_RECENT); of upstreams whose slots cost the
  same, the one that served the most similar prompt (SIMILAR), where one is `similar` enough: the best of unlike prompts
  says nothing. Similarity counts nothing else: reuse is exact prefixes.
- A busy slot costs what is before the request there. Two prompts that begin alike and come together therefore go to two
  slots while another is free that is worth nothing, and wait for one another where it is not; when the first generates
  already, the second waits if that is shorter than evaluating the prefix again (`turns`: here, not in the upstream).
- A prompt that fits no slot is sent all the same, to a free one: the upstream refuses it, and the slot keeps what it
  holds.

Deterministic: equal views give equal decisions. Not here: what slots hold (`slots`), and which are held (`holds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toktier.router.candidates import Candidate
from toktier.router.slot_view import View
from toktier.router.vocabulary import MIN_REUSE_FOR_HIT, Choice


@dataclass(frozen=True, slots=True)
class Policy:
    """`leftover`: tokens that are no loss in any slot, less than a conversation; `returns`: how often content is wanted
    again that is wanted at all; `held`: the same of the proven prefix in a held slot; `least_chance`: that content
    comes back, whatever the traffic says; `wait`: what a token of waiting costs, which is lost to the one who waits and
    to the slots that are free meanwhile; `load`: how much longer a prompt takes where all slots are busy, since they
    share one machine; `same`: costs that differ by less, in tokens, are the same where upstreams are compared;
    `similar`: the least cosine at which two prompts are.

    benchmarks/router_policy.py hardly moves with any of them: 86 to 88 % of the most that can be spared between the
    halves and the doubles of `returns` and `held`, whose order is what counts."""

    min_reuse: int = MIN_REUSE_FOR_HIT
    leftover: int = 64
    returns: float = 2.0
    held: float = 4.0
    least_chance: float = 0.05
    wait: float = 2.0
    load: float = 0.25
    same: float = 64.0
    similar: float = 0.5


class Decision(NamedTuple):
    """`predicted`: tokens that the slot is thought to share; `cost`: tokens of prefill; `wait`: those that are before
    the request in the slot's queue; `fits`: the prompt is shorter than the slot's context."""

    upstream: int
    slot: int
    choice: Choice
    predicted: int
    cost: float
    wait: float
    fits: bool

    @property
    def place(self) -> tuple[int, int]:
        return self.upstream, self.slot


def decide(
    prompt_tokens: int,
    views: Sequence[View],
    candidates: Iterable[Candidate[tuple[int, int]]] | None = None,
    policy: Policy | None = None,
) -> Decision | None:
    """`views`: of the prompt, from `SlotTable.views`; `candidates`: similar prompts, the best first, each with the
    (upstream, slot) that served it. None: there is no slot at all."""
    if not views:
        return None
    policy = Policy() if policy is None else policy
    fitting = [view for view in views if prompt_tokens < view.n_ctx]
    if not fitting:
        view = min(views, key=lambda v: (v.wait, v.waiting, -v.n_ctx, v.last_use, v.upstream, v.slot))
        return Decision(view.upstream, view.slot, Choice.LEAST_RECENT, 0, view.wait, view.wait, fits=False)
    exact = [view for view in fitting if view.reusable >= policy.min_reuse]
    best = min(exact, key=lambda v: _exact_order(v, prompt_tokens, policy), default=None)
    miss, choice = _miss(fitting, prompt_tokens, candidates, policy)
    miss_cost = _cost(miss, prompt_tokens, policy)
    if best is not None:
        cost = _cost(best, prompt_tokens, policy)
        if cost <= miss_cost or (best.upstream, best.slot) == (miss.upstream, miss.slot):
            return Decision(best.upstream, best.slot, Choice.EXACT, best.reusable, cost, best.wait, fits=True)
        if miss.reusable >= policy.min_reuse:
            choice = Choice.EXACT
    return Decision(miss.upstream, miss.slot, choice, miss.reusable, miss_cost, miss.wait, fits=True)


def _cost(view: View, prompt_tokens: int, policy: Policy) -> float:
    novel = (prompt_tokens - view.reusable) * (1.0 + policy.load * view.load)
    return novel + view.wait * policy.wait + _loss(view, policy)


def _loss(view: View, policy: Policy) -> float:
    lost = view.length - view.reusable
    if lost <= policy.leftover:
        return 0.0
    proven = max(view.proven - view.reusable, 0) if view.held else 0
    return proven * policy.held + (lost - proven) * max(view.chance, policy.least_chance) * policy.returns


def _exact_order(view: View, prompt_tokens: int, policy: Policy) -> tuple[float, ...]:
    cost = _cost(view, prompt_tokens, policy)
    return (cost, -view.reusable, view.waiting, view.last_use, view.upstream, view.slot)


def _miss(
    views: Sequence[View],
    prompt_tokens: int,
    candidates: Iterable[Candidate[tuple[int, int]]] | None,
    policy: Policy,
) -> tuple[View, Choice]:
    """The slot that a prompt takes which shares nothing with any."""
    offers: dict[int, View] = {}
    ranks: dict[int, tuple[float, ...]] = {}
    for view in views:
        rank = _recency(view, policy)
        if view.upstream not in offers or rank < ranks[view.upstream]:
            offers[view.upstream], ranks[view.upstream] = view, rank
    costs = {upstream: _cost(view, prompt_tokens, policy) for upstream, view in offers.items()}
    cheapest = min(costs.values())
    equal = [view for upstream, view in offers.items() if costs[upstream] <= cheapest + policy.same]
    if len(equal) > 1:
        of_upstream = {view.upstream: view for view in equal}
        for candidate in candidates or ():
            if candidate.score >= policy.similar and candidate.key[0] in of_upstream:
                return of_upstream[candidate.key[0]], Choice.SIMILAR
    order = [(costs[v.upstream], v.load, v.last_use, v.upstream, v.slot) for v in equal]
    return equal[order.index(min(order))], Choice.LEAST_RECENT


def _recency(view: View, policy: Policy) -> tuple[float, ...]:
    """Free slots that are not held, the least recently used first; then whatever costs least."""
    if view.waiting == 0 and not view.held:
        return (0, view.last_use, view.slot)
    return (1, view.wait * policy.wait + _loss(view, policy), view.last_use, view.slot)
