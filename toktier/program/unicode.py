"""Character tables of the reference, read from tables/unicode.

The tables were probed from the reference itself (`tools/generate_unicode_tables.py`): its regular expressions, its
normalizer and its other components follow different Unicode versions, so no other source will do. Each file is read
when it is first needed and must have the digest that the manifest names. Surrogates, which no text contains, are in no
set. Not here: what sets can be asked (`code_point_sets`), what a pattern means (`regex_syntax`), how text is normalized
(native/engine).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from toktier.canonical import TAG_TABLE, tagged_digest
from toktier.errors import InternalError
from toktier.program.code_point_sets import Ranges
from toktier.resources import tables_dir

FORMAT_VERSION = 1


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


def _sequence(text: str) -> tuple[int, ...]:
    """`41.300` → (0x41, 0x300)."""
    return tuple([int(c, 16) for c in text.split(".")])


def _map(text: str) -> dict[int, tuple[int, ...]]:
    """`C0=41.300 C1=41.301` → {0xC0: (0x41, 0x300), ...}."""
    out = {}
    for item in text.split():
        key, _, value = item.partition("=")
        out[int(key, 16)] = _sequence(value)
    return out


def probed_with() -> tuple[str, ...]:
    """Versions of the reference that gave exactly these tables, ascending."""
    return tuple(_manifest()["probed_with"])


def table_digests() -> dict[str, str]:
    """Tagged digest of each file of tables, by its name."""
    return dict(_manifest()["tables"])


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
    r"""The set of `\s`, `\d`, `\w` or `\h` (a hexadecimal digit); `bracketed`: inside `[...]`, another set for `\w`.

    KeyError for another letter.
    """
    table = _table("properties.json")
    if not bracketed and letter in table["shorthands_alone"]:
        return _ranges(table["shorthands_alone"][letter])
    return _ranges(table["shorthands"][letter])


@cache
def posix_ranges(name: str) -> Ranges:
    """The set of `[[:name:]]`. KeyError for an unknown name; unlike properties, the name is taken as it stands."""
    return _ranges(_table("properties.json")["posix"][name])


# Case folding


@cache
def _partners() -> dict[int, tuple[int, ...]]:
    out = {}
    for item in _table("folds.json")["partners"].split():
        group = _sequence(item)
        for cp in group:
            out[cp] = group
    return out


def fold_partners(cp: int) -> tuple[int, ...]:
    r"""Every code point, `cp` included, that `(?i:cp)` matches as one character; ascending.

    The relation is an equivalence. It holds for literals and inside brackets, where folding comes before negation;
    outside of brackets the reference folds no property: `(?i:\p{Lu})` does not match "a", `(?i:[\p{Lu}])` does.
    """
    return _partners().get(cp, (cp,))


@cache
def multi_character_folds() -> dict[str, tuple[int, ...]]:
    """Literal of two or three characters, in every mixture of case → single code points that `(?i:)` of it matches too.

    Each of these code points, under `(?i:)` in a literal or inside brackets, matches the literal. So a folded pattern
    that contains a key or such a code point matches texts of another length than its own; groups without flags do not
    part a literal for the reference: `(?i:(?:s)(?:s))` matches U+00DF.
    """
    literals = _table("folds.json")["literals"]
    return {"".join(map(chr, _sequence(k))): _sequence(v) for k, v in literals.items()}


# Characters as other components see them


@cache
def numeric() -> Ranges:
    """What the pre-tokenizer Digits takes for a digit."""
    return _ranges(_table("characters.json")["numeric"])


@cache
def punctuation() -> Ranges:
    """What the pre-tokenizer Punctuation takes for punctuation."""
    return _ranges(_table("characters.json")["punctuation"])


@cache
def rust_word() -> Ranges:
    r"""Word characters of `single_word`: not the set of `\w` in a pattern."""
    return _ranges(_table("characters.json")["word"])


@cache
def white_space() -> Ranges:
    """White space of `lstrip`, `rstrip` and of the normalizer Strip."""
    return _ranges(_table("characters.json")["white_space"])


@cache
def lowercase() -> dict[int, tuple[int, ...]]:
    """What the normalizer Lowercase makes of each code point that it changes; one code point at a time, no context."""
    return _map(_table("characters.json")["lowercase"])


@cache
def byte_alphabet() -> str:
    """256 characters: what ByteLevel writes for each byte, by index."""
    return str(_table("characters.json")["byte_alphabet"])


# Normal forms

# Hangul syllables by the arithmetic of the Unicode standard, chapter 3.12, which the generator tries on each of them.
_SYLLABLES, _LEADS, _VOWELS, _TRAILS = 0xAC00, 0x1100, 0x1161, 0x11A7
_LEAD_COUNT, _VOWEL_COUNT, _TRAIL_COUNT = 19, 21, 28


@dataclass(frozen=True)
class NormalizationTables:
    """One normal form: UAX #15 over these tables is what the reference does. Not to be changed by the caller."""

    ccc: dict[int, int]
    """Canonical combining class, classes other than 0 only. A code point that decomposes has none."""
    decompositions: dict[int, tuple[int, ...]]
    """Full decomposition (canonical; compatibility for NFKC and NFKD), changed ones only, Hangul syllables included."""
    compositions: dict[tuple[int, int], int]
    """(first, second) → primary composite, Hangul included; empty for NFD and NFKD."""
    not_inert: Ranges
    """Code points that change alone, reorder or combine with one before them: a text without any is its own form."""
    no_boundary_before: Ranges
    """Before any other code point a text may be cut: the form of the whole is the forms of both parts, joined."""


def _hangul_syllables() -> dict[int, tuple[int, ...]]:
    out: dict[int, tuple[int, ...]] = {}
    cp = _SYLLABLES
    for lead in range(_LEADS, _LEADS + _LEAD_COUNT):
        for vowel in range(_VOWELS, _VOWELS + _VOWEL_COUNT):
            out[cp] = (lead, vowel)
            for trail in range(1, _TRAIL_COUNT):
                out[cp + trail] = (lead, vowel, _TRAILS + trail)
            cp += _TRAIL_COUNT
    return out


@cache
def _compositions() -> dict[tuple[int, int], int]:
    out = {}
    for composite, (first, second) in _map(_table("normalization.json")["compositions"]).items():
        out[first, second] = composite
    for syllable, parts in _hangul_syllables().items():
        out[(parts[0], parts[1]) if len(parts) == 2 else (syllable - parts[2] + _TRAILS, parts[2])] = syllable
    return out


@cache
def normalization(form: str) -> NormalizationTables:
    """Tables of "NFC", "NFKC", "NFD" or "NFKD". KeyError for another name."""
    table = _table("normalization.json")
    not_inert = _ranges(table["not_inert"][form])
    decompositions = {**_map(table["canonical"]), **_hangul_syllables()}
    if form in ("NFKC", "NFKD"):
        decompositions.update(_map(table["compatibility"]))
    classes = table["combining_classes"].items()
    ccc = {cp: int(number) for number, r in classes for low, high in _ranges(r) for cp in range(low, high + 1)}
    return NormalizationTables(
        ccc=dict(sorted(ccc.items())),
        decompositions=dict(sorted(decompositions.items())),
        compositions=_compositions() if form in ("NFC", "NFKC") else {},
        not_inert=not_inert,
        no_boundary_before=_ranges(table["no_boundary_before"][form]),
    )
