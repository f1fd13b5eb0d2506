"""Added tokens: their fields, the ids that the reference gives them, and what it leaves undefined.

The `id` in the file is not what counts (docs/reference-semantics.md, "Ids of added tokens"). Two tokens that are equal
once normalized, or one of which nothing is left, have no defined result in the reference: it picks one at random, or
exhausts memory. They are refused by name. Not here: matching (native/engine) and its tables (`byte_trie.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from toktier.errors import ProgramUnsupported, UnsupportedConfig
from toktier.labels import quoted, shown
from toktier.program.json_fields import MAX_U32, Fields, malformed
from toktier.program.layout import AddedFlag

MAX_MATCHED_BYTES = 256  # the matcher's work is bounded by text times the longest content; the longest seen has 93
MAX_NORMALIZED = 1 << 22  # characters of all contents once normalized; 50,000 tokens of thirty: 1.5 million


@dataclass(frozen=True)
class AddedToken:
    """One entry of `added_tokens`, as the file has it but for `id`."""

    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool
    path: str  # JSON path of the entry

    @property
    def flags(self) -> AddedFlag:
        return _COMBINED[self.single_word, self.lstrip, self.rstrip, self.normalized, self.special]


_FLAGS = {
    "single_word": AddedFlag.SINGLE_WORD,
    "lstrip": AddedFlag.LSTRIP,
    "rstrip": AddedFlag.RSTRIP,
    "normalized": AddedFlag.NORMALIZED,
    "special": AddedFlag.SPECIAL,
}
# A table: thousands of tokens are asked for their flags, and a sum of flags is slow.
_COMBINED = {
    values: AddedFlag(sum(flag for flag, value in zip(_FLAGS.values(), values, strict=True) if value))
    for values in product((False, True), repeat=len(_FLAGS))
}
_NAMES = {"id", "content", *_FLAGS}


@dataclass(frozen=True)
class PlacedToken:
    """An added token with its effective id and the text it is matched as: normalized when its flag says so."""

    token: AddedToken
    id: int
    matched: str


def read_added_tokens(value: Any, path: str = "added_tokens") -> tuple[AddedToken, ...]:
    """The entries that count, in file order: empty ones and exact repetitions are ignored, as the reference does.

    Raises NotATokenizer for what the reference cannot load, ProgramUnsupported for a content repeated with other flags.
    """
    if not isinstance(value, list):
        raise malformed(path, "an array", value)
    kept: dict[str, AddedToken] = {}
    for index, item in enumerate(value):
        token = _read_usual(item, f"{path}[{index}]") or _read(Fields(item, f"{path}[{index}]"))
        if not token.content:
            continue
        known = kept.setdefault(token.content, token)
        if known is not token and known.flags != token.flags:
            raise ProgramUnsupported(
                token.path,
                "a repeated token",
                f"{token.path} repeats {quoted(token.content)} of {known.path} with other flags: beyond the compiler",
            )
    return tuple(kept.values())


def _read(fields: Fields) -> AddedToken:
    fields.integer("id")  # must be there, and means nothing
    token = AddedToken(
        content=fields.string("content"),
        **{name: fields.boolean(name) for name in _FLAGS},
        path=fields.path,
    )
    fields.done()
    return token


def _read_usual(item: Any, path: str) -> AddedToken | None:
    """What `_read` gives for an entry that has every field with its type, a third of the time; None for any other."""
    if type(item) is not dict or item.keys() != _NAMES:
        return None
    identity, content = item["id"], item["content"]
    if type(identity) is not int or not 0 <= identity <= MAX_U32 or type(content) is not str:
        return None
    single_word, lstrip, rstrip, normalized, special = flags = [item[name] for name in _FLAGS]
    if set(map(type, flags)) != {bool}:
        return None
    return AddedToken(content, single_word, lstrip, rstrip, normalized, special, path)


def matched_contents(tokens: Sequence[AddedToken], normalize: Callable[[str], str]) -> tuple[str, ...]:
    """What each token is matched as, in order.

    Raises UnsupportedConfig naming tokens whose result is undefined, ProgramUnsupported for contents that grow too
    long.
    """
    contents: list[str] = []
    total = 0
    seen: dict[str, AddedToken] = {}
    for token in tokens:
        if not token.normalized:
            contents.append(token.content)
            continue
        text = normalize(token.content)
        if not text:
            raise UnsupportedConfig(
                f"the added token {quoted(token.content)} ({token.path}) normalizes to nothing; what the reference does"
                " with it is undefined",
                details={"tokens": [shown(token.content)], "paths": [token.path]},
                remedy='set "normalized": false for that token, or remove it',
            )
        other = seen.setdefault(text, token)
        if other is not token:
            raise UnsupportedConfig(
                f"the added tokens {quoted(other.content)} ({other.path}) and {quoted(token.content)} ({token.path})"
                f" are equal once normalized ({quoted(text)}); the reference picks one of them at random",
                details={"tokens": [shown(other.content), shown(token.content)], "paths": [other.path, token.path]},
                remedy='set "normalized": false for one of them, or remove one',
            )
        total += len(text)
        if total > MAX_NORMALIZED:  # after the collision: a token that is in hand is judged, those behind it are not
            raise ProgramUnsupported(token.path, f"normalized contents of more than {MAX_NORMALIZED:,} characters")
        contents.append(text)
    return tuple(contents)


def place_tokens(
    tokens: Sequence[AddedToken],
    contents: Sequence[str],
    vocabulary: Mapping[str, int],
    highest: int | None = None,
) -> tuple[PlacedToken, ...]:
    """Tokens with effective ids, given the model's vocabulary; `highest`: its greatest id, where that is known.

    Raises ProgramUnsupported where an id would be that of another token (a look-up by id then means two tokens), and
    for a content that would make matching slow.
    """
    following = len(vocabulary)  # of entries; not one above the greatest id
    taken: set[int] | None = None
    placed: list[PlacedToken] = []
    for token, content in zip(tokens, contents, strict=True):
        size = len(content.encode())
        if size > MAX_MATCHED_BYTES:
            raise ProgramUnsupported(
                f"{token.path}.content",
                f"{size:,} bytes",
                f"{token.path}.content has {size:,} bytes; more than {MAX_MATCHED_BYTES} are beyond the compiler",
            )
        identity = vocabulary.get(token.content)
        if identity is None:
            identity = following
            following += 1
            if taken is None:  # usually the vocabulary has no ids above its length: no set of all of them is needed
                taken = set() if highest is not None and highest < identity else set(vocabulary.values())
            if identity in taken:
                raise ProgramUnsupported(
                    token.path,
                    f"id {identity}",
                    f"{token.path} ({quoted(token.content)}) is given id {identity}, which another token has;"
                    " two tokens of one id are beyond the compiler",
                )
        placed.append(PlacedToken(token, identity, content))
    return tuple(placed)
