"""The router: upstreams under watch, the slot table, and what is counted and kept. One event loop owns it.

It decides for `exchange`, which asks and answers; it learns from what comes back. Not here: HTTP in either direction
(`app`, `upstream`), the decision itself (`decide`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

import anyio
import numpy as np

from toktier.errors import UpstreamBroken, UpstreamLost, UpstreamRefused, UpstreamSilent
from toktier.router import prompts
from toktier.router.agreement import Agreement, fits, manner
from toktier.router.bodies import OFF_LOOP_BYTES, ChatRequest, CompletionRequest
from toktier.router.candidates import BruteForceIndex, Candidate
from toktier.router.decide import Decision, decide
from toktier.router.embedders import OpenEmbedder, open_embedder
from toktier.router.embedding import Prompt
from toktier.router.left_requests import LeftRequests
from toktier.router.prompts import Prepared
from toktier.router.refusals import UPSTREAM_RETRY_SECONDS, Refusal, Refused, retry_after
from toktier.router.relay import Answer
from toktier.router.request_facts import RequestFacts
from toktier.router.reservations import Reservation
from toktier.router.rows import SlotRow, UpstreamRow
from toktier.router.slot_view import Known, View
from toktier.router.slots import SlotTable
from toktier.router.stats import Stats
from toktier.router.token_ids import TokenIds
from toktier.router.told import Told
from toktier.router.turns import Request, Taken, Turns
from toktier.router.upstream import Bounds, Timeouts, Upstream
from toktier.router.vocabulary import MIN_REUSE_FOR_HIT, UpstreamState

if TYPE_CHECKING:
    from toktier import Tokenizer
    from toktier.router.kv_events import KvEvents
    from toktier.router.records import Records
    from toktier.router.settings import ServeSettings

LOG: Final = logging.getLogger("toktier.router")
SIMILAR_PROMPTS: Final = 4096  # vectors that are kept: 8 MB
_CANDIDATES: Final = 16
_START_SECONDS: Final = 15.0  # for upstreams to be asked before requests are taken: an admission is some 20 questions
_LOOK_SECONDS: Final = 2.0  # for an upstream to say what its slots did


class Router:
    def __init__(
        self,
        settings: ServeSettings,
        tokenizer: Tokenizer,
        *,
        upstream_api_key: str | None = None,
        records: Records | None = None,
        kv_events: KvEvents | None = None,
    ) -> None:
        """Nothing is asked before `start`."""
        self.settings, self.tokenizer, self.upstream_api_key = settings, tokenizer, upstream_api_key
        self.stats = Stats()
        self.records, self.kv_events = records, kv_events
        self.table = SlotTable(
            time.monotonic,
            on_change=None if kv_events is None else kv_events.slot_now,
            on_clear=None if kv_events is None else kv_events.clear,
        )
        self.turns = Turns(self.table, time.monotonic, in_a_row=settings.turns_in_a_row)
        timeouts = Timeouts(
            connect=settings.connect_seconds,
            first_byte=settings.first_byte_seconds,
            whole=settings.whole_seconds,
            idle=settings.idle_seconds,
        )
        bounds = Bounds(connections=settings.max_concurrent + 64, answer_bytes=settings.max_answer_bytes)
        self.upstreams = [
            Upstream(
                index,
                url,
                api_key=upstream_api_key,
                timeouts=timeouts,
                bounds=bounds,
                admission=self._admit,
                may_empty_a_slot=True,
            )
            for index, url in enumerate(settings.upstreams)
        ]
        self._agreements = [Agreement(upstream, tokenizer) for upstream in self.upstreams]
        self._manners: list[bytes | None] = [None] * len(self.upstreams)
        self._epochs = [0] * len(self.upstreams)  # in which the slots of the table are
        self._told = Told()
        # Vectors choose between upstreams, and of one there is no choice.
        self._embedder: OpenEmbedder | None = None
        self._similar: BruteForceIndex[tuple[int, int]] | None = None
        self._watches: list[asyncio.Task[None]] = []
        self._left = LeftRequests(self.table)

    # Life

    async def start(self) -> None:
        """Asks every upstream once, and watches them from then on. One that does not answer is no error, and the
        others do not wait for one that takes its time."""
        if len(self.upstreams) > 1:
            self._embedder = await open_embedder(self.settings, self.upstream_api_key)
            self._similar = BruteForceIndex(self._embedder.embedder.dims, SIMILAR_PROMPTS)
        probes = [asyncio.create_task(self._probe(upstream)) for upstream in self.upstreams]
        self._watches = [asyncio.create_task(self._watch(*pair)) for pair in zip(self.upstreams, probes, strict=True)]
        await asyncio.wait(probes, timeout=_START_SECONDS)
        self._tell_faults()

    async def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await self._left.close()
        for upstream in self.upstreams:
            await upstream.close()
        if self._embedder is not None:
            await self._embedder.close()

    async def _watch(self, upstream: Upstream, first: asyncio.Task[None]) -> None:
        """`first`: the probe that is under way."""
        probe: Awaitable[None] = first
        while True:
            try:
                await probe
                if self.records is not None:
                    self.records.slots(self.slot_rows())
                self._tell_faults()
            except Exception as error:  # the next check is due all the same
                LOG.error("a health check of upstream %d failed: %s", upstream.index, type(error).__name__)
            await upstream.suspected(self.settings.health_seconds)
            probe = self._probe(upstream)

    async def _probe(self, upstream: Upstream) -> None:
        versions = self.table.versions(upstream.index)
        await upstream.probe()
        self._told.upstream(upstream)
        epoch = self._epochs[upstream.index]
        self.sync(upstream)
        if upstream.state is UpstreamState.UP:
            held = [None if slot.busy else slot.tokens for slot in upstream.standing.slots]
            # Of slots that are known from now on no request can have changed any.
            is_new = self._epochs[upstream.index] != epoch
            self.table.audit(upstream.index, held, None if is_new else versions)
        self.turns.look()

    def _tell_faults(self) -> None:
        records = None if self.records is None else self.records.state()
        self._told.faults(
            {
                "records": f"{records['path']}: {records['meaning']}" if records and records["fault"] else None,
                "embeddings": None if self._embedder is None else self._embedder.note,
                "KV events": None if self.kv_events is None else self.kv_events.failure,
            }
        )

    async def _admit(self, upstream: Upstream) -> list[str]:
        if len(self.upstreams) > 1:
            self._manners[upstream.index] = None
            self._manners[upstream.index] = await manner(upstream)
        return await fits(upstream, self.tokenizer)

    def sync(self, upstream: Upstream) -> None:
        """Takes over what is known of an upstream: whether it is used, and whether it is another process now."""
        facts = upstream.facts
        usable = upstream.state is UpstreamState.UP and facts is not None
        if facts is not None and usable and self._epochs[upstream.index] != upstream.epoch:
            self.table.open_upstream(upstream.index, facts.total_slots, facts.n_ctx)
            self._epochs[upstream.index] = upstream.epoch
        self.table.set_usable(upstream.index, usable)

    # Deciding

    def encode(self, text: str, add_special_tokens: bool) -> TokenIds:
        encoding = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return np.frombuffer(memoryview(encoding), dtype=np.uint32)

    async def prepare(
        self,
        request: CompletionRequest | ChatRequest,
        failed: Collection[int],
        asks: Callable[[Upstream], None],
        *,
        only: Upstream | None = None,
    ) -> Prepared:
        """The IDs of a request. A chat is rendered by an upstream that is not in `failed`, or by `only` that one;
        `asks` is told before each that is asked. Raises InvalidText, and what upstreams raise."""
        if isinstance(request, CompletionRequest):
            if len(request.written) < OFF_LOOP_BYTES:
                return prompts.of_completion(request, self.encode)
            return await asyncio.to_thread(prompts.of_completion, request, self.encode)
        lost: UpstreamLost | None = None
        for upstream in self.upstreams if only is None else [only]:
            if upstream.state is UpstreamState.UP and upstream.index not in failed:
                asks(upstream)
                try:
                    return prompts.of_chat(await self._agreements[upstream.index].agree(request), upstream)
                except UpstreamLost as error:
                    self.sync(upstream)
                    if lost is not None and lost.was_asked and error.was_asked:
                        raise  # the chat may be what ends them
                    lost = error
        raise lost or self.no_upstream()

    async def place(
        self,
        prepared: Prepared,
        request: CompletionRequest | ChatRequest,
        failed: Collection[int],
        reserve: Callable[[Decision], Reservation],
        *,
        arrived: float,
    ) -> Taken | None:
        """Decides where a prompt goes, and waits until it can run there, as long as for its answer. `failed`: upstreams
        that it does not go to; `reserve`: pins it, in the step of the loop in which the slots were seen; `arrived`:
        when it came, which is its place among those that wait. None: there is no upstream."""
        candidates: list[Candidate[tuple[int, int]]] = []
        vector = None
        known: Known = {}

        def views() -> list[View]:
            found = [view for view in self._views(prepared.ids, known) if view.upstream not in failed]
            return found if request.cache else [view.unshared() for view in found]

        # What exact prefixes say, vectors cannot say better.
        if (
            self._similar is not None
            and self._embedder is not None
            and all(view.reusable < MIN_REUSE_FOR_HIT for view in views())
        ):
            vector = await self._embedder.embedder.embed(Prompt(prepared.ids, prepared.text))
            candidates = self._similar.search(vector, _CANDIDATES)
        seconds = self.settings.first_byte_seconds if request.stream else self.settings.whole_seconds
        wanted = Request(prepared.ids, views, reserve, self._chooses, candidates, seconds, arrived)
        taken = await self.turns.take(wanted)
        if self._similar is not None and vector is not None and taken is not None:
            self._similar.add(taken.decision.place, vector, len(prepared.ids))
        return taken

    def settle_later(
        self, upstream: Upstream, reservation: Reservation, settle: Callable[[], None], *, stream: bool
    ) -> None:
        """Of a request that was left before its end: when its slot is seen to be idle."""
        self._left.add(upstream, reservation, settle, stream=stream)

    def release(self, reservation: Reservation) -> None:
        """Of a request that does not go up after all."""
        self.table.settle(reservation, reached_upstream=False)
        self.turns.look()

    def replace(
        self,
        reservation: Reservation,
        prepared: Prepared,
        request: CompletionRequest | ChatRequest,
        reserve: Callable[[Decision], Reservation],
    ) -> Reservation:
        """The same slot for other IDs, in one step. Raises UpstreamLost."""
        self.table.settle(reservation, reached_upstream=False)
        place = reservation.upstream, reservation.slot
        views = [view for view in self._views(prepared.ids, {}) if (view.upstream, view.slot) == place]
        decision = decide(len(prepared.ids), views if request.cache else [view.unshared() for view in views])
        if decision is None:
            self.turns.look()
            raise UpstreamLost(f"{self.upstreams[reservation.upstream].url} was lost")
        return reserve(decision)

    def _chooses(self, upstream: int) -> bool:
        """Whether an upstream places requests itself: such a one has every request, and its slots are not followed."""
        return self.upstreams[upstream].keeps_prompts

    def _views(self, ids: TokenIds, known: Known) -> list[View]:
        """Of upstreams that are used now: one that turned out to be another process is not, before it is admitted."""
        for upstream in self.upstreams:
            self.sync(upstream)
        return self.table.views(ids, known)

    def is_same_model(self, rendered_by: Upstream | None, upstream: Upstream) -> bool:
        """Whether what one upstream said of a chat holds for another."""
        if rendered_by is None or rendered_by is upstream:
            return True
        one, other, said = rendered_by.facts, upstream.facts, self._manners[upstream.index]
        return (
            one is not None
            and other is not None
            and (one.build, one.model_path, one.n_vocab) == (other.build, other.model_path, other.n_vocab)
            and said is not None
            and said == self._manners[rendered_by.index]
        )

    def least_loaded(self) -> Upstream:
        """For a request that is not pinned. Raises Refused where no upstream is used."""
        used = [upstream for upstream in self.upstreams if upstream.state is UpstreamState.UP]
        if not used:
            raise self.no_upstream()
        table = self.table
        return min(used, key=lambda u: table.in_flight(u.index) / max(table.n_slots(u.index), 1))

    def no_upstream(self) -> Refused:
        states = ", ".join(sorted({upstream.state.value for upstream in self.upstreams}))
        return Refused(
            Refusal.NO_UPSTREAM,
            f"none of {len(self.upstreams)} upstreams can be used ({states}): expected one llama-server that answers",
            remedy="GET /toktier/slots says what is wrong with each",
            headers=[retry_after(UPSTREAM_RETRY_SECONDS)],
        )

    # Learning

    def is_count_right(self, upstream: Upstream, prepared: Prepared, answer: Answer) -> bool:
        """Whether the upstream counted as many tokens in the prompt as were sent."""
        if prepared.agreed is not None:
            return self._agreements[upstream.index].check(prepared.agreed, answer.prompt_tokens)
        return answer.prompt_tokens is None or answer.prompt_tokens == len(prepared.ids)

    def learn(self, upstream: Upstream, answer: Answer) -> None:
        """How fast the upstream is, from an answer."""
        rates = self.table.rates(upstream.index)
        if rates is not None:
            rates.measured(
                prompt_tokens=answer.evaluated or 0,
                prompt_ms=answer.prompt_ms,
                generated_tokens=answer.generated or 0,
                generated_ms=answer.generated_ms,
            )

    @contextlib.asynccontextmanager
    async def unknown_slots(self, upstream: Upstream) -> AsyncIterator[None]:
        """Around a request that the upstream places itself: slots that it may have used are unknown afterwards."""
        versions = self.table.versions(upstream.index)
        before = await self._tasks(upstream)
        try:
            yield
        finally:
            after: list[int | None] = []
            # A request is cancelled when its client goes away, and when it has its answer.
            with anyio.move_on_after(_LOOK_SECONDS, shield=True):
                after = await self._tasks(upstream)
            now = self.table.versions(upstream.index)
            for slot in range(len(now)):
                told = slot < min(len(before), len(after), len(versions))
                if told and before[slot] == after[slot]:
                    continue
                # Requests of ours that used it too, before or behind, or still do, leave nothing certain.
                self.table.doubt(upstream.index, slot)
                if not told or versions[slot] == now[slot]:
                    self.table.forget(upstream.index, slot)

    async def _tasks(self, upstream: Upstream) -> list[int | None]:
        """The last task of each slot; none, where it does not say."""
        try:
            slots = await upstream.slots()
        except (UpstreamLost, UpstreamBroken, UpstreamSilent, UpstreamRefused):
            return []
        return [slot.id_task for slot in slots]

    def record(self, facts: RequestFacts) -> None:
        self.stats.add(facts)
        if self.records is not None:
            self.records.add(facts)

    def record_output(
        self,
        name: str,
        request: CompletionRequest | ChatRequest,
        prepared: Prepared,
        answer: Answer,
        started: float,
    ) -> None:
        """Keeps the text of an answer for `serve report`, where that was asked for."""
        if self.records is None or not self.records.keeps_outputs or answer.text is None or answer.cached is None:
            return
        # Everything that an output depends on but the slot: the same digest, the same question.
        digest = hashlib.blake2b(request.others + b"\0" + prepared.ids.tobytes(), digest_size=32).digest()
        self.records.add_output(name, digest, reused=answer.cached > 0, text=answer.text, started=started)

    # Showing

    def missing(self) -> list[str]:
        """Sentences for people: what does not work, or was switched off."""
        said = [
            f"upstream {upstream.index} is {upstream.state.value}: {'; '.join(upstream.notes)}"
            for upstream in self.upstreams
            if upstream.state is not UpstreamState.UP
        ]
        if self._embedder is not None and self._embedder.note is not None:
            said.append(self._embedder.note)
        if self._embedder is not None and self._embedder.embedder.failed:
            guarded = self._embedder.embedder
            said.append(
                f"{guarded.failed:,} of {guarded.failed + guarded.embedded:,} prompts were compared by a hash of the "
                f"prompt, since the embedder failed: {guarded.last_error}"
            )
        if self.kv_events is not None and self.kv_events.failure is not None:
            said.append(f"KV events are not published any more: {self.kv_events.failure}")
        if self.records is None:
            said.append("requests are not recorded: --records PATH keeps their counts and times")
        return said

    def kv_event_counters(self) -> dict[str, int] | None:
        """Of all upstreams together, numbers that only grow; None: nothing is published."""
        return None if self.kv_events is None else self.kv_events.counters()

    def upstream_rows(self) -> list[UpstreamRow]:
        return [
            UpstreamRow(
                number=upstream.index,
                name=upstream.url,
                state=upstream.state,
                model=None if upstream.facts is None else upstream.facts.model,
                notes=upstream.notes,
                restarts=max(upstream.epoch - 1, 0),
            )
            for upstream in self.upstreams
        ]

    def slot_rows(self) -> list[SlotRow]:
        return self.table.rows(time.time())
