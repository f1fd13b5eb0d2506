"""An engine of others as a backend: what the routed tokenizer asks of one, and the rules that hold for all of them.

They are optional distributions, imported when one is named, never changed by a call. A text is checked as every engine
checks it before they see it; what they throw becomes an error of ours; ids come over as one buffer, without an object
for each; they know no offsets, and a result of theirs has none. In the fork of a process in which one ran it is not
asked any more, nor loaded again: its threads, which are the module's and never end, are not there, and a call could
wait for them for ever. The reference decodes for those that cannot decode as it does. Not here: the engines (one module
each), when one may run (`toktier.routing.plan`), what serves where it fails (`toktier.routing.third_party_route`).
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from toktier._native import Encoding, EncodingBatch
from toktier.backends.foreign_errors import foreign_errors
from toktier.backends.hf import ArtifactSource, checked_text
from toktier.backends.text import Text, segment_pairs
from toktier.errors import BackendExecutionFault, InvalidToken, NotATokenizer, UnsupportedConfig
from toktier.routing.vocabulary import THIRD_PARTY, BackendId

Ids = Any  # a buffer of uint32
Template = Callable[[], tuple[tuple[int, ...], tuple[int, ...]]]

_ran_in: dict[BackendId, int] = {}
"""The process in which an engine first ran. Of a module, not of a tokenizer: all of one engine share its threads."""


class ThirdPartyBackend(ABC):
    """One engine on one tokenizer.json. Thread-safe. What `THIRD_PARTY` says it has not raises UnsupportedConfig."""

    id: ClassVar[BackendId]

    def __init__(self, source: ArtifactSource, changes_length: bool) -> None:
        """`changes_length`: the file stores truncation or padding. Raises BackendExecutionFault where the engine cannot
        be imported or does not take the file, and what `source` raises."""
        self.changes_length = changes_length
        self._name = source.name
        text = _decoded(source)
        self._refuse_in_fork()
        with self._errors("load the file"):
            self._engine = self._load(importlib.import_module(self.id.value), text)

    @abstractmethod
    def _load(self, module: Any, text: str) -> Any:
        """The engine on the text of a tokenizer.json."""

    @abstractmethod
    def _encode(self, text: str, add_special_tokens: bool, plain: bool) -> Ids: ...

    def _encode_batch(self, texts: Sequence[str], add_special_tokens: bool, plain: bool) -> Iterable[Ids]:
        return [self._encode(text, add_special_tokens, plain) for text in texts]

    def _encode_segments(self, segments: list[tuple[str, bool]]) -> Ids:
        raise NotImplementedError

    def _decode(self, ids: list[int], skip_special_tokens: bool) -> object:
        raise NotImplementedError

    # what the routed tokenizer asks

    def encode(self, text: Text, add_special_tokens: bool, plain: bool) -> Encoding:
        """Raises InvalidText, BackendExecutionFault for what the engine throws, UnsupportedConfig."""
        checked = checked_text(text)
        self._require(plain=plain)
        with self._running("encode"):
            return self._encoding(self._encode(checked, add_special_tokens, plain))

    def encode_batch(self, texts: Iterable[Text], add_special_tokens: bool, plain: bool) -> EncodingBatch:
        """As `encode` of each; InvalidText names the item. Threads are the engine's own affair."""
        if isinstance(texts, (str, bytes, bytearray)):
            raise TypeError(f"expected several texts, not one {type(texts).__name__}")
        checked = [checked_text(text, item) for item, text in enumerate(texts)]
        self._require(plain=plain)
        with self._running("encode"):
            rows = [self._encoding(ids) for ids in self._encode_batch(checked, add_special_tokens, plain)]
            if len(rows) != len(checked):
                raise ValueError(f"it gave {len(rows)} rows for {len(checked)} texts")
        return EncodingBatch.from_encodings(rows, backend=self.id.value)

    def encode_segments(self, segments: Iterable[tuple[Text, bool]]) -> Encoding:
        """The engine's own answer to (text, allow_special) pairs (docs/backends.md says where it is another than ours).
        Raises UnsupportedConfig where it has none: parts are never joined into one text."""
        checked = [(checked_text(text, item), allow) for item, (text, allow) in enumerate(segment_pairs(segments))]
        self._require(segments=True)
        with self._running("encode"):
            return self._encoding(self._encode_segments(checked))

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """Of an engine that decodes by itself; `ids` are checked by the caller."""
        with self._running("decode"):
            text = self._decode(ids, skip_special_tokens)
            if not isinstance(text, str):
                raise TypeError(f"it gave {type(text).__name__} in the place of a text")
            return text

    def _encoding(self, ids: Ids) -> Encoding:
        try:
            return Encoding.from_ids(ids, backend=self.id.value)
        except InvalidToken as error:  # an error of callers, who gave none
            raise ValueError(f"what it gave is no row of ids: {error.message}") from None

    def _require(self, *, plain: bool = False, segments: bool = False) -> None:
        rule = THIRD_PARTY[self.id]
        if (plain and not rule.plain) or (segments and not rule.segments):
            able = [b.value for b, other in THIRD_PARTY.items() if other.segments]
            raise UnsupportedConfig(
                f"{self.id.value} cannot take special tokens as ordinary text, which "
                + ("parts that users wrote need" if segments else "plain=True asks for"),
                details={"backend": self.id.value, "artifact": self._name},
                remedy=f"use another backend: {', '.join(able)}, fast_cpu or hf",
            )

    def _running(self, what: str) -> AbstractContextManager[None]:
        self._refuse_in_fork()
        _ran_in[self.id] = os.getpid()
        return self._errors(what)

    def _refuse_in_fork(self) -> None:
        if _ran_in.get(self.id, os.getpid()) != os.getpid():
            raise BackendExecutionFault(
                f"{self.id.value} ran before this process was forked, and its threads are not in it",
                details={"backend": self.id.value, "forked": True},
                remedy="start processes by spawn, or fork before the engine first encodes",
            )

    def _errors(self, what: str) -> AbstractContextManager[None]:
        remedy = "use another backend: this engine and this tokenizer do not go together for this input"
        return foreign_errors(self.id.value, self.id.value, what, remedy)


def _decoded(source: ArtifactSource) -> str:
    try:
        return source.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotATokenizer(f"{source.name} is not UTF-8 at byte {error.start}") from None


def open_backend(
    backend: BackendId, source: ArtifactSource, changes_length: bool, template: Template
) -> ThirdPartyBackend:
    """The engine of this name on a file. `template`: gives the ids that the template puts before and after a text, for
    an engine that has none. Raises as `ThirdPartyBackend`."""
    if backend is BackendId.FASTOKENS:
        from toktier.backends.fastokens import FastokensBackend

        return FastokensBackend(source, changes_length)
    if backend is BackendId.BASETENKENIZER:
        from toktier.backends.basetenkenizer import BasetenkenizerBackend

        return BasetenkenizerBackend(source, changes_length)
    from toktier.backends.gigatoken import GigatokenBackend

    return GigatokenBackend(source, changes_length, template)
