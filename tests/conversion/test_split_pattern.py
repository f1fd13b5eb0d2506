"""Patterns of tiktoken's engine for the reference's: what stays, what is rewritten, what is refused."""

from __future__ import annotations

import pytest
import tokenizers

from toktier.conversion.split_pattern import for_reference
from toktier.errors import UnsupportedConfig

CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
    r"\s+(?!\S)|\s"
)
SAME = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
)


@pytest.mark.parametrize("pattern", SAME)
def test_what_means_the_same_stays_as_written(pattern: str) -> None:
    assert for_reference(pattern) == pattern


@pytest.mark.parametrize(
    ("written", "rewritten"),
    [
        (r"\p{N}{1,3}+", r"(?>\p{N}{1,3})"),
        (r"a{2,}+b", r"(?>a{2,})b"),
        (r"(?:ab){2}?", r"(?:ab){2}"),
        (r"a{1}?b", r"ab"),
        (r"a{1}+b", r"(?>a)b"),
        (r"a{2,3}?b", r"a{2,3}?b"),
        (r"\s++$|\s", r"\s++\z|\s"),
        (r"(a|b)c", r"(?:a|b)c"),
        (r"(?i)a|b", r"(?i:a|b)"),
        (r"\pL+", r"\p{L}+"),
        (r"\x41\u0042\x{43}", r"\x{41}\x{0042}\x{43}"),
    ],
)
def test_what_differs_is_rewritten(written: str, rewritten: str) -> None:
    assert for_reference(written) == rewritten


def pieces(pattern: str, text: str) -> list[str]:
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return [piece for piece, _ in split.pre_tokenize_str(text)]


def test_the_rewritten_pattern_means_in_the_reference_what_was_written() -> None:
    """Digits in threes, and blanks before the end of the text alone: as written, the reference does neither."""
    assert pieces(for_reference(CL100K), "1234567") == ["123", "456", "7"]
    assert pieces(CL100K, "1234567") == ["1234567"]
    assert pieces(for_reference(r"a++$|a|[^a]"), "aa\nab") == ["a", "a", "\n", "a", "b"]
    assert pieces(r"a++$|a|[^a]", "aa\nab") == ["aa", "\n", "a", "b"]
    assert pieces(for_reference(r"(?:ab){2}?|."), "ab") == ["a", "b"]
    assert pieces(r"(?:ab){2}?|.", "abab") == ["abab"]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"\w+", r"escape \\w"),
        (r"a\b", r"escape \\b"),
        (r"\h+", r"escape \\h"),
        (r"\<a", r"escape \\<"),
        (r"\p{Alpha}+", "property"),
        (r"\p{Script=Han}+", "property"),
        (r"[[:alpha:]]+", "POSIX bracket"),
        (r"[a-z--b]+", "set operator --"),
        (r"[a~~b]", "set operator ~~"),
        (r"[]a]", "begins with ]"),
        (r"(?<=a)b", "group"),
        (r"(?P<x>a)", "group"),
        (r"(?s:.)", "group"),
        (r"a(?i)b|c", "group"),
        (r"(a)\1", r"escape \\1"),
        (r"^a", "anchor"),
        (r"a{,3}", "interval"),
        (r"a{0}b", "repetition of nothing"),
        (r"a+++", "quantifier on a quantifier"),
        (r"a{2}{3}", "quantifier on a quantifier"),
        (r"(?!a)+b", "quantifier on an assertion"),
        (r"*a", "without a target"),
        (r"(a", "unclosed group"),
        (r"[a", "unclosed set"),
        (r"a)", "unmatched"),
        (r"a*", "empty text"),
        ("", "empty text"),
        (r"(?i:\p{Lu})", "case-insensitive property"),
        (r"(?i:ß)", "case-insensitive character beyond ASCII"),
        (r"(?i:[é])", "case-insensitive character beyond ASCII"),
        (r"(?i:ss)", "case"),
        ("\\", "escape"),
        ("(?:" * 2000 + "a", "nesting deeper"),
        ("a" * 2_000_000, "characters"),
    ],
)
def test_what_could_differ_is_refused_by_name(pattern: str, said: str) -> None:
    with pytest.raises(UnsupportedConfig, match=said) as caught:
        for_reference(pattern)
    assert caught.value.remedy
