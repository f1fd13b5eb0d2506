"""What the shape of `transformers` needs to know of a tokenizer.json beyond what a Tokenizer tells: its template with
type ids, its added tokens with their flags, the truncation and padding that it stores.

Most of it stands in the compiled program; the file itself is read again only where that does not say it, once. Not
here: what the reference object answers (`reference_calls`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toktier.canonical import canonical_json
from toktier.compat.composed_rows import Frame
from toktier.errors import UnsupportedConfig
from toktier.program.side_file import declared_tokens

if TYPE_CHECKING:
    from toktier.compat.reference_calls import ReferenceCalls
    from toktier.tokenizer import Tokenizer

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class StoredSides:
    """Of the truncation and padding in the file; None where there is none."""

    truncation: str | None = None
    padding: str | None = None
    pad_token: str | None = None


class FileFacts:
    """Of one Tokenizer. Facts are read on first use, and are the same whoever reads them first."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._native = tokenizer._native

    def __reduce__(self) -> tuple[type[FileFacts], tuple[Tokenizer]]:
        return FileFacts, (self._tokenizer,)

    @property
    def composes(self) -> bool:
        """Whether rows can be composed from the ids of texts alone: the program is known, and cuts and pads nothing."""
        return self._native is not None and not self._native.changes_length

    @property
    def trims_offsets(self) -> bool:
        """Whether the post-processor of the file trims offsets, as far as the program says."""
        return self._native is not None and bool(self._native.meta["post_processor"]["trim_offsets"])

    def model_size(self, reference: ReferenceCalls) -> int:
        """Tokens of the model without added ones."""
        if self._native is not None:
            return int(self._native.meta["model"]["vocabulary"])
        size: int = reference.ask(lambda opened: opened.get_vocab_size(with_added_tokens=False))
        return size

    def is_bpe(self, reference: ReferenceCalls) -> bool:
        """Whether the model is BPE."""
        if self._native is not None:
            return True
        name: str = reference.ask(lambda opened: type(opened.model).__name__)
        return name == "BPE"

    def frame(self, *, types: bool) -> Frame:
        """The template around a single text; with its type ids where they are asked for."""
        return self._typed_frame if types else self._frame

    @cached_property
    def _frame(self) -> Frame:
        before, after = ((), ()) if self._native is None else self._native.template
        return Frame(before, after)

    @cached_property
    def _typed_frame(self) -> Frame:
        """Read from the template's text: the compiler has checked its form (`toktier.program.post_processor`)."""
        frame = self._frame
        template = next(_templates(self._document["post_processor"]), None)
        if template is None:
            return frame
        before: list[int] = []
        after: list[int] = []
        text_type, side = 0, before
        for part in template["single"]:
            if "Sequence" in part:
                text_type, side = int(part["Sequence"]["type_id"]), after
            else:
                special = part["SpecialToken"]
                side += [int(special["type_id"])] * len(template["special_tokens"][special["id"]]["ids"])
        return Frame(frame.before, frame.after, tuple(before), text_type, tuple(after))

    def stored_sides(self) -> StoredSides:
        """What loaders take from the truncation and padding of the file."""
        if self._native is not None and not self._native.changes_length:
            return StoredSides()
        truncation, padding = self._document.get("truncation"), self._document.get("padding")
        return StoredSides(
            None if truncation is None else str(truncation.get("direction", "Right")).lower(),
            None if padding is None else str(padding.get("direction", "Right")).lower(),
            None if padding is None else str(padding["pad_token"]),
        )

    def require_declared(self, values: Mapping[str, Any], contents: Iterable[str]) -> None:
        """Raises UnsupportedConfig for an added token that the tokenizer does not have as `values`, the members of a
        config, declare it, and for one of `contents` that is no added token."""
        listed: dict[str, dict[str, Any]] | None = None
        special = self._tokenizer.special_tokens
        for content in contents:
            if content not in special:
                listed = self._added if listed is None else listed
                if content not in listed:
                    raise _undeclared(content, "is no added token of the tokenizer.json")
        if not values.get("added_tokens_decoder"):
            return
        for token in declared_tokens(canonical_json({"added_tokens_decoder": values["added_tokens_decoder"]})):
            found = self._added.get(token.content)
            # The tokenizer may know a token as special that the config only names so elsewhere.
            expected = token.entry() | ({"special": True} if token.content in special else {})
            if found is None or any(found[flag] != expected[flag] for flag in _FLAGS):
                raise _undeclared(token.content, "is declared with other flags, or is no added token of tokenizer.json")

    @cached_property
    def _added(self) -> dict[str, dict[str, Any]]:
        return {str(token["content"]): token for token in self._document["added_tokens"]}

    @cached_property
    def _document(self) -> dict[str, Any]:
        """The tokenizer.json without its model: what stands there was checked when it was opened."""
        document: dict[str, Any] = json.loads(self._tokenizer._reference._source.read())
        return {
            "post_processor": document.get("post_processor"),
            "added_tokens": document.get("added_tokens") or [],
            "truncation": document.get("truncation"),
            "padding": document.get("padding"),
        }


def _templates(post_processor: Any) -> Iterator[dict[str, Any]]:
    if isinstance(post_processor, dict):
        if post_processor.get("type") == "TemplateProcessing":
            yield post_processor
        for step in post_processor.get("processors") or ():
            yield from _templates(step)


def _undeclared(content: str, why: str) -> UnsupportedConfig:
    return UnsupportedConfig(
        f"the token {content!r} {why}",
        details={"token": content},
        remedy='open the tokenizer with sidecar="merge", or FastTokenizer.from_directory, or name a token that it has',
    )
