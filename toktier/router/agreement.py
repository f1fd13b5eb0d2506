"""Whether the tokenizer of an upstream gives toktier's IDs: of the chat at hand, and of its vocabulary at admission.

A chat goes up as messages, so that tools and reasoning stay the upstream's own; it is the upstream that makes IDs of
them. What a slot holds is known only where these are ours. Both tokenizers are therefore asked for the rendered prompt;
where the upstream's leaves out the normalizer, the messages are tried normalized.

What was compared before is not compared again: a text is cut behind a special token where cuts change no ID
(`toktier.cache.boundaries`), the prefix is looked up by digest, and only what begins with that token is asked. That is
sound for the upstream as for us: its tokenizer, too, takes special tokens out of the text before anything else, and no
special token of these sets overlaps another, so what stands in front of one has the same IDs whatever follows it. It is
not proved for every build, so `check` compares the count that comes back with each answer, and forgets all on a
difference. Not here: which slot gets the request.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from toktier.cache.boundaries import choose
from toktier.errors import UpstreamBroken, UpstreamRefused
from toktier.labels import quoted
from toktier.router.bodies import OFF_LOOP_BYTES, ChatRequest
from toktier.router.token_ids import TokenIds
from toktier.router.vocabulary import Ids

if TYPE_CHECKING:
    from toktier.router.upstream import Upstream
    from toktier.tokenizer import Tokenizer

# Prefixes of one upstream: 2.1 MB. A turn adds four (of ChatML), so that a chat is known until some 2,000 turns of all
# chats have come since its last. Long before that its slot is another's and all of it is prefilled again, beside which
# it is little that the upstream is asked for the IDs of the whole once more.
MAX_KNOWN: Final = 8192
DIGEST_BYTES: Final = 16
MAX_SPECIAL: Final = 256  # special tokens that are compared at admission
MAX_LEAD: Final = 4  # special tokens that a model adds in front

_ANOTHER: Final = "another family; name the model's own by --family or --tokenizer-file"

# Texts that every normalizer in use leaves alone. They tell vocabularies apart, and the ways to split a text.
PROBES: Final = (
    "The quick brown fox jumps over the lazy dog.",
    "It's 12345 days since 2019-07-31, i.e. 0.5% of 1,000,000.",
    "def f(x):\n    return {'a': [x, None], \"b\": x**2}  # done\n\n\n",
    "\tint main(void) { return 0; }\r\n",
    "  two  spaces   and    more     ",
    "Straße, naïve café, Ångström, señor",
    "Привет, мир! Γειά σου Κόσμε",
    "你好,世界。今日は良い天気です。안녕하세요",
    "مرحبا بالعالم שלום नमस्ते สวัสดี",
    "🙂🚀 👩‍👩‍👧 ½ → ∞",
)


class Added(Enum):
    """Which special tokens stand around the IDs of a text, in the upstream as in what is compared with it."""

    FILE = "file"  # those of the tokenizer's file
    NONE = "none"
    MODEL = "model"  # those that the model adds in front and the file does not


# Chats by which templates, and what servers were told of them, are told apart.
_TOOL: Final = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
_CHATS: Final[tuple[dict[str, Any], ...]] = (
    {
        "messages": [
            {"role": "system", "content": "a"},
            {"role": "user", "content": "b"},
            {"role": "assistant", "content": "c", "reasoning_content": "d"},
            {"role": "user", "content": " e\n"},
        ]
    },
    {"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]},
    {"messages": [{"role": "user", "content": "b"}], "tools": [_TOOL]},
)


@dataclass(frozen=True, slots=True)
class Agreed:
    """`ids`: toktier's, of the rendered prompt `text`, behind what the model adds in front. `kind`: whether the
    upstream works on them. `request`: what to send."""

    ids: TokenIds
    kind: Ids
    request: ChatRequest
    text: str


class Agreement:
    """Of one upstream and one tokenizer; for one event loop."""

    def __init__(self, upstream: Upstream, tokenizer: Tokenizer) -> None:
        self._upstream, self._tokenizer = upstream, tokenizer
        self._epoch = -1
        # Digest of a prefix that ends with a boundary token → how many IDs it has, and what is added to the whole.
        self._known: OrderedDict[bytes, tuple[int, Added]] = OrderedDict()
        self._lead: TokenIds = np.empty(0, np.uint32)
        self._special = np.array([token.id for token in tokenizer.prefix_cache_facts().added if token.special])
        self._boundary, self._is_boundary = _boundaries(tokenizer)
        self._normalize: Callable[[str], str] | None = None
        self._normalizes = bool(tokenizer.prefix_cache_facts().normalizer)

    async def agree(self, request: ChatRequest) -> Agreed:
        """Raises UpstreamRefused where the template refuses the chat, and what the upstream raises."""
        if self._epoch != self._upstream.epoch:
            self.forget()
            self._epoch = self._upstream.epoch
        text = await self._upstream.apply_template(request.template_body())
        ids, same = await self._compared(text)
        if same:
            return Agreed(ids, Ids.AGREED, request, text)
        if self._normalizes:
            normalized = request.with_texts(self._normalized)
            if normalized.messages != request.messages:
                again = await self._upstream.apply_template(normalized.template_body())
                ids_again, same = await self._compared(again)
                bare = await self._encoded(text, Added.NONE)
                if same and np.array_equal(bare, await self._encoded(again, Added.NONE)):
                    return Agreed(ids_again, Ids.NORMALIZED, normalized, again)
        return Agreed(ids, Ids.UPSTREAM, request, text)

    def check(self, agreed: Agreed, prompt_tokens: int | None) -> bool:
        """Whether an answer's count of prompt tokens is that of the IDs; if not, nothing that was agreed is believed
        any longer. `prompt_tokens`: None: it came without one, which says nothing."""
        if agreed.kind is Ids.UPSTREAM or prompt_tokens is None or prompt_tokens == len(agreed.ids):
            return True
        self.forget()
        return False

    def forget(self) -> None:
        self._known.clear()

    async def _encoded(self, text: str, added: Added) -> TokenIds:
        if len(text) < OFF_LOOP_BYTES:
            return self._encode(text, added)
        return await asyncio.to_thread(self._encode, text, added)

    def _encode(self, text: str, added: Added) -> TokenIds:
        encoding = self._tokenizer.encode(text, add_special_tokens=added is Added.FILE)
        ids = np.frombuffer(memoryview(encoding), np.uint32)
        return np.concatenate((self._lead, ids)) if added is Added.MODEL else ids

    def _normalized(self, text: str) -> str:
        if self._normalize is None:
            # The reference reads the whole file for it, which is why it waits for the first text that needs it.
            normalizer = self._tokenizer._reference.load().normalizer
            self._normalize = (lambda text: text) if normalizer is None else normalizer.normalize_str
        return self._normalize(text)

    async def _compared(self, text: str) -> tuple[TokenIds, bool]:
        """toktier's IDs of a rendered prompt, and whether they are the upstream's."""
        cuts = self._cuts(text) if len(text) < OFF_LOOP_BYTES else await asyncio.to_thread(self._cuts, text)
        known = self._longest_known(cuts)
        if known is not None:
            index, count, added = known
            ids = await self._encoded(text, added)
            if await self._same(text[cuts[index][0] :], ids[count - 1 :]):
                self._remember(cuts[index + 1 :], ids, added, count)
                return ids, True
        ids = await self._encoded(text, Added.FILE)
        said = await self._theirs(text, True)
        if said is None:
            return ids, False
        theirs = np.array(said, dtype=np.uint32)
        if np.array_equal(ids, theirs):
            self._remember(cuts, ids, Added.FILE)
            return ids, True
        bare = await self._encoded(text, Added.NONE)
        lead = theirs[: max(len(theirs) - len(bare), 0)]
        if len(lead) > MAX_LEAD or not np.array_equal(theirs[len(lead) :], bare):
            return ids, False
        if not len(lead):  # the model adds none of the special tokens that the file would add
            self._remember(cuts, bare, Added.NONE)
            return bare, True
        if not np.isin(lead, self._special).all():
            return ids, False
        if not np.array_equal(lead, self._lead):
            self.forget()
            self._lead = lead
        self._remember(cuts, theirs, Added.MODEL)
        return theirs, True

    async def _same(self, text: str, ids: TokenIds) -> bool:
        # As a list, of few tokens as a rule: to make an array of the answer takes longer.
        return bool(await self._theirs(text, False) == ids.tolist())

    async def _theirs(self, text: str, add_special: bool) -> list[int] | None:
        """As llama-server's chat makes them of the rendered prompt; None: it does not say."""
        try:
            return await self._upstream.tokenize(text, add_special=add_special)
        except (UpstreamRefused, UpstreamBroken):
            return None

    def _cuts(self, text: str) -> list[tuple[int, bytes]]:
        """Where each boundary token begins, and the digest of all up to its end. Of a text with more than can be known
        none: it is no chat."""
        if self._boundary is None:
            return []
        state, done, cuts = hashlib.blake2b(digest_size=DIGEST_BYTES), 0, []
        for match in self._boundary.finditer(text):
            state.update(text[done : match.end()].encode("utf-8", "surrogatepass"))
            done = match.end()
            cuts.append((match.start(), state.copy().digest()))
            if len(cuts) > 2 * MAX_KNOWN:
                return []
        return cuts

    def _longest_known(self, cuts: list[tuple[int, bytes]]) -> tuple[int, int, Added] | None:
        """Which of the cuts ends it, how many IDs it has, and what is added to the whole."""
        for index in range(len(cuts) - 1, -1, -1):
            digest = cuts[index][1]
            known = self._known.get(digest)
            if known is not None:
                self._known.move_to_end(digest)
                return index, *known
        return None

    def _remember(self, cuts: list[tuple[int, bytes]], ids: TokenIds, added: Added, count: int = 0) -> None:
        """`cuts`: those behind the first `count` IDs. What is known stays where it is: only what a chat goes on from is
        of use to it."""
        if not cuts:
            return
        new = ids[count:]
        places = np.flatnonzero(self._is_boundary[np.minimum(new, len(self._is_boundary) - 1)])
        # Tokens that are added in front stand in the IDs and not in the text.
        if added is Added.MODEL and not count:
            places = places[places >= len(self._lead)]
        elif added is Added.FILE and not count and len(places) > len(cuts) and places[0] == 0:
            places = places[1:]
        if len(places) != len(cuts):
            return
        for (_, digest), place in zip(cuts, places.tolist(), strict=True):
            self._known[digest] = (count + place + 1, added)
            self._known.move_to_end(digest)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


async def fits(upstream: Upstream, tokenizer: Tokenizer) -> list[str]:
    """Reasons why the upstream's model is not of this tokenizer, at most one of each kind; empty: it is. Texts that it
    merely splits otherwise become a note: their IDs mean the same, and every chat is compared by itself.

    Raises what the upstream raises.
    """
    facts = upstream.facts
    if facts is not None and facts.n_vocab is not None and facts.n_vocab < tokenizer.vocab_size:
        return [f"the model has {facts.n_vocab:,} token IDs and the tokenizer {tokenizer.vocab_size:,}: {_ANOTHER}"]
    special = sorted(tokenizer.special_tokens.items(), key=lambda item: item[1])[:MAX_SPECIAL]
    theirs = await upstream.tokenize("".join(token for token, _ in special))
    if theirs != [token_id for _, token_id in special]:
        for token, token_id in special:
            theirs = await upstream.tokenize(token)
            if theirs != [token_id]:
                return [
                    f"the special token {quoted(token)} is {token_id} here, and {_few(theirs)} in the model: {_ANOTHER}"
                ]
    text = PROBES[0]
    bare = len(await upstream.tokenize(text))
    theirs = (await upstream.tokenize(text, add_special=True))[: -bare or None]
    ours = tokenizer.encode(text, add_special_tokens=True).ids[: -len(tokenizer.encode(text)) or None]
    if theirs != ours:
        upstream.standing.note(
            f"the model begins a text with {_few(theirs)}, and the tokenizer with {_few(ours)}: texts of "
            "/v1/completions begin as the tokenizer's file says, chats as the model's"
        )
    for text in PROBES:
        ours = tokenizer.encode(text).ids
        theirs = await upstream.tokenize(text)
        if theirs == ours:
            continue
        if tokenizer.decode(theirs, skip_special_tokens=False) != tokenizer.decode(ours, skip_special_tokens=False):
            return [f"{quoted(text)} is {_few(ours)} here, and {_few(theirs)} in the model: {_ANOTHER}"]
        upstream.standing.note(
            f"the model's tokenizer splits {quoted(text)} otherwise: chats with such texts are sent as text, and their "
            "slots are not known"
        )
        break
    return []


async def manner(upstream: Upstream) -> bytes:
    """A digest of how it renders chats and splits texts: what one upstream says of a chat holds for another of equal
    manner. Servers of one model may differ by template, by what is passed to it, and by the file under one name.

    Raises UpstreamLost, UpstreamSilent.
    """
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for chat in _CHATS:
        try:
            text = await upstream.apply_template(orjson.dumps(chat))
        except (UpstreamRefused, UpstreamBroken):
            text = ""
        state.update(b"%d," % len(text) + text.encode("utf-8", "surrogatepass"))
    state.update(repr(await upstream.tokenize("\n".join(PROBES), add_special=True)).encode())
    return state.digest()


def _few(ids: list[int]) -> str:
    return f"[{', '.join(map(str, ids[:6]))}{', ...' if len(ids) > 6 else ''}]"


def _boundaries(tokenizer: Tokenizer) -> tuple[re.Pattern[str] | None, np.ndarray]:
    """What finds the tokens that a text may be cut behind, and for each ID whether it is one."""
    facts = tokenizer.prefix_cache_facts()
    tokens = choose([token.content for token in facts.added if token.special], facts).tokens
    if not tokens:
        return None, np.zeros(1, dtype=bool)
    known = {token.content: token.id for token in facts.added}
    ids = [known[token] for token in tokens]
    is_boundary = np.zeros(max(ids) + 2, dtype=bool)  # the last one stands for all greater IDs
    is_boundary[ids] = True
    return re.compile("|".join(map(re.escape, tokens))), is_boundary
