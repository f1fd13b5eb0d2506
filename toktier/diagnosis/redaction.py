"""Takes out of a report what a ticket must not hold: home, user, host, credentials and queries of URLs, tokens.

Facts are allow-listed where they are made (`model.Check.facts`); here every text of a finished document passes once, at
the one boundary to the outside. What is known is taken out; what is merely secret and looks like prose cannot be. Not
here: exit codes, which are computed before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

SHORTEST_NAME = 3  # of a user or host: a shorter one would cut words apart
_COMMON = frozenset({"root", "user", "home", "localhost", "nobody", "toktier"})

_URL_USER = re.compile(r"(?<=://)[^/\s@'\"]+@")
_URL_QUERY = re.compile(r"(\w+://[^\s?#'\"]+)[?#][^\s'\"]*")
# Prefixes of the hub and of common services, JSON web tokens, bearer headers, and NAME_TOKEN=value.
_TOKENS = (
    re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{8,}"),
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"),
    re.compile(r"\b(?:ghp|gho|ghu|ghs|ghr|glpat|xox[abprs]|npm|pypi|github_pat)[-_][A-Za-z0-9_-]{8,}"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)?"),
    re.compile(r"(?i)(?<=bearer )\S+"),
    re.compile(r"(?i)(?<=token=)[^\s&'\"]+|(?<=password=)[^\s&'\"]+|(?<=secret=)[^\s&'\"]+|(?<=key=)[^\s&'\"]+"),
)
# A word of 20 characters or more with digits, capitals and small letters; digests are hexadecimal and pass.
_WORD = re.compile(r"[A-Za-z0-9_+=-]{20,}")
HIDDEN = "<hidden>"
# Members that hold words of a vendor or a compiler, never what a user typed: no token is looked for in them.
STRUCTURED = frozenset({"name", "architecture", "compiler", "flags"})


class Redaction:
    """`fired`: the rules that found something so far. Texts of keys are ours and are left alone."""

    def __init__(self, environ: Mapping[str, str], *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.fired: set[str] = set()
        self._rules: list[tuple[str, Callable[[str], str]]] = []
        homes = {environ.get("HOME", "").rstrip("/")}
        for home in sorted((h for h in homes if h.startswith("/") and len(h) > 1), key=len, reverse=True):
            pattern = re.compile(re.escape(home) + r"(?![\w.-])")
            self._rules.append(("home", lambda text, p=pattern: p.sub("~", text)))  # type: ignore[misc]
        self._rules += [
            ("url", lambda text: _URL_QUERY.sub(r"\1", _URL_USER.sub("", text))),
            ("token", _without_tokens),
        ]
        users = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
        users |= {os.path.basename(home) for home in homes}
        node = os.uname().nodename
        hosts = {node, node.partition(".")[0], environ.get("HOSTNAME", "")}
        for rule, names, put in (("user", users, "<user>"), ("host", hosts, "<host>")):
            for name in sorted(names, key=len, reverse=True):
                if len(name) >= SHORTEST_NAME and name.lower() not in _COMMON:
                    pattern = re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])")
                    self._rules.append((rule, lambda text, p=pattern, put=put: p.sub(put, text)))  # type: ignore[misc]

    def text(self, text: str, *, structured: bool = False) -> str:
        if not self.enabled:
            return text
        for name, rule in self._rules:
            if structured and name == "token":
                continue
            after = rule(text)
            if after != text:
                self.fired.add(name)
                text = after
        return text

    def document(self, value: Any, member: str = "") -> Any:
        """A copy of a JSON document with every text in it passed through `text`."""
        if isinstance(value, str):
            return self.text(value, structured=member in STRUCTURED)
        if isinstance(value, dict):
            return {key: self.document(item, key) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.document(item, member) for item in value]
        return value

    def to_dict(self) -> dict[str, Any]:
        return {"enabled": self.enabled, "fired": sorted(self.fired)}


def _without_tokens(text: str) -> str:
    for pattern in _TOKENS:
        text = pattern.sub(HIDDEN, text)
    return _WORD.sub(lambda match: HIDDEN if _random(match[0]) else match[0], text)


def _random(word: str) -> bool:
    kinds = (any(c.isdigit() for c in word), any(c.isupper() for c in word), any(c.islower() for c in word))
    return all(kinds)
