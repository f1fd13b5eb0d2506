"""`serve --check`: asks each upstream and the embedder once, as the router does when it begins, and says what it found.

Not here: what makes an upstream unfit (`upstream`, `agreement`), or an embedder (`embedders`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toktier.router.settings import ServeSettings
from toktier.router.vocabulary import UpstreamState

if TYPE_CHECKING:
    from toktier.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One upstream. `slots`, `context` (tokens of one slot), `model`, `build`: None where it did not say."""

    url: str
    state: UpstreamState
    slots: int | None
    context: int | None
    model: str | None
    build: str | None
    notes: tuple[str, ...]


def check_upstreams(settings: ServeSettings, tokenizer: Tokenizer, api_key: str | None) -> list[Found]:
    """In the order of the settings; at once, each within the time-outs of a question."""
    return asyncio.run(_all(settings, tokenizer, api_key))


def check_embedder(settings: ServeSettings, api_key: str | None) -> str | None:
    """Why prompts would not be compared by the embedder that was asked for; None where they are, or none is needed."""
    return asyncio.run(_embedder_note(settings, api_key)) if len(settings.upstreams) > 1 else None


async def _embedder_note(settings: ServeSettings, api_key: str | None) -> str | None:
    from toktier.router.embedders import open_embedder

    embedder = await open_embedder(settings, api_key)
    await embedder.close()
    return embedder.note


async def _all(settings: ServeSettings, tokenizer: Tokenizer, api_key: str | None) -> list[Found]:
    return await asyncio.gather(
        *(_one(index, url, settings, tokenizer, api_key) for index, url in enumerate(settings.upstreams))
    )


async def _one(index: int, url: str, settings: ServeSettings, tokenizer: Tokenizer, api_key: str | None) -> Found:
    from toktier.router.agreement import fits
    from toktier.router.upstream import Timeouts, Upstream

    upstream = Upstream(
        index,
        url,
        api_key=api_key,
        timeouts=Timeouts(connect=settings.connect_seconds),
        admission=lambda one: fits(one, tokenizer),
    )
    try:
        state = await upstream.probe()
        facts = upstream.facts
        return Found(
            url=url,
            state=state,
            slots=None if facts is None else facts.total_slots,
            context=None if facts is None else facts.n_ctx,
            model=None if facts is None else facts.model,
            build=None if facts is None else facts.build,
            notes=tuple(upstream.notes),
        )
    finally:
        await upstream.close()
