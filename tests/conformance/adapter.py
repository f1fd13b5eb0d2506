"""make(path) → fn(text, add_special_tokens) → ids, for ../shared/cases/check.py: the native engine, or an error.

Whatever would let another engine answer raises: the backend is named and fallback is off, and every single answer must
carry the native engine's name and move its own counter of calls and bytes. A silent fallback cannot pass.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import toktier
from toktier import Encoding, Tokenizer


def _programs_home() -> str:
    """TOKTIER_HOME where it is set (the tests set it, so that one compilation serves them all), else a passing one."""
    home = os.environ.get("TOKTIER_HOME")
    if not home:
        home = tempfile.mkdtemp(prefix="toktier-conformance-")
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        os.environ["TOKTIER_HOME"] = home
    return home


class NotServedNatively(AssertionError):
    """Another engine answered, or none did what was counted."""


def native_tokenizer(path: str | Path, home: str | Path | None = None) -> Tokenizer:
    """The tokenizer of a file, on the native engine or not at all. `home`: where programs are kept."""
    config = toktier.Config(home=home or _programs_home(), tokenizer_fallback=False)
    tokenizer = toktier.from_file(path, policy="supported", tokenizer="fast_cpu", config=config)
    if tokenizer.explain(summary=True)["backend"] != "fast_cpu":
        raise NotServedNatively(f"{path}: the plan does not name the native engine")
    return tokenizer


def encode_natively(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> Encoding:
    """One encoding of a str, with the proof that the native engine made it. For one thread at a time."""
    calls, size = tokenizer.native_calls
    encoding = tokenizer.encode(text, add_special_tokens)
    calls_after, size_after = tokenizer.native_calls
    if encoding.backend != "fast_cpu":
        raise NotServedNatively(f"{encoding.backend} answered")
    if calls_after != calls + 1 or size_after != size + len(text.encode("utf-8")):
        raise NotServedNatively(f"the native engine counted {calls_after - calls} calls, {size_after - size} bytes")
    return encoding


def assert_only_native(tokenizer: Tokenizer) -> None:
    """No encoding of this tokenizer was ever made by another engine."""
    counters = tokenizer.explain()["counters"]
    others = {reason: n for reason, n in counters["reasons"].items() if reason != "R_DECODE_REFERENCE"}
    if others or counters["calls"]["fast_cpu"] == 0:
        raise NotServedNatively(f"counters: {counters}")


def make(path: str) -> Callable[[str, bool], list[int]]:
    """The adapter that check.py asks for."""
    tokenizer = native_tokenizer(path)
    return lambda text, add_special_tokens: encode_natively(tokenizer, text, add_special_tokens).ids


def make_present(path: str) -> Callable[[str, bool], list[int]]:
    """The same through one session, which is given every text whole. A text that differs from the one before must have
    moved the engine's counter."""
    tokenizer = native_tokenizer(path)
    session = tokenizer.session()
    held = ""

    def present(text: str, add_special_tokens: bool) -> list[int]:
        nonlocal held
        calls = tokenizer.native_calls[0]
        encoding = tokenizer.encode(text, add_special_tokens, session=session)
        if encoding.backend != "fast_cpu" or tokenizer.native_calls[0] != calls + (text != held):
            raise NotServedNatively(f"{encoding.backend} answered; {tokenizer.native_calls[0] - calls} changes counted")
        held = text
        return encoding.ids

    return present
