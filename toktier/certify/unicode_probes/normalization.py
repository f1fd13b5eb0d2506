"""The reference's normal forms as tables: decompositions, combining classes, compositions, and who takes part in them.

The reference normalizes by UAX #15 over an old version of Unicode, which none of its other tables follow. What is
written here is enough to do the same: tests/program/test_normalization_tables.py does, by nothing but these tables.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from tokenizers import normalizers

from toktier.certify.unicode_probes.sweep import ProbeError, Ranges, blocks, scalar_values, to_ranges

FORMS = ("NFC", "NFKC", "NFD", "NFKD")
COMPOSING = ("NFC", "NFKC")

# Hangul syllables by the arithmetic of the Unicode standard, chapter 3.12; `_check_hangul` tries each of them.
FIRST_SYLLABLE, LEADS, VOWELS, TRAILS = 0xAC00, 0x1100, 0x1161, 0x11A7
VOWEL_COUNT, TRAIL_COUNT, SYLLABLE_COUNT = 21, 28, 11_172

# Combining classes 1 and 240, the lowest and highest of the reference; `_combining_classes` fails if they are not.
_LOWEST, _HIGHEST = "\u0334", "\u0345"

_NORMALIZERS = {form: getattr(normalizers, form)() for form in FORMS}


@dataclass(frozen=True)
class Normalization:
    """Maps by code point, Hangul syllables left out of decompositions and compositions."""

    combining_classes: dict[int, int]
    canonical: dict[int, str]  # full canonical decomposition, changed characters only
    compatibility: dict[int, str]  # full compatibility decomposition where it is another than the canonical one
    compositions: dict[int, tuple[int, int]]  # primary composite → its two elements
    not_inert: dict[str, Ranges]
    no_boundary_before: dict[str, Ranges]


def _each(form: str, texts: list[str]) -> list[str]:
    """Normal forms of many short texts without line feeds, which are inert and keep them apart."""
    out: list[str] = []
    for i in range(0, len(texts), 1024):
        part = texts[i : i + 1024]
        normal = _NORMALIZERS[form].normalize_str("\n".join(part)).split("\n")
        if len(normal) != len(part):
            raise ProbeError(f"{form} makes or loses a line feed")
        out += normal
    return out


_CHARACTERS = [c for block in blocks() for c in block if c != "\n"]


def changed_alone(form: str) -> dict[int, str]:
    """What the form makes of each character alone, changed ones only."""
    if _NORMALIZERS[form].normalize_str("\n") != "\n":
        raise ProbeError(f"{form} changes a line feed")
    normal = _each(form, _CHARACTERS)
    return {ord(c): n for c, n in zip(_CHARACTERS, normal, strict=True) if c != n}


def _check_hangul(changed: dict[str, dict[int, str]]) -> None:
    for i in range(SYLLABLE_COUNT):
        block, trail = divmod(i, TRAIL_COUNT)
        lead, vowel = divmod(block, VOWEL_COUNT)
        parts = chr(LEADS + lead) + chr(VOWELS + vowel) + (chr(TRAILS + trail) if trail else "")
        syllable = chr(FIRST_SYLLABLE + i)
        pair = chr(FIRST_SYLLABLE + i - trail) + parts[2:]
        for decompose, compose in (("NFD", "NFC"), ("NFKD", "NFKC")):
            composed = {_NORMALIZERS[compose].normalize_str(t) for t in (syllable, parts, pair)}
            if changed[decompose].get(ord(syllable)) != parts or composed != {syllable}:
                raise ProbeError(f"the Hangul syllable U+{ord(syllable):04X} does not follow the arithmetic")


def _is_hangul(c: int) -> bool:
    return FIRST_SYLLABLE <= c < FIRST_SYLLABLE + SYLLABLE_COUNT


def _combining_classes(canonical: dict[int, str]) -> dict[int, int]:
    """Canonical combining classes, found by reordering.

    A character whose class is not 0 changes places with the lowest class after it or the highest one before it. Its
    class is then that of the one representative with which it does not change places either way. Order is all that
    can be observed: the numbers are the standard's for the representatives, and never change.
    A character that decomposes has no class here: it is gone before anything is reordered.
    """
    alone = [c for c in _CHARACTERS if ord(c) not in canonical and not _is_hangul(ord(c))]
    after = [f"a{c}{_LOWEST}" for c in alone]
    before = [f"a{_HIGHEST}{c}" for c in alone]
    marks = [
        c
        for c, a, na, b, nb in zip(alone, after, _each("NFD", after), before, _each("NFD", before), strict=True)
        if a != na or b != nb
    ]
    representatives = {unicodedata.combining(c): c for c in reversed(marks)}
    numbers = sorted(representatives)
    if (
        not numbers
        or 0 in numbers
        or (representatives[numbers[0]], representatives[numbers[-1]]) != (_LOWEST, _HIGHEST)
    ):
        raise ProbeError("the lowest and highest combining classes are not the known ones")
    below: dict[str, list[int]] = {c: [] for c in marks}  # classes lower than the character's
    above: dict[str, list[int]] = {c: [] for c in marks}
    for number in numbers:
        m = representatives[number]
        for texts, side in (([f"a{c}{m}" for c in marks], below), ([f"a{m}{c}" for c in marks], above)):
            for c, text, normal in zip(marks, texts, _each("NFD", texts), strict=True):
                if text != normal:
                    side[c].append(number)
    classes: dict[int, int] = {}
    for c in marks:
        number = numbers[min(len(below[c]), len(numbers) - 1)]
        if below[c] + [number] + above[c] != numbers:
            raise ProbeError(f"U+{ord(c):04X} has no combining class among the known ones")
        classes[ord(c)] = number
    return dict(sorted(classes.items()))


def _compositions(canonical: dict[int, str]) -> dict[int, tuple[int, int]]:
    """Primary composites: characters that come back from their decomposition. The excluded ones do not."""
    nfc = _NORMALIZERS["NFC"]
    out = {}
    for c, parts in canonical.items():
        if len(parts) < 2 or nfc.normalize_str(parts) != chr(c):
            continue
        first = nfc.normalize_str(parts[:-1])
        if len(first) != 1 or nfc.normalize_str(first + parts[-1]) != chr(c):
            raise ProbeError(f"U+{c:04X} is composed of more than two characters at once")
        out[c] = (ord(first), ord(parts[-1]))
    return out


def check_no_boundary(form: str, claimed: Ranges) -> None:
    """A character that takes part with a text before it is in the claimed set: each character after a few texts."""
    members = {c for first, last in claimed for c in range(first, last + 1)}
    alone = _each(form, _CHARACTERS)
    for context in (f"a{_HIGHEST}", chr(LEADS), chr(FIRST_SYLLABLE)) if form in COMPOSING else (f"a{_HIGHEST}",):
        together = _each(form, [context + c for c in _CHARACTERS])
        front = _NORMALIZERS[form].normalize_str(context)
        for c, n, t in zip(_CHARACTERS, alone, together, strict=True):
            if t != front + n and ord(c) not in members:
                raise ProbeError(f"U+{ord(c):04X} is changed by what stands before it under {form}")


def probe() -> Normalization:
    changed = {form: changed_alone(form) for form in FORMS}
    _check_hangul(changed)
    canonical, compatibility = changed["NFD"], changed["NFKD"]
    classes = _combining_classes(canonical)
    compositions = _compositions({c: v for c, v in canonical.items() if not _is_hangul(c)})
    seconds = {second for _, second in compositions.values()}
    seconds |= set(range(VOWELS, VOWELS + VOWEL_COUNT)) | set(range(TRAILS + 1, TRAILS + TRAIL_COUNT))

    not_inert, no_boundary = {}, {}
    for form in FORMS:
        decomposition = compatibility if "K" in form else canonical
        joins = set(classes) | (seconds if form in COMPOSING else set())
        not_inert[form] = to_ranges(sorted(joins | changed[form].keys()))
        first_of = ((c, ord(decomposition[c][0]) if c in decomposition else c) for c in scalar_values())
        no_boundary[form] = to_ranges([c for c, first in first_of if first in joins])
        check_no_boundary(form, no_boundary[form])
    return Normalization(
        combining_classes=classes,
        canonical={c: v for c, v in canonical.items() if not _is_hangul(c)},
        compatibility={c: v for c, v in compatibility.items() if canonical.get(c) != v},
        compositions=compositions,
        not_inert=not_inert,
        no_boundary_before=no_boundary,
    )
