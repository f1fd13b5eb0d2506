"""tekken.json → tokenizer.json. A tekken file holds ranks with their bytes, the pattern, and how many ids are special.

Special tokens have the lowest ids, `default_num_special_tokens` of them; the ids of the ranks follow, and only as many
as make `default_vocab_size`: the file has more ranks than its tokenizer uses. Not here: what belongs to images, audio
and chats; it changes no id of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from toktier.conversion.rank_merges import last_pairs
from toktier.conversion.tiktoken_ranks import MAX_RANK, collect_ranks, damaged, decoded
from toktier.conversion.write_tokenizer_json import SpecialToken, document, reference_bytes
from toktier.errors import ArtifactDamaged, NotATokenizer
from toktier.program import strict_json

FILE = "tekken.json"

# Of versions that do not write their special tokens down: the first ids; what is left is named by number.
_UNWRITTEN = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
    "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip
_UNWRITTEN_UP_TO = 7


def convert(data: bytes, name: str = FILE) -> bytes:
    """The tokenizer.json of a tekken.json. Raises ArtifactDamaged for bytes that are none, UnsupportedConfig for one
    whose pattern or special tokens have no certain counterpart."""
    try:
        file = strict_json.parse_json(data, name)
    except NotATokenizer as error:
        raise damaged(name, error.message) from None
    config = _member(file, "config", dict, name)
    size = _count(config, "default_vocab_size", name)
    n_special = _count(config, "default_num_special_tokens", name)
    vocabulary = _member(file, "vocab", list, name)
    if not n_special < size <= n_special + len(vocabulary):
        raise damaged(name, f"{size} ids, {n_special} of them special, do not fit {len(vocabulary)} ranks")
    ranks = collect_ranks(name, _entries(vocabulary[: size - n_special], name))
    return reference_bytes(
        document(
            ranks,
            last_pairs(ranks),
            _member(config, "pattern", str, name),
            _special_tokens(file, config, n_special, name),
            first_id=n_special,
        )
    )


def _entries(vocabulary: list[Any], name: str) -> Iterator[tuple[str, bytes, int]]:
    for index, entry in enumerate(vocabulary):
        place = f"vocab[{index}]"
        if not isinstance(entry, dict) or entry.get("rank") != index or type(entry["rank"]) is not int:
            raise damaged(name, f"{place} has no rank {index}")
        encoded = entry.get("token_bytes")
        if not isinstance(encoded, str) or not encoded.isascii():
            raise damaged(name, f"{place} has no token_bytes")
        yield place, decoded(name, place, encoded.encode("ascii")), index


def _special_tokens(file: Any, config: Any, count: int, name: str) -> list[SpecialToken]:
    written = file.get("special_tokens")
    if written is None:
        version = _member(config, "version", str, name)
        if re.fullmatch("v[0-9]{1,9}", version) is None or int(version[1:]) > _UNWRITTEN_UP_TO:
            raise damaged(name, f"a file of version {version[:20]!r} has to list its special tokens")
        written = [{"rank": i, "token_str": c, "is_control": True} for i, c in enumerate(_UNWRITTEN[:count])]
    if not isinstance(written, list) or len(written) > count:
        raise damaged(name, f"special_tokens is no array of at most {count}")
    tokens = []
    for index, entry in enumerate(written):
        if not isinstance(entry, dict) or entry.get("rank") != index or type(entry["rank"]) is not int:
            raise damaged(name, f"special_tokens[{index}] has no rank {index}")
        content, control = entry.get("token_str"), entry.get("is_control", True)
        if not isinstance(content, str) or not isinstance(control, bool):
            raise damaged(name, f"special_tokens[{index}] has no token_str")
        tokens.append(SpecialToken(index, content, control))
    return [*tokens, *(SpecialToken(i, f"<SPECIAL_{i}>") for i in range(len(tokens), count))]


def _member(value: Any, key: str, kind: type, name: str) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(key), kind):
        raise _lacks(key, name)
    return value[key]


def _count(config: Any, key: str, name: str) -> int:
    value = config.get(key)
    if type(value) is not int or not 0 <= value <= MAX_RANK:
        raise _lacks(key, name)
    return value


def _lacks(key: str, name: str) -> ArtifactDamaged:
    return damaged(name, f"it has no {key} of the right type")
