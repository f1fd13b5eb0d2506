"""What is refused, through the whole router: cases D15, D16, D20 and D28, and more requests than may run.

An error of the upstream reaches the client byte for byte, and the slot table is as before.
"""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, completed, forever, raw, reply
from tests.router.running import Raw, parsed
from tests.router.served_router import Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.errors import ConfigInvalid
from toktier.router.settings import ServeSettings
from toktier.router.slotless_routes import MAX_PIECES
from toktier.router.vocabulary import Outcome

A = tokens(1, 100)


@pytest.fixture
def served(llama: LlamaServer, mini: toktier.Tokenizer) -> Iterator[Served]:
    with Served(llama.url, tokenizer=mini) as served:
        yield served


# D15, D16


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
def test_d15_a_prompt_beyond_the_context_is_refused_in_the_servers_words(
    served: Served, llama: LlamaServer, path: str, stream: bool
) -> None:
    served.complete(A)
    before = served.held()
    body: dict[str, Any] = {"stream": stream, "temperature": 0}
    if path == "/v1/chat/completions":
        body["messages"] = [{"role": "user", "content": "word " * 3000}]
    else:
        body["prompt"] = tokens(2, 3000)
    answered = served.ask(path, body)
    assert answered.status == 400
    assert answered.json["error"]["type"] == "exceed_context_size_error"
    direct = llama.client.post(path, json={**body, "id_slot": answered.facts.slot})
    assert answered.response.content == direct.content
    assert answered.response.headers["content-type"] == direct.headers["content-type"]
    assert (answered.facts.outcome, answered.facts.status) == (Outcome.REFUSED_UPSTREAM, 400)
    assert (answered.facts.measured, answered.facts.stale) == (None, False)
    assert served.held() == before
    assert served.complete(A).counts == (99, 1)


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_d16_an_empty_prompt_is_refused_in_the_servers_words(served: Served, llama: LlamaServer, path: str) -> None:
    served.complete(A)
    before = served.held()
    answered = served.ask(path, {"prompt": []})
    direct = llama.client.post(path, json={"prompt": []})
    assert (answered.status, answered.response.content) == (direct.status_code, direct.content)
    assert answered.status == 400
    assert answered.json["error"]["type"] == "invalid_request_error"
    assert answered.facts.outcome is Outcome.REFUSED_UPSTREAM
    assert served.held() == before


@pytest.mark.parametrize("prompt", ["", [[]], [""], ["", 1]], ids=repr)
@pytest.mark.parametrize("native", [True, False])
def test_d16_what_has_no_token_is_answered_as_the_server_answers_it(
    served: Served, llama: LlamaServer, native: bool, prompt: Any
) -> None:
    path = "/completion" if native else "/v1/completions"
    body = {"prompt": prompt, "n_predict": 4, "max_tokens": 4, "temperature": 0}
    answered = served.ask(path, body)
    direct = llama.client.post(path, json=body)
    assert answered.status == direct.status_code
    assert answered.facts.outcome is (Outcome.DONE if answered.status == 200 else Outcome.REFUSED_UPSTREAM)
    assert served.complete(A).facts.stale is False


@pytest.mark.parametrize(
    "more",
    [{"grammar": "root ::= ("}, {"temperature": "hot"}, {"logit_bias": 3}, {"json_schema": {"type": "nothing"}}],
    ids=lambda more: next(iter(more)),
)
@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
def test_what_else_the_server_refuses_is_told_in_its_words(
    served: Served, llama: LlamaServer, path: str, more: dict[str, Any]
) -> None:
    served.complete(A)
    before = served.held()
    body = {"prompt": A, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, **more}
    direct = llama.client.post(path, json=body)
    answered = served.ask(path, body)
    assert answered.status == direct.status_code
    if direct.status_code != 200:
        assert answered.response.content == direct.content
        assert answered.facts.outcome is Outcome.REFUSED_UPSTREAM
        assert answered.facts.measured is None
        assert served.held() == before
    assert served.complete(A).facts.stale is False


# D20


def test_d20_embeddings_are_refused_where_no_server_is_for_them(served: Served, llama: LlamaServer) -> None:
    answered = served.complete(A)
    refused = served.post("/v1/embeddings", {"input": "a text"})
    assert refused.status_code == 501
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("unsupported", "invalid_request_error")
    assert "--embeddings-upstream" in error["remedy"]
    assert served.complete(A).counts == (99, 1)
    assert answered.facts.slot is not None
    assert len(served.requests) == 2


def test_d20_a_server_of_their_own_answers_embeddings_and_no_slot_is_lost(
    start_llama: Callable[..., LlamaServer], llama: LlamaServer, mini: toktier.Tokenizer
) -> None:
    embedder = start_llama("--embeddings", "--pooling", "mean", "--parallel", "1")
    with Served(llama.url, tokenizer=mini, embeddings_upstream=embedder.url) as served:
        served.complete(A)
        for body in ({"input": "one text"}, {"input": ["one", "another"], "encoding_format": "base64"}):
            passed, direct = served.post("/v1/embeddings", body), embedder.client.post("/v1/embeddings", json=body)
            assert (passed.status_code, passed.content) == (200, direct.content)
            assert passed.headers["content-type"] == direct.headers["content-type"]
        wrong, direct = served.post("/v1/embeddings", {}), embedder.client.post("/v1/embeddings", json={})
        assert (wrong.status_code, wrong.content) == (direct.status_code, direct.content)
        assert served.complete(A).counts == (99, 1)
        embedder.kill()
        lost = served.post("/v1/embeddings", {"input": "one text"})
        assert lost.status_code == 503
        assert lost.json()["error"]["code"] == "no_upstream"
        assert served.complete(A).counts == (99, 1)


def test_d20_a_server_that_generates_is_not_taken_for_embeddings(llama: LlamaServer) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        ServeSettings(upstreams=(llama.url,), embeddings_upstream=llama.url)
    assert caught.value.remedy is not None
    assert "--embeddings" in caught.value.remedy


def test_pieces_of_a_long_text_are_made_beside_the_loop_and_of_a_longer_one_refused(
    fake: FakeUpstream, mini: toktier.Tokenizer
) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        for text in ("a few words", "many words " * 5000):  # of these the second is not for the loop
            ids = mini.encode(text, add_special_tokens=False).ids
            tokens = served.post("/tokenize", {"content": text, "with_pieces": True}).json()["tokens"]
            assert [token["id"] for token in tokens] == ids
            assert "".join(token["piece"] for token in tokens) == text
            assert served.post("/tokenize", {"content": text}).json()["tokens"] == ids
        long = "a b " * (MAX_PIECES // 2)
        refused = served.post("/tokenize", {"content": long, "with_pieces": True})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "with_pieces")
        assert len(served.post("/tokenize", {"content": long}).json()["tokens"]) > MAX_PIECES


def test_a_client_that_goes_away_while_it_sends_is_no_fault_and_is_refused_nothing(
    fake: FakeUpstream, mini: toktier.Tokenizer
) -> None:
    with Served(fake.url, tokenizer=mini) as served:
        for path in ("/v1/completions", "/tokenize", "/v1/embeddings"):
            with socket.create_connection(("127.0.0.1", httpx.URL(served.url).port)) as client:
                head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                client.sendall(f"{head}content-length: 4000000\r\n\r\n".encode() + b" " * 400_000)
                served.until(lambda: served.app.counters()["running"] == 1)
            served.until(lambda: served.app.counters()["running"] == 0)
        assert served.app.counters()["faults"] == 0
        assert not any(served.stats()["refused"].values())


# D28

PROTECTED = [
    *[("POST", path) for path in ("/completion", "/v1/completions", "/v1/chat/completions", "/v1/embeddings")],
    ("POST", "/tokenize"),
    *[("GET", path) for path in ("/v1/models", "/metrics", "/toktier/stats", "/toktier/slots", "/openapi.json")],
    ("POST", "/health"),
    ("GET", "/nothing"),
]


def test_d28_without_a_key_nothing_is_forwarded(fake: FakeUpstream, mini: toktier.Tokenizer, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-sixteen-characters\nanother-key-of-sixteen\n")
    keys.chmod(0o600)
    fake.answers["/completion"] = reply(completed(0, 100, 0))
    wrong: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer a-key-of-sixteen-character"},
        {"authorization": "Basic a-key-of-sixteen-characters"},
        {"x-api-key": "a-key-of-sixteen-characters"},
    ]
    with Served(fake.url, tokenizer=mini, api_key_file=keys) as served:
        before = len(fake.seen)
        for (method, path), headers in itertools.product(PROTECTED, wrong):
            refused = served.client.request(method, path, headers=headers, json={"prompt": A, "messages": []})
            assert refused.status_code == 401, (method, path)
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert refused.headers["www-authenticate"].startswith("Bearer")
        assert len(fake.seen) == before
        assert served.requests == []
        assert served.client.get("/health").status_code == 200
        assert [served.client.head(path).status_code for path in ("/health", "/", "/toktier")] == [200, 200, 200]
        assert served.client.get("/toktier").status_code == 200
        good = {"authorization": "Bearer another-key-of-sixteen"}
        assert served.client.post("/completion", headers=good, json={"prompt": A}).status_code == 200
        assert "authorization" not in fake.seen[-1].headers
        served.recorded(lambda: served.requests)
        stats = served.client.get("/toktier/stats", headers=good).json()
        assert (stats["requests"], stats["guards"]["refused_invalid_api_key"]) == (1, len(PROTECTED) * len(wrong))


# What is not the router's


def test_no_other_route_of_a_llama_server_is_reached(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    paths = ["/slots", "/slots/0?action=erase", "/props", "/infill", "/v1/messages", "/apply-template", "/embedding"]
    paths += ["/v1/rerank", "/lora-adapters", "/detokenize", "/models/load", "/v1/completions/", "/v1/../slots"]
    paths += ["//slots", "/v1/%2e%2e/slots", "/completion%00", "/v1/completions/..%2f..%2fslots", "/COMPLETION"]
    with Served(fake.url, tokenizer=mini) as served:
        before = len(fake.seen)
        for method, path in itertools.product(("GET", "POST"), paths):
            # As it is: a client library would mend some of them.
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"
            with Raw(int(served.url.rpartition(":")[2]), head.encode() + b"{}") as connection:
                status, _, body = parsed(connection.rest())
            assert status in (400, 404, 405), path
            assert json.loads(body)["error"]["code"] in ("not_found", "method_not_allowed", "bad_target"), path
        assert len(fake.seen) == before
        assert served.requests == []


def test_nothing_but_the_body_goes_up(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    headers = {"x-forwarded-for": "10.0.0.1", "cookie": "a=b", "authorization": "Bearer of-somebody", "x-secret": "c"}
    with Served(fake.url, tokenizer=mini) as served:
        fake.answers["/completion"] = reply(completed(0, 100, 0), set_cookie="a=b", server="fake", x_own="1")
        answer = served.client.post("/completion?slot=3&action=erase", headers=headers, json={"prompt": A})
        assert answer.status_code == 200
        seen = fake.seen[-1]
        assert seen.path == "/completion"
        assert set(seen.headers) <= {
            *("host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length")
        }
        assert not {"set-cookie", "server", "x-own"} & set(answer.headers)


# More than may run


def test_more_requests_than_may_run_are_told_to_come_again(fake: FakeUpstream, mini: toktier.Tokenizer) -> None:
    with Served(fake.url, tokenizer=mini, max_concurrent=1, max_queued=0) as served:
        fake.answers["/completion"] = raw(then=forever)
        with served.begin("/completion", {"prompt": A}):
            served.until(lambda: fake.seen[-1].path == "/completion" and fake.seen[-1].json["prompt"] == A)
            before = len(fake.seen)
            refused = served.post("/v1/completions", {"prompt": A})
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["code"] == "overloaded"
            assert len(fake.seen) == before
            assert served.client.get("/health").status_code == 200
        served.until(lambda: served.stats()["guards"]["running"] == 0)
        fake.answers["/completion"] = reply(completed(0, 100, 0))
        assert served.complete(A).status == 200
        served.until(lambda: served.stats()["guards"]["running"] == 0)
        guards = served.stats()["guards"]
        assert (guards["rejected"], guards["refused_overloaded"], guards["running"]) == (1, 1, 0)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"prompt": 3}', b"{}", b'{"prompt": [1, -1]}', b'{"prompt": "a", "n": 0}']
)
def test_a_body_that_is_none_is_refused_here(served: Served, llama: LlamaServer, body: bytes) -> None:
    tasks = [slot.get("id_task") for slot in llama.slots()]
    for path in ("/completion", "/v1/completions", "/v1/chat/completions"):
        refused = served.client.post(path, content=body, headers={"content-type": "application/json"})
        assert refused.status_code == 400
        assert set(refused.json()["error"]) >= {"message", "type", "code"}
    assert served.requests == []
    assert [slot.get("id_task") for slot in llama.slots()] == tasks
    assert sum(served.stats()["outcome"].values()) == 0


def test_the_answer_is_a_document_even_where_no_upstream_is(
    mini: toktier.Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toktier.router")
    with Served("http://127.0.0.1:9", tokenizer=mini) as served:
        for path in ("/completion", "/v1/completions", "/v1/chat/completions"):
            refused: httpx.Response = served.post(path, {"prompt": A, "messages": [{"role": "user", "content": "a"}]})
            assert refused.status_code == 503
            assert json.loads(refused.content)["error"]["code"] == "no_upstream"
            assert int(refused.headers["retry-after"]) >= 1
        assert served.client.get("/health").status_code == 503
        assert served.client.get("/v1/models").status_code == 503
        assert served.post("/tokenize", {"content": "hello"}).json()["tokens"] == mini.encode("hello").ids
        assert served.client.get("/props").status_code == 404
    refused_as = [line.partition(" refused: ")[2] for line in caplog.messages if " refused: " in line]
    assert refused_as == ["no_upstream"] * 5 + ["not_found"]
