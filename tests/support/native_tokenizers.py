"""A tokenizer on the native engine or an error, whatever evidence says of it: for tests of the engine.

The policy admits what has no evidence, the backend is named, and fallback is off, so that the reference can never
answer in its place. Tests of admission do not use this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import toktier
from toktier import Config, Tokenizer

FORCED: dict[str, Any] = {"policy": "supported", "tokenizer": "fast_cpu"}
FORCED_LINE = ("--policy", "supported", "--tokenizer", "fast_cpu", "--no-tokenizer-fallback")
"""The same on the command line."""


def native_file(path: str | Path, home: str | Path | None = None, **more: Any) -> Tokenizer:
    """Of a tokenizer.json. `home`: where programs are kept."""
    return _checked(toktier.from_file(path, config=Config(home=home, tokenizer_fallback=False), **FORCED, **more))


def native_family(name: str, home: str | Path | None = None, **more: Any) -> Tokenizer:
    """Of a pinned family."""
    return _checked(toktier.load(name, config=Config(home=home, tokenizer_fallback=False), **FORCED, **more))


def _checked(tokenizer: Tokenizer) -> Tokenizer:
    assert tokenizer.explain(summary=True)["backend"] == "fast_cpu"
    return tokenizer
