"""A split pattern of tiktoken's regex engine → the pattern of the same meaning for the reference's engine.

tiktoken compiles with Rust's fancy-regex, the reference with Oniguruma (Ruby's syntax). Most of what split patterns use
means the same in both and stays as written. What differs is rewritten: `X{n,m}+` is possessive there and would repeat
here, `X{n}?` is X{n} there and optional here, `$` and `^` are the ends of the text there and of lines here, `\\xHH` is
a character there and a byte here. Everything else that could differ is refused by name, and so is what the compiler's
own reader of patterns does not know: only its subset was checked against the reference.
"""

from __future__ import annotations

import re

from toktier.errors import UnsupportedConfig
from toktier.labels import quoted
from toktier.program import regex_syntax
from toktier.program.boundary_limits import MAX_NESTING, MAX_PATTERN_LENGTH, Unsupported

# Categories and scripts; other names, POSIX ones above all, have other members there and here.
_SAME_PROPERTY = re.compile(
    "L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfo]|"
    "Arabic|Armenian|Bengali|Cyrillic|Devanagari|Ethiopic|Georgian|Greek|Gujarati|Gurmukhi|Han|Hangul|Hebrew|Hiragana|"
    "Kannada|Katakana|Khmer|Lao|Latin|Malayalam|Mongolian|Myanmar|Sinhala|Tamil|Telugu|Thai|Tibetan"
)
_PROPERTY = re.compile(r"\{(\^?)([A-Za-z_]+)\}|([A-Z])")
_INTERVAL = re.compile(r"\{([0-9]{1,6})(?:(,)([0-9]{1,6})?)?\}")
_HEX = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")
_GROUPS = ("?:", "?>", "?=", "?!", "?i:")
_SAME_ESCAPES = frozenset("nrtfv" + "sSdD")
_SET_OPERATORS = ("--", "~~")


def for_reference(pattern: str) -> str:
    """The pattern to write into a tokenizer.json. Raises UnsupportedConfig with the construct that has no certain
    counterpart, including patterns that can match the empty text."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise _refused(pattern, f"more than {MAX_PATTERN_LENGTH:,} characters")
    rewritten = _Translation(pattern).run()
    try:
        regex_syntax.parse(rewritten)
    except Unsupported as refusal:
        raise _refused(pattern, str(refusal)) from None
    return rewritten


def _refused(pattern: str, component: str) -> UnsupportedConfig:
    return UnsupportedConfig(
        f"the split pattern {quoted(pattern)} cannot be converted: {component}",
        details={"component": component, "pattern": pattern[:1000]},
        remedy="use a tokenizer.json that the vocabulary's publisher provides",
    )


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._folded = False

    def run(self) -> str:
        body = self._alternatives()
        if self._at < len(self._text):
            raise self._beyond("unmatched )")
        return body

    def _beyond(self, component: str, at: int | None = None) -> UnsupportedConfig:
        return _refused(self._text, f"{component} at character {self._at if at is None else at}")

    def _peek(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _accept(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self._at):
            self._at += len(prefix)
            return True
        return False

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._beyond(f"nesting deeper than {MAX_NESTING}")

    def _alternatives(self) -> str:
        # At the start of a group (?i) is of the whole group in both engines; elsewhere alternations take it apart.
        outside, folded = self._folded, self._accept("(?i)")
        self._folded = outside or folded
        parts = []
        while (char := self._peek()) not in ("", ")"):
            if char == "|":
                self._at += 1
                parts.append("|")
            else:
                parts.append(self._quantified())
        self._folded = outside
        body = "".join(parts)
        return f"(?i:{body})" if folded else body

    def _quantified(self) -> str:
        atom, may_repeat = self._atom()
        start = self._at
        char = self._peek()
        if char and char in "?*+":
            self._at += 1
            suffix = self._peek()
            if suffix and suffix in "?+":
                self._at += 1
            else:
                suffix = ""
            result = atom + char + suffix
        elif char == "{":
            result = self._interval(atom)
        else:
            return atom
        if not may_repeat:
            raise self._beyond("quantifier on an assertion", start)
        if self._peek() and self._peek() in "?*+{":
            raise self._beyond("quantifier on a quantifier")
        return result

    def _interval(self, atom: str) -> str:
        found = self._match(_INTERVAL)
        if not found:
            raise self._beyond("brace that is no interval")
        low, comma, high = found.groups()
        lazy, possessive = self._accept("?"), False
        if not lazy:
            possessive = self._accept("+")
        if not comma:
            # Exactly n: neither lazy nor possessive changes it, but for what happens inside of X.
            if int(low) == 0:
                raise self._beyond("repetition of nothing")
            counted = atom if int(low) == 1 else f"{atom}{{{int(low)}}}"
        else:
            counted = f"{atom}{{{int(low)},{int(high) if high else ''}}}" + ("?" if lazy else "")
        return f"(?>{counted})" if possessive else counted

    def _atom(self) -> tuple[str, bool]:
        """The next atom, and whether it may be repeated."""
        start = self._at
        char = self._peek()
        self._at += 1
        match char:
            case "(":
                return self._group(start)
            case "[":
                return self._set(), True
            case "$":
                return r"\z", False
            case "^":
                return r"\A", False
            case "\\":
                return self._escape(), True
            case "?" | "*" | "+" | "{":
                raise self._beyond(f"quantifier {char} without a target", start)
        return self._literal(char), True

    def _literal(self, char: str) -> str:
        # Beyond ASCII one engine folds characters one by one, the other also one to several.
        if self._folded and not char.isascii():
            raise self._beyond("case-insensitive character beyond ASCII", self._at - 1)
        return char

    def _group(self, start: int) -> tuple[str, bool]:
        self._enter()
        opening = next((g for g in _GROUPS if self._accept(g)), None)
        if opening is None:
            if self._peek() in ("?", "*"):
                raise self._beyond(f"group ({self._peek(3)}", start)
            opening = "?:"  # what it captures nobody reads
        outside = self._folded
        self._folded = outside or opening == "?i:"
        body = self._alternatives()
        self._folded = outside
        if not self._accept(")"):
            raise self._beyond("unclosed group", start)
        self._depth -= 1
        return f"({opening}{body})", opening not in ("?=", "?!")

    def _escape(self) -> str:
        start = self._at - 1
        char = self._peek()
        if char in ("p", "P"):
            if self._folded:
                raise self._beyond("case-insensitive property", start)
            self._at += 1
            found = self._match(_PROPERTY)
            name = found and (found[2] or found[3])
            if not found or not name or not _SAME_PROPERTY.fullmatch(name):
                raise self._beyond("property whose members the engines may not agree on", start)
            return f"\\{char}{{{found[1] or ''}{name}}}"
        if char in ("x", "u"):
            found = self._match(_HEX)
            if not found:
                raise self._beyond(f"escape \\{char}", start)
            if self._folded:
                raise self._beyond("case-insensitive escape", start)
            return f"\\x{{{next(digits for digits in found.groups() if digits)}}}"
        if char and (char in _SAME_ESCAPES or (char.isascii() and not char.isalnum() and char not in "<>")):
            self._at += 1
            return "\\" + char
        raise self._beyond(f"escape \\{char}", start)

    def _set(self) -> str:
        start = self._at - 1
        self._enter()
        parts = ["["]
        if self._accept("^"):
            parts.append("^")
        if self._peek() == "]":
            raise self._beyond("set that begins with ]", start)
        while not self._accept("]"):
            if self._text.startswith("[:", self._at):
                raise self._beyond("POSIX bracket")
            if self._peek(2) in _SET_OPERATORS:
                raise self._beyond(f"set operator {self._peek(2)}")
            char = self._peek()
            if not char:
                raise self._beyond("unclosed set", start)
            self._at += 1
            if char == "[":
                parts.append(self._set())
            elif char == "\\":
                parts.append(self._escape())
            else:
                parts.append(self._literal(char))
        self._depth -= 1
        return "".join([*parts, "]"])
