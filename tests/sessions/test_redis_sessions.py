"""Sessions and look-ups with `store="redis://..."`, as a user meets them: the ids are those of the reference."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Reference

import toktier
from tests.sessions.redis_process import RedisProcess
from tests.support.planted import MINI
from toktier.errors import BackendUnavailable, SessionRevisionConflict

PARTS = ["There were 14 boats ", "on the beach.\n", "user: hello\r\n", "  assistant: é\u0301 🦜 " * 900, "x"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[RedisProcess]:
    one = RedisProcess(tmp_path / "server", tcp=True, durable=True)
    yield one
    one.close()


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference.from_file(str(MINI))


def loaded(process: RedisProcess) -> toktier.Tokenizer:
    return toktier.load("toktier_mini", store=process.tcp_url, policy="supported", tokenizer="fast_cpu")


def test_two_clients_go_on_with_one_session(process: RedisProcess, reference: Reference) -> None:
    one, two = (loaded(process) for _ in range(2))
    text = ""
    for k, part in enumerate(PARTS):
        tokenizer = (one, two)[k % 2]
        with tokenizer.session("chat") as session:
            session.refresh()
            session.append(part)
            text += part
            assert list(session.ids) == reference.encode(text, add_special_tokens=False).ids
            assert session.revision == k + 1
    with one.session("chat") as first, two.session("chat") as second:
        first.append("more")
        with pytest.raises(SessionRevisionConflict):
            second.append("other")
        second.refresh()
        second.append("other")
    process.kill()
    process.start()
    with pickle.loads(pickle.dumps(one)).session("chat") as session:
        assert list(session.ids) == reference.encode(text + "moreother", add_special_tokens=False).ids


def test_a_prefix_that_another_client_remembered_is_found(process: RedisProcess, reference: Reference) -> None:
    text, counted = "".join(PARTS) * 3, []
    for end in (len(text) // 2, len(text) - 7, len(text)):
        tokenizer = loaded(process)
        found = tokenizer.encode(text[:end])
        assert list(found.ids) == reference.encode(text[:end], add_special_tokens=False).ids
        counted.append(tokenizer.explain()["sessions"]["lookups"])
    assert [(one["hits"], one["misses"]) for one in counted] == [(0, 1), (1, 0), (1, 0)]


def test_without_the_server_texts_are_encoded_and_named_sessions_say_so(
    process: RedisProcess, reference: Reference
) -> None:
    text = "".join(PARTS)
    tokenizer = loaded(process)
    session = tokenizer.session("chat")
    session.append("before ")
    process.kill()
    assert list(tokenizer.encode(text).ids) == reference.encode(text, add_special_tokens=False).ids
    for ask in (lambda: tokenizer.session("another"), lambda: session.append("lost")):
        with pytest.raises(BackendUnavailable) as caught:
            ask()
        assert "lost" not in str(caught.value.to_dict())
    process.start()
    session.append("after")
    assert list(session.ids) == reference.encode("before after", add_special_tokens=False).ids
