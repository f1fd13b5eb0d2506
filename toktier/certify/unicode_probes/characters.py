"""Character tables of the reference outside of its regular expressions and normal forms.

`Digits`, `Punctuation`, word characters and white space of added tokens, white space of `Strip`, the map of
`Lowercase`, the byte-level alphabet. They follow the standard library that the reference was built with, or older
tables.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from toktier.certify.unicode_probes.sweep import ProbeError, Ranges, blocks, scalar_values, to_ranges

_BLOCK = 512
_LETTERS = "XY"  # a probing letter cannot be probed by itself: each table is taken with two


def _merged(what: str, found: dict[str, set[str]]) -> Ranges:
    """One set from two, found with one letter of XY each, neither of which knows its own letter."""
    x, y = found["X"], found["Y"]
    if x - {"Y"} != y - {"X"}:
        raise ProbeError(f"{what} differs with the letter that it is probed with")
    return to_ranges(sorted(map(ord, x | y)))


def _isolated(pre_tokenizer: pre_tokenizers.PreTokenizer) -> Ranges:
    """Characters that become a piece of their own wherever they stand."""
    found: dict[str, set[str]] = {}
    for filler in _LETTERS:
        alone: set[str] = set()
        for block in blocks(_BLOCK):
            text = filler + filler.join(block) + filler
            pieces = [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]
            if "".join(pieces) != text:
                raise ProbeError(f"{type(pre_tokenizer).__name__} loses text")
            alone.update(piece for piece in pieces if len(piece) == 1)
        found[filler] = alone - {filler}
    return _merged(type(pre_tokenizer).__name__, found)


def numeric() -> Ranges:
    """What the pre-tokenizer Digits takes for a digit."""
    return _isolated(pre_tokenizers.Digits(individual_digits=True))


def punctuation() -> Ranges:
    """What the pre-tokenizer Punctuation takes for punctuation."""
    return _isolated(pre_tokenizers.Punctuation("isolated"))


def _beside_token(
    what: str,
    layouts: dict[str, Callable[[str], str]],
    flags: dict[str, dict[str, bool]],
    plain: dict[str, tuple[int, int]],
) -> Ranges:
    """Characters beside an added token whose span is not the plain one; token X is probed from behind, Y from before.

    `layouts[token](c)` is four characters, `plain[token]` the span of the token in it beside a character of no effect.
    """
    found = {}
    for token in _LETTERS:
        tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
        tokenizer.add_tokens([AddedToken(token, normalized=False, **flags[token])])
        special: set[str] = set()
        for block in blocks(_BLOCK):
            characters = block.replace(token, "")
            encoding = tokenizer.encode("".join(map(layouts[token], characters)))
            spans = {
                first // 4: (first % 4, last - first // 4 * 4)
                for (first, last), i in zip(encoding.offsets, encoding.ids, strict=True)
                if i == 1
            }
            special.update(c for i, c in enumerate(characters) if spans.get(i) != plain[token])
        found[token] = special
    return _merged(what, found)


def word() -> Ranges:
    """Word characters of `single_word`: beside one the token is passed over."""
    flags = {"single_word": True}
    return _beside_token(
        "single_word",
        {"X": lambda c: f" X{c} ", "Y": lambda c: f" {c}Y "},
        {"X": flags, "Y": flags},
        {"X": (1, 2), "Y": (2, 3)},
    )


def white_space() -> Ranges:
    """White space of `rstrip`, `lstrip` and of the normalizer Strip, which is one set."""
    beside = _beside_token(
        "white space",
        {"X": lambda c: f"-X{c}-", "Y": lambda c: f"-{c}Y-"},
        {"X": {"rstrip": True}, "Y": {"lstrip": True}},
        {"X": (1, 2), "Y": (2, 3)},
    )
    strip = normalizers.Strip()
    if beside != to_ranges([c for c in scalar_values() if strip.normalize_str(f"{chr(c)}-{chr(c)}") == "-"]):
        raise ProbeError("Strip takes other characters for white space than lstrip and rstrip")
    return beside


def lowercase() -> dict[int, tuple[int, ...]]:
    """What Lowercase makes of each character that it changes, whatever its neighbours."""
    normalizer = normalizers.Lowercase()
    out: dict[int, tuple[int, ...]] = {}
    for block in blocks(_BLOCK):
        separator = "\n" if "\n" not in block else "\u4e00"
        lowered = normalizer.normalize_str(separator.join(block)).split(separator)
        for c, text in zip(block, lowered, strict=True):
            if text != c:
                out[ord(c)] = tuple(map(ord, text))
    return out


def byte_alphabet() -> str:
    """The character that ByteLevel writes for each byte, by index.

    Thirteen bytes (C0, C1, F5..FF) are in no text; the thirteen characters of the alphabet that are then left are the
    Latin-1 characters of these numbers, as for every other byte of a visible Latin-1 character.
    """
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found: dict[int, str] = {}
    for block in blocks(_BLOCK):
        mapped = "".join(piece for piece, _ in pre_tokenizer.pre_tokenize_str(block))
        for byte, c in zip(block.encode("utf-8"), mapped, strict=True):
            if found.setdefault(byte, c) != c:
                raise ProbeError(f"ByteLevel writes byte {byte:02X} in two ways")
    unseen = sorted(set(range(256)) - found.keys())
    left = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(found.values()))
    if left != [chr(byte) for byte in unseen]:
        raise ProbeError("the byte-level alphabet is not the known one")
    found.update(zip(unseen, left, strict=True))
    return "".join(found[byte] for byte in range(256))
