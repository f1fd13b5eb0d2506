"""Small tokenizers as native encoders beside the reference, for tests of the native types. Nothing is checked here."""

from __future__ import annotations

import functools
import json
import os
import time
from typing import Any

from tokenizers import Tokenizer

from tests.support.material import SMALL_DIR
from toktier import _native
from toktier.program.compile import compile_tokenizer

PROSE = "It's 12,345 o'clock; the café — naïve, 日本語 and 👩🏽‍💻 — doesn't open.\r\n"


@functools.cache
def _document(name: str) -> str:
    return (SMALL_DIR / f"{name}.json").read_text(encoding="utf-8")


def document(name: str = "cl100k_like", **changes: Any) -> dict[str, Any]:
    """A shipped tokenizer.json, with top-level members replaced."""
    loaded: dict[str, Any] = json.loads(_document(name))
    return loaded | changes


@functools.cache
def _program_bytes(text: str) -> bytes:
    return compile_tokenizer(text.encode())


def program_bytes(name: str = "cl100k_like", **changes: Any) -> bytes:
    """The program file of a shipped tokenizer."""
    return _program_bytes(json.dumps(document(name, **changes)))


def pair(name: str = "cl100k_like", **changes: Any) -> tuple[_native.EncoderBase, Tokenizer]:
    """A native encoder and the reference for the same file."""
    text = json.dumps(document(name, **changes))
    return _native.EncoderBase(_native.Program(_program_bytes(text))), Tokenizer.from_str(text)


@functools.cache
def shared_pair(name: str = "cl100k_like") -> tuple[_native.EncoderBase, Tokenizer]:
    """`pair`, made once: for tests of many texts that change and outlive nothing."""
    return pair(name)


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def threads_at_most(wanted: int) -> bool:
    """True when this process has no more threads: one that was joined may be listed for a moment longer."""
    until = time.monotonic() + 60
    while len(os.listdir("/proc/self/task")) > wanted:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def core_ids(text: str, name: str = "cl100k_like") -> list[int]:
    """Ids by the reference, without those of a template."""
    found: list[int] = shared_pair(name)[1].encode(text, add_special_tokens=False).ids
    return found


def patched(before: list[int], patch: _native.TokenPatch) -> list[int]:
    """The ids of a session after a change, of those before it."""
    return before[: patch.keep_tokens] + patch.replacement_ids.ids
