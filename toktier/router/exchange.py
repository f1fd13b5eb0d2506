"""One request from its decision to its record: a slot is reserved, the upstream asked, its answer passed on unchanged.

However it ends (an answer, an error, a client that went away, an upstream that was lost), the reservation is settled
once, the connection to the upstream is given back or closed, and the facts are recorded. A request that no byte was
answered of goes to another upstream when its own is lost. Not here: what the body of a client says (`bodies`), which
slot (`decide`), what an answer says (`relay`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from starlette.responses import Response

from toktier.errors import ToktierError, UpstreamBroken, UpstreamLost, UpstreamRefused, UpstreamSilent
from toktier.router.bodies import OFF_LOOP_BYTES, CompletionRequest, Cut
from toktier.router.decide import Decision
from toktier.router.prompts import Prepared, unpinned_body
from toktier.router.refusals import Receive, Refused, Scope, Send, as_refused
from toktier.router.relay import Answer, StreamRelay, read_answer
from toktier.router.request_facts import RequestFacts
from toktier.router.reservations import Reservation, Settled
from toktier.router.token_ids import TokenIds
from toktier.router.upstream import Passage, Route, Upstream
from toktier.router.vocabulary import Choice, Ids, Outcome, Unrouted

if TYPE_CHECKING:
    from toktier.router.bodies import ChatRequest
    from toktier.router.router import Router

LOG: Final = logging.getLogger("toktier.router")
# Upstreams that one request may be asked of and lost with: it may be what ends them, and the next would be ended, too.
MAX_LOST: Final = 2
RECORDED: Final = "recorded"  # in the state of a scope: an upstream was chosen, and the facts are kept
_OUTCOMES: Final[dict[type[ToktierError], Outcome]] = {
    UpstreamLost: Outcome.UPSTREAM_LOST,
    UpstreamBroken: Outcome.UPSTREAM_BROKEN,
    UpstreamSilent: Outcome.TIMED_OUT,
    UpstreamRefused: Outcome.REFUSED_UPSTREAM,
}


class Exchange(Response):
    """The answer to one request for a completion, as an ASGI app: it is made while it is asked for."""

    def __init__(
        self, router: Router, route: Route, request: CompletionRequest | ChatRequest, *, name: str, arrived: float
    ) -> None:
        """`name`: of the request, in records; `arrived`: by `time.monotonic`, before its body was read."""
        self.background = None
        self.status_code, self.raw_headers = 200, []
        self._router, self._route, self._request = router, route, request
        self._name, self._arrived, self._began = name, arrived, time.time() - (time.monotonic() - arrived)
        self._state: MutableMapping[str, Any] = {}
        self._gone = self._started = False
        self._outcome: Outcome | None = None
        self._status: int | None = None
        self._relay: StreamRelay | None = None
        self._answer: Answer | None = None
        self._prepared: Prepared | None = None
        self._decision: Decision | None = None
        self._reservation: Reservation | None = None
        self._unrouted = request.unrouted
        self._upstream: Upstream | None = None
        self._settled: Settled | None = None
        self._ids = Ids.SENT
        self._router_ms: float | None = None
        self._first_byte: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._state = scope.setdefault("state", {})
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive, group.cancel_scope)
                await self._run(send)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            # Of two tasks only this one raises anything: the group is a wrapper around it.
            raise errors.exceptions[0] from None
        finally:
            self._record()

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        scope.cancel()

    async def _run(self, send: Send) -> None:
        try:
            if self._request.unrouted is not None:
                await self._pass_unrouted(send)
            else:
                await self._pass_routed(send)
        except (UpstreamLost, UpstreamBroken, UpstreamSilent, UpstreamRefused) as error:
            self._outcome = _OUTCOMES[type(error)]
            await self._fail(send, error)
        except Exception:  # what the router refuses itself is counted by who answers it
            self._upstream = None
            self._state.pop(RECORDED, None)
            raise

    # A request that can be pinned

    async def _pass_routed(self, send: Send) -> None:
        failed = set[int]()
        asked = 0  # upstreams that were lost over it
        lost: UpstreamLost | None = None
        while True:
            try:
                upstream, reservation = await self._place(failed)
            except Refused:
                if lost is None:
                    raise
                raise lost from None
            try:
                reservation = await self._rendered_there(upstream, reservation)
                async with self._settling(upstream, reservation):
                    await self._ask(send, upstream, self._prepared_body(), reservation)
                return
            except UpstreamLost as error:
                lost = error
                failed.add(upstream.index)
                asked += error.was_asked
                if self._started or asked == MAX_LOST or len(failed) == len(self._router.upstreams):
                    raise

    async def _place(self, failed: set[int]) -> tuple[Upstream, Reservation]:
        """Decides where the request goes, for which its IDs have to be known, and has its turn there."""
        router, began = self._router, time.monotonic()
        prepared = await router.prepare(self._request, failed, self._asked)
        waited = time.monotonic() - began if prepared.rendered_by is not None else 0.0
        self._prepared, self._ids = prepared, prepared.kind
        taken = await router.place(prepared, self._request, failed, self._reserve, arrived=self._arrived)
        if taken is None:
            raise router.no_upstream()
        upstream = router.upstreams[taken.decision.upstream]
        self._chosen(upstream)
        self._router_ms = 1000 * (time.monotonic() - self._arrived - waited - taken.waited)
        return upstream, taken.reservation

    async def _rendered_there(self, upstream: Upstream, reservation: Reservation) -> Reservation:
        """A chat by the upstream that was chosen, where that renders otherwise than the one that was asked. Its slot
        stays its own meanwhile."""
        router, prepared = self._router, self._prepared
        assert prepared is not None
        if router.is_same_model(prepared.rendered_by, upstream):
            return reservation
        try:
            prepared = await router.prepare(self._request, (), self._asked, only=upstream)
        except BaseException as error:
            router.release(reservation)
            if isinstance(error, Refused):  # it is not used any more, and others may be
                raise UpstreamLost(f"{upstream.url} was lost") from None
            raise
        self._prepared, self._ids = prepared, prepared.kind
        return router.replace(reservation, prepared, self._request, self._reserve)

    def _asked(self, upstream: Upstream) -> None:
        """About a chat, of which nothing is known yet."""
        self._ids = Ids.UPSTREAM
        self._chosen(upstream)

    def _chosen(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._state[RECORDED] = True

    def _reserve(self, decision: Decision) -> Reservation:
        prepared = self._prepared
        assert prepared is not None
        self._decision = decision
        # Such an upstream has the request, and what its slots hold is not followed.
        self._unrouted = Unrouted.HOST_CACHE if self._router.upstreams[decision.upstream].keeps_prompts else None
        try:
            self._reservation = self._router.table.reserve(
                decision.upstream,
                decision.slot,
                None if self._unrouted is not None else prepared.ids,
                self._predicted(),
                sure=prepared.kind is not Ids.UPSTREAM,
                limit=self._request.limit,
            )
        except LookupError:  # it was lost in between
            raise UpstreamLost(f"{self._router.upstreams[decision.upstream].url} was lost") from None
        return self._reservation

    def _prepared_body(self) -> bytes:
        assert self._prepared is not None
        assert self._decision is not None
        return self._prepared.body(self._decision.slot if self._unrouted is None else None)

    def _predicted(self) -> int:
        decision = self._decision
        pinned = decision is not None and self._unrouted is None and self._request.cache
        return decision.predicted if decision is not None and pinned else 0

    @asynccontextmanager
    async def _settling(self, upstream: Upstream, reservation: Reservation) -> AsyncIterator[None]:
        lost = left = False
        try:
            yield
        except UpstreamLost:
            lost = True
            raise
        except BaseException:
            left = self._may_run_on()
            raise
        finally:
            settle = partial(self._settle, upstream, reservation, lost)
            if left:
                self._router.settle_later(upstream, reservation, settle, stream=self._request.stream)
            else:
                settle()

    def _may_run_on(self) -> bool:
        """Whether the upstream may still work for this request, which nobody waits for any more."""
        answer = self._seen()
        has_ended = answer is not None and (answer.finished or answer.error is not None)
        return self._unrouted is None and self._status in (None, 200) and not has_ended

    def _settle(self, upstream: Upstream, reservation: Reservation, lost: bool) -> None:
        answer = self._seen()
        prepared, table = self._prepared, self._router.table
        assert prepared is not None
        generated: Sequence[int] = ()
        guessed: Sequence[int] | TokenIds = ()
        measured = actual = None
        finished = truncated = False
        count = None
        if answer is not None:
            generated, actual, count = answer.ids, answer.id_slot, answer.generated
            finished = answer.finished and answer.error is None
            truncated = answer.truncated and not _fitted(answer, upstream)
            if self._request.cache:  # where nothing was to be reused, nothing that was is no sign of anything
                measured = self._measured()
            if answer.unnamed:
                guessed = self._guessed(answer.unnamed)
        error_status = self._status is not None and self._status != 200
        self._settled = table.settle(
            reservation,
            generated=generated,
            guessed=guessed,
            count=count,
            whole=count is not None,
            measured=measured,
            actual_slot=actual,
            finished=finished,
            reached_upstream=not (lost and self._status is None),
            refused=error_status,
        )
        if answer is not None and not self._router.is_count_right(upstream, prepared, answer):
            if prepared.kind is not Ids.SENT:
                self._ids = Ids.UPSTREAM
            truncated = True
        if truncated or (error_status and (self._status or 0) >= 500):
            table.forget(reservation.upstream, reservation.slot)
        if self._unrouted is None and (self._settled.stale or self._settled.moved):
            upstream.suspect()  # another process may answer there by now
        if lost:
            self._router.sync(upstream)
        elif answer is not None and answer.finished:
            self._router.learn(upstream, answer)
        self._router.turns.ended(reservation, whole=finished and not truncated)

    def _guessed(self, text: str) -> Sequence[int] | TokenIds:
        """IDs of generated text, of which more than the beginning is not worth the time of the loop. Nothing stops a
        reservation from being settled."""
        try:
            return self._router.encode(text[:OFF_LOOP_BYTES], False)
        except ToktierError:
            return ()

    # One that cannot

    async def _pass_unrouted(self, send: Send) -> None:
        upstream = self._router.least_loaded()
        self._ids = Ids.UPSTREAM
        self._chosen(upstream)
        async with self._router.unknown_slots(upstream):
            try:
                await self._ask(send, upstream, unpinned_body(self._request), None)
            except UpstreamLost:
                self._router.sync(upstream)
                raise

    # What passes

    async def _ask(self, send: Send, upstream: Upstream, body: bytes, reservation: Reservation | None) -> None:
        self._relay = self._answer = self._status = None
        cut = self._request.cut
        async with upstream.open(self._route, body, stream=self._request.stream) as passage:
            self._status = passage.status
            if passage.status == 200 and passage.is_stream:
                await self._stream(send, passage, cut, reservation)
            else:
                await self._whole(send, passage, cut)

    async def _stream(self, send: Send, passage: Passage, cut: Cut, reservation: Reservation | None) -> None:
        relay = self._relay = StreamRelay(cut)
        async for chunk in passage.chunks():
            kept = relay.feed(chunk)
            if reservation is not None:
                reservation.seen += 1
            if kept:
                await self._send(send, passage.status, passage.headers, kept, more=True)
        await self._send(send, passage.status, passage.headers, relay.finish(), more=False)
        answer = relay.answer()
        if answer.error is not None:
            self._outcome = Outcome.REFUSED_UPSTREAM
        elif answer.finished or (isinstance(self._request, CompletionRequest) and self._request.selects):
            self._outcome = Outcome.DONE
        else:
            self._outcome = Outcome.UPSTREAM_BROKEN

    async def _whole(self, send: Send, passage: Passage, cut: Cut) -> None:
        body = await passage.read()
        if passage.status == 200:
            body, self._answer = read_answer(body, cut)
            self._outcome = Outcome.DONE if self._answer.finished else Outcome.UPSTREAM_BROKEN
        else:
            self._outcome = Outcome.REFUSED_UPSTREAM
        headers = {"content-type": "application/json", **passage.headers, "content-length": str(len(body))}
        await self._send(send, passage.status, headers, body, more=False)

    async def _fail(self, send: Send, error: ToktierError) -> None:
        if isinstance(error, UpstreamRefused) and error.body:
            self._status = status = error.status
            body, headers = error.body, {"content-type": "application/json"}
        else:
            status, body, more = as_refused(error)
            headers = {"content-type": "application/json", **{k.decode(): v.decode() for k, v in more}}
        if self._started:  # of a stream, whose reader learns it from an event
            # What has passed may have ended within a line or an event; lines that are empty say nothing themselves.
            await self._send(send, status, {}, b"\n\ndata: " + body + b"\n\n", more=False)
            return
        await self._send(send, status, {**headers, "content-length": str(len(body))}, body, more=False)

    async def _send(self, send: Send, status: int, headers: dict[str, str], body: bytes, *, more: bool) -> None:
        if not self._started:
            self._started = True
            self._first_byte = time.monotonic()
            raw = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": status, "headers": raw})
        reservation = self._reservation
        if reservation is None:
            await send({"type": "http.response.body", "body": body, "more_body": more})
            return
        reservation.sending_since = time.monotonic()
        await send({"type": "http.response.body", "body": body, "more_body": more})
        reservation.sending_since = None

    # What is kept

    def _seen(self) -> Answer | None:
        if self._answer is None and self._relay is not None:
            self._answer = self._relay.answer()
        return self._answer

    def _measured(self) -> int | None:
        """Reused tokens, as the upstream says; None where it counted another prompt than the IDs that it was sent."""
        answer, prepared = self._seen(), self._prepared
        if answer is None or answer.cached is None:
            return None
        sent = None if prepared is None or prepared.kind is not Ids.SENT else len(prepared.ids)
        return answer.cached if sent is None or answer.prompt_tokens in (None, sent) else None

    def _record(self) -> None:
        upstream = self._upstream
        if upstream is None:
            return  # no upstream was asked: whoever refused it has counted it
        answer, decision, settled, now = self._seen(), self._decision, self._settled, time.monotonic()
        if answer is not None and (notes := "; ".join(answer.notes)):
            LOG.info("%s: upstream %d said what is not believed: %s", self._name, upstream.index, notes)
        outcome = self._outcome
        if outcome is None:
            outcome = Outcome.DISCONNECTED if self._gone else Outcome.SHUT_DOWN
        slot = None if decision is None or self._unrouted is not None else decision.slot
        if answer is not None and answer.id_slot is not None and self._request.unrouted is None:
            slot = answer.id_slot
        prompt = 0 if self._prepared is None else len(self._prepared.ids)
        if answer is not None and answer.prompt_tokens is not None and self._ids is not Ids.SENT:
            prompt = answer.prompt_tokens
        self._router.record(
            RequestFacts(
                id=self._name,
                started=self._began,
                route=self._route.value,
                stream=self._request.stream,
                upstream=upstream.index,
                slot=slot,
                choice=Choice.UNROUTED if decision is None or self._unrouted is not None else decision.choice,
                unrouted=self._unrouted,
                ids=self._ids,
                outcome=outcome,
                status=self._status,
                prompt_tokens=prompt,
                generated_tokens=0 if answer is None else answer.generated or len(answer.ids),
                predicted=self._predicted(),
                measured=self._measured(),
                stale=settled is not None and settled.stale,
                prompt_ms=None if answer is None else answer.prompt_ms,
                generated_ms=None if answer is None else answer.generated_ms,
                first_byte_ms=None if self._first_byte is None else 1000 * (self._first_byte - self._arrived),
                duration_ms=1000 * (now - self._arrived),
                router_ms=self._router_ms,
            )
        )
        if outcome is Outcome.DONE and answer is not None and self._prepared is not None:
            self._router.record_output(self._name, self._request, self._prepared, answer, self._began)


def _fitted(answer: Answer, upstream: Upstream) -> bool:
    """Whether all tokens had room in a slot. An answer that ended where the slot was full is called truncated, too."""
    if upstream.facts is None or answer.prompt_tokens is None or answer.generated is None:
        return False
    return answer.prompt_tokens + answer.generated <= upstream.facts.n_ctx
