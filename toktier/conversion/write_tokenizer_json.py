"""A vocabulary of ranks as the bytes of a tokenizer.json: the same input gives the same bytes, everywhere.

`document` builds what the reference would build from it, field by field in the reference's order; `reference_bytes`
writes that as the reference's own `save` does. Not here: where vocabularies come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toktier.conversion.rank_merges import Rule
from toktier.conversion.split_pattern import for_reference
from toktier.errors import UnsupportedConfig
from toktier.program.unicode import byte_alphabet

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token that is no entry of the ranks. `special`: left out by decoding that skips special tokens."""

    id: int
    content: str
    special: bool = True


def spelled(token: bytes, alphabet: str | None = None) -> str:
    """A token in the byte alphabet."""
    return "".join(map((alphabet or byte_alphabet()).__getitem__, token))


def document(
    ranks: Mapping[bytes, int],
    rules: Sequence[Rule],
    pattern: str,
    special_tokens: Sequence[SpecialToken],
    *,
    first_id: int = 0,
    normal_form: str | None = None,
) -> Json:
    """The tokenizer of a tiktoken encoding. `pattern` is tiktoken's; `first_id` is added to every rank; `normal_form`
    is NFC and the like, or None.

    Text between matches of the pattern is dropped, as tiktoken drops it. Raises UnsupportedConfig for a pattern without
    a certain counterpart, and for special tokens that share an id, a content or a spelling with another token.
    """
    alphabet = byte_alphabet()
    spellings = {token: spelled(token, alphabet) for token in ranks}
    vocabulary = {spellings[token]: first_id + ranks[token] for token in sorted(ranks, key=ranks.__getitem__)}
    _check_special(vocabulary, special_tokens, alphabet)
    placed = sorted(special_tokens, key=lambda token: token.id)
    if [t.id for t in placed] != list(range(len(vocabulary), len(vocabulary) + len(placed))):
        # The reference numbers added tokens from the size of the vocabulary on, unless the vocabulary has them.
        vocabulary = dict(sorted([*vocabulary.items(), *((t.content, t.id) for t in placed)], key=lambda item: item[1]))
    return assembled(
        added_tokens=[added_token(t.id, t.content, t.special) for t in placed],
        normalizer=None if normal_form is None else {"type": normal_form},
        # Kept are the matches alone: "Removed" and inverted.
        split={
            "type": "Split",
            "pattern": {"Regex": for_reference(pattern)},
            "behavior": "Removed",
            "invert": True,
        },
        vocabulary=vocabulary,
        merges=[[spellings[left], spellings[right]] for left, right in rules],
    )


def assembled(
    *, added_tokens: list[Json], normalizer: Json | None, split: Json, vocabulary: dict[str, int], merges: list[Any]
) -> Json:
    """A byte-level BPE tokenizer of these parts, everything else as such tokenizers have it.

    `ignore_merges`: tiktoken looks a whole piece up before it joins anything in it.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    steps = [split, byte_level | {"add_prefix_space": False, "use_regex": False}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": byte_level | {"trim_offsets": False},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def added_token(identity: int, content: str, special: bool) -> Json:
    """An added token without flags, found in the raw text."""
    return {
        "id": identity,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def reference_bytes(tokenizer: Json) -> bytes:
    """As the reference saves it: indented by two, nothing escaped that need not be, no line end at the end."""
    return json.dumps(tokenizer, ensure_ascii=False, indent=2).encode("utf-8")


def one_line_bytes(tokenizer: Json) -> bytes:
    """On one line with its end, a blank after each comma and colon: the form of files whose digest is pinned."""
    return (json.dumps(tokenizer, ensure_ascii=False) + "\n").encode("utf-8")


def _check_special(vocabulary: Mapping[str, int], tokens: Iterable[SpecialToken], alphabet: str) -> None:
    ids, contents = set(vocabulary.values()), set(vocabulary)
    byte_of = {character: byte for byte, character in enumerate(alphabet)}
    for token in tokens:
        read = bytes(byte_of.get(c, 0) for c in token.content) if all(c in byte_of for c in token.content) else None
        if not token.content:
            problem = "is empty"
        elif token.id in ids:
            problem = f"has the id {token.id} of another token"
        elif token.content in contents:
            problem = "is spelled like another token"
        elif read is not None and read != token.content.encode():
            problem = "is what the byte alphabet makes of another text"
        else:
            ids.add(token.id)
            contents.add(token.content)
            continue
        raise UnsupportedConfig(
            f"the special token {token.content!r} {problem}",
            details={"id": token.id, "content": token.content[:200]},
            remedy="use a tokenizer.json that the vocabulary's publisher provides",
        )
