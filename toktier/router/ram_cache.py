"""Whether a llama-server keeps prompts in the host's memory (`--cache-ram`, on by default), which no answer of it says.

It then puts them back into slots by itself: what is reused says nothing of the slot that was chosen, and requests that
are pinned to slots get wrong answers when several run at once (b10434, docs/router-benchmarks.md), which is why none is
pinned there. It shows in what it does: a prompt that another one has
replaced in its slot is reused all the same. Three prompts of 16 tokens are sent to an empty slot, so that nothing is
lost by it. Not here: when that is asked (`upstream`, once for each process).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from toktier.errors import UpstreamBroken, UpstreamRefused
from toktier.router.bodies import Cut
from toktier.router.relay import read_answer

if TYPE_CHECKING:
    from toktier.router.upstream import Upstream

RAM_CACHE_ON: Final = (
    "it keeps prompts in the host's memory, where pinned requests get wrong answers: it chooses slots by itself, and "
    "the router spares nothing there; start it with --cache-ram 0"
)
RAM_CACHE_UNSEEN: Final = (
    "no slot was empty, so it could not be seen whether it keeps prompts in the host's memory: --cache-ram 0 "
    "switches that off"
)
LENGTH: Final = 16
_FIRST: Final = list(range(1, LENGTH + 1))
_SECOND: Final = list(range(LENGTH + 1, 2 * LENGTH + 1))


async def ram_cache_note(upstream: Upstream) -> str | None:
    """What an operator may want to mend; None: nothing. Raises UpstreamLost, UpstreamSilent."""
    kept = await _keeps_prompts(upstream)
    return RAM_CACHE_UNSEEN if kept is None else RAM_CACHE_ON if kept else None


async def _keeps_prompts(upstream: Upstream) -> bool | None:
    """None: it could not be seen, because no slot is empty or the server refuses the prompts."""
    facts, slots = upstream.facts, upstream.standing.slots
    empty = [slot.id for slot in slots if not slot.busy and not slot.tokens]
    if facts is None or not empty or (facts.n_vocab is not None and facts.n_vocab <= 2 * LENGTH):
        return None
    reused: int | None = None
    for prompt in (_FIRST, _SECOND, _FIRST):
        body = {"prompt": prompt, "id_slot": empty[-1], "n_predict": 0, "temperature": 0, "cache_prompt": True}
        try:
            answer = await upstream.complete(orjson.dumps(body))
        except (UpstreamRefused, UpstreamBroken):
            return None
        reused = read_answer(answer, Cut())[1].cached
    return None if reused is None else reused > 0
