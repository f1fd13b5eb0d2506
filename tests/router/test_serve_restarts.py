"""Upstreams that are lost, restarted, silent or broken, through the whole router: case D17, and two upstreams."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, completed, fake_beside, forever, raw, reply, stream
from tests.router.record_files import PATIENCE
from tests.router.served_router import ROUTES, Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.router.ram_cache import RAM_CACHE_UNSEEN
from toktier.router.router import LOG
from toktier.router.vocabulary import Choice, Outcome, Reuse

A = tokens(1, 100)


@pytest.fixture
def second_fake(mini: toktier.Tokenizer) -> Iterator[FakeUpstream]:
    with fake_beside(tokenize=lambda text: mini.encode(text, add_special_tokens=False).ids) as fake:
        yield fake


def body_of(path: str, **more: Any) -> dict[str, Any]:
    if path == "/v1/chat/completions":
        return {"messages": [{"role": "user", "content": "Say something."}], "max_tokens": 8, "temperature": 0, **more}
    return {"prompt": A, "n_predict" if path == "/completion" else "max_tokens": 8, "temperature": 0, **more}


# D17


def test_d17_a_restart_between_requests_is_no_false_hit_and_drops_what_was_known(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer
) -> None:
    server = start_llama()
    with Served(server.url, tokenizer=mini) as served:
        served.complete(A)
        served.complete(tokens(2, 100))
        assert served.complete(A).counts == (99, 1)
        server.restart()
        answered = served.complete(A)
        assert answered.counts == (0, 100)
        assert (answered.facts.measured, answered.facts.reuse) == (0, Reuse.MISS)
        served.until_restarted()
        assert all(sure == 0 for _, _, sure in served.held())
        later = served.complete(tokens(2, 100))
        assert later.counts == (0, 100)
        assert (later.facts.predicted, later.facts.stale) == (0, False)
        assert served.stats()["reuse"] == {"miss": 4, "soft_hit": 0, "hit": 1, "unmeasured": 0}


def test_d17_a_restart_that_a_health_check_saw_is_known_before_the_next_request(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer
) -> None:
    server = start_llama()
    with Served(server.url, tokenizer=mini, health_seconds=0.05) as served:
        served.complete(A)
        server.restart()
        served.until_restarted()
        answered = served.complete(A)
        assert answered.counts == (0, 100)
        assert (answered.facts.predicted, answered.facts.choice) == (0, Choice.LEAST_RECENT)
        assert served.stats()["stale"] == 0
        assert served.complete(A).counts == (99, 1)


@pytest.mark.parametrize("path", ROUTES)
def test_d17_a_server_that_dies_during_a_stream_is_told_of_in_an_event(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer, path: str
) -> None:
    server = start_llama("--ctx-size", "32768")
    with Served(server.url, tokenizer=mini, health_seconds=0.05) as served:
        more = {"n_predict": 8000, "max_tokens": 8000, "ignore_eos": True}
        with served.streaming(path, body_of(path) | more) as one:
            one.take(3)
            server.kill()
            *_, last = one.events()
        assert last["error"]["code"] == "no_upstream"
        assert last["error"]["type"] == "server_error"
        assert one.body.endswith(b"}\n\n")
        assert b"[DONE]" not in one.body
        served.recorded(lambda: served.requests)
        facts = served.requests[0]
        assert (facts.outcome, facts.status, facts.measured) == (Outcome.UPSTREAM_LOST, 200, None)
        served.until_settled()
        refused = served.post(path, body_of(path))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_upstream")
        assert int(refused.headers["retry-after"]) >= 1
        server.start()
        served.until_restarted()
        later = served.ask(path, body_of(path))
        assert (later.status, later.facts.measured, later.facts.predicted) == (200, 0, 0)


def test_d17_a_server_that_dies_before_an_answer_in_one_piece(
    start_llama: Callable[..., LlamaServer], mini: toktier.Tokenizer
) -> None:
    server = start_llama("--parallel", "1", "--ctx-size", "32768")
    with Served(server.url, tokenizer=mini) as served:
        endless = {"prompt": A, "n_predict": 30_000, "ignore_eos": True}
        with served.begin("/completion", endless) as waiting:
            served.until(lambda: served.in_flight() == 1 and server.slots()[0]["is_processing"])
            server.kill()
            answer = waiting.until(b"}}")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: " in answer.lower()
        served.recorded(lambda: served.requests)
        assert (served.requests[0].outcome, served.requests[0].status) == (Outcome.UPSTREAM_LOST, None)
        served.until_settled()


def test_d17_another_model_on_the_same_port_gets_no_request(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    """It is found out by its first answer, and nothing goes there while it is asked who it is."""
    with Served(fake.url, tokenizer=mini) as served:
        fake.answers["/completion"] = reply(completed(0, 100, 0))
        served.complete(A)
        fake.marker, fake.n_vocab = "another", 100
        assert served.complete(A).facts.stale  # from a slot of another process
        served.until(lambda: served.upstream_rows()[0]["state"] == "refused")
        before = len(fake.seen)
        refused = served.post("/completion", {"prompt": A})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_upstream")
        assert len(fake.seen) == before
        assert "another family" in " ".join(served.upstream_rows()[0]["notes"])


# Two upstreams


def test_the_log_has_one_line_for_each_state_that_an_upstream_is_found_in(
    fake: FakeUpstream, mini: toktier.Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG.name)
    fake.answers["/health"] = raw()
    with Served(fake.url, tokenizer=mini) as served:

        def look() -> None:
            served.call(lambda: served.router._probe(served.router.upstreams[0]))

        look()
        del fake.answers["/health"]
        look()
        look()
        fake.answers["/completion"] = raw()
        served.ask("/completion", body_of("/completion"))  # which finds it lost before a health check does
        fake.answers["/health"] = raw()
        look()
    where = f"upstream 0, {fake.url}, is "
    said = [(r.levelname, r.getMessage().removeprefix(where)) for r in caplog.records if where in r.getMessage()]
    assert said == [
        ("WARNING", "down: ended the connection"),
        ("WARNING", f"up: {RAM_CACHE_UNSEEN}"),  # it answers no trial
        ("WARNING", "down: ended the connection"),
    ]


def test_the_log_says_once_what_fails_beside_the_upstreams_and_that_it_works_again(
    fake: FakeUpstream, second_fake: FakeUpstream, mini: toktier.Tokenizer, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO, LOG.name)
    path = tmp_path / "requests.db"
    path.mkdir()
    nobody = "http://127.0.0.1:9"
    with Served(
        fake.url, second_fake.url, tokenizer=mini, records=path, embedding=nobody, health_seconds=0.05
    ) as served:
        begins = f"records: {path}: "
        served.until(lambda: any(line.startswith(begins) for line in caplog.messages))
        path.rmdir()
        assert served.router.records is not None
        assert served.router.records.flush(PATIENCE)  # else it tries again when it will
        served.until(lambda: "records: nothing is wrong any more" in caplog.messages)
    assert sum(line.startswith(begins) for line in caplog.messages) == 1
    assert sum(line.startswith("embeddings: prompts are compared by hashed n-grams") for line in caplog.messages) == 1


@pytest.mark.parametrize("path", ROUTES)
def test_a_request_of_which_no_byte_was_answered_goes_to_another_upstream(
    start_llama: Callable[..., LlamaServer], llama: LlamaServer, mini: toktier.Tokenizer, path: str
) -> None:
    dying = start_llama()
    with Served(dying.url, llama.url, tokenizer=mini) as served:
        assert served.ask(path, body_of(path)).facts.upstream == 0
        dying.kill()
        answered = served.ask(path, body_of(path))
        assert (answered.status, answered.facts.upstream, answered.facts.outcome) == (200, 1, Outcome.DONE)
        assert (answered.facts.measured, answered.facts.predicted, answered.facts.stale) == (0, 0, False)
        assert [row["state"] for row in served.upstream_rows()] == ["down", "up"]
        assert len(served.requests) == 2
        assert served.client.get("/health").json() == {"status": "ok", "upstreams": 2, "up": 1}
        again = served.ask(path, body_of(path, stream=True))
        assert (again.facts.upstream, again.facts.choice) == (1, Choice.EXACT)
        assert again.facts.measured == again.facts.prompt_tokens - 1
        dying.start()
        served.call(lambda: served.router._probe(served.router.upstreams[0]))
        assert [row["state"] for row in served.upstream_rows()] == ["up", "up"]
        assert all(sure == 0 for _, _, sure in served.held(0))


def test_behind_the_first_byte_a_request_goes_nowhere_else(
    fake: FakeUpstream, second_fake: FakeUpstream, mini: toktier.Tokenizer
) -> None:
    with Served(fake.url, second_fake.url, tokenizer=mini) as served:

        async def cut() -> None:
            return

        fake.answers["/completion"] = stream({"content": "a", "tokens": [1], "stop": False}, then=cut)
        before = len(second_fake.seen)
        with served.streaming("/completion", body_of("/completion")) as one:
            first, last = one.events()
        assert first == {"content": "a", "tokens": [1], "stop": False}
        assert last["error"]["code"] == "no_upstream"
        assert not any(seen.path == "/completion" for seen in second_fake.seen[before:])
        served.recorded(lambda: served.requests)
        assert served.requests[0].outcome is Outcome.UPSTREAM_LOST


def test_where_both_are_lost_the_client_is_told_once_and_one_record_is_kept(
    fake: FakeUpstream, second_fake: FakeUpstream, mini: toktier.Tokenizer
) -> None:
    with Served(fake.url, second_fake.url, tokenizer=mini) as served:
        for one in (fake, second_fake):
            one.answers["/completion"] = raw()
        answered = served.ask("/completion", body_of("/completion"))
        assert (answered.status, answered.json["error"]["code"]) == (503, "no_upstream")
        assert answered.facts.outcome is Outcome.UPSTREAM_LOST
        assert len(served.requests) == 1
        served.until_settled()


def test_where_the_other_one_is_down_the_loss_of_the_first_is_told(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, "http://127.0.0.1:9", tokenizer=mini) as served:
        fake.answers["/completion"] = raw()
        answered = served.ask("/completion", body_of("/completion"))
        assert (answered.status, answered.json["error"]["code"]) == (503, "no_upstream")
        assert (answered.facts.outcome, answered.facts.upstream) == (Outcome.UPSTREAM_LOST, 0)


# Silent and broken


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
@pytest.mark.parametrize("streamed", [True, False])
def test_an_upstream_that_is_silent_for_too_long(
    fake: FakeUpstream, mini: toktier.Tokenizer, path: str, streamed: bool
) -> None:
    with Served(fake.url, tokenizer=mini, first_byte_seconds=0.2, whole_seconds=0.2) as served:
        fake.answers[path] = raw(then=forever)
        ended = fake.ended
        answered = served.ask(path, body_of(path, stream=streamed))
        assert (answered.status, answered.json["error"]["code"]) == (504, "upstream_timeout")
        assert answered.facts.outcome is Outcome.TIMED_OUT
        served.until(lambda: fake.ended > ended)
        served.until_settled()
        assert all(sure == 0 for _, _, sure in served.held())  # it may still run there


def test_a_stream_that_stalls_ends_with_an_event(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, tokenizer=mini, idle_seconds=0.3) as served:
        fake.answers["/completion"] = stream({"content": "a", "tokens": [1], "stop": False}, then=forever)
        with served.streaming("/completion", body_of("/completion")) as one:
            _, last = one.events()
        assert last["error"]["code"] == "upstream_timeout"
        served.recorded(lambda: served.requests)
        assert (served.requests[0].outcome, served.requests[0].status) == (Outcome.TIMED_OUT, 200)


BROKEN = {
    "no HTTP": raw(b"hello\r\n\r\n"),
    "no JSON": reply(b"<html>"),
    "no object": reply(b"[1, 2]"),
    "compressed": reply(b"{}", content_encoding="gzip"),
    "more than may be": reply(b'{"content": "' + b"x" * 2048 + b'"}'),
    "a stream without an end": stream({"content": "a", "tokens": [1], "stop": False}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_upstream_that_is_broken_costs_one_request(fake: FakeUpstream, mini: toktier.Tokenizer, kind: str) -> None:
    with Served(fake.url, tokenizer=mini, max_answer_bytes=1024) as served:
        fake.answers["/completion"] = BROKEN[kind]
        answered = served.ask("/completion", body_of("/completion", stream=kind == "a stream without an end"))
        if answered.status != 200:  # an answer that is none of what is expected passes, where it is an answer at all
            assert (answered.status, answered.json["error"]["code"]) == (502, "upstream_broken")
        assert answered.facts.outcome is Outcome.UPSTREAM_BROKEN
        assert answered.facts.measured is None
        served.until_settled()
        fake.answers["/completion"] = reply(completed(0, 100, 0))
        assert served.complete(A).facts.outcome is Outcome.DONE


def test_what_is_not_believed_is_in_the_log(
    fake: FakeUpstream, mini: toktier.Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toktier.router")
    with Served(fake.url, tokenizer=mini) as served:
        fake.answers["/completion"] = reply({**completed(0, 100, 0), "id_slot": "a PROMPT"})
        answered = served.complete(A)
    name = answered.facts.id
    assert f"{name}: upstream 0 said what is not believed: an id_slot that is none" in caplog.messages
    assert "PROMPT" not in caplog.text


def test_a_stream_without_end_is_cut_at_the_bound(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    event = {"content": "x" * 1000, "tokens": [1], "stop": False}
    with Served(fake.url, tokenizer=mini, max_answer_bytes=100_000) as served:
        fake.answers["/completion"] = stream(*[event] * 1000)
        with served.streaming("/completion", body_of("/completion")) as one:
            *_, last = one.events()
        assert last["error"]["code"] == "upstream_broken"
        assert len(one.body) < 110_000
        served.recorded(lambda: served.requests)
        assert served.requests[0].outcome is Outcome.UPSTREAM_BROKEN


# Of several upstreams


def test_the_models_of_all_upstreams_are_listed_once_each(
    llama: LlamaServer, llama_of_one: LlamaServer, mini: toktier.Tokenizer
) -> None:
    with Served(llama.url, tokenizer=mini) as served:
        one = served.client.get("/v1/models").json()
        assert one["data"] == llama.client.get("/v1/models").json()["data"]
    with Served(llama.url, llama_of_one.url, "http://127.0.0.1:9", tokenizer=mini) as served:
        listed = served.client.get("/v1/models")
        assert listed.headers["content-type"] == "application/json"
        assert listed.json()["object"] == "list"
        assert [model["id"] for model in listed.json()["data"]] == [llama.alias, llama_of_one.alias]
