"""tiktoken.model + a Python module + tokenizer_config.json → tokenizer.json: repositories that publish ranks and their
own tokenizer code instead.

The module is read as syntax and never run: all that is taken from it is the pattern, a constant. The layout is that of
the file whose digest is pinned, to the byte: ranks in the order of the file, every split of a token as a rule, 256 ids
after the ranks, named by the configuration or by number. Not here: whether the result is the pinned file.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from toktier.conversion.rank_merges import all_splits
from toktier.conversion.split_pattern import for_reference
from toktier.conversion.tiktoken_ranks import damaged, read_ranks
from toktier.conversion.write_tokenizer_json import added_token, assembled, one_line_bytes, spelled
from toktier.errors import UnsupportedConfig
from toktier.program.unicode import byte_alphabet

RESERVED = 256  # ids after the ranks
MAX_TEXT_BYTES = 1 << 20  # of module and configuration: sixty times the largest known
_NAME = "pat_str"


def convert(ranks_file: bytes, module: bytes, configuration: bytes) -> bytes:
    """The tokenizer.json. Raises ArtifactDamaged for inputs that are not what they are taken for, UnsupportedConfig for
    a pattern that would have to be written differently for the reference: the pinned file has it as published."""
    ranks = read_ranks(ranks_file)
    size = len(ranks)
    if sorted(ranks.values()) != list(range(size)):
        raise damaged("tiktoken.model", f"its {size:,} ranks are not 0 to {size - 1:,}")
    pattern = read_pattern(module)
    if for_reference(pattern) != pattern:
        raise UnsupportedConfig(
            f"the pattern of the module means something else to the reference as it is written: {pattern[:200]!r}",
            details={"pattern": pattern[:1000]},
        )
    named = _named_tokens(configuration)
    alphabet = byte_alphabet()
    spellings = {token: spelled(token, alphabet) for token in ranks}
    added = []
    for identity in range(size, size + RESERVED):
        content, special = named.get(identity, (f"<|reserved_token_{identity}|>", True))
        added.append(added_token(identity, content, special))
    return one_line_bytes(
        assembled(
            added_tokens=added,
            normalizer=None,
            split={"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            vocabulary={spellings[token]: rank for token, rank in ranks.items()},
            merges=[[spellings[left], spellings[right]] for left, right in all_splits(ranks)],
        )
    )


def read_pattern(module: bytes, name: str = "the module") -> str:
    """The value of `pat_str`: a string, or "|".join of a list of strings. Raises ArtifactDamaged."""
    if len(module) > MAX_TEXT_BYTES:
        raise damaged(name, f"it has {len(module):,} bytes, at most {MAX_TEXT_BYTES:,} are read")
    try:
        tree = ast.parse(module.decode("utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise damaged(name, "it is no Python module") from None
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == _NAME for target in node.targets)
    ]
    if len(values) != 1:
        raise damaged(name, f"it sets {_NAME} {len(values)} times, expected once")
    pattern = _constant_text(values[0])
    if pattern is None:
        raise damaged(name, f"its {_NAME} is neither a string nor a joined list of strings")
    return pattern


def _constant_text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(separator)), attr="join"),
            args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
            keywords=[],
        ):
            texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            return separator.join(texts) if texts and len(texts) == len(parts) else None
    return None


def _named_tokens(configuration: bytes, name: str = "tokenizer_config.json") -> dict[int, tuple[str, bool]]:
    """Id → (content, special) of the configuration's added_tokens_decoder."""
    if len(configuration) > MAX_TEXT_BYTES:
        raise damaged(name, f"it has {len(configuration):,} bytes, at most {MAX_TEXT_BYTES:,} are read")
    try:
        value: Any = json.loads(configuration)
        entries = value["added_tokens_decoder"].items()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise damaged(name, "it is no JSON object with an added_tokens_decoder") from None
    named: dict[int, tuple[str, bool]] = {}
    for key, entry in entries:
        content = entry.get("content") if isinstance(entry, dict) else None
        special = entry.get("special") if isinstance(entry, dict) else None
        if not key.isdecimal() or len(key) > 10 or not isinstance(content, str) or not isinstance(special, bool):
            raise damaged(name, f"its added_tokens_decoder[{key[:40]!r}] has no content and special")
        named[int(key)] = (content, special)
    return named
