"""Whether a llama-server keeps prompts in the host's memory (`--cache-ram`, on by default), which no answer of it says.

It then puts them back into slots by itself: what is reused says nothing of the slot that was chosen, and requests that
are pinned to slots get wrong answers when several run at once (b10434, docs/router-benchmarks.md), which is why none is
pinned there. It shows in what it does: a prompt that another one has replaced in its slot is reused all the same.
Three prompts of 16 tokens are sent to a slot that is empty, or holds no more than such a trial leaves there: nothing is
lost by it. Where there is none, a router that begins takes the idle slot that was used longest ago, of whose content it
knows nothing. Not here: when that is asked (`upstream`, once for each process).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import orjson

from toktier.errors import UpstreamBroken, UpstreamRefused
from toktier.router.bodies import Cut
from toktier.router.relay import read_answer

if TYPE_CHECKING:
    from toktier.router.upstream import Upstream
    from toktier.router.upstream_facts import SlotReport

RAM_CACHE_ON: Final = (
    "it keeps prompts in the host's memory, where pinned requests get wrong answers: it chooses slots by itself, and "
    "the router spares nothing there; start it with --cache-ram 0"
)
RAM_CACHE_UNSEEN: Final = (
    "it could not be seen whether it keeps prompts in the host's memory, where pinned requests get wrong answers: "
    "--cache-ram 0 switches that off"
)
LENGTH: Final = 16
_FIRST: Final = list(range(1, LENGTH + 1))
_SECOND: Final = list(range(LENGTH + 1, 2 * LENGTH + 1))


async def ram_cache_note(upstream: Upstream, *, in_any: bool) -> str | None:
    """What an operator may want to mend; None: nothing. `in_any`: a slot that holds something may be used, too. Raises
    UpstreamLost, UpstreamSilent."""
    kept = await _keeps_prompts(upstream, in_any)
    return RAM_CACHE_UNSEEN if kept is None else RAM_CACHE_ON if kept else None


async def _keeps_prompts(upstream: Upstream, in_any: bool) -> bool | None:
    """None: it could not be seen, because no slot may be used or the server refuses the prompts."""
    facts, slot = upstream.facts, _slot_to_try(upstream.standing.slots, in_any)
    if facts is None or slot is None or (facts.n_vocab is not None and facts.n_vocab <= 2 * LENGTH):
        return None
    reused: int | None = None
    for prompt in (_FIRST, _SECOND, _FIRST):
        body = {"prompt": prompt, "id_slot": slot, "n_predict": 0, "temperature": 0, "cache_prompt": True}
        try:
            answer = await upstream.complete(orjson.dumps(body))
        except (UpstreamRefused, UpstreamBroken):
            return None
        reused = read_answer(answer, Cut())[1].cached
    return None if reused is None else reused > 0


def _slot_to_try(slots: Sequence[SlotReport], in_any: bool) -> int | None:
    idle = [slot for slot in slots if not slot.busy]
    for most in (0, LENGTH):
        little = [slot.id for slot in idle if (slot.tokens or 0) <= most]
        if little:
            return little[-1]
    return min(idle, key=lambda slot: slot.id_task or 0).id if in_any and idle else None
