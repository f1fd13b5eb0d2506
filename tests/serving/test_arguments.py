"""Arguments that are no such thing: refused at the call, as `encode` refuses them, and nothing stays counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from toktier import Tokenizer
from toktier.errors import ConfigInvalid
from toktier.serving import Batcher, Limits

NO_FLAGS = ["no", None, 0, 2, 0.5, [], "False"]
WAYS = {
    "inline": Limits(),
    "queued": Limits(inline_bytes=0),
    "beside": Limits(inline_bytes=0, max_batch_bytes=1),
}
NOTHING = {"queued": 0, "texts": 0, "bytes": 0}


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(TypeError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("flag", ["add_special_tokens", "plain"])
@pytest.mark.parametrize("way", WAYS)
def test_a_flag_that_is_none_is_refused_as_encode_refuses_it(tok: Tokenizer, way: str, flag: str) -> None:
    with Batcher(tok, WAYS[way]) as batcher:
        for value in NO_FLAGS:
            given: dict[str, Any] = {flag: value}
            expected = refusal(lambda given=given: tok.encode("a text", **given))  # type: ignore[misc]
            for call in (
                lambda given=given: batcher.submit("a text", **given),
                lambda given=given: batcher.submit("a text", session="s", **given),
                lambda given=given: batcher.submit_batch(["a text"], **given),
                lambda given=given: asyncio.run(batcher.aencode("a text", **given)),
            ):
                assert refusal(call) == expected
        assert batcher.stats()["now"] == NOTHING


@pytest.mark.parametrize("session", [5, b"name", True, [], {}, object()], ids=lambda value: type(value).__name__)
def test_what_is_no_session_is_refused_and_takes_no_room(tok: Tokenizer, session: Any) -> None:
    expected = refusal(lambda: tok.encode("a text", session=session))
    with Batcher(tok, Limits(queue_texts=2)) as batcher:
        for _ in range(3):
            assert refusal(lambda: batcher.submit("a text", session=session)) == expected
        assert batcher.stats()["now"] == NOTHING
        assert batcher.submit("a text", session="s").result(60).ids == tok.encode("a text").ids


def test_a_batcher_is_of_an_encoder_and_of_limits(tok: Tokenizer) -> None:
    for tokenizer in (None, 5, "qwen3_8b"):
        assert "must be a Tokenizer or a PrefixCache" in refusal(lambda t=tokenizer: Batcher(t))  # type: ignore[misc]
    for limits in ({}, 0, 5, {"max_batch": 5}):
        assert "limits must be Limits" in refusal(lambda given=limits: Batcher(tok, given))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("max_batch", 0, "max_batch is 0:"),
        ("max_wait", float("nan"), "max_wait is nan:"),
        ("queue_bytes", "64", "queue_bytes is '64':"),
        ("inline_bytes", True, "inline_bytes is True:"),
        ("queue_texts", -(10**30), "queue_texts is -1000"),
    ],
)
def test_a_limit_that_is_none_is_named_with_its_value(field: str, value: object, shown: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        Limits(**{field: value})  # type: ignore[arg-type]
    assert str(caught.value).startswith(shown)
    assert caught.value.details == {"argument": field}
