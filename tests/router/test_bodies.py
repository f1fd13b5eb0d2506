"""What a client's body becomes: what goes up, what is refused, and what cannot be pinned to a slot."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.errors import RequestInvalid
from toktier.router import bodies
from toktier.router.bodies import OWNED, Cut, read_chat, read_completion, read_tokenize
from toktier.router.vocabulary import Unrouted

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
READ = {"stream", "cache_prompt", "verbose", "return_tokens", "n", "n_cmpl", "n_cache_reuse", "lora", "image_data"}
TAKEN = {*OWNED, *READ, "prompt", "messages"}
OTHERS = st.dictionaries(st.text().filter(lambda name: name not in TAKEN), JSON, max_size=6)
IDS = np.array([1, 2, 3], dtype=np.uint32)


def by_code_point(text: str, add_special: bool) -> np.ndarray:
    return np.array([7] * add_special + [ord(c) for c in text], dtype=np.uint32)


def body_of(**members: Any) -> bytes:
    return json.dumps(members).encode()


@settings(deadline=None)
@given(others=OTHERS, slot=st.none() | st.integers(0, 4095), native=st.booleans(), stream=st.booleans())
def test_law_every_member_that_is_not_the_routers_goes_up_as_it_came(
    others: dict[str, Any], slot: int | None, native: bool, stream: bool
) -> None:
    request = read_completion(body_of(prompt="a", stream=stream, **others), native)
    up = json.loads(request.upstream_body(IDS, slot))
    assert {name: value for name, value in up.items() if name not in {*OWNED, "prompt", "stream"}} == others
    assert up["prompt"] == [1, 2, 3]
    assert up["cache_prompt"] is True
    assert up["n_cache_reuse"] == 0
    assert up.get("id_slot") == slot
    assert up["stream"] is stream


@settings(deadline=None)
@given(others=OTHERS, text=st.text())
def test_law_a_chat_goes_up_as_it_came(others: dict[str, Any], text: str) -> None:
    messages = [{"role": "user", "content": text}]
    request = read_chat(body_of(messages=messages, **others))
    assert json.loads(request.template_body()) == {"messages": messages, **others}
    up = json.loads(request.upstream_body(2))
    assert {name: value for name, value in up.items() if name not in OWNED} == {"messages": messages, **others}
    assert (up["id_slot"], up["verbose"], up["return_tokens"]) == (2, True, True)


@pytest.mark.parametrize("member", OWNED)
def test_what_the_router_owns_is_never_the_clients(member: str) -> None:
    sent = {"id_slot": 9, "cache_prompt": False, "return_tokens": True, "verbose": True, "n_cache_reuse": 0}
    request = read_completion(body_of(prompt=[1], **{member: sent[member]}), False)
    up = request.upstream_body(IDS, 3)
    assert up.count(b'"id_slot":') == 1
    assert json.loads(up)["id_slot"] == 3
    assert b'"n_cache_reuse":0' in up


def test_a_key_that_comes_twice_counts_as_the_last_and_goes_up_once() -> None:
    request = read_completion(b'{"prompt":"first","id_slot":1,"prompt":"last","id_slot":2,"x":1,"x":2}', True)
    assert request.prompt == ("last",)
    up = request.upstream_body(None, 0)
    assert up.count(b'"prompt"') == up.count(b'"x"') == up.count(b'"id_slot"') == 1
    assert json.loads(up)["x"] == 2
    assert json.loads(up)["prompt"] == "last"


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [7, 97, 98]),
        ("", [7]),
        ([5, 6], [5, 6]),
        ([[5, 6]], [5, 6]),
        (["ab"], [7, 97, 98]),
        ({"prompt_string": "ab"}, [7, 97, 98]),
        ([{"prompt_string": "ab", "multimodal_data": []}], [7, 97, 98]),
        (["a", 5, "b", 6, 8], [7, 97, 5, 98, 6, 8]),
        ([5, "a", "b"], [5, 97, 98]),
        ([["a", 5]], [7, 97, 5]),
        ([2**31 - 1], [2**31 - 1]),
        ([], []),
    ],
)
def test_one_prompt_in_every_form_that_llama_server_takes(prompt: Any, ids: list[int]) -> None:
    request = read_completion(body_of(prompt=prompt), True)
    assert request.unrouted is None
    found = request.ids(by_code_point)
    assert found.dtype == np.uint32
    assert found.tolist() == ids
    assert json.loads(request.upstream_body(None, 0))["prompt"] == prompt
    assert json.loads(request.upstream_body(found, 0))["prompt"] == ids


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"prompt": ["a", "b"]}, Unrouted.SEVERAL_PROMPTS),
        ({"prompt": [[1], [2]]}, Unrouted.SEVERAL_PROMPTS),
        ({"prompt": ["a", [1, 2]]}, Unrouted.SEVERAL_PROMPTS),
        ({"prompt": [["a", 1], {"prompt_string": "b"}]}, Unrouted.SEVERAL_PROMPTS),
        ({"prompt": "a", "n": 2}, Unrouted.SEVERAL_CHOICES),
        ({"prompt": "a", "n_cmpl": 3, "n": 1}, Unrouted.SEVERAL_CHOICES),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["AA=="]}}, Unrouted.MEDIA),
        ({"prompt": "a", "image_data": [{"id": 1, "data": "AA=="}]}, Unrouted.MEDIA),
        ({"prompt": "a", "lora": [{"id": 0, "scale": 1}]}, Unrouted.ADAPTER),
        ({"prompt": "a", "lora": []}, Unrouted.ADAPTER),
    ],
)
def test_what_cannot_be_pinned_goes_up_without_a_slot_and_nothing_is_cut_out(
    members: dict[str, Any], why: Unrouted
) -> None:
    request = read_completion(body_of(**members, id_slot=1), False)
    assert request.unrouted is why
    assert request.prompt == ()
    assert request.cut == Cut()
    up = json.loads(request.upstream_body(None, None))
    assert up == {**members, "cache_prompt": True, "n_cache_reuse": 0}
    assert json.loads(request.upstream_body(None, 3)) == up


@pytest.mark.parametrize("members", [{"n": 1}, {"n": None}, {"n_cmpl": 1}, {"lora": None}, {"image_data": []}, {}])
def test_what_says_nothing_leaves_a_request_routed(members: dict[str, Any]) -> None:
    assert read_completion(body_of(prompt="a", **members), True).unrouted is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b'"text"',
        b"\xff{}",
        b'{"prompt":"\xed\xa0\x80"}',
        b'{"prompt":"\\ud800"}',
        b'{"prompt":NaN}',
        b'{"x":1}',
        b'{"prompt":null}',
        b'{"prompt":1}',
        b'{"prompt":true}',
        b'{"prompt":[true]}',
        b'{"prompt":[1,true]}',
        b'{"prompt":[1.0]}',
        b'{"prompt":[-1]}',
        b'{"prompt":[2147483648]}',
        b'{"prompt":[4294967296]}',
        b'{"prompt":[18446744073709551616]}',
        b'{"prompt":[[1],[[2]]]}',
        b'{"prompt":[["a","b"]]}',
        b'{"prompt":[["a","b"],[1]]}',
        b'{"prompt":["a",1,[2]]}',
        b'{"prompt":[1,{"prompt_string":"a"}]}',
        b'{"prompt":{"prompt_string":1}}',
        b'{"prompt":{}}',
        b'{"prompt":"a","stream":"true"}',
        b'{"prompt":"a","stream":1}',
        b'{"prompt":"a","cache_prompt":0}',
        b'{"prompt":"a","verbose":"yes"}',
        b'{"prompt":"a","return_tokens":[]}',
        b'{"prompt":"a","n":0}',
        b'{"prompt":"a","n":"2"}',
        b'{"prompt":"a","n":2.0}',
        b'{"prompt":"a","n":true}',
        b'{"prompt":"a","n_cmpl":-1}',
        b'{"prompt":"a","n_cache_reuse":16}',
        b'{"prompt":"a","n_cache_reuse":true}',
        b'{"prompt":"a","x":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt":"a"}{"prompt":"b"}',
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_what_is_no_request_is_refused_with_a_remedy(body: bytes) -> None:
    for native in (False, True):
        with pytest.raises(RequestInvalid) as caught:
            read_completion(body, native)
        assert caught.value.remedy
        assert "Traceback" not in str(caught.value)


def test_a_refusal_holds_no_text_of_the_body() -> None:
    with pytest.raises(RequestInvalid) as caught:
        read_completion(b'{"prompt":"a secret that nobody logs" x}', True)
    assert "secret" not in str(caught.value.to_dict())


@pytest.mark.parametrize(
    ("native", "members", "cut", "up"),
    [
        (False, {}, Cut(verbose=True), {"verbose": True, "return_tokens": True}),
        (False, {"stream": True}, Cut(verbose=True), {"verbose": True, "return_tokens": True}),
        (False, {"verbose": True}, Cut(), {"verbose": True}),
        (False, {"verbose": True, "return_tokens": True}, Cut(), {"verbose": True, "return_tokens": True}),
        (False, {"return_tokens": True}, Cut(verbose=True), {"verbose": True, "return_tokens": True}),
        (True, {}, Cut(tokens=True), {"return_tokens": True}),
        (True, {"return_tokens": True}, Cut(), {"return_tokens": True}),
        (True, {"stream": True}, Cut(), {}),
        (True, {"verbose": True}, Cut(tokens=True), {"verbose": True, "return_tokens": True}),
    ],
)
def test_the_answer_is_asked_for_what_the_router_needs_and_cut_by_what_the_client_did_not_ask(
    native: bool, members: dict[str, Any], cut: Cut, up: dict[str, bool]
) -> None:
    request = read_completion(body_of(prompt="a", **members), native)
    assert request.cut == cut
    sent = json.loads(request.upstream_body(IDS, 0))
    assert {name: sent[name] for name in ("verbose", "return_tokens") if name in sent} == up


@pytest.mark.parametrize("read", [lambda b: read_completion(b, False), read_chat], ids=["completion", "chat"])
def test_a_client_that_wants_no_prefix_reused_is_heard(read: Any) -> None:
    request = read(body_of(prompt="a", messages=[], cache_prompt=False))
    assert not request.cache
    assert (
        json.loads(request.upstream_body(None, 0) if hasattr(request, "prompt") else request.upstream_body(0))[
            "cache_prompt"
        ]
        is False
    )


@pytest.mark.parametrize(
    ("content", "unrouted"),
    [
        ("text", None),
        (None, None),
        ([{"type": "text", "text": "a"}], None),
        ([], None),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}], Unrouted.MEDIA),
        ([{"type": "input_audio", "input_audio": {}}], Unrouted.MEDIA),
        ([{"type": "of_tomorrow"}], Unrouted.MEDIA),
        (["a"], Unrouted.MEDIA),
    ],
)
def test_media_in_a_chat(content: Any, unrouted: Unrouted | None) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": content}]
    assert read_chat(body_of(messages=messages)).unrouted is unrouted


@pytest.mark.parametrize("body", [b"{}", b'{"messages":"a"}', b'{"messages":null}', b'{"messages":[],"stream":2}'])
def test_what_is_no_chat_is_refused(body: bytes) -> None:
    with pytest.raises(RequestInvalid):
        read_chat(body)


def test_texts_of_a_chat_are_changed_and_nothing_else() -> None:
    messages = [
        {"role": "system", "content": "one", "name": "text"},
        {"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "three", "x": 1}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "four"}}]},
        "no message",
    ]
    request = read_chat(body_of(messages=messages, seed=2**63, model="text"))
    changed = json.loads(request.with_texts(str.upper).template_body())
    expected = json.loads(json.dumps(messages).replace('"one"', '"ONE"').replace('"two"', '"TWO"'))
    expected[1]["content"][1]["text"] = "THREE"
    assert changed == {"messages": expected, "seed": 2**63, "model": "text"}
    assert json.loads(request.template_body())["messages"] == messages


def test_no_request_shows_its_text() -> None:
    secret = "a secret"
    for request in (read_completion(body_of(prompt=secret), True), read_chat(body_of(messages=[{"content": secret}]))):
        assert secret not in repr(request)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"content": "ab"}, (("ab",), False, True, False)),
        (
            {"content": "ab", "add_special": True, "parse_special": False, "with_pieces": True},
            (("ab",), True, False, True),
        ),
        ({}, (("",), False, True, False)),
        ({"content": []}, ((), False, True, False)),
    ],
)
def test_what_is_to_be_tokenized(members: dict[str, Any], expected: tuple[Any, ...]) -> None:
    request = read_tokenize(body_of(**members))
    assert (request.content, request.add_special, request.parse_special, request.with_pieces) == expected


def test_what_is_to_be_tokenized_may_be_text_and_ids() -> None:
    first, ids, last = read_tokenize(body_of(content=["a", 1, 2, "b"])).content
    assert (first, last) == ("a", "b")
    assert np.asarray(ids).tolist() == [1, 2]


@pytest.mark.parametrize("content", [1, None, {"a": 1}, [["a"]], [True]])
def test_what_cannot_be_tokenized_is_refused(content: Any) -> None:
    with pytest.raises(RequestInvalid):
        read_tokenize(body_of(content=content))


@pytest.mark.parametrize(
    ("members", "limit"),
    [
        ({}, None),
        ({"n_predict": -1}, None),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "n_predict": 5}, 5),
        ({"max_completion_tokens": 0}, 0),
        ({"max_tokens": "7"}, None),
        ({"max_tokens": True}, None),
    ],
)
def test_the_limit_of_generated_tokens_is_the_least_that_is_named(members: dict[str, Any], limit: int | None) -> None:
    assert read_completion(json.dumps({"prompt": "a", **members}).encode(), native=True).limit == limit
    assert read_chat(json.dumps({"messages": [], **members}).encode()).limit == limit


# Bodies that take long to read


M = bodies.MAX_VALUES


@pytest.mark.parametrize("read", [lambda body: read_completion(body, True), read_chat, read_tokenize], ids=range(3))
@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":[' + b"[]," * M + b"[]]}",
        b'{"prompt":[' + b"1," * M + b"1]}",
        b'{"messages":[],"x":[' + b"{}," * M + b"{}]}",
        b'{"x":[' + b'"",' * M + b'""]}',
        b"[" * (M + 1),
        b'["' + b'\\",' * M,
    ],
    ids=["lists", "ids", "objects", "texts", "levels", "a-text-without-end"],
)
def test_a_body_of_too_many_values_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[bytes], object], body: bytes
) -> None:
    monkeypatch.setattr(orjson, "loads", None)
    with pytest.raises(RequestInvalid, match="more than 2,097,152 values"):
        read(body)


@pytest.mark.parametrize(
    "text", [", [{" * M, "[" * M + "\\\n" * 9, ',"' * 9 + ", ," * M], ids=["marks", "open", "quotes"]
)
def test_what_stands_in_a_text_is_no_value(text: str) -> None:
    request = read_completion(orjson.dumps({"prompt": text}), native=True)
    assert request.prompt == (text,)


def test_a_prompt_of_a_million_ids_is_one() -> None:
    request = read_completion(b'{"prompt":[' + b"1," * 999_999 + b"1]}", native=True)
    assert len(request.prompt[0]) == 1_000_000
