"""A client's body, as bytes, into what is to be done with it: the prompt, what of it the router decides, and the body
that goes to a llama-server.

Every member that the router does not own goes up as it came: numbers are doubles or integers of 64 bits on both sides,
and of a key that comes twice both sides take the last. What a client must not steer is taken out and written anew: the
slot, whether the prefix is reused, and what the answer says of itself for the router's account. Not here: any I/O, and
who encodes (`encode` is given).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import orjson

from toktier.errors import RequestInvalid
from toktier.router.token_ids import NO_IDS, TokenIds
from toktier.router.vocabulary import Unrouted

Encode: TypeAlias = Callable[[str, bool], TokenIds]
"""Text and add_special_tokens into IDs."""

# JSON values of one body: two million IDs are more than a context has, and read in 0.1 s; 32 MiB of empty lists would
# take the loop, in which everybody else waits, several seconds and a GB.
MAX_VALUES: Final = 1 << 21
# Bytes of a text from which on it is encoded off the loop: a megabyte takes some 10 ms there.
OFF_LOOP_BYTES: Final = 1 << 18
# A token of a llama-server is an int32, and 2**32 would silently become 0 there.
MAX_ID: Final = 2**31 - 1
# Members that the router writes. `n_cache_reuse` asks for chunks that are shifted to another position, of which the
# results differ from those of a prefill (22 of 30 outputs): every request says 0, whatever the server was started with.
OWNED: Final = ("id_slot", "cache_prompt", "return_tokens", "verbose", "n_cache_reuse")
_LIMITS: Final = ("n_predict", "max_tokens", "max_completion_tokens")
# With or without its end, and possessive: nothing is tried twice, whatever stands there.
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cut:
    """What of an answer is there for the router alone, and does not reach the client: the member `__verbose` of answers
    in OpenAI's format, the IDs in `tokens` of llama-server's own."""

    verbose: bool = False
    tokens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompletionRequest:
    """`native`: to llama-server's /completion, not /v1/completions. `cache`: False where the client wants no prefix
    reused. `unrouted`: why it can be pinned to no slot; None: it can. `limit`: of generated tokens. `prompt`: its parts
    in order, text or IDs; empty where it is unrouted. `selects`: whether the client names the members that it wants of
    an answer, which may then lack those that tell its end. `written`: the prompt as JSON, `others`: an object of all
    members that nobody replaces."""

    native: bool
    stream: bool
    cache: bool
    unrouted: Unrouted | None
    limit: int | None
    prompt: tuple[str | TokenIds, ...]
    selects: bool
    cut: Cut
    written: bytes
    others: bytes

    def __repr__(self) -> str:
        return f"CompletionRequest(native={self.native}, stream={self.stream}, unrouted={self.unrouted})"

    def ids(self, encode: Encode) -> TokenIds:
        """The prompt's IDs. Of several parts the first alone gets special tokens, as in llama-server."""
        parts = [encode(part, index == 0) if isinstance(part, str) else part for index, part in enumerate(self.prompt)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else NO_IDS

    def upstream_body(self, ids: TokenIds | None, id_slot: int | None) -> bytes:
        """`ids`: sent instead of the prompt; None: the prompt goes up as it came. `id_slot`: None: not pinned."""
        prompt = self.written if ids is None else _written_ids(ids)
        return _joined(self.others, [b'"prompt":' + prompt, *_owned(id_slot, self)])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChatRequest:
    """As CompletionRequest. `messages`: as they came, not to be changed; `others` holds them, too."""

    stream: bool
    cache: bool
    unrouted: Unrouted | None
    limit: int | None
    messages: list[Any]
    cut: Cut
    others: bytes

    def __repr__(self) -> str:
        return f"ChatRequest(stream={self.stream}, unrouted={self.unrouted}, messages={len(self.messages)})"

    def template_body(self) -> bytes:
        """What /apply-template renders as the chat route will."""
        return self.others

    def with_texts(self, change: Callable[[str], str]) -> ChatRequest:
        """The same request with every text of a message changed."""
        messages = _with_texts(self.messages, change)
        others = orjson.loads(self.others)
        others["messages"] = messages
        return replace(self, messages=messages, others=_dumped(others))

    def upstream_body(self, id_slot: int | None) -> bytes:
        """`id_slot`: None: not pinned."""
        return _joined(self.others, _owned(id_slot, self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TokenizeRequest:
    """`content`: parts in order, text or IDs. `add_special`: whether special tokens are added, to a first part that is
    text; `parse_special`: whether special tokens in the text are read as such; `with_pieces`: each ID with its text."""

    content: tuple[str | TokenIds, ...]
    add_special: bool
    parse_special: bool
    with_pieces: bool

    @property
    def is_short(self) -> bool:
        """Whether it is answered within milliseconds."""
        return sum(map(len, self.content)) < (OFF_LOOP_BYTES >> 6 if self.with_pieces else OFF_LOOP_BYTES)


def read_completion(body: bytes, native: bool) -> CompletionRequest:
    """Raises RequestInvalid."""
    members = _object(body)
    if "prompt" not in members:
        raise RequestInvalid('"prompt" is missing', remedy="give a prompt: a text, or a list of token IDs")
    prompt = members.pop("prompt")
    stream, cache = _flag(members, "stream", False), _flag(members, "cache_prompt", True)
    verbose, tokens = _flag(members, "verbose", False), _flag(members, "return_tokens", False)
    unrouted, limit = _unrouted(members), _limit(members)
    if members.get("image_data"):
        unrouted = unrouted or Unrouted.MEDIA
    parts, of_prompt = _prompt(prompt)
    unrouted = unrouted or of_prompt
    return CompletionRequest(
        native=native,
        stream=stream,
        cache=cache,
        unrouted=unrouted,
        limit=limit,
        prompt=() if unrouted else parts,
        selects=native and bool(members.get("response_fields")),
        # A stream of llama-server's own format has the IDs whether they are asked for or not.
        cut=Cut() if unrouted else Cut(verbose=not native and not verbose, tokens=native and not stream and not tokens),
        written=_dumped(prompt),
        others=_others(members, verbose, tokens),
    )


def read_chat(body: bytes) -> ChatRequest:
    """Raises RequestInvalid."""
    members = _object(body)
    messages = members.get("messages")
    if not isinstance(messages, list):
        raise RequestInvalid('"messages" is missing, or is no list', remedy="give the messages of the chat as a list")
    stream, cache = _flag(members, "stream", False), _flag(members, "cache_prompt", True)
    verbose, tokens = _flag(members, "verbose", False), _flag(members, "return_tokens", False)
    unrouted, limit = _unrouted(members), _limit(members)
    if unrouted is None and any(_has_media(message) for message in messages):
        unrouted = Unrouted.MEDIA
    return ChatRequest(
        stream=stream,
        cache=cache,
        unrouted=unrouted,
        limit=limit,
        messages=messages,
        cut=Cut() if unrouted else Cut(verbose=not verbose),
        others=_others(members, verbose, tokens),
    )


def read_tokenize(body: bytes) -> TokenizeRequest:
    """Raises RequestInvalid."""
    members = _object(body)
    content = members.get("content", "")
    if isinstance(content, list):
        parts = _parts(content) if content else ()
        if parts is None:
            raise _no_prompt("content")
    elif isinstance(content, str):
        parts = (content,)
    else:
        raise _no_prompt("content")
    return TokenizeRequest(
        content=parts,
        add_special=_flag(members, "add_special", False),
        parse_special=_flag(members, "parse_special", True),
        with_pieces=_flag(members, "with_pieces", False),
    )


def _object(body: bytes) -> dict[str, Any]:
    require_few_values(body)
    try:
        members = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # The message of the parser names a position and never the text there.
        raise RequestInvalid(f"the body is no JSON: {error.msg}", remedy="send one JSON object in UTF-8") from None
    if not isinstance(members, dict):
        raise RequestInvalid(
            f"the body is a JSON {_kind(members)}: expected an object", remedy="send one JSON object in UTF-8"
        )
    return members


def require_few_values(body: bytes) -> None:
    """Before JSON is read. What stands in texts does not count, but for quotation marks in such a body. Raises
    RequestInvalid."""
    if len(body) <= MAX_VALUES or _marks(body) <= MAX_VALUES:
        return
    if body.count(b'"') > MAX_VALUES or _marks(_TEXT.sub(b"", body)) > MAX_VALUES:
        raise RequestInvalid(
            f"the body has more than {MAX_VALUES:,} values or quotation marks", remedy="send a long prompt as one text"
        )


def _marks(body: bytes) -> int:
    """At least as many as there are values but one: each is behind one of these."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _flag(members: dict[str, Any], name: str, default: bool) -> bool:
    value = members.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestInvalid(f'"{name}" is a {_kind(value)}: expected true or false', remedy=f"leave {name} out")
    return value


def _limit(members: dict[str, Any]) -> int | None:
    """Tokens that may be generated; None: nobody said, or with something that the upstream has to judge."""
    found = [members[name] for name in _LIMITS if type(members.get(name)) is int and members[name] >= 0]
    return min(found, default=None)


def _unrouted(members: dict[str, Any]) -> Unrouted | None:
    """By the members beside the prompt. Raises RequestInvalid for what would make reuse lossy."""
    reuse = members.get("n_cache_reuse")
    if reuse is not None and (type(reuse) is not int or reuse != 0):
        raise RequestInvalid(
            '"n_cache_reuse" is not 0: chunks at another position than they were computed at give other results',
            remedy="leave n_cache_reuse out",
        )
    several = False
    for name in ("n", "n_cmpl"):
        count = members.get(name)
        if count is None:
            continue
        if type(count) is not int or not 1 <= count <= MAX_ID:
            raise RequestInvalid(f'"{name}" is not an integer from 1 on', remedy=f"leave {name} out")
        several = several or count > 1
    if several:
        return Unrouted.SEVERAL_CHOICES
    # An empty list counts: it switches off the adapters that the server was started with.
    return Unrouted.ADAPTER if members.get("lora") is not None else None


def _prompt(prompt: Any) -> tuple[tuple[str | TokenIds, ...], Unrouted | None]:
    """The parts of the one prompt, or why it is not one prompt of text and IDs."""
    if isinstance(prompt, str):
        return (prompt,), None
    if isinstance(prompt, dict):
        text = prompt.get("prompt_string")
        if not isinstance(text, str):
            raise _no_prompt("prompt")
        return ((text,), None) if not prompt.get("multimodal_data") else ((), Unrouted.MEDIA)
    if not isinstance(prompt, list):
        raise _no_prompt("prompt")
    if not prompt:
        return (NO_IDS,), None  # a llama-server refuses it, in its own words
    parts = _parts(prompt)
    if parts is not None:
        return parts, None
    if len(prompt) == 1:
        return _one_of_several(prompt[0])
    for one in prompt:
        _one_of_several(one)
    return (), Unrouted.SEVERAL_PROMPTS


def _one_of_several(prompt: Any) -> tuple[tuple[str | TokenIds, ...], Unrouted | None]:
    if not isinstance(prompt, list):
        return _prompt(prompt)
    parts = _parts(prompt) if prompt else (NO_IDS,)
    if parts is None:
        raise _no_prompt("prompt")
    return parts, None


def _parts(prompt: list[Any]) -> tuple[str | TokenIds, ...] | None:
    """Of a list of integers, or of integers and texts; None: of any other list."""
    kinds = set(map(type, prompt))
    if kinds == {int}:
        return (_checked_ids(prompt),)
    if kinds != {int, str}:
        return None
    parts: list[str | TokenIds] = []
    run: list[int] = []
    for item in prompt:
        if isinstance(item, str):
            if run:
                parts.append(_checked_ids(run))
                run = []
            parts.append(item)
        else:
            run.append(item)
    if run:
        parts.append(_checked_ids(run))
    return tuple(parts)


def _checked_ids(ids: list[int]) -> TokenIds:
    if min(ids) < 0 or max(ids) > MAX_ID:
        raise RequestInvalid(
            f"the prompt has a token ID that is none: expected 0 to {MAX_ID}",
            remedy="send IDs of the model's own tokenizer, as /tokenize gives them",
        )
    return np.array(ids, dtype=np.uint32)


def _no_prompt(name: str) -> RequestInvalid:
    return RequestInvalid(
        f'"{name}" is neither a text, nor token IDs, nor a list of both', remedy="give a text, or a list of token IDs"
    )


def _has_media(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    # A part of a kind that is not known here is passed on without a slot, and refused or served by who knows it.
    return isinstance(content, list) and not all(isinstance(p, dict) and p.get("type") == "text" for p in content)


def _with_texts(messages: Iterable[Any], change: Callable[[str], str]) -> list[Any]:
    changed = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            message = {**message, "content": change(content)}
        elif isinstance(content, list):
            parts = [
                {**part, "text": change(part["text"])}
                if isinstance(part, dict) and isinstance(part.get("text"), str)
                else part
                for part in content
            ]
            message = {**message, "content": parts}
        changed.append(message)
    return changed


def _others(members: dict[str, Any], verbose: bool, tokens: bool) -> bytes:
    for name in OWNED:
        members.pop(name, None)
    # Where the router asks for the same, its own member comes later in the body, and is the one that counts.
    members |= {name: True for name, asked in (("verbose", verbose), ("return_tokens", tokens)) if asked}
    return _dumped(members)


def _owned(id_slot: int | None, request: CompletionRequest | ChatRequest) -> list[bytes]:
    members = [b'"n_cache_reuse":0', b'"cache_prompt":' + (b"true" if request.cache else b"false")]
    if request.unrouted is None:
        if id_slot is not None:
            members.append(b'"id_slot":%d' % id_slot)
        # A client that wants `__verbose` itself gets the one that it would have got, with IDs or without.
        if request.cut.verbose or request.cut.tokens:
            members.append(b'"return_tokens":true')
        if request.cut.verbose:
            members.append(b'"verbose":true')
    return members


def _joined(others: bytes, members: list[bytes]) -> bytes:
    if others != b"{}":
        members = [others[1:-1], *members]
    return b"{" + b",".join(members) + b"}"


def _written_ids(ids: TokenIds) -> bytes:
    return orjson.dumps(np.ascontiguousarray(ids), option=orjson.OPT_SERIALIZE_NUMPY)


def _dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # it reads 1024 levels, and writes 254
        raise RequestInvalid("the body is nested more than 250 deep", remedy="send a flatter one") from None


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "list", str: "text", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")
