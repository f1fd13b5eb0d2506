"""What is given out as the status page: one file that asks nobody else, and headers that let only its own parts run."""

from __future__ import annotations

import base64
import hashlib
import json
import re

from toktier.router import vocabulary
from toktier.router.refusals import REFUSALS
from toktier.router.status_page import FILE, status_page


def inline(kind: str) -> list[str]:
    return re.findall(rf"<{kind}>(.*?)</{kind}>", status_page().body.decode(), re.DOTALL)


def test_only_its_own_script_and_style_may_run() -> None:
    policy = dict(part.split(" ", 1) for part in status_page().headers["Content-Security-Policy"].split("; "))
    for kind in ("script", "style"):
        (text,) = inline(kind)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[f"{kind}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in str(policy)
    headers = status_page().headers
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Type"] == "text/html; charset=utf-8"


def test_it_asks_nobody_but_the_router() -> None:
    text = status_page().body.decode()
    assert set(re.findall(r"(?:src|href|action)=\"([^\"]*)\"", text)) == {"data:,", "toktier/stats"}
    assert set(re.findall(r"\bask\(\"([^\"]*)\"", text)) == {"toktier/stats", "toktier/slots"}
    # The one address in it is the name of a vocabulary of XML, which nobody asks.
    assert set(re.findall(r"https?://[^\s\"']*", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text


def test_no_text_becomes_markup() -> None:
    (script,) = inline("script")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc"):
        assert way not in script
    assert not re.search(r"\son\w+=", status_page().body.decode().split("<script>")[0])


def test_its_words_are_those_of_the_vocabulary() -> None:
    (told,) = re.findall(r'<script type="application/json" id="meanings">(.*?)</script>', status_page().body.decode())
    meanings = json.loads(told)
    assert meanings["outcome"] == {word.value: said for word, said in vocabulary.OUTCOME_MEANINGS.items()}
    assert set(meanings["guards"]) == {code.value for code in REFUSALS}
    assert "<" not in told


def test_the_key_is_kept_in_the_tab_alone() -> None:
    (script,) = inline("script")
    assert "localStorage" not in script
    assert "document.cookie" not in script
    assert "sessionStorage" in script


def test_it_is_small_enough_to_be_read() -> None:
    assert FILE.stat().st_size < 30_000
