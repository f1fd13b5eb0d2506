"""The character tables against the installed reference, their integrity.

At the edges of every range of every table: a table that is wrong anywhere is wrong at an edge, its own or one that it
should have; the latter are looked for by complete sweeps of the sets that patterns use most. Not here: normal forms
(test_normalization_tables.py), the generator (tests/tools).
"""

from __future__ import annotations

import json
import random
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from toktier.canonical import TAG_TABLE, tagged_digest
from toktier.errors import InternalError
from toktier.program import unicode
from toktier.program.code_point_sets import Ranges, contains, intersection, size, union
from toktier.resources import tables_dir

PROPERTIES = json.loads((tables_dir() / "unicode" / "properties.json").read_text())
NAMES = sorted(PROPERTIES["properties"])
GENERAL_CATEGORIES = [name for name in NAMES if len(name) <= 2 and name[0] in "CLMNPSZ"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def code_points(r: Ranges) -> list[int]:
    return [c for first, last in r for c in range(first, last + 1)]


def is_scalar(c: int) -> bool:
    return 0 <= c < 0xD800 or 0xE000 <= c <= 0x10FFFF


def edges(*sets: Ranges) -> str:
    """The characters on both sides of both ends of every range, some anywhere, in descending order."""
    near = {c + d for r in sets for pair in r for c in pair for d in (-1, 0, 1)}
    draw = random.Random(3)
    near |= {draw.randrange(0x110000) for _ in range(100)} | set(range(0x100))
    return "".join(map(chr, sorted(filter(is_scalar, near), reverse=True)))


def split_matches(pattern: str, text: str) -> set[str]:
    """The characters of `text` that a pattern of one character matches in a Split, which the generator does not use."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {c for piece, _ in split.pre_tokenize_str(text) for c in piece}


def in_set(r: Ranges, text: str) -> set[str]:
    return {c for c in text if contains(r, ord(c))}


def parses(pattern: str) -> bool:
    try:
        Regex(pattern)
    except Exception:
        return False
    return True


def all_sets() -> Iterator[Ranges]:
    for name in NAMES:
        yield from (unicode.property_ranges(name), unicode.property_ranges(name, bracketed=True))
    for letter in "sdwh":
        yield from (unicode.shorthand_ranges(letter), unicode.shorthand_ranges(letter, bracketed=True))
    yield from (unicode.posix_ranges(name) for name in PROPERTIES["posix"])
    yield from (unicode.numeric(), unicode.punctuation(), unicode.rust_word(), unicode.white_space())
    for form in ("NFC", "NFKC", "NFD", "NFKD"):
        yield from (unicode.normalization(form).not_inert, unicode.normalization(form).no_boundary_before)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("L", 141_028),
        ("N", 1_911),
        ("M", 2_501),
        ("P", 855),
        ("S", 8_514),
        ("Nd", 760),
        ("Han", 99_030),
        ("Any", 1_112_064),
    ],
)
def test_known_figures_of_properties(name: str, count: int) -> None:
    assert size(unicode.property_ranges(name)) == count


def test_known_figures_of_other_sets() -> None:
    assert size(unicode.shorthand_ranges("s")) == 25
    assert size(unicode.shorthand_ranges("d")) == 760
    assert size(unicode.shorthand_ranges("h")) == 22
    assert size(unicode.shorthand_ranges("w")) == 144_671
    assert size(unicode.shorthand_ranges("w", bracketed=True)) == 144_665
    assert size(unicode.numeric()) == 1_924
    assert size(unicode.punctuation()) == 726
    assert size(unicode.rust_word()) == 144_667
    assert unicode.white_space() == unicode.shorthand_ranges("s")


def test_every_set_is_ascending_disjoint_not_adjacent_and_without_surrogates() -> None:
    surrogates = ((0xD800, 0xDFFF),)
    for r in all_sets():
        assert all(first <= last <= 0x10FFFF for first, last in r)
        assert all(a_last + 1 < b_first for (_, a_last), (b_first, _) in pairwise(r))
        assert intersection(r, surrogates) == ()


def test_general_categories_partition_the_scalar_values() -> None:
    two = [name for name in GENERAL_CATEGORIES if len(name) == 2 and name != "LC"]
    assert sum(size(unicode.property_ranges(name)) for name in two) == 0x110000 - 0x800
    for one in "CLMNPSZ":
        whole: Ranges = ()
        for name in two:
            if name[0] == one:
                whole = union(whole, unicode.property_ranges(name))
        assert whole == unicode.property_ranges(one)


def test_properties_at_every_edge() -> None:
    """Every property, alone and inside brackets, affirmed and denied."""
    for name in NAMES:
        alone, bracketed = unicode.property_ranges(name), unicode.property_ranges(name, bracketed=True)
        text = edges(alone, bracketed)
        everything = set(text)
        assert split_matches(rf"\p{{{name}}}", text) == in_set(alone, text), name
        assert split_matches(rf"\P{{{name}}}", text) == everything - in_set(alone, text), name
        assert split_matches(rf"[\p{{{name}}}]", text) == in_set(bracketed, text), name
        assert split_matches(rf"[^\p{{{name}}}]", text) == everything - in_set(bracketed, text), name
        assert split_matches(rf"[\P{{{name}}}]", text) == everything - in_set(bracketed, text), name


def test_shorthands_at_every_edge() -> None:
    for letter in "sdwh":
        alone, bracketed = unicode.shorthand_ranges(letter), unicode.shorthand_ranges(letter, bracketed=True)
        text = edges(alone, bracketed)
        everything = set(text)
        assert split_matches(rf"\{letter}", text) == in_set(alone, text)
        assert split_matches(rf"\{letter.upper()}", text) == everything - in_set(alone, text)
        assert split_matches(rf"[\{letter}]", text) == in_set(bracketed, text)
        assert split_matches(rf"[^\{letter}]", text) == everything - in_set(bracketed, text)
        assert split_matches(rf"[\{letter.upper()}]", text) == everything - in_set(bracketed, text)


def test_posix_brackets_at_every_edge() -> None:
    assert len(PROPERTIES["posix"]) == 14
    for name in PROPERTIES["posix"]:
        r = unicode.posix_ranges(name)
        text = edges(r)
        assert split_matches(f"[[:{name}:]]", text) == in_set(r, text), name
        assert split_matches(f"[[:^{name}:]]", text) == set(text) - in_set(r, text), name


@cache
def blocks_of_all_code_points() -> tuple[str, ...]:
    everything = "".join(chr(c) for c in range(0x110000) if is_scalar(c))
    return tuple(everything[i : i + 8192] for i in range(0, len(everything), 8192))


@pytest.mark.parametrize("name", ["L", "N"])
def test_common_sets_over_all_code_points(name: str) -> None:
    found = {c for block in blocks_of_all_code_points() for c in split_matches(rf"\p{{{name}}}+", block)}
    assert sorted(map(ord, found)) == code_points(unicode.property_ranges(name))


@pytest.mark.ci
@pytest.mark.parametrize("atom", [*(rf"\p{{{name}}}" for name in GENERAL_CATEGORIES), r"\s", r"\d", r"\w", r"\h"])
def test_sets_of_patterns_over_all_code_points(atom: str) -> None:
    for bracketed, pattern in ((False, f"(?:{atom})+"), (True, f"[{atom}]+")):
        r = (
            unicode.property_ranges(atom[3:-1], bracketed=bracketed)
            if atom.startswith(r"\p")
            else unicode.shorthand_ranges(atom[1], bracketed=bracketed)
        )
        found = {c for block in blocks_of_all_code_points() for c in split_matches(pattern, block)}
        assert sorted(map(ord, found)) == code_points(r)


def test_names_are_looked_up_as_the_reference_does() -> None:
    for name in ("uppercase letter", "UPPERCASE_LETTER", "Uppercase-Letter", "lu", "l u", "_LU"):
        assert parses(rf"\p{{{name}}}")
        assert unicode.property_ranges(name) == unicode.property_ranges("Lu")
    for name in ("Script=Han", "gc=Lu", "IsHan", "Lux", ""):
        assert not parses(rf"\p{{{name}}}")
        with pytest.raises(KeyError):
            unicode.property_ranges(name)
    for name, canonical in PROPERTIES["names"].items():
        assert parses(rf"\p{{{name}}}")
        assert unicode.property_ranges(name) == unicode.property_ranges(canonical)


def test_unknown_shorthands_and_posix_names_are_key_errors() -> None:
    for name in ("Alpha", "letters", "ALPHA"):
        assert not parses(f"[[:{name}:]]")
        with pytest.raises(KeyError):
            unicode.posix_ranges(name)
    with pytest.raises(KeyError):
        unicode.shorthand_ranges("W")


# Case folding


def folded() -> list[int]:
    return [c for group in {unicode.fold_partners(c) for c in range(0x1F000)} if len(group) > 1 for c in group]


FOLDED = sorted(folded())
FOLDED_TEXT = "".join(f"{chr(c)}\n" for c in reversed(FOLDED))


@pytest.mark.parametrize("step", [pytest.param(7, id="sampled"), pytest.param(1, id="all", marks=pytest.mark.ci)])
def test_fold_partners_of_literals(step: int) -> None:
    """Each literal meets every character that folds, and many that do not."""
    assert len(FOLDED) == 2_938
    text = FOLDED_TEXT + edges(unicode.property_ranges("L"))
    everything = set(text)
    for c in FOLDED[::step]:
        remover = normalizers.Replace(Regex(f"(?i:\\x{{{c:X}}})"), "")
        assert everything - set(remover.normalize_str(text)) == set(map(chr, unicode.fold_partners(c)))


def test_folding_inside_brackets_is_the_same_relation_and_comes_before_negation() -> None:
    multi = {c for values in unicode.multi_character_folds().values() for c in values}
    draw = random.Random(5)
    for _ in range(50):
        chosen = draw.sample([c for c in FOLDED if c not in multi], 6)
        closure = {chr(p) for c in chosen for p in unicode.fold_partners(c)}
        written = "".join(f"\\x{{{c:X}}}" for c in chosen)
        everything = set(FOLDED_TEXT)
        assert split_matches(f"(?i:[{written}])", FOLDED_TEXT) == closure
        assert split_matches(f"(?i:[^{written}])", FOLDED_TEXT) == everything - closure


def test_a_property_folds_inside_brackets_only() -> None:
    upper = {chr(c) for c in FOLDED if contains(unicode.property_ranges("Lu"), c)}
    closure = {chr(p) for c in upper for p in unicode.fold_partners(ord(c))}
    assert closure > upper
    assert split_matches(r"(?i:\p{Lu})", FOLDED_TEXT) == upper
    assert split_matches(r"(?i:[\p{Lu}])", FOLDED_TEXT) == closure


@pytest.mark.parametrize(
    ("c", "partners"), [("s", "Ssſ"), ("k", "Kk\u212a"), ("t", "Tt"), ("'", "'"), ("1", "1"), ("中", "中"), ("ı", "ı")]
)
def test_known_fold_partners(c: str, partners: str) -> None:
    assert unicode.fold_partners(ord(c)) == tuple(map(ord, partners))


def matches_whole(pattern: str, text: str) -> bool:
    return not normalizers.Replace(Regex(rf"\A(?:{pattern})\z"), "").normalize_str(text)


def test_every_multi_character_fold_both_ways() -> None:
    folds = unicode.multi_character_folds()
    assert folds["ss"] == folds["Sſ"] == (0xDF, 0x1E9E)
    assert folds["ffi"] == (0xFB03,)
    assert {c for values in folds.values() for c in values} == {
        c for c in range(0x110000) if len(chr(c).casefold()) > 1
    }  # the full foldings of Unicode, whose number has not changed since 5.1
    for literal, characters in folds.items():
        for c in characters:
            assert matches_whole(f"(?i:{re.escape(literal)})", chr(c))
            assert matches_whole(f"(?i:{chr(c)})", literal)
            assert matches_whole(f"(?i:[{chr(c)}])", literal)


def test_no_other_pair_of_ascii_letters_folds_to_one_character() -> None:
    """All 676 pairs over every character that has a fold of either kind."""
    folds = unicode.multi_character_folds()
    single = {c for values in folds.values() for c in values}
    text = "".join(f"{chr(c)}\n" for c in sorted({*FOLDED, *single}))
    for pair in map("".join, product(LETTERS, repeat=2)):
        found = set(text) - set(normalizers.Replace(Regex(f"(?i:{pair})"), "").normalize_str(text))
        assert found == set(map(chr, folds.get(pair, ())))


@pytest.mark.ci
def test_no_other_pair_of_characters_folds_to_one_character() -> None:
    """Every pair of letters that fold (one of each group), marks, modifier letters and symbols: 8 million pairs."""
    folds = unicode.multi_character_folds()
    single = sorted({c for values in folds.values() for c in values} | {c for c in FOLDED if c > 0x7F})
    parts = {min(unicode.fold_partners(c)) for c in FOLDED} | set(unicode.normalization("NFD").ccc)
    parts |= {c for name in ("Lm", "Sk") for c in code_points(unicode.property_ranges(name))}
    written = "".join(f"\\x{{{c:X}}}" for c in single)
    remover = normalizers.Replace(Regex(rf"(?<=\n)(?i:[{written}])(?=\n)"), "")
    letters = sorted(map(chr, parts))
    found = set()
    for first in letters:
        text = "\n" + "\n".join(first + second for second in letters) + "\n"
        if len(remover.normalize_str(text)) != len(text):
            rest = set(remover.normalize_str(text).split("\n"))
            found |= {first + second for second in letters if first + second not in rest}
    known = {k for k in folds if len(k) == 2 and set(k) <= set(letters)}
    assert found == known
    assert len({c for literal in known for c in folds[literal]}) == 88  # the sixteen others take three characters


# Other components


def numeric_reference(text: str) -> set[str]:
    """Runs of digits: pieces that hold no filler."""
    pieces = [p for p, _ in pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str("x".join(text))]
    return {c for piece in pieces if "x" not in piece for c in piece}


def punctuation_reference(text: str) -> set[str]:
    """What disappears when punctuation is removed."""
    pieces = [p for p, _ in pre_tokenizers.Punctuation("removed").pre_tokenize_str("x".join(text))]
    return set(text) - set("".join(pieces))


def word_reference(text: str) -> set[str]:
    """What hides a single_word token between two of itself."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken("@", single_word=True, normalized=False)])
    return {c for c in text if 1 not in tokenizer.encode(f"{c}@").ids or 1 not in tokenizer.encode(f"@{c}").ids}


def white_space_reference(text: str) -> set[str]:
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken("@", lstrip=True, rstrip=True, normalized=False)])
    return {c for c in text if len(tokenizer.encode(f"{c}@{c}").ids) == 1}


@pytest.mark.parametrize(
    ("table", "reference"),
    [
        (unicode.numeric, numeric_reference),
        (unicode.punctuation, punctuation_reference),
        (unicode.rust_word, word_reference),
        (unicode.white_space, white_space_reference),
    ],
)
def test_characters_of_components_at_every_edge(
    table: Callable[[], Ranges], reference: Callable[[str], set[str]]
) -> None:
    text = edges(table(), unicode.shorthand_ranges("w"), unicode.property_ranges("N")).replace("x", "").replace("@", "")
    assert reference(text) == in_set(table(), text)


def test_strip_takes_white_space_and_nothing_else() -> None:
    strip = normalizers.Strip()
    white = "".join(map(chr, code_points(unicode.white_space())))
    assert strip.normalize_str(f"{white}-{white}") == "-"
    for c in set(edges(unicode.white_space(), unicode.shorthand_ranges("w"))) - set(white):
        assert strip.normalize_str(f"{c}-{c}") == f"{c}-{c}"


def test_lowercase_over_all_code_points() -> None:
    lower = unicode.lowercase()
    assert lower[0x130] == (0x69, 0x307)
    n = normalizers.Lowercase().normalize_str
    for start in range(0, 0x110000, 4096):
        text = "".join(chr(c) for c in range(start, start + 4096) if is_scalar(c))
        assert n(text) == "".join(chr(c) for d in text for c in lower.get(ord(d), (ord(d),)))
    assert n("ΑΣ ΑΣ.") == "ασ ασ."  # no final sigma: characters are lowered one at a time


def test_byte_alphabet() -> None:
    alphabet = unicode.byte_alphabet()
    assert len(alphabet) == len(set(alphabet)) == 256
    assert set(alphabet) == set(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = edges(unicode.property_ranges("L"))
    mapped = "".join(piece for piece, _ in level.pre_tokenize_str(text))
    assert mapped == "".join(alphabet[b] for b in text.encode())


# Integrity


def test_the_manifest_names_every_file_and_its_digest() -> None:
    folder = tables_dir() / "unicode"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {path.name for path in folder.iterdir()} == {*manifest["tables"], "manifest.json"}
    for name, digest in manifest["tables"].items():
        assert tagged_digest(TAG_TABLE, (folder / name).read_bytes()) == digest
    assert unicode.probed_with() == ("0.22.2", "0.23.3")


@pytest.fixture
def copied_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the tables that the module reads instead, and no memory of the real ones."""
    shutil.copytree(tables_dir() / "unicode", tmp_path / "unicode")
    cached = [f for f in vars(unicode).values() if hasattr(f, "cache_clear")]
    for function in cached:
        function.cache_clear()
    monkeypatch.setattr(unicode, "tables_dir", lambda: tmp_path)
    yield tmp_path / "unicode"
    for function in cached:
        function.cache_clear()


def test_a_changed_table_is_refused(copied_tables: Path) -> None:
    table = copied_tables / "properties.json"
    assert size(unicode.property_ranges("P")) == 855
    unicode._table.cache_clear()
    unicode.property_ranges.cache_clear()
    table.write_bytes(table.read_bytes().replace(b"41-5A", b"41-59", 1))
    with pytest.raises(InternalError, match=r"properties\.json does not have the digest"):
        unicode.property_ranges("P")
    assert size(unicode.numeric()) == 1_924  # the other tables still serve


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("characters.json", None, "cannot be read"),
        ("manifest.json", None, "cannot be read"),
        ("manifest.json", b"{", "is not JSON"),
        ("manifest.json", b"[]", "is not of format 1"),
        ("manifest.json", b'{"format_version": 2, "tables": {}}', "is not of format 1"),
    ],
)
def test_a_damaged_installation_is_one_sentence(copied_tables: Path, name: str, data: bytes | None, what: str) -> None:
    (copied_tables / name).unlink()
    if data is not None:
        (copied_tables / name).write_bytes(data)
    with pytest.raises(InternalError, match=f"{name} {what}") as caught:
        unicode.numeric()
    assert caught.value.remedy


# Cases beside the repository


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="the cases are stated against Unicode 14.0.0")
def test_departures_from_unicode_14_are_the_known_ones(shared: Path) -> None:
    """../shared/cases/unicode_tables.json: where the reference differs from this Python's own database."""
    cases = json.loads((shared / "cases" / "unicode_tables.json").read_text())["regex_classes"]

    def listed(runs: list[str]) -> set[int]:
        return {c for run in runs for a, b in [(run.split("-") * 2)[:2]] for c in range(int(a, 16), int(b, 16) + 1)}

    categories = [(c, unicodedata.category(chr(c))) for c in range(0x110000) if is_scalar(c)]
    checked = 0
    for pattern, case in cases.items():
        name = re.fullmatch(r"\\p\{(\w+)\}", pattern)
        if name is None:
            continue
        ours = set(code_points(unicode.property_ranges(name[1])))
        theirs = {c for c, category in categories if category.startswith(name[1])}
        assert (len(theirs - ours), len(ours - theirs)) == tuple(case["n"])
        assert listed(case["hf_no_py_yes"]) <= theirs - ours
        assert listed(case["hf_yes_py_no"]) <= ours - theirs
        checked += 1
    assert checked >= 9
    for pattern, letter in ((r"(?i:s)", "s"), (r"(?i:k)", "k")):
        ascii_only = {ord(letter), ord(letter.upper())}
        assert set(unicode.fold_partners(ord(letter))) == ascii_only | listed(cases[pattern]["hf_yes_py_no"])
