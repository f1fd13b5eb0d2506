"""Answers that are read while they pass: what reaches the client, byte for byte, and what is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toktier.router import relay
from toktier.router.bodies import Cut
from toktier.router.relay import Answer, StreamRelay, read_answer

CUT = Cut(verbose=True)
FIELDS = tuple(Answer.__slots__)
# What would be cut out of a text by who looks for the name alone.
NASTY = ('"__verbose":{"a":1}', ',"__verbose":{', "__verbose", '\\"__verbose":', '"}\n\ndata: {"', "\r\n", "}}", "é🙂")
TEXTS = st.text(max_size=12) | st.sampled_from(NASTY)


def written(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@st.composite
def events(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """One event as it comes, and as it should pass."""
    text = draw(TEXTS)
    kind = draw(st.sampled_from(["verbose", "plain", "first", "nested", "ping", "done", "blank", "error", "foreign"]))
    if kind == "ping":
        return (line := b": ping\n\n"), line
    if kind == "done":
        return (line := b"data: [DONE]\n\n"), line
    if kind == "blank":
        return b"\n", b"\n"
    if kind == "foreign":
        line = b"event: " + draw(st.binary(max_size=8)).replace(b"\n", b"") + b"\n"
        return line, line
    if kind == "error":
        line = b"data: " + written({"error": {"code": 500, "message": text, "type": "server_error"}}) + b"\n\n"
        return line, line
    members = {"choices": [{"text": text, "index": 0}], "model": text, "x": draw(st.integers(0, 9))}
    own = {
        "content": text,
        "tokens": draw(st.lists(st.integers(0, 1200), max_size=3)),
        "id_slot": -1,
        "n": {"m": [text]},
    }
    end = draw(st.sampled_from([b"\n\n", b"\r\n\r\n"]))
    if kind == "plain":
        line = b"data: " + written(members) + end
        return line, line
    if kind == "nested":
        members["timings"] = {"__verbose": 1}
    whole = [*members.items()]
    at = 0 if kind == "first" else draw(st.integers(0, len(whole)))
    whole.insert(at, ("__verbose", own))
    return b"data: " + written(dict(whole)) + end, b"data: " + written(members) + end


@settings(deadline=None)
@given(given_events=st.lists(events(), max_size=6), data=st.data())
def test_law_any_split_of_a_stream_gives_the_same_bytes_and_the_same_answer(
    given_events: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    came = b"".join(event for event, _ in given_events)
    expected = b"".join(event for _, event in given_events)
    whole = StreamRelay(CUT)
    assert whole.feed(came) + whole.finish() == expected
    cuts = sorted(data.draw(st.lists(st.integers(0, len(came)), max_size=12)))
    split = StreamRelay(CUT)
    parts = [split.feed(came[a:b]) for a, b in zip([0, *cuts], [*cuts, len(came)], strict=True)]
    assert b"".join(parts) + split.finish() == expected
    assert facts(split.answer()) == facts(whole.answer())
    untouched = StreamRelay(Cut())
    assert [untouched.feed(came[a:b]) for a, b in zip([0, *cuts], [*cuts, len(came)], strict=True)] == [
        came[a:b] for a, b in zip([0, *cuts], [*cuts, len(came)], strict=True)
    ]
    assert untouched.finish() == b""
    assert facts(untouched.answer()) == facts(whole.answer())


@settings(deadline=None)
@given(came=st.binary(max_size=200), cut=st.integers(0, 200))
@example(came=b'data: {"__verbose":1', cut=5)
@example(came=b"dat", cut=1)
@example(came=b"data\n", cut=4)
def test_law_bytes_that_are_no_events_pass_whatever_they_are(came: bytes, cut: int) -> None:
    passing = StreamRelay(CUT)
    passed = passing.feed(came[:cut]) + passing.feed(came[cut:]) + passing.finish()
    if b'"__' not in came:
        assert passed == came
    passing.answer()


def facts(answer: Answer) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in FIELDS}


def test_a_whole_event_passes_at_once_and_half_a_one_waits() -> None:
    passing = StreamRelay(CUT)
    event = b'data: {"choices":[{"text":"a"}],"__verbose":{"tokens":[5]}}\n'
    assert passing.feed(event[:-1]) == b""
    assert passing.feed(b"\n") == b'data: {"choices":[{"text":"a"}]}\n'
    assert passing.feed(b"\n") == b"\n"
    assert passing.feed(b": pi") == b": pi"
    assert passing.feed(b"ng") == b"ng"
    assert passing.answer().ids.tolist() == [5]


@pytest.mark.parametrize(
    ("rest", "passed"),
    [
        (b'data: {"choices":[],"__verbose":{"to', b'data: {"choices":[]'),
        (b'data: {"choices":[],"__ver', b'data: {"choices":[]'),
        (b'data: {"choices":[{"te', b'data: {"choices":[{"te'),
        (b"da", b"da"),
        (b": pi", b""),
    ],
)
def test_a_stream_that_ends_within_an_event_gives_no_part_of_the_member(rest: bytes, passed: bytes) -> None:
    passing = StreamRelay(CUT)
    passing.feed(rest)
    assert passing.finish() == passed
    assert not passing.answer().finished


def test_an_event_without_an_end_is_held_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_LINE", 100)
    for parts in ([b"data: " + b"x" * 90, b"x" * 10, b"y" * 50, b'y\ndata: {"a":1,"__verbose":{}}\n'],):
        passing = StreamRelay(CUT)
        out = [passing.feed(part) for part in parts]
        assert out == [b"", b"".join(parts[:2]), parts[2], b'y\ndata: {"a":1}\n']
        assert passing.answer().notes == ("an event beyond the bounds",)
    whole = StreamRelay(CUT)
    assert whole.feed(b"".join(parts)) == b"".join(out)
    assert whole.answer().notes == ("an event beyond the bounds",)


def final(**changed: Any) -> dict[str, Any]:
    timings = {"cache_n": 90, "prompt_n": 10, "prompt_ms": 12.5, "predicted_n": 3, "predicted_ms": 7}
    usage = {"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 90}}
    own = {"tokens": [4, 5, 6], "id_slot": 2, "stop": True, "stop_type": "limit", "truncated": False}
    document = {"choices": [{"text": "abc", "index": 0}], "usage": usage, "timings": timings, "__verbose": own}
    for path, value in changed.items():
        place: Any = document
        *parents, last = path.split("__in__")
        for parent in parents:
            place = place[parent]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return document


def test_an_answer_in_one_piece_says_all() -> None:
    body, answer = read_answer(written(final()), CUT)
    assert json.loads(body) == {name: value for name, value in final().items() if name != "__verbose"}
    assert facts(answer) == {
        "ids": answer.ids,
        "text": "abc",
        "unnamed": "",
        "id_slot": 2,
        "cached": 90,
        "evaluated": 10,
        "prompt_tokens": 100,
        "generated": 3,
        "prompt_ms": 12.5,
        "generated_ms": 7.0,
        "finished": True,
        "truncated": False,
        "error": None,
        "notes": (),
    }
    assert answer.ids.tolist() == [4, 5, 6]


@pytest.mark.parametrize("lie", [-1, True, "90", 1.5, [90], {}, 2**40, 1e400])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("timings__in__cache_n", "cached"),
        ("timings__in__prompt_n", "evaluated"),
        ("usage__in__prompt_tokens", "prompt_tokens"),
        ("__verbose__in__id_slot", "id_slot"),
    ],
)
def test_a_count_that_cannot_be_is_not_believed(path: str, name: str, lie: Any) -> None:
    changed = {path: lie}
    if name == "prompt_tokens":
        changed["timings__in__prompt_n"] = ...  # else it is known from the timings
    _, answer = read_answer(written(final(**changed)).replace(b"Infinity", b"1e400"), CUT)
    assert getattr(answer, name) is None
    assert answer.notes


@pytest.mark.parametrize("lie", [-0.5, True, "7", [1], 1e300])
def test_a_duration_that_cannot_be_is_not_believed(lie: Any) -> None:
    _, answer = read_answer(written(final(timings__in__prompt_ms=lie)), CUT)
    assert answer.prompt_ms is None
    assert answer.notes == ("prompt_ms is no duration",)


@pytest.mark.parametrize(
    "changed",
    [
        {"timings__in__cache_n": 100, "usage__in__prompt_tokens_details__in__cached_tokens": 100},
        {"timings__in__cache_n": 5000, "usage__in__prompt_tokens_details__in__cached_tokens": 5000},
        {"timings__in__cache_n": 80},
        {"usage__in__prompt_tokens_details__in__cached_tokens": 10},
    ],
)
def test_reuse_of_more_than_there_is_and_counts_that_contradict_are_not_believed(changed: dict[str, Any]) -> None:
    _, answer = read_answer(written(final(**changed)), CUT)
    assert answer.cached is None
    assert answer.notes


def test_what_is_not_said_is_no_lie() -> None:
    _, answer = read_answer(written({"choices": [{"text": "a"}]}), CUT)
    assert (answer.cached, answer.id_slot, answer.generated, answer.notes) == (None, None, None, ())
    _, answer = read_answer(written(final(timings=..., __verbose=...)), CUT)
    assert (answer.cached, answer.generated, answer.notes) == (90, 3, ())


@pytest.mark.parametrize("tokens", [[1, "2"], [1, -1], [2**32], [True], [1.0], "12", {"1": 2}, 7])
def test_generated_tokens_that_are_none_are_not_believed(tokens: Any) -> None:
    _, answer = read_answer(written(final(__verbose__in__tokens=tokens)), CUT)
    assert answer.ids.tolist() == []
    assert answer.notes == ("generated tokens that are no IDs",)


@pytest.mark.parametrize(
    "value",
    [
        *(1, None, "x", [], {}, {"choices": 1}, {"choices": [1]}, {"choices": [{}]}, {"choices": [{"text": 1}]}),
        *({"choices": [{"delta": 1}]}, {"choices": []}, {"usage": 1, "timings": []}, {"error": 1}, {"__verbose": 3}),
        *({"timings": {"cache_n": None}}, {"content": 5, "stop": 1}, {"usage": {"prompt_tokens_details": 2}}),
    ],
)
def test_no_form_of_an_answer_breaks_the_reader(value: Any) -> None:
    for cut in (CUT, Cut(tokens=True), Cut()):
        body, _ = read_answer(written(value), cut)
        assert json.loads(body) == ({} if value == {"__verbose": 3} and cut.verbose else value)
        passing = StreamRelay(cut)
        passing.feed(b"data: " + written(value) + b"\n\n")
        passing.answer()


def test_a_member_of_that_name_elsewhere_stays() -> None:
    tricky = b'{"a":{"__verbose":{"b":1}},"__verbose":{"c":{"__verbose":[1,"}"]}},"d":{"__verbose":2}}'
    body, _ = read_answer(tricky, CUT)
    assert body == b'{"a":{"__verbose":{"b":1}},"d":{"__verbose":2}}'
    nested = b'{"a":{"__verbose":{"b":1}}}'
    assert read_answer(nested, CUT)[0] == nested


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (b'{"a":1,', b',"timings":{"b":2}}'),
        (b"{", b',"timings":{"b":2},"c":{"d":1,"timings":5}}'),
        (b"{", b',"timings":[1,"timings"],"c":",\\"timings\\":"}'),
        (b'{"a":{"b":1,"timings":3},', b', "timings" : 4 }'),
        (b"{", ',"é\U0001f642":1}'.encode()),
        (b"{", b',"\\u00e9\\"":1,"":2}'),
        (b'{"a":1,', b',"":{"b":1,"":2}}'),
    ],
)
def test_the_member_alone_is_cut_out_whatever_is_behind_it(before: bytes, behind: bytes) -> None:
    for value in (b'{"x":{"y":1,"timings":0},"":0,"timings":{"b":2}}', b"{}", b'[",\\"timings\\":"]', b"1"):
        body, _ = read_answer(before + b'"__verbose":' + value + behind, CUT)
        assert body == (before[:-1] + behind if before != b"{" else before + behind[1:])


@pytest.mark.parametrize("body", [b'{"\\u005f_verbose":{}}', b'{"a":1, "__verbose" :{}}'])
def test_a_member_in_another_spelling_passes_with_a_note(body: bytes) -> None:
    passed, answer = read_answer(body, CUT)
    assert passed == body
    assert answer.notes == ("a __verbose in another spelling",)


def test_tokens_of_an_answer_in_llama_servers_own_format_are_cut_out_where_nobody_asked() -> None:
    own = {"index": 0, "content": '"tokens":[9]', "tokens": [1, 2], "id_slot": 3, "stop": True, "stop_type": "limit"}
    body, answer = read_answer(written(own), Cut(tokens=True))
    assert body == written({**own, "tokens": []})
    assert answer.ids.tolist() == [1, 2]
    assert answer.text == '"tokens":[9]'
    assert answer.id_slot == 3
    assert read_answer(written(own), Cut())[0] == written(own)


def test_a_stream_in_llama_servers_own_format() -> None:
    passing = StreamRelay(Cut())
    parts = [
        {"content": "a", "tokens": [1], "stop": False, "id_slot": -1},
        {"content": "b", "tokens": [2], "stop": False},
    ]
    last = {"content": "", "tokens": [], "id_slot": 1, "stop": True, "stop_type": "limit", "truncated": True}
    timings = {"cache_n": 3, "prompt_n": 4, "predicted_n": 2}
    for event in (*parts, {**last, "timings": timings}):
        passing.feed(b"data: " + written(event) + b"\n\n")
    answer = passing.answer()
    assert (answer.ids.tolist(), answer.text, answer.id_slot) == ([1, 2], "ab", 1)
    assert (answer.cached, answer.prompt_tokens, answer.finished, answer.truncated) == (3, 7, True, True)


def test_a_stream_that_was_cut_off_says_what_came() -> None:
    passing = StreamRelay(CUT)
    passing.feed(b'data: {"choices":[{"text":"a"}],"__verbose":{"tokens":[7],"id_slot":-1}}\n\n')
    answer = passing.answer()
    assert (answer.ids.tolist(), answer.id_slot, answer.generated, answer.finished) == ([7], None, None, False)


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        ([{"role": "assistant", "content": None}, {"content": "a"}, {"content": "b"}, {}], "ab"),
        ([{"content": "a"}, {"reasoning_content": "b"}], None),
        ([{"content": "a"}, {"tool_calls": [{"index": 0}]}], None),
        ([{"content": "a", "reasoning_content": None, "tool_calls": []}], "a"),
    ],
)
def test_text_of_a_chat_counts_where_it_is_all_that_was_generated(deltas: list[Any], text: str | None) -> None:
    passing = StreamRelay(CUT)
    for delta in deltas:
        passing.feed(b"data: " + written({"choices": [{"index": 0, "delta": delta}]}) + b"\n\n")
    assert passing.answer().text == text


def test_an_error_within_a_stream_is_told_by_its_type_and_not_by_its_text() -> None:
    passing = StreamRelay(CUT)
    event = b'data: {"error":{"code":500,"message":"a secret","type":"server_error"}}\n\n'
    assert passing.feed(event) == event
    answer = passing.answer()
    assert (answer.error, answer.finished) == ("server_error", False)
    assert "secret" not in repr(facts(answer))


def test_notes_are_bounded() -> None:
    passing = StreamRelay(CUT)
    for number in range(50):
        passing.feed(
            b"data: " + written({"timings": {"cache_n": number}, "usage": {"prompt_tokens_details": number}}) + b"\n"
        )
        passing.answer()
    assert len(passing.answer().notes) <= 8


EMPTY_AT_THE_END = {"content": "", "tokens": [], "id_slot": 1, "stop": True, "stop_type": "limit"}


@settings(deadline=None)
@given(
    named=st.lists(st.booleans(), max_size=12),
    counted=st.booleans(),
    ended=st.booleans(),
    oai=st.booleans(),
    early=st.sampled_from([[], [{"content": "", "tokens": [], "stop": False}]]),
)
def test_law_ids_are_the_first_ones_whatever_was_not_named(
    named: list[bool], counted: bool, ended: bool, oai: bool, early: list[dict[str, Any]]
) -> None:
    """Of a character of several tokens a llama-server names the last alone, with the text of all; each event says how
    many there were so far. `named`: which tokens have an event."""
    events, held = list(early), ""
    for index, has_event in enumerate(named):
        held += chr(97 + index)
        if has_event:
            count = {"tokens_predicted": index + 1} if counted else {}
            events.append({"content": held, "tokens": [index], "stop": False, **count})
            held = ""
    if ended:
        count = {"tokens_predicted": len(named)} if counted else {}
        events.append({**EMPTY_AT_THE_END, **count, "timings": {"predicted_n": len(named)}})
    passing = StreamRelay(CUT)
    for event in events:
        if oai:
            event = {"choices": [{"text": event["content"]}], "__verbose": event, "timings": event.pop("timings", None)}
        passing.feed(b"data: " + written(event) + b"\n\n")
    answer = passing.answer()
    ids, text = answer.ids.tolist(), "".join(chr(97 + index) for index in range(len(named)))
    if counted or ended:
        assert ids == list(range(len(ids)))
        assert answer.unnamed is not None
        assert text[len(ids) :].startswith(answer.unnamed)
    if all(named):
        assert ids == list(range(len(named)))
    assert answer.generated != len(ids) or all(named)


def test_answers_to_several_prompts_are_counted_together() -> None:
    one = {"content": "a", "tokens": [1, 2], "id_slot": 3, "stop": True, "stop_type": "limit"}
    timings = {"cache_n": 3, "prompt_n": 4, "predicted_n": 2, "prompt_ms": 1.5}
    body, answer = read_answer(written([{**one, "timings": timings}, {**one, "timings": timings}]), Cut())
    assert json.loads(body) == [{**one, "timings": timings}] * 2
    assert (answer.cached, answer.evaluated, answer.prompt_tokens, answer.generated) == (6, 8, 14, 4)
    assert (answer.finished, answer.id_slot, answer.ids.tolist(), answer.prompt_ms) == (True, None, [], 3.0)
    for broken in ([], [1], [{"error": {"type": "x"}}]):
        assert not read_answer(written(broken), Cut())[1].finished
