"""Every accepted construct means what the installed reference makes of it, and every refusal names its component."""

from __future__ import annotations

import pytest

from tests.support.boundary_reference import first_mismatch, texts_over
from tests.support.regex_strategies import LETTERS
from toktier.errors import ProgramUnsupported
from toktier.program.boundary import Stage, compile_boundaries
from toktier.program.boundary_limits import MAX_NESTING, MAX_PATTERN_LENGTH, MAX_QUANTIFIERS, Unsupported
from toktier.program.class_map import Complement, Intersection, Table, Union, spans
from toktier.program.regex_syntax import parse, parse_literal
from toktier.program.regex_tree import Alternation, Atomic, Chars, Concat, EndOfText, Look, Node, Repeat, nullable

TEXTS, SHORT_TEXTS = texts_over(LETTERS, 5), texts_over(LETTERS, 3)
A, B = Chars(spans([(97, 97)])), Chars(spans([(98, 98)]))


def listed(patterns: str) -> list[str]:
    return patterns.split()


QUANTIFIERS = listed(
    r"""
a+ a{2}?b a{1,2}?b a{,2}b a{2,}+ a{1,2}+ a{2}+b a++b a*+b a?+ab a{0}b a{0,0}b a{1}b a{2}{2} a{1,2}{2} a{2,3}?b a{2,2}?b
(?:a|ab)(?:b|ba) (a|b)+?1 (?:a?b)*1 (?:a?b)*?1 (?:ab|a)++b (?:a+b?)+1 (?:a{0,2})?b (?:a*)?b (?:a*?)?b (?:a??)?b
(?:a?)??b (?:a+)??b (?:a+?)?b (?:a+)*b (?:a+)+b (?:a+?)+b (?:a+?)*b (?:a+?)+?b (?:a+)+?b a+*b a+?*b a+?+b a???b a??b
a*?b a+?b a{2}+?b a++?b a++*b (?>a+)?b (?>a)??b [ab]{2,3}1? [ab]{2,3}?1? [ab]{2,3}+1 (?:(?:a|b){2}){1,2} a{2}*b
"""
)
ASSERTIONS = listed(
    r"""
(?>a+)b (?>a|ab)b (?>a?)ab (?>(?>a|ab)b|a) (?>(?>a+)b|a+)(?:b|1) (?=(?>a|ab)1)a (?>a|b)+1 (?>a|ab)*1 (?>(?:a|ab)+)1
(?>a(?>b|b1)1?)+ a(?=b) a(?!b) a+$ a\Z a\z \n\Z a\n\Z a$\n \n$ $a \za (?=a). (?!a). (?=a*)b (?!a*)b (?!(?!a)).
(?=(?=a)).b (?!a|b). (?=[ab]*1). (?![ab]*1)[ab]+ (?:(?![ab]1).)+ a(?=b*$)b .(?=\z) .(?!\z) (?!\z). (?:a\z|a)b?
(?:a|b\z)+ (?:a(?=b))+ (?:a(?!b))+b? (?:(?=a)a)+ (?:(?=ab)a|b)+ (?:a(?:b|$))+ \s+(?!\S)|\s+ \s*\n|a
"""
)
ATOMS = listed(
    r"""
. .+ ] }a a] a()b a(?:|b)1 (?:a|b)*1|a|b [^a] [^a&&b] [^a&&[^b]] [ab&&[^b]] [a-b&&b-z] [ab&&a1&&a] [^\s] [\s1] [-a]
[a-] [^-a] [a\-b] [a-b-] [[ab]1] [a[^\n]] [+-a] \x61 \x{61} \x{0000061} \u0061 \t|\n \v|a [\n] \d \D+ \s \S \w \W \h \H
[\h] [\H] [^\H] [\w] [\W] [^\W] \P{N} \p{^N} \P{^N} \p{n} \p{L_u} [[:digit:]] [[:^digit:]] [^[:digit:]] (?i)A|1
(?:(?i)A|B)1 (?i:A)a (?i:[A-B])1 (?i:[^A])1 (?i:\S)+ (?i:\p{Lu}) (?i:.) \\|a \.|a \[|1 (?i:1) (?i:[1]) (?i:(?:A)b)
"""
)


@pytest.mark.parametrize("pattern", [*QUANTIFIERS, *ASSERTIONS])
def test_ways_through_a_pattern_are_those_of_the_reference(pattern: str) -> None:
    assert first_mismatch([Stage("stage", pattern=pattern)], TEXTS) is None


@pytest.mark.parametrize("pattern", ATOMS)
def test_atoms_mean_what_the_reference_makes_of_them(pattern: str) -> None:
    assert first_mismatch([Stage("stage", pattern=pattern)], SHORT_TEXTS) is None


@pytest.mark.parametrize("code_point", range(0x80))
def test_ascii_in_patterns_and_sets(code_point: int) -> None:
    """Each character as it stands, escaped, first, last and inside a set, and as the end of a range, where it is
    accepted at all."""
    char = chr(code_point)
    escaped = [] if char.isalnum() else ["\\" + char, f"[\\{char}]", f"[a\\{char}]", f"[^\\{char}a]", f"[\\{char}-~]"]
    spellings = [char, f"[{char}]", f"[{char}z]", f"[z{char}]", f"[^{char}]", f"[{char}-~]", f"[\\s{char}]", *escaped]
    singles = [chr(c) for c in range(0x80)]
    texts = singles + ["a" + c for c in singles] + [char * 3]
    accepted = 0
    for pattern in spellings:
        try:
            compile_boundaries([Stage("stage", pattern=pattern)])
        except ProgramUnsupported:
            continue
        accepted += 1
        assert first_mismatch([Stage("stage", pattern=pattern)], texts) is None, pattern
    assert accepted >= (4 if char.isalnum() else 5)


@pytest.mark.parametrize("escape", [r"\n", r"\t", r"\r", r"\f", r"\v", r"\a", r"\e", r"\x7f", r"\x{80}", r"\u1e9e"])
def test_escapes_of_characters(escape: str) -> None:
    texts = [chr(c) for c in range(0x100)] + ["\u1e9e"]
    for pattern in (escape, f"[{escape}]", f"[^{escape}]"):
        assert first_mismatch([Stage("stage", pattern=pattern)], texts) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w",
        r"\W",
        r"[\w]",
        r"[\W]",
        r"[^\w]",
        r"\p{Word}",
        r"[\p{Word}]",
        r"\P{Word}",
        r"\s",
        r"\d",
        r"\h",
        r"\p{L}",
        r"\p{Lu}",
        r"\p{M}",
        r"\p{Han}",
        r"\p{P}",
        r"\p{S}",
        r"\p{C}",
        r"[[:alpha:]]",
        r"[[:punct:]]",
        r"[[:^space:]]",
        r"[\p{L}&&[^\p{Han}]]",
        r"[^\s\p{L}\p{N}]",
        "(?i:k)",
        "(?i:[a-z])",
        "(?i:[^k])",
        r"(?i:\p{Ll})",
        "(?i:ω)",
        "(?i:å)",
    ],
)
def test_sets_at_the_edges_of_their_ranges(pattern: str) -> None:
    one = [Stage("stage", pattern=pattern, behavior="Removed")]
    tables = compile_boundaries(one)
    edges = {c for first, last, _ in tables.class_ranges for c in (first, last)} | set(range(0x600))
    texts = [chr(c) for c in sorted(edges) if not 0xD800 <= c <= 0xE000]
    assert first_mismatch(one, texts, tables) is None


def test_trees() -> None:
    def check(pattern: str, tree: Node) -> None:
        assert parse(pattern) == tree

    check("ab|a", Alternation((Concat((A, B)), A)))
    check("(?:a)", A)
    check("a{2,3}+", Repeat(Repeat(A, 2, 3, False), 1, None, False))
    check("a{2}?b", Concat((Repeat(Repeat(A, 2, 2, False), 0, 1, False), B)))
    check("a{2,3}?", Repeat(A, 2, 3, True))
    check("a++", Atomic(Repeat(A, 1, None, False)))
    check("a(?!b)", Concat((A, Look(B, True))))
    check("a{1}", A)
    check(r"[^a&&\d]", Chars(Complement(Intersection((A.set, Table("shorthand", "d", True))))))
    check(r"[a\s-]", Chars(Union((Table("shorthand", "s", True), spans([(97, 97), (45, 45)])))))
    check("[acb]", Chars(spans([(97, 99)])))
    check(r"a\z", Concat((A, EndOfText())))
    assert parse_literal("ab") == Concat((A, B))
    assert parse_literal("a+") != parse("a+")


def test_case_insensitive_characters_hold_their_partners() -> None:
    assert parse("(?i:s)") == Chars(spans([(0x53, 0x53), (0x73, 0x73), (0x17F, 0x17F)]), (0x73,))
    assert parse("(?i:')") == Chars(spans([(0x27, 0x27)]), (0x27,))
    tree = parse("(?i)a(b)")
    assert isinstance(tree, Concat)
    assert all(isinstance(item, Chars) and item.folded for item in tree.items)


REFUSED: dict[str, list[str]] = {
    "quantifier after {1}": ["(?:ab){1}?b", "(?:ab){1}+b", "a{01}*", "(?:ab){1}{2}"],
    "nested set without a member": [r"[^[^\d\D]0-9]", r"[^[^\x{0}-\x{10ffff}]a]", r"[a[b&&c]]"],
    "look-behind": ["(?<=a)b", "(?<!a)b"],
    "word boundary": [r"\ba", r"a\B"],
    "start-of-line anchor": ["^a"],
    "start-of-text anchor": [r"\Aa"],
    "search-start anchor": [r"\Ga"],
    "keep": [r"a\Kb"],
    "back-reference or octal": [r"(a)\1", r"\0", r"\07"],
    "named group": ["(?<n>a)", "(?'n'a)"],
    "back-reference": [r"\k<n>a"],
    "subexpression call": [r"\g<0>a"],
    "conditional group": ["(?(1)a|b)"],
    "comment group": ["(?#a)b"],
    "absent operator": ["(?~a)b"],
    "option group": ["(?m:a.)", "(?x: a)", "(?-i:a)", "a(?i)b", "a|(?i)b", "(?"],
    "callout": ["(?{a})b", "(*FAIL)a"],
    "general newline": [r"\R"],
    "text segment": [r"\X"],
    "text segment boundary": [r"\ya", r"\Ya"],
    "not-newline": [r"\N"],
    "any-character": [r"\O"],
    "control escape": [r"\cA", r"\C-a"],
    "meta escape": [r"\M-a"],
    "octal escape": [r"\o{101}"],
    r"escape \i": [r"\i"],
    r"escape \é": [r"\é"],
    "backslash at the end": ["a\\"],
    r"escape \x": [r"\xe4", r"\x4", r"\x{41 42}"],
    "escape of no code point": [r"\x{110000}", r"\x{d800}", r"\ud800"],
    r"escape \u": [r"\u12"],
    "lone surrogate": ["\ud800", "[\ud800]"],
    "property escape": [r"\p{Script=Han}", r"\pL", r"\p{L"],
    r"property \p{Nonsense}": [r"\p{Nonsense}"],
    "POSIX bracket [:nonsense:]": ["[[:nonsense:]]"],
    "POSIX bracket": ["[[:alpha]]"],
    "empty set": ["[]", "[]a]", "[^]", "[a&&]", "[&&a]"],
    "unclosed set": ["[a"],
    "range of a set": ["[b-a]", r"[a-\d]"],
    "hyphen in a set": [r"[\d-a]", "[a-c-e]", "[--a]", "[+--]", "[a&&-b]", "[a-[b]]", "[[a]-z]", "[a-&&b]", "[-&&a]"],
    "quantifier *": ["*a", "a|*"],
    "quantifier +": ["+a"],
    "quantifier ?": ["?a"],
    "quantifier {": ["{1}a"],
    "brace": ["a{", "a{,}", "a{x}", "a{1, 2}"],
    "ends exchanged": ["a{3,2}"],
    "interval too large": ["a{1000000}", "a{1,9999999}"],
    "quantifier on an assertion": ["a(?=b)*", r"a\z?", "a$+", r"a\Z*"],
    "repetition of what can match the empty text": [
        "(?:a?)*b",
        "(?:a|)+b",
        "(?:a*){2}b",
        "(?:(?=a)|(?=b))+a",
        "(?>a?)*b",
        "()+a",
    ],
    "match the empty text": ["", "a?", "a|", "a*|b", "(?=a)", "$", r"\z", "()", "a{2}?", "(?>a*)", "(?:a|b?)(?:c|)"],
    "multi-character case fold": [
        "(?i:ss)",
        "(?i:ß)",
        "(?i:s)(?i:s)",
        "(?i:s{2})",
        "(?i:s+)",
        "(?i:as?sb)",
        "(?i:sx?s)",
        "(?i:s(?:x?s))",
        "(?i:[sx][sy])",
        "(?i:ſt)",
        "(?i:xffy)",
        "(?i:[a-ÿ])",
        "(?i:f(?:a|i))",
        "(?i)(?>s)s",
    ],
    "case-insensitive set": [r"(?i:[\p{L}])", "(?i:[a&&b])", r"(?i:[^\s])", "(?i:[一-龥])", "(?i:[a[^b]])"],
    "unclosed group": ["(a", "(?:a"],
    "unmatched )": ["a)", ")"],
}


@pytest.mark.parametrize(("pattern", "component"), [(p, c) for c, patterns in REFUSED.items() for p in patterns])
def test_refusals_name_their_component(pattern: str, component: str) -> None:
    with pytest.raises(ProgramUnsupported) as refused:
        compile_boundaries([Stage("pre_tokenizer.pattern", pattern=pattern)])
    error = refused.value
    assert component in error.component
    assert error.path == error.details["path"] == "pre_tokenizer.pattern"
    assert error.message.startswith("pre_tokenizer.pattern: ")
    assert error.component in error.message


def test_refused_literals() -> None:
    for literal, component in [("", "empty string"), ("\ud800", "lone surrogate"), ("a" * 30_000, "too large")]:
        with pytest.raises(Unsupported, match=component):
            parse_literal(literal)


def test_depth_and_length_are_bounded() -> None:
    parse("(" * MAX_NESTING + "a" + ")" * MAX_NESTING)
    parse("a" + "+" * (2 * MAX_QUANTIFIERS))
    for pattern, component in [
        ("(" * (MAX_NESTING + 1) + "a" + ")" * (MAX_NESTING + 1), "nesting"),
        ("[" * 5_000 + "a", "nesting"),
        ("(" * 20_000, "nesting"),
        ("(?=" * 5_000, "nesting"),
        ("a" + "+" * (2 * MAX_QUANTIFIERS + 1), "quantifiers in a row"),
        ("a" * (MAX_PATTERN_LENGTH + 1), "too large"),
    ]:
        with pytest.raises(Unsupported, match=component):
            parse(pattern)


def test_the_deepest_accepted_tree_needs_little_recursion() -> None:
    """Every level as deep as it can be: three possessive quantifiers in a group in an alternation in a sequence."""
    pattern = "(?>" * MAX_NESTING + "ab" + "|c)++++++" * MAX_NESTING
    tables = compile_boundaries([Stage("stage", pattern=pattern)])
    assert first_mismatch([Stage("stage", pattern=pattern)], texts_over("abc", 4), tables) is None


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a", False), ("a?b", False), ("a|b", False), ("a(?=b)", False), ("(?>ab?)", False), ("a{2}", False)],
)
def test_nullable(pattern: str, expected: bool) -> None:
    tree = parse(pattern)
    assert nullable(tree) is expected
    assert nullable(Repeat(tree, 0, 1, False))
    assert not nullable(Concat((tree, Repeat(tree, 0, None, True))))
    assert nullable(Concat(()))
    assert nullable(Alternation((tree, Look(tree, False))))
    assert not nullable(Repeat(Atomic(tree), 2, 2, False))
