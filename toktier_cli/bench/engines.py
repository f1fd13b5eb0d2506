"""The engines whose speed is compared, one small adapter each, under one protocol.

Each gives its results in the form that costs it least, and `ids_of` turns them into bytes outside the timed section.
An engine that is not installed is absent, one that cannot take a file refuses it, with the reason: neither is hidden.
Nothing here chooses an engine to serve (`toktier.routing`); no adapter stands in for another.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Protocol

from toktier.program.unicode import byte_alphabet


class Refused(Exception):
    """The engine cannot take this file. The message is one line, without paths."""


class Engine(Protocol):
    """A loaded engine. `encode` is what is timed: ids of one text, special tokens recognised, no template added."""

    name: ClassVar[str]
    distribution: ClassVar[str]
    encode: Callable[[str], Any]

    def __init__(self, file: Path) -> None: ...

    def ids_of(self, result: Any) -> bytes:
        """The ids of a result of `encode`, as uint32 of this machine's byte order."""

    def encode_batch(self, texts: Sequence[str], threads: int) -> Any:
        """All texts at once on at most `threads` threads."""

    def ids_of_batch(self, result: Any) -> list[bytes]: ...


class _Listed:
    """Results that make a list of their ids when asked; those of a batch are such results in a row."""

    def ids_of(self, result: Any) -> bytes:
        return array("I", result.ids).tobytes()

    def ids_of_batch(self, result: Any) -> list[bytes]:
        return [self.ids_of(row) for row in result]


class Toktier:
    """This package, with its own engine or not at all."""

    name: ClassVar[str] = "toktier"
    distribution: ClassVar[str] = "toktier"

    def __init__(self, file: Path) -> None:
        import toktier

        config = toktier.Config(tokenizer_fallback=False)
        try:
            self._tok = toktier.from_file(file, policy="supported", tokenizer="fast_cpu", config=config)
        except toktier.ToktierError as error:
            raise Refused(f"{error.code}: {error.message}") from None
        self.encode: Callable[[str], Any] = self._tok.encode
        served = self._tok.encode("a").backend
        if served != "fast_cpu":
            raise Refused(f"{served} serves it")

    def ids_of(self, result: Any) -> bytes:
        return bytes(memoryview(result))

    def encode_batch(self, texts: Sequence[str], threads: int) -> Any:
        return self._tok.encode_batch(texts, workers=threads)

    def ids_of_batch(self, result: Any) -> list[bytes]:
        return [bytes(memoryview(row)) for row in result]


class Reference(_Listed):
    """Hugging Face tokenizers: what every other result is compared with."""

    name: ClassVar[str] = "tokenizers"
    distribution: ClassVar[str] = "tokenizers"

    def __init__(self, file: Path) -> None:
        import tokenizers

        self._tok = tokenizers.Tokenizer.from_file(str(file))
        tok = self._tok
        self.encode: Callable[[str], Any] = lambda text: tok.encode(text, add_special_tokens=False)

    def encode_batch(self, texts: Sequence[str], threads: int) -> Any:
        # Its pool has as many threads as the process may use processors; the variable only says whether it is used.
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
        return self._tok.encode_batch(texts, add_special_tokens=False)


class Fastokens(_Listed):
    """A result holds its ids natively and makes the list when asked; a batch comes as one buffer with row borders."""

    name: ClassVar[str] = "fastokens"
    distribution: ClassVar[str] = "fastokens"

    def __init__(self, file: Path) -> None:
        module: Any = importlib.import_module("fastokens")
        self._tok = _load(lambda: module.Tokenizer.from_file(str(file)), file)
        self.encode: Callable[[str], Any] = self._tok.encode

    def encode_batch(self, texts: Sequence[str], threads: int) -> Any:
        return self._tok.encode_batch_flat(texts)

    def ids_of_batch(self, result: Any) -> list[bytes]:
        ids, borders = result[0], array("Q", result[1])
        return [ids[4 * start : 4 * end] for start, end in pairwise(borders)]


class Gigatoken:
    """A result is an array of numpy. The native object is called, which its wrapper only passes the text to."""

    name: ClassVar[str] = "gigatoken"
    distribution: ClassVar[str] = "gigatoken"

    def __init__(self, file: Path) -> None:
        module: Any = importlib.import_module("gigatoken")
        # By its content: from a path it would look for a configuration in the directory.
        tok = _load(lambda: module.Tokenizer.from_json(file.read_bytes()), file)
        self._backend = tok.backend
        self.encode: Callable[[str], Any] = self._backend.encode

    def ids_of(self, result: Any) -> bytes:
        return bytes(result.tobytes())

    def encode_batch(self, texts: Sequence[str], threads: int) -> Any:
        return self._backend.encode_batch(texts, parallel=threads > 1)

    def ids_of_batch(self, result: Any) -> list[bytes]:
        return [array("I", row).tobytes() for row in result.to_list()]


class Basetenkenizer(_Listed):
    """A result holds its ids natively and makes the list when asked."""

    name: ClassVar[str] = "basetenkenizer"
    distribution: ClassVar[str] = "basetenkenizer"

    def __init__(self, file: Path) -> None:
        module: Any = importlib.import_module("basetenkenizer")
        self._tok = _load(lambda: module.Tokenizer.from_file(str(file)), file)
        self.encode: Callable[[str], Any] = self._tok.encode

    def encode_batch(self, texts: Sequence[str], threads: int) -> Any:
        return self._tok.encode_batch(texts)


class Tiktoken:
    """tiktoken reads no tokenizer.json: its ranks are made from one where the ids are the ranks, else it refuses."""

    name: ClassVar[str] = "tiktoken"
    distribution: ClassVar[str] = "tiktoken"

    def __init__(self, file: Path) -> None:
        module: Any = importlib.import_module("tiktoken")
        pattern, ranks, special = _ranks_of(json.loads(file.read_bytes()))
        encoding = _load(
            lambda: module.Encoding(name="bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special), file
        )
        allowed = frozenset(special)

        def encode(text: str) -> Any:
            return encoding.encode_to_numpy(text, allowed_special=allowed, disallowed_special=())

        self.encode: Callable[[str], Any] = encode
        self._encoding, self._allowed = encoding, allowed

    def ids_of(self, result: Any) -> bytes:
        return bytes(result.tobytes())

    def encode_batch(self, texts: Sequence[str], threads: int) -> Any:
        return self._encoding.encode_batch(
            texts, num_threads=threads, allowed_special=self._allowed, disallowed_special=()
        )

    def ids_of_batch(self, result: Any) -> list[bytes]:
        return [array("I", row).tobytes() for row in result]


ENGINES: tuple[type[Engine], ...] = (Toktier, Reference, Fastokens, Gigatoken, Basetenkenizer, Tiktoken)
REFERENCE = Reference.name


def engine(name: str) -> type[Engine]:
    """Raises KeyError for a name that no adapter has."""
    return {kind.name: kind for kind in ENGINES}[name]


def version(name: str) -> str | None:
    """Version of an installed engine; None where it is absent."""
    try:
        return importlib.metadata.version(engine(name).distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _load(make: Callable[[], Any], file: Path) -> Any:
    """What `make` gives. Whatever it raises is a refusal: peers have no common error."""
    try:
        return make()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of Rust code is a BaseException
        line = str(error).strip().split("\n")[0] or type(error).__name__
        raise Refused(line.replace(str(file), "the file")[:200]) from None


def _ranks_of(document: dict[str, Any]) -> tuple[str, dict[bytes, int], dict[str, int]]:
    """Pattern, ranks and special tokens. Refused: what tiktoken has no place for, or vocabularies in another order."""
    model = document["model"]
    if document.get("normalizer") is not None:
        raise Refused("a normalizer has no place in tiktoken")
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise Refused("no byte-level BPE")
    stages = document.get("pre_tokenizer") or {}
    stages = stages.get("pretokenizers", [stages])
    splits = [stage for stage in stages if stage.get("type") == "Split"]
    levels = [stage for stage in stages if stage.get("type") == "ByteLevel"]
    if len(splits) != 1 or len(levels) != 1 or len(stages) != 2 or levels[0].get("add_prefix_space"):
        raise Refused("tiktoken has one split pattern, this file has another kind of pre-tokenizer")
    # tiktoken's pieces are the matches, which both spellings mean where the pattern leaves nothing between them.
    kept = (splits[0].get("behavior"), bool(splits[0].get("invert")))
    if kept not in (("Isolated", False), ("Removed", True)) or "Regex" not in splits[0]["pattern"]:
        raise Refused("tiktoken has one split pattern, this file has another kind of split")
    vocabulary: dict[str, int] = model["vocab"]
    added = {token["content"]: token["id"] for token in document.get("added_tokens", ())}
    bytes_of = {character: byte for byte, character in enumerate(byte_alphabet())}
    last = -1
    for rule in model["merges"]:
        left, right = rule if isinstance(rule, list) else rule.split(" ")
        if vocabulary[left + right] < last:
            raise Refused("the ids are not in the order of the merges, and tiktoken's ids are its ranks")
        last = vocabulary[left + right]
    ranks = {
        bytes(bytes_of[character] for character in token): rank
        for token, rank in vocabulary.items()
        if token not in added and all(character in bytes_of for character in token)
    }
    return splits[0]["pattern"]["Regex"], ranks, added


if sys.byteorder != "little":  # the digests of results are over their memory
    raise ImportError("the engines are compared on little-endian machines alone")
