"""The native engine as a backend: what a compiled program knows besides encoding: its decoder and its vocabulary.

Encoding is the native type's own (`_native.EncoderBase`, which `Tokenizer` derives from), so that it enters no Python.
Decoding that the program leaves to the reference (META `decode`) is not done here: `decodes` says so, and asking anyway
is a fault of the caller. Not here: compiling (`toktier.program`), when it serves (`toktier.routing.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from toktier._native import Program, added_tokens
from toktier.cache.facts import Added, Facts, whole_of
from toktier.decode_stream import ByteFallbackTail, ByteLevelTail, TailRule
from toktier.errors import InternalError
from toktier.program.layout import AddedFlag
from toktier.routing.vocabulary import BackendId

# Strings that may stand in Replace and Strip beside ByteFallback without touching what malformed bytes become.
_HARMLESS = frozenset({"", " ", "\u2581"})
# Characters of the spellings that a ByteFallback decoder takes for a byte.
_OF_BYTE_TOKENS = frozenset("<0x+>0123456789abcdefABCDEF")


def _leaves_byte_tokens(step: Mapping[str, Any]) -> bool:
    """Whether a decoder step before ByteFallback neither changes a byte token nor makes one: a replacement of a text
    that no byte token holds by a text that none holds. Fuse and Strip join and shorten tokens."""
    if step["type"] != "Replace":
        return False
    return not set(step["text"]) <= _OF_BYTE_TOKENS and not set(step["replacement"]) <= _OF_BYTE_TOKENS


class FastCpuBackend:
    """One program. Thread-safe; nothing is started that a fork would lose."""

    id: ClassVar[BackendId] = BackendId.FAST_CPU

    def __init__(self, program: Program, meta: dict[str, Any]) -> None:
        """`meta`: the META document of the program."""
        self.program = program
        self.meta = meta

    @property
    def decodes(self) -> bool:
        """Whether the program decodes by itself."""
        return bool(self.meta["decode"] == "native")

    def decode(self, ids: Iterable[int], skip_special_tokens: bool) -> str:
        if not self.decodes:
            raise InternalError("this program leaves decoding to the reference")
        return self.program.decode(ids, skip_special_tokens)

    def tail_rule(self, decode: Callable[[Sequence[int]], str]) -> TailRule | None:
        """What is known of the file's decoder that spares a stream work; `decode`: the one that the stream uses, native
        or the reference's."""
        steps = self.meta["decoder"]
        if not isinstance(steps, list):
            return None
        kinds = [step["type"] for step in steps]
        if kinds == ["ByteLevel"]:
            # Where the reference decodes, it may put more between the bytes of an added token and the next.
            return ByteLevelTail(decode, concatenates=self.decodes)
        strings = {step.get(key, "") for step in steps for key in ("text", "replacement")}
        if self.decodes and "ByteFallback" in kinds and "ByteLevel" not in kinds and strings <= _HARMLESS:
            before = steps[: kinds.index("ByteFallback")]
            if all(_leaves_byte_tokens(step) for step in before):
                return ByteFallbackTail(self._byte_tokens.get)
        return None

    @cached_property
    def _byte_tokens(self) -> dict[int, int]:
        """Byte of every token that a ByteFallback decoder takes for one: `<0xNN>` of two hexadecimal digits, or of a
        plus and one digit, which the reference reads as a number too."""
        digits = "0123456789abcdefABCDEF"
        spellings = {f"<0x{a}{b}>": int(a + b, 16) for a in "+" + digits for b in digits}
        found = ((self.program.token_to_id(token), byte) for token, byte in spellings.items())
        return {token_id: byte for token_id, byte in found if token_id is not None}

    @cached_property
    def vocab_size(self) -> int:
        return int(self.meta["model"]["vocabulary"]) + int(self.meta["added_tokens"]["new"])

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        listed = ((int(token["id"]), str(token["content"])) for token in self.meta["special_tokens"])
        return {content: token_id for token_id, content in sorted(listed)}

    @property
    def template(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids that the template puts before and after a text."""
        before, after = (self.meta["post_processor"][side] for side in ("before", "after"))
        return tuple(int(i) for i, _ in before), tuple(int(i) for i, _ in after)

    def token_to_id(self, token: str) -> int | None:
        return self.program.token_to_id(token)

    def id_to_token(self, token_id: int) -> str | None:
        return self.program.id_to_token(token_id)

    @property
    def names_ids(self) -> bool:
        """Whether `id_to_token` is the reference's. Under a normalizer 0.23.3 gives the normalized content of a
        `normalized` added token, 0.22.2 the written one: then the installed reference must be asked."""
        return not (self.meta["normalizer"] and self.meta["added_tokens"]["normalized"])

    def prefix_cache_facts(self, namespace: str) -> Facts:
        """What decides where texts may be cut for a prefix cache."""
        added = [
            Added(
                token_id,
                content,
                special=bool(flags & AddedFlag.SPECIAL),
                single_word=bool(flags & AddedFlag.SINGLE_WORD),
                lstrip=bool(flags & AddedFlag.LSTRIP),
                rstrip=bool(flags & AddedFlag.RSTRIP),
                normalized=bool(flags & AddedFlag.NORMALIZED),
            )
            for token_id, content, flags in added_tokens(self.program)
        ]
        meta = self.meta
        whole = whole_of(meta["truncation"], meta["padding"], ())  # what looks at the first word only does not compile
        return Facts(tuple(added), tuple(step["type"] for step in meta["normalizer"]), whole, namespace)

    @property
    def changes_length(self) -> bool:
        """The file stores truncation or padding."""
        return self.meta["truncation"] is not None or self.meta["padding"] is not None
