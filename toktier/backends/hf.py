"""The reference as a backend: Hugging Face `tokenizers`, loaded when it is first needed, never changed by a call.

`plain` (special added tokens as ordinary text) is a setting of the reference object and not an argument, so a second
instance has it from the start: a call must not change what a call in another thread gets. Stored truncation and padding
stay as the file has them. Not here: when the reference serves (`toktier.routing.plan`).
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from toktier import storage
from toktier._native import Encoding, EncodingBatch, text_of
from toktier.backends.foreign_errors import foreign_errors
from toktier.backends.text import Text
from toktier.errors import (
    ArtifactHashMismatch,
    ArtifactNotFound,
    BackendExecutionFault,
    BackendUnavailable,
    NotATokenizer,
    UnsupportedConfig,
)
from toktier.routing.vocabulary import BackendId

if TYPE_CHECKING:
    import tokenizers


class ArtifactSource:
    """The bytes of a tokenizer.json that may be needed later: in memory, or in a file that must not have changed."""

    def __init__(self, source: bytes | str | os.PathLike[str], sha256: str, name: str) -> None:
        """`sha256` (hex): what the bytes must hash to whenever they are read."""
        self._source, self.sha256, self.name = source, sha256, name

    def read(self) -> bytes:
        """Raises ArtifactNotFound, EnvironmentFault, ArtifactHashMismatch (the file changed since it was loaded)."""
        data = self._source if isinstance(self._source, bytes) else self._read(Path(self._source))
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise ArtifactHashMismatch(
                f"{self.name} has changed since it was loaded: its SHA-256 was {self.sha256} and is {found}",
                details={"expected": self.sha256, "found": found},
                remedy="load the tokenizer again",
            )
        return data

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise ArtifactNotFound(
                f"{self.name} has been removed since it was loaded", details={"path": str(path)}, remedy="load again"
            ) from None
        except OSError as error:
            raise storage.environment_fault(error, "read", path) from None


class HfBackend:
    """The installed reference on one tokenizer.json. Thread-safe; follows the reference's own rules after a fork."""

    id: ClassVar[BackendId] = BackendId.HF

    def __init__(self, source: ArtifactSource) -> None:
        self._source = source
        self._guard = threading.Lock()
        self._instances: dict[bool, tokenizers.Tokenizer] = {}

    def load(self, plain: bool = False) -> tokenizers.Tokenizer:
        """The reference object; made on first use. Raises NotATokenizer when the reference cannot read the file."""
        instance = self._instances.get(plain)
        if instance is None:
            with self._guard:
                instance = self._instances.get(plain)
                if instance is None:
                    instance = self._instances[plain] = self._open(plain)
        return instance

    def _open(self, plain: bool) -> tokenizers.Tokenizer:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise BackendUnavailable(
                f"tokenizers cannot be imported: {error}", remedy="install tokenizers>=0.22.2,<=0.23.3"
            ) from None
        data = self._source.read()
        try:
            with _reference_errors("load"):
                instance: tokenizers.Tokenizer = Tokenizer.from_buffer(data)
        except BackendExecutionFault as error:
            raise NotATokenizer(
                f"{self._source.name}: the reference cannot load it either: {error.details['reference']}",
                details={"reference": error.details["reference"]},
                remedy="check that the file is a tokenizer.json that this version of tokenizers reads",
            ) from None
        if plain:
            instance.encode_special_tokens = True
        return instance

    # encode

    def encode(self, text: Text, add_special_tokens: bool, plain: bool) -> Encoding:
        return _encoding(self._encode(text, add_special_tokens, plain))

    def count(self, text: Text, add_special_tokens: bool, plain: bool) -> int:
        return len(self._encode(text, add_special_tokens, plain))

    def _encode(self, text: Text, add_special_tokens: bool, plain: bool) -> tokenizers.Encoding:
        reference, checked = self.load(plain), checked_text(text)
        with self._encoding_with(reference):
            return reference.encode(checked, add_special_tokens=add_special_tokens)

    def encode_batch(
        self, texts: Iterable[Text], add_special_tokens: bool, plain: bool, workers: int | None
    ) -> EncodingBatch:
        """`workers` is left to the reference, which has one pool for the process."""
        if isinstance(texts, (str, bytes, bytearray)):
            raise TypeError(f"expected several texts, not one {type(texts).__name__}")
        reference = self.load(plain)
        rows = [checked_text(text, item) for item, text in enumerate(texts)]
        with self._encoding_with(reference):
            encodings = reference.encode_batch(rows, add_special_tokens=add_special_tokens)
        return EncodingBatch.from_encodings([_encoding(encoding) for encoding in encodings])

    @contextmanager
    def _encoding_with(self, reference: tokenizers.Tokenizer) -> Iterator[None]:
        """The stored truncation may be one that the reference itself cannot apply."""
        try:
            with _reference_errors("encode"):
                yield
        except BackendExecutionFault as error:
            if reference.truncation is None or "stride" not in error.details["reference"]:
                raise
            raise UnsupportedConfig(
                f"{self._source.name}: the reference cannot apply the stored truncation: {error.details['reference']}",
                details={"truncation": dict(reference.truncation)},
                remedy="correct truncation in the file: its stride must be less than max_length",
            ) from None

    # decode and vocabulary

    def decode(self, ids: Iterable[int], skip_special_tokens: bool) -> str:
        """`ids` are checked by the caller."""
        reference, ids = self.load(), list(ids)
        with _reference_errors("decode"):
            return reference.decode(ids, skip_special_tokens=skip_special_tokens)

    @cached_property
    def vocab_size(self) -> int:
        return self.load().get_vocab_size(with_added_tokens=True)

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        added = self.load().get_added_tokens_decoder()
        return {token.content: token_id for token_id, token in sorted(added.items()) if token.special}

    def token_to_id(self, token: str) -> int | None:
        return self.load().token_to_id(token)

    def id_to_token(self, token_id: int) -> str | None:
        return self.load().id_to_token(token_id)

    @cached_property
    def changes_length(self) -> bool:
        """The file stores truncation or padding."""
        reference = self.load()
        return reference.truncation is not None or reference.padding is not None


def checked_text(text: Text, item: int | None = None) -> str:
    """`text` as a str that is valid Unicode, by the rules of the native engine. Raises InvalidText with the position
    (code point of a str, byte of others), and the item of a batch; TypeError for what is no text."""
    return text_of(text, -1 if item is None else item)


def _encoding(encoding: tokenizers.Encoding) -> Encoding:
    return Encoding.from_ids(encoding.ids, offsets=encoding.offsets, tokens=encoding.tokens, backend="hf")


def _reference_errors(what: str) -> AbstractContextManager[None]:
    remedy = "the file and this version of tokenizers do not go together for this input"
    return foreign_errors(BackendId.HF.value, "the reference", what, remedy, key="reference")
