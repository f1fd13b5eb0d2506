"""A small tokenizer on the native engine, and a held one around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving.held_tokenizer import HeldTokenizer
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from toktier import Tokenizer


@pytest.fixture(scope="session")
def tok() -> Tokenizer:
    return native_file(SMALL_DIR / "cl100k_like.json")


@pytest.fixture
def held(tok: Tokenizer) -> Iterator[HeldTokenizer]:
    """Its gate is open at the end, so that no thread stays behind."""
    held = HeldTokenizer(tok)
    yield held
    held.gate.set()
