"""An embedding server that fails, in front of two upstreams: case D26. Every request is served, whatever it does.

Vectors choose between upstreams where no slot holds a prefix, and are no reason to wait for long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, Handler, fake_beside, forever, raw, reply
from tests.router.served_router import Served
from tests.support.llama_server import LlamaServer
from toktier.router.vocabulary import Outcome

DIMS = 4


def vectors(rows: list[Any]) -> Handler:
    return reply({"object": "list", "data": [{"index": index, "embedding": row} for index, row in enumerate(rows)]})


@pytest.fixture
def embedder() -> Iterator[FakeUpstream]:
    with fake_beside() as fake:
        fake.answers["/v1/embeddings"] = vectors([[1.0, 0.0, 0.0, 0.0]])
        yield fake


@pytest.fixture
def serving(
    llama: LlamaServer, llama_of_one: LlamaServer, mini: toktier.Tokenizer
) -> Callable[[str], AbstractContextManager[Served]]:
    return lambda embedding: Served(llama_of_one.url, llama.url, tokenizer=mini, embedding=embedding)


def texts(count: int) -> list[str]:
    names = (chr(65 + number) for number in range(count))
    return [f"{name} is where the text {name} begins, and none of it is shared" for name in names]


def test_d26_one_that_is_not_there_is_replaced_and_told_of(
    serving: Callable[[str], AbstractContextManager[Served]],
) -> None:
    with serving("http://127.0.0.1:9") as served:
        assert any("hashed n-grams" in sentence for sentence in served.stats()["missing"])
        assert all(served.complete(text).facts.outcome is Outcome.DONE for text in texts(3))


def test_a_server_is_given_the_key_that_upstreams_ask_for(
    llama: LlamaServer, llama_of_one: LlamaServer, mini: toktier.Tokenizer, embedder: FakeUpstream, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("of-the-upstreams")
    key.chmod(0o600)
    named = {"embedding": embedder.url, "embeddings_upstream": embedder.url, "upstream_api_key_file": key}
    with Served(llama_of_one.url, llama.url, tokenizer=mini, **named) as served:
        assert served.complete("a text").facts.outcome is Outcome.DONE
        assert served.post("/v1/embeddings", {"input": "a text"}).status_code == 200
    assert len(embedder.seen) == 3  # the length of its vectors, a prompt, what the client asked
    assert {seen.headers["authorization"] for seen in embedder.seen} == {"Bearer of-the-upstreams"}


FAILURES: dict[str, Handler] = {
    "error": reply({"error": {"code": 500, "message": "no"}}, 500),
    "garbage": reply(b"<html>"),
    "another shape": reply({"data": 3}),
    "no vector": vectors(["a text"]),
    "too short": vectors([[1.0, 0.0]]),
    "zeros": vectors([[0.0] * DIMS]),
    "not finite": reply(b'{"data": [{"index": 0, "embedding": [1e999, NaN, 0, 0]}]}'),
    "too many": vectors([[1.0] * DIMS] * 100),
    "closed": raw(),
    "redirect": reply(b"", 307, location="http://127.0.0.1:9/"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_d26_one_that_answers_with_what_is_no_vector(
    serving: Callable[[str], AbstractContextManager[Served]], embedder: FakeUpstream, kind: str
) -> None:
    with serving(embedder.url) as served:
        assert not any("embed" in sentence for sentence in served.stats()["missing"])
        embedder.answers["/v1/embeddings"] = FAILURES[kind]
        answers = [served.complete(text) for text in texts(6)]
        assert all(one.facts.outcome is Outcome.DONE and one.facts.reuse == "miss" for one in answers)
        guarded = served.router._embedder
        assert guarded is not None
        if kind != "too many":  # the vectors that were asked for are among them
            assert guarded.embedder.failed >= 1
            assert any("hash of the prompt" in sentence for sentence in served.stats()["missing"])
        # What begins as one before is found by its IDs: no vector is asked for.
        seen = len(embedder.seen)
        assert served.complete(texts(6)[-1] + ", and goes on").facts.reuse == "hit"
        assert len(embedder.seen) == seen


def test_d26_one_that_hangs_is_left_alone_after_a_while(
    serving: Callable[[str], AbstractContextManager[Served]], embedder: FakeUpstream
) -> None:
    with serving(embedder.url) as served:
        embedder.answers["/v1/embeddings"] = raw(then=forever)
        seen = len(embedder.seen)
        assert all(served.complete(text).facts.outcome is Outcome.DONE for text in texts(12))
        assert 1 <= len(embedder.seen) - seen < 6
        served.until_settled()


def test_d26_a_prompt_longer_than_its_window_is_sent_in_pieces_that_overlap(
    serving: Callable[[str], AbstractContextManager[Served]], embedder: FakeUpstream
) -> None:
    def counted(seen: Any, writer: Any) -> Any:
        rows = [[1.0, float(index), 0.0, 0.0] for index, _ in enumerate(seen.json["input"])]
        return vectors(rows)(seen, writer)

    with serving(embedder.url) as served:
        guarded = served.router._embedder
        assert guarded is not None
        guarded.embedder._embedder._timeout = 180.0  # half a second is short where others use the host
        embedder.answers["/v1/embeddings"] = counted
        text = " ".join(f"word{number}" for number in range(400))
        assert served.complete(text).facts.outcome is Outcome.DONE
        pieces = embedder.seen[-1].json["input"]
        assert len(pieces) == math.ceil((len(text) - 200) / 800)
        assert all(len(piece) <= 1000 for piece in pieces)
        assert all(one[-200:] == other[:200] for one, other in itertools.pairwise(pieces))
        assert (guarded.embedder.embedded, guarded.embedder.failed) == (1, 0)


def test_d26_token_ids_without_text_are_served_without_it(
    serving: Callable[[str], AbstractContextManager[Served]], embedder: FakeUpstream
) -> None:
    with serving(embedder.url) as served:
        seen = len(embedder.seen)
        assert served.complete(list(range(100, 160))).facts.outcome is Outcome.DONE
        assert len(embedder.seen) == seen
