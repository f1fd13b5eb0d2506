"""Reads an answer of a llama-server while it passes to the client, and takes out again what only the router asked for.

A stream passes line by line: what is not a line of `data:` at once, such a line when its end has come. It is the
upstream's own bytes but for one member, `__verbose`, which is cut out at byte level with its comma. No member is
written anew, so that a client gets what it would have got without the router. Every value is a claim: one that cannot
be is dropped, with a note. Not here: what is done with an `Answer`, nor the connection.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from toktier.router.bodies import Cut

# The last event of a stream repeats the whole prompt in `__verbose`, escaped: six bytes for a character at most.
MAX_LINE: Final = 64 << 20
MAX_COUNT: Final = 2**31 - 1
MAX_MS: Final = 1e12
MAX_NOTES: Final = 8
_KEY: Final = b'"__verbose":'
_TOKENS: Final = b'"tokens":['
_CANDIDATES: Final = 4  # places of the name that are tried, where it stands more than once; llama-server writes it once
_values = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer:
    """What an answer says of itself; None: it does not, or says what cannot be.

    `ids`: generated token IDs (uint32) from the first on, without a gap: a llama-server names those of a stream one by
    one, but of a character of several tokens only the last. `text`: generated text; None where it is not all that was
    generated (a chat's reasoning and tool calls are taken apart upstream). `unnamed`: the text behind `ids`, of tokens
    that were not named; None where it is not known. `id_slot`: the slot
    that was used. `cached`: reused tokens, `evaluated`: prefilled ones, of `prompt_tokens`. `finished`: the end came.
    `truncated`: tokens were discarded from the slot (context shift). `error`: the type of the error that ended it.
    `notes`: what was not believed.
    """

    ids: array[int]
    text: str | None
    unnamed: str | None
    id_slot: int | None
    cached: int | None
    evaluated: int | None
    prompt_tokens: int | None
    generated: int | None
    prompt_ms: float | None
    generated_ms: float | None
    finished: bool
    truncated: bool
    error: str | None
    notes: tuple[str, ...]


class StreamRelay:
    """One stream of events. `feed` every chunk, then `finish`; `answer` may be asked at any time."""

    def __init__(self, cut: Cut) -> None:
        self._cuts = cut.verbose
        self._held = bytearray()  # of a line of `data:` that has not ended: bytes, as a piece may be one
        self._passing = False  # within a line that passes as it is
        self._gathered = _Gathered()

    def feed(self, chunk: bytes) -> bytes:
        """What goes to the client now: all that has come, but for a line whose end is missing."""
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            kept = self._part(chunk)
            return kept if self._cuts else chunk
        kept, lines = b"", chunk if end == len(chunk) else chunk[:end]
        if self._passing:
            start = lines.index(b"\n") + 1
            kept, lines = lines[:start], lines[start:]
            self._passing = False
        elif self._held:
            lines = self._released() + lines
        kept += self._lines(lines)
        if end < len(chunk):
            kept += self._part(chunk[end:])
        return kept if self._cuts else chunk

    def finish(self) -> bytes:
        """At the end of the stream: what is left of a line that did not end, without the member and what follows it."""
        rest = self._released()
        # Half a line tells a reader of events nothing; half a member would tell it what is not its own.
        place = rest.find(b',"__')
        return b"" if not self._cuts else rest if place < 0 else rest[:place]

    def answer(self) -> Answer:
        return self._gathered.answer()

    def _released(self) -> bytes:
        held = bytes(self._held)
        self._held.clear()
        return held

    def _part(self, part: bytes) -> bytes:
        """Of a line whose end has not come: held while it may be one of `data:` that is short enough."""
        if self._passing or not part:
            return part
        held = self._held
        held += part
        if held[:5] == b"data:"[: len(held)] and len(held) <= MAX_LINE:
            return b""
        if len(held) > MAX_LINE:
            self._gathered.note("an event beyond the bounds")
        self._passing = True
        return self._released()

    def _lines(self, whole: bytes) -> bytes:
        """`whole` ends with a line feed."""
        out: list[bytes] | None = None
        lines = whole.split(b"\n")
        for index, line in enumerate(lines):
            if line[:5] == b"data:":
                if len(line) > MAX_LINE:
                    self._gathered.note("an event beyond the bounds")
                    continue
                kept = self._event(line)
                if kept is not line:
                    out = out if out is not None else lines
                    out[index] = kept
        return whole if out is None else b"\n".join(out)

    def _event(self, line: bytes) -> bytes:
        gathered = self._gathered
        try:
            event = orjson.loads(line[5:])
        except orjson.JSONDecodeError:
            if line[5:].strip() == b"[DONE]":
                gathered.finished = True
            else:
                gathered.note("an event that is no JSON")
            return line
        if type(event) is not dict:
            gathered.note("an event that is no object")
            return line
        gathered.event(event)
        return _without_verbose(line, event, gathered) if self._cuts and "__verbose" in event else line


def read_answer(body: bytes, cut: Cut) -> tuple[bytes, Answer]:
    """An answer in one piece: what goes to the client, and what it says."""
    gathered = _Gathered()
    try:
        event = orjson.loads(body)
    except orjson.JSONDecodeError:
        gathered.note("an answer that is no JSON")
        return body, gathered.answer()
    if type(event) is list and event and set(map(type, event)) == {dict}:
        return body, _together(event)
    if type(event) is not dict:
        gathered.note("an answer that is no object")
        return body, gathered.answer()
    gathered.event(event, whole=True)
    gathered.finished = gathered.error is None
    if cut.verbose and "__verbose" in event:
        body = _without_verbose(body, event, gathered)
    if cut.tokens and event.get("tokens"):
        body = _without_tokens(body, gathered)
    return body, gathered.answer()


def _together(events: list[dict[str, Any]]) -> Answer:
    """Answers to several prompts in llama-server's own format: their sums, and of none its slot or text."""
    answers = []
    for event in events:
        gathered = _Gathered()
        gathered.event(event, whole=True)
        gathered.finished = gathered.error is None
        answers.append(gathered.answer())

    def total(name: str) -> Any:
        values = [getattr(answer, name) for answer in answers]
        return None if None in values else sum(values)

    counts = ("cached", "evaluated", "prompt_tokens", "generated", "prompt_ms", "generated_ms")
    return replace(
        answers[0],
        **{name: total(name) for name in counts},
        ids=array("I"),
        text=None,
        unnamed=None,
        id_slot=None,
        finished=all(answer.finished for answer in answers),
        truncated=any(answer.truncated for answer in answers),
        error=next((answer.error for answer in answers if answer.error is not None), None),
        notes=tuple(dict.fromkeys(note for answer in answers for note in answer.notes))[:MAX_NOTES],
    )


class _Gathered:
    """What the events of one answer have said so far."""

    __slots__ = (
        *("_ids", "_ids_are_ids", "_counted", "_gap", "_texts", "_named", "_text_is_whole"),
        *("_slot", "_timings", "_usage", "_notes", "finished", "truncated", "error"),
    )

    def __init__(self) -> None:
        self._ids: array[int] = array("I")
        self._ids_are_ids = True
        self._counted = True  # each event with IDs said how many there were so far
        self._gap = False  # tokens came that were not named
        self._texts: list[str] = []
        self._named = 0  # how many of them are of tokens that were named
        self._text_is_whole = True
        self._slot: Any = None
        self._timings: Any = None
        self._usage: Any = None
        self._notes: dict[str, None] = {}
        self.finished = False
        self.truncated = False
        self.error: str | None = None

    def note(self, what: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes[what] = None

    def event(self, event: dict[str, Any], whole: bool = False) -> None:
        """`whole`: an answer in one piece."""
        own = event.get("__verbose")
        if own is None:
            own = event  # the format of llama-server itself has at the top what others have in `__verbose`
        elif type(own) is not dict:
            self.note("a __verbose that is no object")
            own = event
        texts = len(self._texts)
        named = self._tokens(own.get("tokens"), own.get("tokens_predicted"))
        if "choices" in event:
            self._choices(event["choices"])
        elif "content" in event:
            self._texts.append(content if type(content := event["content"]) is str else "")
        if not self._gap and (named or not any(self._texts[texts:])):
            self._named = len(self._texts)
        else:
            self._gap = True
        if "timings" in event:
            self._timings = event["timings"]
        if event.get("usage") is not None:
            self._usage = event["usage"]
        if "error" in event:
            self._failed(event["error"])
        if "stop_type" in own or whole:
            self._slot = own.get("id_slot")
            self.truncated = self.truncated or own.get("truncated") is True
            self.finished = self.finished or (own is event and own.get("stop") is True)

    def _tokens(self, tokens: Any, count: Any) -> bool:
        """Whether these IDs follow those before. `count`: how many there are up to here, as the upstream says."""
        if not tokens or self._gap:
            return False
        if type(tokens) is not list:
            self.note("generated tokens that are no IDs")
            self._ids_are_ids = False
            return True
        if type(count) is not int:
            self._counted = False
        elif count != len(self._ids) + len(tokens):
            return False
        try:
            if set(map(type, tokens)) != {int}:
                raise TypeError
            self._ids.extend(tokens)
        except (TypeError, OverflowError):
            self.note("generated tokens that are no IDs")
            self._ids_are_ids = False
        return True

    def _choices(self, choices: Any) -> None:
        if type(choices) is not list:
            self.note("choices that are no list")
            return
        if not choices:
            return
        choice = choices[0]
        if type(choice) is not dict:
            self.note("a choice that is no object")
            return
        text = choice.get("text")
        if text is None:
            delta = choice.get("delta")
            if delta is None:
                delta = choice.get("message")
            if type(delta) is not dict:
                return
            text = delta.get("content")
            # Beside content a role alone is usual; reasoning and tool calls have lost their marks.
            if self._text_is_whole and any(delta[name] for name in delta.keys() - {"role", "content"}):
                self._text_is_whole = False
        if type(text) is str:
            if text:
                self._texts.append(text)
        elif text is not None:
            self._text_is_whole = False
            self.note("generated text that is no text")

    def _failed(self, error: Any) -> None:
        kind = error.get("type") if type(error) is dict else None
        self.error = kind[:60] if type(kind) is str else "unknown"

    def answer(self) -> Answer:
        timings, usage = self._members(self._timings, "timings"), self._members(self._usage, "usage")
        cached, evaluated = self._count(timings, "cache_n"), self._count(timings, "prompt_n")
        generated = self._count(timings, "predicted_n")
        prompt_tokens = self._count(usage, "prompt_tokens")
        details = self._members(usage.get("prompt_tokens_details"), "prompt_tokens_details")
        also_cached = self._count(details, "cached_tokens")
        if cached is None:
            cached = also_cached if "cache_n" not in timings else None
        elif also_cached is not None and cached != also_cached:
            self.note(f"cache_n {cached} beside cached_tokens {also_cached}")
            cached = None
        if prompt_tokens is None and cached is not None and evaluated is not None:
            prompt_tokens = cached + evaluated
        if cached and prompt_tokens is not None and cached >= prompt_tokens:
            # One token at least is evaluated, however much is known.
            self.note(f"{cached} reused tokens of a prompt of {prompt_tokens}")
            cached = None
        slot = self._slot
        if slot is not None and (type(slot) is not int or not 0 <= slot <= MAX_COUNT):
            self.note("an id_slot that is none")
            slot = None
        if generated is None:
            generated = self._count(usage, "completion_tokens")
        ids, unnamed = self._ids, self._texts[self._named :]
        if generated == len(ids):
            unnamed = []
        elif generated is not None and not self._counted:
            ids, unnamed = array("I"), self._texts  # some are missing, and nothing says which
        return Answer(
            ids=ids if self._ids_are_ids else array("I"),
            text="".join(self._texts) if self._text_is_whole else None,
            unnamed="".join(unnamed) if self._text_is_whole and self._ids_are_ids else None,
            id_slot=slot,
            cached=cached,
            evaluated=evaluated,
            prompt_tokens=prompt_tokens,
            generated=generated,
            prompt_ms=self._milliseconds(timings, "prompt_ms"),
            generated_ms=self._milliseconds(timings, "predicted_ms"),
            finished=self.finished,
            truncated=self.truncated,
            error=self.error,
            notes=tuple(self._notes),
        )

    def _members(self, value: Any, name: str) -> dict[str, Any]:
        if type(value) is dict:
            return value
        if value is not None:
            self.note(f"{name} is no object")
        return {}

    def _count(self, members: dict[str, Any], name: str) -> int | None:
        value = members.get(name)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value <= MAX_COUNT:
            self.note(f"{name} is no count")
            return None
        return value

    def _milliseconds(self, members: dict[str, Any], name: str) -> float | None:
        value = members.get(name)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 <= value <= MAX_MS:
            self.note(f"{name} is no duration")
            return None
        return float(value)


def _without_verbose(data: bytes, event: dict[str, Any], gathered: _Gathered) -> bytes:
    """`data`: bytes that end with the object that was parsed as `event`, which has the member."""
    place = data.find(_KEY)
    if place < 0:
        gathered.note("a __verbose in another spelling")
        return data
    if data.find(_KEY, place + 1) < 0:
        # Inside a text the quotes around the name would be escaped, so the one place is the member.
        end = _member_end(data, place, event)
        return data if end is None else _spliced(data, place, end)
    for _ in range(_CANDIDATES):
        end = _value_end(data, place + len(_KEY))
        if end is not None:
            kept = _spliced(data, place, end)
            if _is_rest(kept, event):
                return kept
        place = data.find(_KEY, place + 1)
        if place < 0:
            break
    gathered.note("a __verbose that could not be cut out")
    return data


def _member_end(data: bytes, place: int, event: dict[str, Any]) -> int | None:
    """Behind the member that begins at `place`, the only one of its name."""
    names = list(event)
    behind = names[names.index("__verbose") + 1 :]
    if not behind:
        return data.rfind(b"}")  # before the brace that ends the object
    # To read over the prompt in it takes several times as long as to read the rest, which tells whether this is it.
    end = data.rfind(b',"' + behind[0].encode("utf-8", "surrogatepass") + b'":')
    if end > place and _is_rest(_spliced(data, place, end), event):
        return end
    return _value_end(data, place + len(_KEY))


def _is_rest(data: bytes, event: dict[str, Any]) -> bool:
    """Whether `data` ends with the object that `event` is without the member."""
    rest = {name: value for name, value in event.items() if name != "__verbose"}
    try:
        return bool(orjson.loads(data[data.find(b"{") :]) == rest)
    except orjson.JSONDecodeError:
        return False


def _value_end(data: bytes, start: int) -> int | None:
    """Behind the JSON value that begins at `start`."""
    try:
        # Latin-1 makes each byte a character: what is read is not the text, but it ends at the same place.
        return _values.raw_decode(data.decode("latin-1"), start)[1]
    except (ValueError, RecursionError):
        return None


def _spliced(data: bytes, start: int, end: int) -> bytes:
    """Without the member from `start` to `end`, and the comma before it, or of the first member that behind it."""
    if data[start - 1 : start] == b",":
        return data[: start - 1] + data[end:]
    return data[:start] + data[end + (data[end : end + 1] == b",") :]


def _without_tokens(body: bytes, gathered: _Gathered) -> bytes:
    place = body.find(_TOKENS)
    if place < 0 or body.find(_TOKENS, place + 1) >= 0:
        gathered.note("tokens that could not be cut out")
        return body
    start = place + len(_TOKENS)
    return body[:start] + body[body.index(b"]", start) :]
