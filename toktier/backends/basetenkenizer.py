"""basetenkenizer as a backend, its decoder included.

Ids are moved out of its results as numpy arrays, which it needs anyway. Segments are asked for without `tiktoken_safe`:
that cuts texts of more than 400,000 characters, and runs of 25,000, where the reference does not.
Not here: what holds for every engine of others (`third_party`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from toktier.backends.third_party import Ids, ThirdPartyBackend
from toktier.routing.vocabulary import BackendId


class BasetenkenizerBackend(ThirdPartyBackend):
    id: ClassVar[BackendId] = BackendId.BASETENKENIZER

    def _load(self, module: Any, text: str) -> Any:
        return module.Tokenizer.from_json_str(text)

    def _encode(self, text: str, add_special_tokens: bool, plain: bool) -> Ids:
        return _moved(self._engine.encode(text, add_special_tokens, plain))

    def _encode_batch(self, texts: Sequence[str], add_special_tokens: bool, plain: bool) -> Iterable[Ids]:
        return [_moved(row) for row in self._engine.encode_batch(list(texts), add_special_tokens, plain)]

    def _encode_segments(self, segments: list[tuple[str, bool]]) -> Ids:
        return _moved(self._engine.encode_segments(segments, tiktoken_safe=False))

    def _decode(self, ids: list[int], skip_special_tokens: bool) -> object:
        return self._engine.decode(ids, skip_special_tokens)


def _moved(encoding: Any) -> Ids:
    return encoding.into_numpy(ids=True)["ids"]
