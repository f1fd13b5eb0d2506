"""gigatoken as a backend: ids of texts, and nothing else.

It has no template (`template` puts the ids before and after), no special tokens as text, no stored truncation or
padding: a file with those it must not be given, for it would pass them over. It decodes to bytes, special tokens
included, and panics at ids beyond the vocabulary, so that the reference decodes. One text at a time: its call for one
gives a buffer, while its batches come as lists of int or awkward arrays. It holds the GIL meanwhile.
Not here: what holds for every engine of others (`third_party`).
"""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import Any, ClassVar

from toktier.backends.hf import ArtifactSource
from toktier.backends.third_party import Ids, Template, ThirdPartyBackend
from toktier.routing.vocabulary import BackendId


class GigatokenBackend(ThirdPartyBackend):
    id: ClassVar[BackendId] = BackendId.GIGATOKEN

    def __init__(self, source: ArtifactSource, changes_length: bool, template: Template) -> None:
        """`template`: gives the ids before and after a text."""
        self._make_template = template
        super().__init__(source, changes_length)

    def _load(self, module: Any, text: str) -> Any:
        if self.changes_length:
            raise ValueError("the file stores truncation or padding, which gigatoken passes over")
        return module.Tokenizer.from_json(text)

    def _encode(self, text: str, add_special_tokens: bool, plain: bool) -> Ids:
        ids = self._engine.encode(text)
        if not add_special_tokens:
            return ids
        before, after = self._template
        whole = array("I", before)
        whole.frombytes(memoryview(self._encoding(ids)).cast("B"))
        whole.extend(after)
        return whole

    @cached_property
    def _template(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self._make_template()
