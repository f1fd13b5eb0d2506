"""A tokenizer.json, read by type: bytes → `TokenizerSpec`, or the refusal that the file deserves.

In this order: bytes that are no JSON (`ArtifactDamaged`), JSON that is no tokenizer (`NotATokenizer`), added tokens
whose result the reference leaves undefined (`UnsupportedConfig`), and what the compiler does not know
(`ProgramUnsupported`, with JSON path and component). Nothing is skipped: a field that nobody reads is declined.
Not here: tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toktier.errors import NotATokenizer, ProgramUnsupported
from toktier.labels import quoted
from toktier.program.added_tokens import PlacedToken, matched_contents, place_tokens, read_added_tokens
from toktier.program.bpe_model import BpeModel, check_model_kind, read_model
from toktier.program.decoder import Decoder, read_decoder
from toktier.program.json_fields import Fields, describe, malformed
from toktier.program.length_limits import Padding, Truncation, read_padding, read_truncation
from toktier.program.normalizer import NormalizerStep, normalize, read_normalizer
from toktier.program.post_processor import PostProcessor, read_post_processor
from toktier.program.pre_tokenizer import PreTokenizer, read_pre_tokenizer
from toktier.program.strict_json import parse_json

VERSION = "1.0"


@dataclass(frozen=True)
class TokenizerSpec:
    """Everything that a tokenizer.json says. `sha256` (hex) and `size` (bytes) are those of the file."""

    size: int
    sha256: str
    normalizer: tuple[NormalizerStep, ...]
    added_tokens: tuple[PlacedToken, ...]
    pre_tokenizer: PreTokenizer
    model: BpeModel
    post_processor: PostProcessor
    decoder: Decoder
    truncation: Truncation | None
    padding: Padding | None


def read_tokenizer(data: bytes, name: str = "tokenizer.json", *, sha256: str | None = None) -> TokenizerSpec:
    """The tokenizer in `data`; `name` stands in messages; `sha256` is the digest of `data` where it is known.

    Raises ArtifactDamaged, NotATokenizer, UnsupportedConfig or ProgramUnsupported, each naming file or JSON path.
    """
    value = parse_json(data, name)
    try:
        return read_parsed(value, len(data), sha256 or hashlib.sha256(data).hexdigest())
    except NotATokenizer as error:
        error.message = f"{name} ({len(data):,} bytes) is no tokenizer that the reference loads: {error.message}"
        error.details.setdefault("name", name)
        raise


def read_parsed(value: Any, size: int, sha256: str, model: BpeModel | None = None) -> TokenizerSpec:
    """The tokenizer of a parsed document. `model`: what `read_model` made of its member before, for callers that read
    many documents of one model. Raises as `read_tokenizer`."""
    if not isinstance(value, dict):
        raise malformed("the file", "an object", value)
    if "model" not in value:
        raise malformed("model", "a model")
    fields = Fields(value, "")
    version = fields.take("version", VERSION)
    if version != VERSION:
        raise ProgramUnsupported("version", describe(version))
    try:
        check_model_kind(value["model"])
    except ProgramUnsupported:
        _check_added_tokens(value)
        raise
    normalizer = read_normalizer(fields.take("normalizer", None))
    tokens = read_added_tokens(fields.take("added_tokens", []))
    contents = matched_contents(tokens, lambda text: normalize(normalizer, text))
    written = fields.take("model")
    spec = TokenizerSpec(
        size=size,
        sha256=sha256,
        normalizer=normalizer,
        pre_tokenizer=read_pre_tokenizer(fields.take("pre_tokenizer", None)),
        model=(model := model or read_model(written)),
        added_tokens=place_tokens(tokens, contents, model.vocabulary, model.highest_id),
        post_processor=read_post_processor(fields.take("post_processor", None)),
        decoder=read_decoder(fields.take("decoder", None)),
        truncation=read_truncation(fields.take("truncation", None)),
        padding=read_padding(fields.take("padding", None)),
    )
    fields.done()
    _check_stated_ids(spec)
    return spec


def _check_added_tokens(value: dict[str, Any]) -> None:
    """Undefined is undefined under any model: such a file is refused before the reference is asked to serve it."""
    try:
        normalizer = read_normalizer(value.get("normalizer"))
        tokens = read_added_tokens(value.get("added_tokens", []))
    except ProgramUnsupported:
        return
    matched_contents(tokens, lambda text: normalize(normalizer, text))


def _check_stated_ids(spec: TokenizerSpec) -> None:
    """Template and padding name ids together with tokens. Where these differ, `ids` and `tokens` would disagree."""
    added = {placed.token.content: placed.id for placed in spec.added_tokens}
    post = spec.post_processor
    stated: list[tuple[str, Sequence[tuple[int, str]]]] = [(post.path, (*post.before, *post.after))]
    if spec.padding is not None:
        stated.append(("padding", [(spec.padding.id, spec.padding.token)]))
    for path, pairs in stated:
        for identity, text in pairs:
            if added.get(text, spec.model.vocabulary.get(text)) != identity:
                raise ProgramUnsupported(path, f"id {identity} for {quoted(text)}, which is not its token")
