"""Character tables of the reference, read from tables/unicode, and the algebra of code point sets.

The tables were probed from the reference itself (`tools/generate_unicode_tables.py`): its regular expressions, its
normalizer and its other components follow different Unicode versions, so no other source will do. Each file is read
when it is first needed and must have the digest that the manifest names. Not here: what a pattern means
(`toktier.program.regex`), and how text is normalized (native/engine).

A set is a tuple of (first, last): inclusive, ascending, disjoint, not adjacent. Surrogates, which no text contains, are in no
probed set; `complement` is over U+0000..U+10FFFF, so that they share the fate of other code points without properties.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from typing import Any

from toktier.canonical import TAG_TABLE, document_digest, tagged_digest
from toktier.errors import InternalError
from toktier.resources import tables_dir

Ranges = tuple[tuple[int, int], ...]

FORMAT_VERSION = 1
LAST_CODE_POINT = 0x10FFFF


def _damaged(name: str, what: str) -> InternalError:
    return InternalError(
        f"tables/unicode/{name} {what}; expected the file that this version of toktier ships",
        details={"table": name},
        remedy="reinstall toktier",
    )


def _read(name: str) -> bytes:
    try:
        return (tables_dir() / "unicode" / name).read_bytes()
    except OSError as fault:
        raise _damaged(name, f"cannot be read ({fault.strerror})") from fault


def _parse(name: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as fault:
        raise _damaged(name, "is not JSON") from fault
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        raise _damaged(name, f"is not of format {FORMAT_VERSION}")
    return document


@cache
def _manifest() -> dict[str, Any]:
    return _parse("manifest.json", _read("manifest.json"))


@cache
def _table(name: str) -> dict[str, Any]:
    data = _read(name)
    if tagged_digest(TAG_TABLE, data) != _manifest()["tables"].get(name):
        raise _damaged(name, "does not have the digest that the manifest names")
    return _parse(name, data)


def _ranges(text: str) -> Ranges:
    """`41-5A AA` → ((0x41, 0x5A), (0xAA, 0xAA))."""
    out = []
    for item in text.split():
        first, _, last = item.partition("-")
        low = int(first, 16)
        out.append((low, int(last, 16) if last else low))
    return tuple(out)


def _map(text: str) -> dict[int, tuple[int, ...]]:
    """`C0=41.300 C1=41.301` → {0xC0: (0x41, 0x300), ...}."""
    out = {}
    for item in text.split():
        key, _, value = item.partition("=")
        out[int(key, 16)] = tuple([int(c, 16) for c in value.split(".")])
    return out


def tables_digest() -> str:
    """Digest over the content of every table; the versions that they were probed with do not enter."""
    return document_digest(TAG_TABLE, _manifest()["tables"])


def probed_with() -> tuple[str, ...]:
    """Versions of the reference that gave exactly these tables, ascending."""
    return tuple(_manifest()["probed_with"])


# Sets of the regular expressions


def _lookup_name(name: str) -> str:
    return name.lower().replace(" ", "").replace("_", "").replace("-", "")


@cache
def property_ranges(name: str, *, bracketed: bool = False) -> Ranges:
    r"""The set of `\p{name}`; `bracketed`: inside `[...]`, which differs for `Word`.

    Case, blanks, `_` and `-` of the name do not count, as in the reference. KeyError for an unknown name.
    """
    table = _table("properties.json")
    canonical = table["names"][_lookup_name(name)]
    if not bracketed and canonical in table["properties_alone"]:
        return _ranges(table["properties_alone"][canonical])
    return _ranges(table["properties"][canonical])


@cache
def shorthand_ranges(letter: str, *, bracketed: bool = False) -> Ranges:
    r"""The set of `\s`, `\d`, `\w` or `\h` (a hexadecimal digit); `bracketed`: inside `[...]`, which differs for `\w`."""
    table = _table("properties.json")
    if not bracketed and letter in table["shorthands_alone"]:
        return _ranges(table["shorthands_alone"][letter])
    return _ranges(table["shorthands"][letter])


@cache
def posix_ranges(name: str) -> Ranges:
    """The set of `[[:name:]]`. KeyError for an unknown name; unlike properties, the name is taken as it stands."""
    return _ranges(_table("properties.json")["posix"][name])


# Algebra


def size(r: Ranges) -> int:
    """Number of code points."""
    return sum(last - first + 1 for first, last in r)


def contains(r: Ranges, cp: int) -> bool:
    i = bisect_right(r, (cp, LAST_CODE_POINT)) - 1
    return i >= 0 and r[i][1] >= cp


def complement(r: Ranges) -> Ranges:
    """Over U+0000..U+10FFFF, surrogates included."""
    out = []
    start = 0
    for first, last in r:
        if first > start:
            out.append((start, first - 1))
        start = last + 1
    if start <= LAST_CODE_POINT:
        out.append((start, LAST_CODE_POINT))
    return tuple(out)


def union(a: Ranges, b: Ranges) -> Ranges:
    out: list[tuple[int, int]] = []
    for first, last in sorted(a + b):
        if out and first <= out[-1][1] + 1:
            if last > out[-1][1]:
                out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    return tuple(out)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    out = []
    i = j = 0
    while i < len(a) and j < len(b):
        first, last = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if first <= last:
            out.append((first, last))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


def difference(a: Ranges, b: Ranges) -> Ranges:
    return intersection(a, complement(b))
