"""Oniguruma pattern → syntax tree, for the subset whose meaning was checked against the reference.

Everything else raises Unsupported with its component: nothing is guessed. Where Oniguruma differs from other engines,
its way is taken: `X{n,m}+` repeats `X{n,m}` (it is not possessive), `X{n}?` is an optional `X{n}`, `$` stands before
any LF, `\\h` is a hexadecimal digit, `[^a&&b]` is not (a and b), `.` is anything but LF. Sets stay expressions; sets
of case-insensitive literals hold their fold partners. Not here: the tree (`toktier.program.regex_tree`), what it
matches (`toktier.program.regex_program`).
"""

from __future__ import annotations

import re

from toktier.program import case_folding
from toktier.program.boundary_limits import MAX_NESTING, MAX_PATTERN_LENGTH, MAX_QUANTIFIERS, Unsupported
from toktier.program.class_map import (
    SURROGATES,
    CodePointSet,
    Complement,
    Intersection,
    Spans,
    Table,
    Union,
    classify,
    spans,
    table_ranges,
)
from toktier.program.code_point_sets import LAST_CODE_POINT
from toktier.program.regex_tree import (
    EMPTY,
    Alternation,
    Atomic,
    Chars,
    Concat,
    EndOfText,
    Look,
    Node,
    Repeat,
    literal_neighbours,
    nullable,
)

LINE_FEED = spans([(10, 10)])
_END_OF_LINE = Alternation((Look(Chars(LINE_FEED), False), EndOfText()))
_END_OR_LAST_LINE_FEED = Alternation((Look(Concat((Chars(LINE_FEED), EndOfText())), False), EndOfText()))

_CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7, "e": 27}
_INTERVAL = re.compile(r"\{(?:([0-9]+)(?:(,)([0-9]*))?|,([0-9]+))\}")
_POSIX = re.compile(r"\[:(\^?)([A-Za-z]+):\]")
_PROPERTY = re.compile(r"\{(\^?)([A-Za-z][A-Za-z0-9_ \-]*)\}")
_HEX_BYTE = re.compile(r"[0-9A-Fa-f]{2}")
_HEX_BRACED = re.compile(r"\{([0-9A-Fa-f]{1,8})\}")
_HEX_FOUR = re.compile(r"[0-9A-Fa-f]{4}")
_REFUSED_ESCAPES = {
    "b": "word boundary",
    "B": "word boundary",
    "A": "start-of-text anchor",
    "G": "search-start anchor",
    "K": "keep",
    "k": "back-reference",
    "g": "subexpression call",
    "R": "general newline",
    "X": "text segment",
    "y": "text segment boundary",
    "Y": "text segment boundary",
    "N": "not-newline escape",
    "O": "any-character escape",
    "c": "control escape",
    "C": "control escape",
    "M": "meta escape",
    "o": "octal escape",
}
_REFUSED_GROUPS = (
    ("?<=", "look-behind"),
    ("?<!", "look-behind"),
    ("?<", "named group"),
    ("?'", "named group"),
    ("?#", "comment group"),
    ("?~", "absent operator"),
    ("?(", "conditional group"),
    ("?{", "callout"),
    ("*", "callout"),
    ("?", "option group"),
)


def parse(pattern: str) -> Node:
    """The tree of an Oniguruma pattern as `Split` compiles it. Raises Unsupported for what is beyond the subset,
    including patterns that can match the empty text."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise Unsupported(
            "regex too large", f"{len(pattern):,} code points, at most {MAX_PATTERN_LENGTH:,} are compiled"
        )
    tree = _Parser(pattern).parse()
    if nullable(tree):
        raise Unsupported("pattern that can match the empty text", "every match must take at least one character")
    return tree


def parse_literal(text: str) -> Node:
    """The tree that matches `text` itself."""
    if not text:
        raise Unsupported("empty string pattern", "every match must take at least one character")
    if len(text) > MAX_PATTERN_LENGTH:
        raise Unsupported("string pattern too large", f"more than {MAX_PATTERN_LENGTH:,} code points")
    if any(ord(c) in SURROGATES for c in text):
        raise Unsupported("lone surrogate", "no text holds one")
    return Concat(tuple(Chars(_single(ord(c))) for c in text))


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._nesting = 0

    def parse(self) -> Node:
        tree = self._group_body(ignore_case=False)
        if self._at < len(self._text):
            raise self._beyond("unmatched )")
        case_folding.check_adjacent(literal_neighbours(tree))
        return tree

    # Cursor -----------------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _accept(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self._at):
            self._at += len(prefix)
            return True
        return False

    def _accept_re(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _beyond(self, component: str, at: int | None = None) -> Unsupported:
        return Unsupported(component, f"at character {self._at if at is None else at} of the pattern")

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._beyond(f"nesting deeper than {MAX_NESTING}")

    # Groups and sequences ---------------------------------------------------------------------------------------------

    def _group_body(self, ignore_case: bool) -> Node:
        # Only at the start of a group does (?i) mean the same with and without an alternation after it.
        ignore_case = self._accept("(?i)") or ignore_case
        branches = [self._sequence(ignore_case)]
        while self._accept("|"):
            branches.append(self._sequence(ignore_case))
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _sequence(self, ignore_case: bool) -> Node:
        items: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            items.append(self._quantified(ignore_case))
        return items[0] if len(items) == 1 else Concat(tuple(items))

    def _group(self, ignore_case: bool) -> Node:
        start = self._at - 1
        self._enter()
        if self._accept("?:"):
            node = self._group_body(ignore_case)
        elif self._accept("?i:"):
            node = self._group_body(True)
        elif self._accept("?>"):
            node = Atomic(self._group_body(ignore_case))
        elif self._accept("?="):
            node = Look(self._group_body(ignore_case), False)
        elif self._accept("?!"):
            node = Look(self._group_body(ignore_case), True)
        else:
            for prefix, component in _REFUSED_GROUPS:
                if self._text.startswith(prefix, self._at):
                    raise self._beyond(f"{component} ({prefix}", start)
            node = self._group_body(ignore_case)
        if not self._accept(")"):
            raise self._beyond("unclosed group", start)
        self._nesting -= 1
        return node

    # Quantifiers ------------------------------------------------------------------------------------------------------

    def _quantified(self, ignore_case: bool) -> Node:
        node = self._atom(ignore_case)
        quantifiers = 0
        while True:
            start = self._at
            if quantifiers > MAX_QUANTIFIERS:
                raise self._beyond(f"more than {MAX_QUANTIFIERS} quantifiers in a row")
            quantifiers += 1
            if self._accept("?"):
                low, high = 0, 1
            elif self._accept("*"):
                low, high = 0, None
            elif self._accept("+"):
                low, high = 1, None
            elif self._peek() == "{":
                node = self._interval(node)
                continue
            else:
                return node
            possessive = self._accept("+")
            node = self._repeat(node, low, high, lazy=not possessive and self._accept("?"), start=start)
            if possessive:
                node = Atomic(node)

    def _interval(self, node: Node) -> Node:
        start = self._at
        found = self._accept_re(_INTERVAL)
        if not found:
            raise self._beyond("brace that is no interval", start)
        low_digits, comma, high_digits, only_high = found.groups()
        if max(len(digits or "") for digits in (low_digits, high_digits, only_high)) > 6:
            raise self._beyond("interval too large", start)
        low = int(low_digits or "0")
        if only_high:
            high: int | None = int(only_high)
        elif comma:
            high = int(high_digits) if high_digits else None
        else:
            high = low
        if high is not None and high < low:
            raise self._beyond("interval with its ends exchanged", start)
        if (low, high, comma) == (1, 1, None) and self._peek() in ("?", "*", "+", "{"):
            # The reference drops {1} and the group it stands on: the next quantifier is then of the last character.
            raise self._beyond("quantifier after {1}", start)
        # After {n} a "?" is a quantifier of its own; after the other forms it makes them lazy. "+" never belongs here.
        lazy = (comma is not None or only_high is not None) and self._accept("?")
        return self._repeat(node, low, high, lazy=lazy, start=start)

    def _repeat(self, body: Node, low: int, high: int | None, *, lazy: bool, start: int) -> Node:
        if isinstance(body, Look | EndOfText) or body in (_END_OF_LINE, _END_OR_LAST_LINE_FEED):
            raise self._beyond("quantifier on an assertion", start)
        if high == 0:
            return EMPTY
        if high != 1 and nullable(body):
            raise self._beyond("repetition of what can match the empty text", start)
        return body if low == high == 1 else Repeat(body, low, high, lazy)

    # Atoms ------------------------------------------------------------------------------------------------------------

    def _atom(self, ignore_case: bool) -> Node:
        start = self._at
        char = self._peek()
        self._at += 1
        match char:
            case "(":
                return self._group(ignore_case)
            case "[":
                return self._set_atom(ignore_case)
            case ".":
                return Chars(Complement(LINE_FEED))
            case "$":
                return _END_OF_LINE
            case "^":
                raise self._beyond("start-of-line anchor ^", start)
            case "?" | "*" | "+" | "{":
                raise self._beyond(f"quantifier {char} without a target", start)
            case "\\":
                if self._accept("z"):
                    return EndOfText()
                if self._accept("Z"):
                    return _END_OR_LAST_LINE_FEED
                escaped = self._escape(bracketed=False)
                if not isinstance(escaped, int):
                    return Chars(escaped)
                char = chr(escaped)
        return self._literal(ord(char), ignore_case, start)

    def _literal(self, code_point: int, ignore_case: bool, start: int) -> Node:
        if code_point in SURROGATES:
            raise self._beyond("lone surrogate", start)
        if not ignore_case:
            return Chars(_single(code_point))
        return Chars(_several(case_folding.partners((code_point,))), (code_point,))

    def _escape(self, *, bracketed: bool) -> int | CodePointSet:
        """After a backslash: a code point, or the set of a shorthand or property."""
        start = self._at - 1
        char = self._peek()
        if not char:
            raise self._beyond("backslash at the end", start)
        self._at += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in "dswh":
            return Table("shorthand", char, bracketed)
        if char in "DSWH":
            return Complement(Table("shorthand", char.lower(), bracketed))
        if char in "pP":
            return self._property(char == "P", bracketed, start)
        if char == "x":
            # Two digits are a raw byte of UTF-8, so only ASCII is a character of its own.
            if found := self._accept_re(_HEX_BRACED):
                return self._code_point(found[1], start)
            if (found := self._accept_re(_HEX_BYTE)) and int(found[0], 16) < 0x80:
                return int(found[0], 16)
            raise self._beyond("escape \\x of a byte that is no character", start)
        if char == "u":
            if found := self._accept_re(_HEX_FOUR):
                return self._code_point(found[0], start)
            raise self._beyond("escape \\u without four digits", start)
        if char.isascii() and not char.isalnum():
            return ord(char)
        component = "back-reference or octal escape" if char.isdigit() else _REFUSED_ESCAPES.get(char, "escape")
        raise self._beyond(f"{component} \\{char}", start)

    def _code_point(self, digits: str, start: int) -> int:
        value = int(digits, 16)
        if value > LAST_CODE_POINT or value in SURROGATES:
            raise self._beyond("escape of no code point", start)
        return value

    def _property(self, negative: bool, bracketed: bool, start: int) -> CodePointSet:
        found = self._accept_re(_PROPERTY)
        if not found:
            raise self._beyond("property escape", start)
        table = self._known(Table("property", found[2], bracketed), f"property \\p{{{found[2]}}}", start)
        return Complement(table) if negative != bool(found[1]) else table

    def _known(self, table: Table, component: str, start: int) -> Table:
        try:
            table_ranges(table)
        except KeyError:
            raise self._beyond(component, start) from None
        return table

    # Sets -------------------------------------------------------------------------------------------------------------

    def _set_atom(self, ignore_case: bool) -> Node:
        start = self._at - 1
        parsed = self._set(start)
        if not ignore_case:
            return Chars(parsed)
        # Folding a property would need every fold of its members, some of them to several characters.
        plain, negative = (parsed.part, True) if isinstance(parsed, Complement) else (parsed, False)
        if not isinstance(plain, Spans) or sum(last - first for first, last in plain.ranges) > case_folding.MAX_FOLDED:
            raise self._beyond("case-insensitive set of more than a few code points", start)
        written = [c for first, last in plain.ranges for c in range(first, last + 1)]
        folded = _several(case_folding.partners(written))
        return Chars(Complement(folded)) if negative else Chars(folded, tuple(written))

    def _set(self, start: int) -> CodePointSet:
        """After `[`: items, then `]`. Every operand of && must have an item."""
        self._enter()
        negative = self._accept("^")
        operands: list[CodePointSet] = []
        items: list[CodePointSet] = []
        first = True
        while not self._accept("]"):
            if self._accept("&&"):
                operands.append(self._operand(items, start))
                items = []
            elif self._peek() == "":
                raise self._beyond("unclosed set", start)
            else:
                items.append(self._set_item(first))
            first = False
        operands.append(self._operand(items, start))
        self._nesting -= 1
        whole = operands[0] if len(operands) == 1 else Intersection(tuple(operands))
        return Complement(whole) if negative else whole

    def _operand(self, items: list[CodePointSet], start: int) -> CodePointSet:
        if not items:
            raise self._beyond("empty set or operand of &&", start)
        parts: list[CodePointSet] = [item for item in items if not isinstance(item, Spans)]
        written = [r for item in items if isinstance(item, Spans) for r in item.ranges]
        if written:
            parts.append(spans(written))
        return parts[0] if len(parts) == 1 else Union(tuple(parts))

    def _set_item(self, first: bool) -> CodePointSet:
        start = self._at
        if self._peek() == "-":
            # A hyphen is itself at either end of the set; elsewhere engines disagree unless it makes a range.
            self._at += 1
            if self._peek() == "]" or (first and self._peek() not in ("-", "&", "")):
                return _single(ord("-"))
            raise self._beyond("hyphen in a set that makes no range", start)
        if self._text.startswith("[:", self._at):
            found = self._accept_re(_POSIX)
            if not found:
                raise self._beyond("POSIX bracket", start)
            table = self._known(Table("posix", found[2]), f"POSIX bracket [:{found[2]}:]", start)
            return Complement(table) if found[1] else table
        if self._accept("["):
            nested = self._set(start)
            if not classify((nested,)).members[0]:  # the reference then reads some sets around it as empty too
                raise self._beyond("nested set without a member", start)
            return nested
        low = self._set_char()
        if self._peek() != "-" or self._text.startswith("-]", self._at):
            return _single(low) if isinstance(low, int) else low
        self._at += 1
        if not isinstance(low, int) or self._peek() in ("", "[", "-") or self._text.startswith("&&", self._at):
            raise self._beyond("hyphen in a set that makes no range", start)
        high = self._set_char()
        if not isinstance(high, int) or high < low:
            raise self._beyond("range of a set", start)
        if self._peek() == "-" and not self._text.startswith("-]", self._at):
            raise self._beyond("hyphen in a set that makes no range", self._at)
        return spans([(low, high)])

    def _set_char(self) -> int | CodePointSet:
        start = self._at
        char = self._peek()
        self._at += 1
        if char == "\\":
            return self._escape(bracketed=True)
        if ord(char) in SURROGATES:
            raise self._beyond("lone surrogate", start)
        return ord(char)


def _single(code_point: int) -> Spans:
    return Spans(((code_point, code_point),))


def _several(code_points: tuple[int, ...]) -> Spans:
    return spans((c, c) for c in code_points)
