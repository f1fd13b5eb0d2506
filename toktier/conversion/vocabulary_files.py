"""A file of ranks (tiktoken) or a tekken file in the place of a tokenizer.json: converted, and kept in the cache by the
digests of what it was made of.

A tekken file says all of it. A file of ranks says neither how a text is split nor what is special: a document beside
it does (NAME.json: what `tiktoken.Encoding` takes as pat_str and special_tokens), or the files of the one repository
layout whose conversion is pinned. Without either it is refused: a guess would give wrong ids without a word.
Not here: how such files are recognised (`recognise`), the conversions (`tekken`, `ranks_with_module`,
`write_tokenizer_json`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from toktier.config import Settings
from toktier.conversion import pinned, tekken
from toktier.conversion.rank_merges import last_pairs
from toktier.conversion.recognise import VocabularyFormat
from toktier.conversion.tiktoken_ranks import MAX_RANK, damaged, read_ranks
from toktier.conversion.write_tokenizer_json import SpecialToken, document, reference_bytes
from toktier.errors import NotATokenizer, UnsupportedConfig
from toktier.labels import typed
from toktier.program import strict_json, trust
from toktier.regular_files import open_regular
from toktier.storage import atomic_write, environment_fault, make_directory

DIRECTORY = "converted"  # in the cache
SUFFIX = ".json"  # of the document beside a file of ranks, behind its whole name
RANKS_V1 = "ranks_with_document_v1"
_KEYS = {"pat_str", "special_tokens"}


@dataclass(frozen=True, slots=True)
class Converted:
    """`path`: of the tokenizer.json, in the cache; `converter`: what made it."""

    path: Path
    converter: str


def converted_file(path: str | os.PathLike[str], form: VocabularyFormat, settings: Settings, name: str) -> Converted:
    """The tokenizer.json of a vocabulary file of this format. `name` stands in messages.

    Raises ArtifactDamaged, UnsupportedConfig (what the file alone does not say, or has no certain counterpart),
    EnvironmentFault, and ConfigInvalid on a host without a cache.
    """
    made = _tekken if form is VocabularyFormat.TEKKEN else _ranks
    contents, converter, convert = made(Path(path), name)
    digests = [hashlib.sha256(data).hexdigest() for data in contents]
    target = settings.require_cache() / DIRECTORY / f"{'.'.join(digests)}.{converter}.json"
    with contextlib.suppress(OSError):
        status = os.lstat(target)
        if stat.S_ISREG(status.st_mode) and trust.only_owner_writes(status):
            return Converted(target, converter)
    data = convert()
    make_directory(target.parent)
    atomic_write(target, data)
    return Converted(target, converter)


_Made = tuple[list[bytes], str, Callable[[], bytes]]


def _tekken(path: Path, name: str) -> _Made:
    data = _read(path)
    return [data], pinned.converter_of([tekken.FILE]).name, lambda: tekken.convert(data, name)


def _ranks(path: Path, name: str) -> _Made:
    ranks = _read(path)
    beside = path.with_name(path.name + SUFFIX)
    if os.path.lexists(beside):  # one that is no file, or that leads nowhere, is told of when it is read
        told = _read(beside)
        return [ranks, told], RANKS_V1, lambda: _with_document(ranks, name, told, beside.name)
    for converter in pinned.CONVERTERS:
        if path.name == converter.inputs[0] and all(path.with_name(n).is_file() for n in converter.inputs):
            contents = {n: _read(path.with_name(n)) for n in converter.inputs}
            return list(contents.values()), converter.name, partial(converter.run, contents)
    raise UnsupportedConfig(
        f"{name} holds ranks alone: neither the pattern that splits texts nor the special tokens are in such a file",
        details={"path": str(path), "missing": ["pat_str", "special_tokens"]},
        remedy=f'write {typed(beside)} beside it: {{"pat_str": PATTERN, "special_tokens": {{TOKEN: ID}}}}, as'
        " tiktoken.Encoding takes them; or use a tokenizer.json that the vocabulary's publisher provides",
    )


def _with_document(ranks_file: bytes, name: str, told: bytes, told_name: str) -> bytes:
    ranks = read_ranks(ranks_file, name)
    pattern, special = _said(told, told_name)
    return reference_bytes(document(ranks, last_pairs(ranks), pattern, special))


def _said(told: bytes, name: str) -> tuple[str, list[SpecialToken]]:
    try:
        value: Any = strict_json.parse_json(told, name)
    except NotATokenizer as error:
        raise damaged(name, error.message) from None
    if not isinstance(value, dict) or set(value) != _KEYS:
        raise damaged(name, f"expected an object of {' and '.join(sorted(_KEYS))}, and nothing else")
    pattern, tokens = value["pat_str"], value["special_tokens"]
    if not isinstance(pattern, str) or not isinstance(tokens, dict):
        raise damaged(name, "expected pat_str to be a string and special_tokens an object of ids")
    special = []
    for content, identity in tokens.items():
        if type(identity) is not int or not 0 <= identity <= MAX_RANK:
            raise damaged(name, f"the id of {content[:40]!r} is no integer from 0 to {MAX_RANK:,}")
        special.append(SpecialToken(identity, content))
    return pattern, special


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as stream:
            strict_json.check_size(os.fstat(stream.fileno()).st_size, str(path))
            return stream.readall()
    except OSError as error:
        raise environment_fault(error, "read", path) from None
