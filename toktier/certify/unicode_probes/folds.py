"""What `(?i:...)` matches beyond what is written: fold partners, and literals that one character can stand for.

The engine folds literals and bracketed sets, on two code paths, by one relation. Partners are found with sets, which
take many code points at once, and confirmed literal by literal. Not here: how patterns are compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from tokenizers import Regex, normalizers

from toktier.certify.unicode_probes.sweep import ProbeError, blocks, matched_by, members

Partners = dict[int, tuple[int, ...]]
Literals = dict[str, tuple[int, ...]]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CASED = r"[\p{Cased}\p{Changes_When_Casefolded}\p{Changes_When_Casemapped}]"
_LONGEST_FOLD = 3  # characters; the engine's own bound
_SPAN = 8192  # code points tried together where every range is short: the engine takes at most 10,000 ranges in a set
_BLOCK = 512
# Descending, so that no text holds the characters of a multi-character fold side by side in their order.
_TEXTS = [(ord(text[0]), text[::-1]) for text in blocks(_BLOCK)]


def escaped(text: Iterable[str]) -> str:
    return "".join(f"\\x{{{ord(c):X}}}" for c in text)


def _remover(pattern: str) -> normalizers.Normalizer:
    return normalizers.Replace(Regex(pattern), "")


def _stands_for(text: str, literal: str) -> bool:
    return not _remover(f"\\A(?i:{escaped(literal)})\\z").normalize_str(text)


def _from_decompositions() -> Iterator[tuple[str, str]]:
    """Cased characters with their decompositions of two or three characters, the front recomposed or not."""
    nfc, forms = normalizers.NFC(), (normalizers.NFD(), normalizers.NFKD())
    for c in map(chr, members(matched_by(_CASED))):
        for form in forms:
            parts = form.normalize_str(c)
            for literal in {parts, *(nfc.normalize_str(parts[:i]) + parts[i:] for i in range(2, len(parts)))}:
                if 2 <= len(literal) <= _LONGEST_FOLD:
                    yield c, literal


def _from_ascii() -> Iterator[tuple[str, str]]:
    """Cased characters with every string of two or three ASCII letters that matches them."""
    text = "".join(f"{chr(c)}\n" for c in members(matched_by(_CASED)))
    for front in ("", *_LETTERS):
        for a in _LETTERS:
            literals = [front + a + b for b in _LETTERS]
            rest = _remover("(?i:" + "|".join(literals) + ")").normalize_str(text)
            for c in sorted(set(text) - set(rest)):
                yield from ((c, literal) for literal in literals)


def _multi_character_pairs() -> list[tuple[str, str]]:
    """(character, literal of two or three characters) that match each other.

    Complete for ASCII literals: a sweep over all scalar values shows that no character outside of the cased ones stands
    for two letters. Other literals are taken from decompositions.
    """
    pairs = sorted({pair for pair in (*_from_decompositions(), *_from_ascii()) if _stands_for(*pair)})
    known = {c for c, _ in pairs}
    remover = _remover("(?i:" + "|".join(map("".join, product(_LETTERS, repeat=2))) + ")")
    for first, block in _TEXTS:
        text = block if first else "\n".join(block)  # the first block has letters side by side
        rest = remover.normalize_str(text)
        if rest != text and not set(text) - set(rest) <= known:
            raise ProbeError("a character that is not cased matches two ASCII letters under (?i:)")
    return pairs


def _ranges_of_bit(bit: int, value: int, start: int, stop: int, without: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of the scalar values of [start, stop) whose bit number `bit` is `value`, except those of `without`."""
    step = 1 << bit
    for first in range(start + value * step, stop, 2 * step):
        last = min(first + step, stop) - 1
        holes = [c for c in without if first <= c <= last]
        if first <= 0xDFFF and last >= 0xD800:
            holes = sorted({*holes, *range(max(first, 0xD800), min(last, 0xDFFF) + 1)})
        for hole in holes:
            if first < hole:
                yield first, hole - 1
            first = hole + 1
        if first <= last:
            yield first, last


def _strangers(bit: int, value: int, start: int, stop: int, without: list[int]) -> Iterator[str]:
    """Characters of [start, stop) that the folded set of `_ranges_of_bit` matches though it does not list them."""
    near = [c for c in without if start <= c < stop]
    ranges = list(_ranges_of_bit(bit, value, start, stop, near))
    if not ranges:
        return
    remover = _remover("(?i:[" + "".join(f"\\x{{{a:X}}}-\\x{{{b:X}}}" for a, b in ranges) + "])+")
    step = 1 << bit
    for first, text in _TEXTS:
        if not start <= first < stop:
            continue
        if step >= _BLOCK:
            unlisted = text if (first >> bit & 1) != value else ""
        else:  # the descending text begins with the numbers whose bit is 1
            unlisted = "".join([text[i : i + step] for i in range(value * step, _BLOCK, 2 * step)])
        rest = remover.normalize_str(text)
        if rest != unlisted:
            yield from set(unlisted) - set(rest)


def _with_partner(without: list[int]) -> list[int]:
    """Every code point that folds together with another one, one of the two not in `without`.

    Two different numbers differ in some bit: a folded set of all code points with that bit one way then matches, among
    those with the bit the other way, exactly the partners. Low bits make too many ranges for one set, but there both
    numbers lie in one block of 64, so that a part of the code space can be tried by itself. `without`: the characters
    that match two or three characters; in a set they cost a hundred alternatives for each character of the text.
    """
    found: set[str] = set()
    for bit in range(21):
        span = 0x110000 if bit >= 6 else _SPAN
        for start in range(0, 0x110000, span):
            for value in (0, 1):
                found.update(_strangers(bit, value, start, min(start + span, 0x110000), without))
    return sorted(map(ord, found))


def _partners(candidates: list[int]) -> Partners:
    """Code point → all that `(?i:c)` matches as one character, for those where that is more than itself."""
    text = "".join(f"{chr(c)}\n" for c in candidates)
    everything = set(text)
    out = {}
    for c in candidates:
        matched = everything - set(_remover(f"(?i:{escaped(chr(c))})").normalize_str(text))
        if chr(c) not in matched:
            raise ProbeError(f"(?i:U+{c:04X}) does not match its own character")
        if len(matched) > 1:
            out[c] = tuple(sorted(map(ord, matched)))
    for group in out.values():
        if any(out.get(c) != group for c in group):
            raise ProbeError(f"case folding is no equivalence at U+{group[0]:04X}")
    return out


def _literals(partners: Partners, pairs: list[tuple[str, str]]) -> Literals:
    """Literal, in every mixture of case → the characters that `(?i:literal)` matches."""
    out: dict[str, set[str]] = {}
    for character, literal in pairs:
        alike = set(map(chr, partners.get(ord(character), (ord(character),))))
        for spelling in product(*(map(chr, partners.get(ord(c), (ord(c),))) for c in literal)):
            out.setdefault("".join(spelling), set()).update(alike)
    for literal, characters in out.items():
        for character in characters:
            if not _stands_for(character, literal) or not _stands_for(literal, character):
                raise ProbeError(
                    f"(?i:) takes {character!a} and {literal!a} for each other only one way, or not always"
                )
    return {literal: tuple(sorted(map(ord, characters))) for literal, characters in sorted(out.items())}


def probe() -> tuple[Partners, Literals]:
    """Fold partners (of characters that have any), and literals of several characters that one character stands for."""
    pairs = _multi_character_pairs()
    several = sorted({ord(c) for c, _ in pairs})
    partners = _partners(sorted({*_with_partner(several), *several}))
    return partners, _literals(partners, pairs)
