"""What tests of the engines of others share: their names, a file, a text, and a tokenizer that an engine serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import toktier
from tests.support.material import SMALL_DIR
from toktier import Config, Tokenizer
from toktier.routing.vocabulary import THIRD_PARTY

NAMES = [backend.value for backend in THIRD_PARTY]
FILE = SMALL_DIR / "cl100k_like.json"
SPECIAL = "<|endoftext|>"
TEXT = f"The reference {SPECIAL} serves 12345 texts, déjà vu."
STRICT = Config(tokenizer_fallback=False)


def opened(name: str, path: Path = FILE, **more: Any) -> Tokenizer:
    return toktier.from_file(path, policy="experimental", tokenizer=name, **more)
