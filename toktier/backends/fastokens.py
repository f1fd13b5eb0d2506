"""fastokens as a backend.

Its batch call gives the ids of all rows as one buffer, which spares an int for every id; one text is a batch of one.
That call does not pad, so that the other one is taken where the file stores padding. The reference decodes.
Not here: what holds for every engine of others (`third_party`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from toktier.backends.third_party import Ids, ThirdPartyBackend
from toktier.routing.vocabulary import BackendId


class FastokensBackend(ThirdPartyBackend):
    id: ClassVar[BackendId] = BackendId.FASTOKENS

    def _load(self, module: Any, text: str) -> Any:
        return module.Tokenizer.from_json_str(text)

    def _encode(self, text: str, add_special_tokens: bool, plain: bool) -> Ids:
        return next(iter(self._encode_batch([text], add_special_tokens, plain)))

    def _encode_batch(self, texts: Sequence[str], add_special_tokens: bool, plain: bool) -> Iterable[Ids]:
        if self.changes_length:
            rows = self._engine.encode_batch(list(texts), add_special_tokens, plain)
            return [row.ids for row in rows]
        ids, ends = self._engine.encode_batch_flat(list(texts), add_special_tokens, plain)
        flat, at = memoryview(ids).cast("I"), memoryview(ends).cast("Q")
        if not at or (at[0], at[-1]) != (0, len(flat)) or any(begin > end for begin, end in pairwise(at)):
            raise ValueError("its rows are not those of its buffer")
        return [flat[begin:end] for begin, end in pairwise(at)]

    def _encode_segments(self, segments: list[tuple[str, bool]]) -> Ids:
        return self._engine.encode_segments(segments).ids
