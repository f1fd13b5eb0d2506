"""Added tokens that a tokenizer_config.json declares, and the tokenizer.json that has them too.

The reference follows tokenizer.json alone; loaders above it add what the side file declares, and then other ids come
out. Both are right answers to different questions, so the caller chooses. `merged` gives what the loader
(`transformers`) makes of the pair, as one document in one form, which compiles like any other and has a fingerprint of
its own. Not here: anything else of the side file (chat templates, `add_bos_token`), finding and keeping the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toktier.canonical import canonical_json
from toktier.errors import UnsupportedConfig
from toktier.program.strict_json import RepeatedKeys, parse_json

SIDE_FILE = "tokenizer_config.json"
MERGE_VERSION = 1  # of what `merged` gives for one pair of files
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_EXTRA = ("extra_special_tokens", "additional_special_tokens")  # the second is the older name, read where no first is
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class DeclaredToken:
    """An added token as a side file declares it.

    `normalized` None: not said, which means "unless special". `by_name`: declared by a name such as bos_token or among
    the extra tokens, and not as an added token: a token of this content that is there already keeps its flags, but
    becomes special where `promotes` is set.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None
    special: bool = False
    by_name: bool = False
    promotes: bool = False

    def entry(self) -> dict[str, Any]:
        """As `added_tokens` has it, without an id."""
        return {
            "content": self.content,
            "single_word": self.single_word,
            "lstrip": self.lstrip,
            "rstrip": self.rstrip,
            "normalized": not self.special if self.normalized is None else self.normalized,
            "special": self.special,
        }


def beside(path: str | os.PathLike[str]) -> Path | None:
    """The side file in the directory of a tokenizer.json, or None."""
    candidate = Path(path).parent / SIDE_FILE
    return candidate if candidate.is_file() else None


def declared_tokens(data: bytes, name: str = SIDE_FILE) -> tuple[DeclaredToken, ...]:
    """The added tokens of a side file, in the order in which a loader adds them; each content once.

    Raises ArtifactDamaged for what is no JSON, UnsupportedConfig for a token without a content or with odd flags.
    """
    value = parse_json(data, name)
    if not isinstance(value, dict):
        raise _odd(name, "the file", "an object")
    named = list(_named_tokens(value, name))
    contents = {token.content for token in named}
    tokens: dict[str, DeclaredToken] = {}
    for path, entry in _by_id(value.get("added_tokens_decoder") or {}, name):
        token = _token(entry, path, name)
        tokens[token.content] = replace(token, special=token.special or token.content in contents)
    listed = set(tokens)
    promotes = "added_tokens_decoder" not in value
    extra = [DeclaredToken(content, special=True) for content in _extra_contents(value, name)]
    for token in dict.fromkeys([*named, *extra]):  # of two that differ the last holds; one that repeats adds nothing
        if token.content not in listed:
            promoted = promotes and token.content in contents
            tokens[token.content] = replace(token, special=True, by_name=True, promotes=promoted)
    return tuple(tokens.values())


def missing(
    tokens: Iterable[DeclaredToken], token_to_id: Callable[[str], int | None], special: Iterable[str]
) -> list[str]:
    """Contents that a tokenizer has not, or has only as ordinary text although they are declared special."""
    known = set(special)
    return [t.content for t in tokens if token_to_id(t.content) is None or (t.special and t.content not in known)]


def merged(data: bytes, tokens: Iterable[DeclaredToken], name: str = "tokenizer.json") -> bytes:
    """The tokenizer.json `data` with `tokens` among its added tokens, in canonical form where there is one.

    A token that is there takes the declared flags, but stays special; a new one takes its id in the vocabulary, else
    the next free one. Raises ArtifactDamaged, and UnsupportedConfig for a file whose added tokens or vocabulary cannot
    be read: such a file is opened without its side file.
    """
    document = parse_json(data, name)
    model = document.get("model") if isinstance(document, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    listed = document.get("added_tokens", []) if isinstance(document, dict) else None
    if not isinstance(vocabulary, dict) or not isinstance(listed, list):
        raise _odd(name, "model.vocab", "an object of token and id, beside a list of added_tokens")
    if any(isinstance(part, RepeatedKeys) for part in (document, model, *listed)):
        raise _odd(name, "an object", "each key once")
    entries = {str(e.get("content")): dict(e) for e in listed if isinstance(e, dict)}
    if len(entries) != len(listed):
        raise _odd(name, "added_tokens", "objects with one content each")
    following = len(vocabulary) + sum(content not in vocabulary for content in entries)
    for token in tokens:
        known = entries.get(token.content)
        if known is None:
            entries[token.content] = {"id": vocabulary.get(token.content, following), **token.entry()}
            following += token.content not in vocabulary
        elif token.by_name:
            known["special"] = bool(known.get("special")) or token.promotes
        else:
            known.update(token.entry() | {"special": token.special or bool(known.get("special"))})
    return _form({**document, "added_tokens": list(entries.values())})


def _form(document: dict[str, Any]) -> bytes:
    """Canonical JSON; for a document with floats (scores, dropout), which have no such form here, sorted keys."""
    try:
        return canonical_json(document)
    except (TypeError, ValueError):
        text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return text.encode("utf-8")


def _by_id(value: Any, name: str) -> list[tuple[str, Any]]:
    """(path, token) of `added_tokens_decoder`, ascending by id."""
    if not isinstance(value, dict):
        raise _odd(name, "added_tokens_decoder", "an object")
    try:
        ordered = sorted(value.items(), key=lambda pair: int(pair[0]))
    except ValueError:
        raise _odd(name, "added_tokens_decoder", "ids as keys") from None
    return [(f"added_tokens_decoder[{key}]", entry) for key, entry in ordered]


def _named_tokens(value: dict[str, Any], name: str) -> Iterable[DeclaredToken]:
    """The usual names first, then others that end in _token, then those of a table of extra tokens."""
    others = [key for key in value if key.endswith("_token") and key not in _NAMED]
    for key in (*_NAMED, *others):
        entry = value.get(key)
        if isinstance(entry, dict) or (isinstance(entry, str) and entry):
            yield _token(entry, key, name)
    extra = _extra(value)
    if isinstance(extra, dict):
        for key, entry in extra.items():
            yield _token(entry, f"extra_special_tokens.{key}", name)


def _extra(value: dict[str, Any]) -> Any:
    return next((value[key] for key in _EXTRA if value.get(key)), None)


def _extra_contents(value: dict[str, Any], name: str) -> list[str]:
    extra = _extra(value)
    if extra is None or isinstance(extra, dict):
        return []
    if not isinstance(extra, list):
        raise _odd(name, "extra_special_tokens", "a list or an object")
    return [_token(entry, f"extra_special_tokens[{i}]", name).content for i, entry in enumerate(extra)]


def _token(entry: Any, path: str, name: str) -> DeclaredToken:
    if isinstance(entry, str) and entry:
        return DeclaredToken(entry, special=True)
    if not isinstance(entry, dict) or not isinstance(entry.get("content"), str) or not entry["content"]:
        raise _odd(name, path, "a token with a content")
    flags = {flag: entry[flag] for flag in _FLAGS if entry.get(flag) is not None}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise _odd(name, path, "flags that are true or false")
    return DeclaredToken(entry["content"], **flags)


def _odd(name: str, path: str, expected: str) -> UnsupportedConfig:
    return UnsupportedConfig(
        f"{name}: expected {expected} at {path}",
        details={"file": name, "path": path},
        remedy='leave sidecar="merge" out: the tokenizer.json alone is followed then',
    )
