"""Bytes of a JSON file → Python values, or `ArtifactDamaged` with the place: what the reference accepts, no more.

Python's own reader takes NaN, lone surrogates and a byte-order mark in some spellings; the reference's takes none of
them. Repeated keys are kept visible (`RepeatedKeys`), because what they mean depends on where they stand. Not here:
what the values mean (`tokenizer_json.py`).
"""

from __future__ import annotations

import gc
import json
import re
from typing import Any, NoReturn

from toktier.errors import ArtifactDamaged, NotATokenizer

MAX_BYTES = 256 * 1024 * 1024  # seven times the largest known file
MAX_VALUES = 16_000_000  # nine times the most values of a known file; each takes some 70 bytes of memory

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
# Everything up to the first lone surrogate: other bytes, other escapes, and surrogate escapes in pairs.
_NO_LONE_SURROGATE = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F])*+", re.DOTALL
)
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_CONSTANTS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")


class RepeatedKeys(dict[str, Any]):
    """An object in which a key stands twice; the last value is kept. `repeated` is the first such key."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        left = dict.fromkeys(key for key, _ in pairs)
        self.repeated = next(key for key, _ in pairs if left.pop(key, self) is self)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    return value if len(value) == len(pairs) else RepeatedKeys(pairs)


class _NoConstant(ValueError):
    """NaN or an infinity, which Python's reader would take."""


def _constant(text: str) -> NoReturn:
    raise _NoConstant(text)


def _integer(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)  # the reference reads -0 as a float, and takes no float for an id


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_decoder_of_minus_zero = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)


def check_size(size: int, name: str) -> None:
    """Raises NotATokenizer for a file that is too large to be one, before it is read."""
    if size > MAX_BYTES:
        raise NotATokenizer(
            f"{name} has {size:,} bytes; no tokenizer.json has more than {MAX_BYTES:,}",
            details={"name": name, "size": size},
        )


def parse_json(data: bytes, name: str) -> Any:
    """The value of the JSON text `data`. `name` stands in messages.

    Raises ArtifactDamaged (`details`: name, size, position in bytes, ends_early) and, above MAX_BYTES or for a number
    of thousands of digits, NotATokenizer.
    """
    size = len(data)
    check_size(size, name)
    if not size:
        raise _damaged(name, size, 0, "the file is empty", ends_early=True)
    if size > MAX_VALUES and sum(map(data.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise NotATokenizer(
            f"{name} ({size:,} bytes) has more than {MAX_VALUES:,} values; no tokenizer.json has as many",
            details={"name": name, "size": size},
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        early = error.end == size and error.reason == "unexpected end of data"
        what = "the file ends within a character" if early else "the bytes are not UTF-8"
        raise _damaged(name, size, error.start, what, ends_early=early) from None
    collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of lists that all stay: collections would take as long as the parsing
    try:
        decoder = _decoder_of_minus_zero if b"-0" in data else _decoder  # a hook for each number takes its time
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        early = _ends_early(text, error)
        what = "the JSON ends early" if early else f"the JSON is malformed ({error.msg.removesuffix(' at')})"
        position = size if early else len(text[: error.pos].encode("utf-8"))
        raise _damaged(name, size, position, what, ends_early=early) from None
    except _NoConstant as error:
        raise _damaged(name, size, data.find(str(error).encode()), f"{error} is not JSON") from None
    except RecursionError:
        raise _damaged(name, size, _deepest(data), "the JSON is nested too deeply, deepest") from None
    except ValueError:
        raise NotATokenizer(f"{name} ({size:,} bytes) holds a number of thousands of digits") from None
    finally:
        if collecting:
            gc.enable()
    if _SURROGATE_ESCAPE.search(data):
        match = _NO_LONE_SURROGATE.match(data)
        if match is not None and match.end() < size:
            raise _damaged(name, size, match.end(), "a lone surrogate escape stands for no character")
    return value


def _deepest(data: bytes) -> int:
    """Place of the bracket that opens the deepest level, of brackets outside strings."""
    depth = deepest = place = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        symbol = match[0]
        if symbol in b"[{":
            depth += 1
            if depth > deepest:
                deepest, place = depth, match.start()
        elif symbol in b"]}":
            depth -= 1
    return place


def _ends_early(text: str, error: json.JSONDecodeError) -> bool:
    """Whether more text could have mended the error: it is not in the text but at its end."""
    rest = text[error.pos :]
    if error.msg.startswith("Unterminated string") or not rest.strip():
        return True
    if error.msg.startswith("Invalid \\"):
        return len(rest) < 6
    return rest == "-" or any(constant.startswith(rest) for constant in _CONSTANTS)


def _damaged(name: str, size: int, position: int, what: str, *, ends_early: bool = False) -> ArtifactDamaged:
    place = "" if not size else f" at byte {position:,}"
    return ArtifactDamaged(
        f"{name} ({size:,} bytes) is damaged: {what}{place}",
        details={"name": name, "size": size, "position": position, "ends_early": ends_early},
        remedy="bring the file again, and compare its SHA-256 with the publisher's",
    )
