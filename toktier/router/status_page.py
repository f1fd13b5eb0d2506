"""The status page: one HTML file, given out with headers that let nothing but its own script and style run.

Its script asks the router for /toktier/stats and /toktier/slots; what their words mean is written into the page from
the tables of the vocabulary. Not here: the routes, and the numbers themselves.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toktier.router import vocabulary
from toktier.router.refusals import REFUSALS

FILE: Final = Path(__file__).with_name("status_page.html")
_MEANINGS: Final[dict[str, Mapping[Any, str]]] = {
    "outcome": vocabulary.OUTCOME_MEANINGS,
    "reuse": vocabulary.REUSE_MEANINGS,
    "choice": vocabulary.CHOICE_MEANINGS,
    "unrouted": vocabulary.UNROUTED_MEANINGS,
    "ids": vocabulary.IDS_MEANINGS,
    "upstream": vocabulary.UPSTREAM_STATE_MEANINGS,
    "slot": vocabulary.SLOT_STATE_MEANINGS,
    "guards": {code: meaning for code, (_, _, meaning) in REFUSALS.items()},
}
_PLACE: Final = '<script type="application/json" id="meanings">{}</script>'
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class StatusPage(NamedTuple):
    """The answer to GET / and GET /toktier, which need no key: the page itself says nothing of the router."""

    body: bytes
    headers: Mapping[str, str]


@functools.cache
def status_page() -> StatusPage:
    """Read once for each process. Raises OSError where the installation lacks the file."""
    text = FILE.read_text("utf-8")
    assert _PLACE in text
    words = json.dumps({name: {word.value: said for word, said in table.items()} for name, table in _MEANINGS.items()})
    text = text.replace(_PLACE, _PLACE.replace("{}", words.replace("<", "\\u003c")))
    digests = {"script": "", "style": ""}
    for kind, content in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        digests[kind] += f" 'sha256-{digest}'"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src{digests['script']}",
            f"style-src{digests['style']}",
            "connect-src 'self'",
            "img-src data:",  # the icon, which is empty: else a browser asks for one
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",  # no text of an upstream becomes markup, whatever the script does
        )
    )
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
    return StatusPage(text.encode(), headers)
