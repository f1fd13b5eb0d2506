"""Sessions through the batcher: in order, equal to a fresh encoding, and no hindrance to others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import toktier
from tests.serving.held_tokenizer import PATIENCE, HeldTokenizer
from tests.support.material import SMALL_DIR
from tests.support.tokenizer_maker import HOSTILE
from toktier import Tokenizer
from toktier.errors import BatcherClosed, ConfigInvalid, InvalidText, SessionRevisionConflict
from toktier.serving import Batcher, Limits, lanes


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.sampled_from(HOSTILE)).map("".join)), max_size=25))
def test_law_patches_give_the_ids_of_each_text_whatever_goes_on_beside(appends: list[tuple[int, str]]) -> None:
    tok = toktier.from_file(SMALL_DIR / "o200k_like.json", policy="supported")

    async def main() -> None:
        with Batcher(tok, Limits(inline_bytes=0)) as batcher:
            sessions = [batcher.asession("a"), batcher.asession("b"), batcher.asession()]
            ids: list[list[int]] = [[], [], []]

            async def follow(which: int) -> None:
                for number, text in appends:
                    if number == which:
                        patch = await sessions[which].append(text)
                        ids[which][patch.keep_tokens :] = patch.replacement_ids.ids

            await asyncio.gather(*map(follow, range(3)))
            for which, session in enumerate(sessions):
                whole = "".join(text for number, text in appends if number == which)
                assert ids[which] == (await session.snapshot()).ids == tok.encode(whole).ids

    asyncio.run(main())


def test_changes_are_made_in_the_order_in_which_they_are_awaited(tok: Tokenizer) -> None:
    async def main() -> None:
        session = tok.asession("in order")
        parts = [f"part {i}, " for i in range(200)]
        patches = await asyncio.gather(*(session.append(part) for part in parts))
        assert [patch.revision for patch in patches] == list(range(1, 201))
        assert (await session.snapshot()).ids == tok.encode("".join(parts)).ids
        assert tok.session("in order").text == "".join(parts)
        assert (await tok.aencode("".join(parts) + "more", session="in order")).ids == tok.encode(
            "".join(parts) + "more"
        ).ids

    asyncio.run(main())


def test_every_call_of_a_session_is_there(tok: Tokenizer) -> None:
    async def main() -> None:
        session = tok.asession()
        await session.append(b"user: where are the boats?")
        patch = await session.replace(6, "Where were they?", expected_revision=1)
        assert patch.revision == 2
        with pytest.raises(SessionRevisionConflict):
            await session.append("x", expected_revision=1)
        with pytest.raises(InvalidText):
            await session.append("\ud800")
        whole = "user: Where were they? On the beach."
        assert (await session.present(whole, True)).ids == tok.encode(whole, True).ids
        assert await session.refresh() == 3
        await session.close()
        assert repr(session) == "<toktier.serving.AsyncSession>"

    trio.run(main)
    with pytest.raises(TypeError):
        tok.asession(7)  # type: ignore[arg-type]


def test_a_session_in_a_store_goes_on_elsewhere(tmp_path: Path) -> None:
    def opened() -> Tokenizer:
        return toktier.from_file(SMALL_DIR / "cl100k_like.json", policy="supported", store=tmp_path)

    async def write(tok: Tokenizer) -> None:
        session = tok.asession("chat-42", keep_text=True)
        await session.append("user: hello\n")
        await session.append("assistant: hello\n")
        await session.close()

    asyncio.run(write(opened()))
    assert opened().session("chat-42").text == "user: hello\nassistant: hello\n"

    async def wrong(tok: Tokenizer) -> None:
        with pytest.raises(ConfigInvalid):
            await tok.asession(keep_text=True).append("a session in memory keeps no text in a store")

    asyncio.run(wrong(opened()))


def test_a_long_text_that_may_be_in_the_store_is_looked_up_beside_the_batches(tmp_path: Path) -> None:
    tok = toktier.from_file(SMALL_DIR / "cl100k_like.json", policy="supported", store=tmp_path)
    text = "user: where are the boats?\n" * 400
    with Batcher(tok) as batcher:
        assert batcher.submit(text).result(PATIENCE).ids == tok.encode(text, lookup="off").ids
        lookups = tok.explain()["sessions"]["lookups"]["lookups"]
        assert (lookups, batcher.stats()["alone"], batcher.stats()["texts"]) == (1, 1, 0)
        assert batcher.submit(text, lookup="off").result(PATIENCE)
        assert batcher.submit(text, plain=True).result(PATIENCE)
        assert (tok.explain()["sessions"]["lookups"]["lookups"], batcher.stats()["texts"]) == (1, 2)
        with pytest.raises(ConfigInvalid):
            batcher.submit(text, lookup="sometimes").result(PATIENCE)


def test_a_session_that_is_held_up_keeps_only_its_own_calls_waiting(held: HeldTokenizer) -> None:
    with Batcher(held, Limits(inline_bytes=0)) as batcher:
        stuck = [batcher.submit("transcript", session="stuck") for _ in range(3)]
        held.wait_for(1)
        other = batcher.submit("transcript", session="other")
        text = batcher.submit("text")
        held.wait_for(3)
        assert len(held.calls) == 3  # the later calls for "stuck" have not begun
        session = batcher.asession("stuck")
        order: list[str] = []
        for name, future in (("first", stuck[0]), ("last", stuck[2])):
            future.add_done_callback(lambda _, name=name: order.append(name))
        held.gate.set()
        asyncio.run(session.append(" and more"))
        assert order == ["first", "last"]
        for future in (*stuck, other):
            assert future.result(PATIENCE).ids == held.tokenizer.encode("transcript").ids
        assert text.result(PATIENCE)
        assert held.tokenizer.session("stuck").text == "transcript and more"


def test_a_change_that_is_cancelled_before_its_turn_is_not_made(held: HeldTokenizer) -> None:
    async def main() -> None:
        with Batcher(held) as batcher:
            session = batcher.asession("cancelled")
            for _ in range(lanes.THREADS):
                batcher.submit_batch(["running"])
            await asyncio.to_thread(held.wait_for, lanes.THREADS)
            change = asyncio.ensure_future(session.append("never "))
            kept = asyncio.ensure_future(session.append("made"))
            await asyncio.sleep(0)
            change.cancel()
            await asyncio.sleep(0)
            held.gate.set()
            assert (await kept).revision == 1
            assert (await session.snapshot()).ids == held.tokenizer.encode("made").ids
            batcher.close()
            with pytest.raises(BatcherClosed):
                await session.append("more")

    asyncio.run(main())


def test_more_lanes_than_threads_are_all_served(tok: Tokenizer) -> None:
    async def main() -> None:
        sessions = [tok.asession(f"lane {i}") for i in range(40)]
        await asyncio.gather(*(session.append(f"{n} ") for n in range(20) for session in sessions))
        expected = tok.encode("".join(f"{n} " for n in range(20))).ids
        found: list[Any] = await asyncio.gather(*(session.snapshot() for session in sessions))
        assert [encoding.ids for encoding in found] == [expected] * 40

    asyncio.run(main())
    assert len(tok.batcher._lanes._threads) <= lanes.THREADS
