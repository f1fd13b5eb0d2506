"""A tokenizer.json, an empty cache of programs and a record of compilations, for the tests of the cache of programs."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from tests.support import tokenizer_maker as maker
from toktier.program import compile as compiling


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(maker.encoded(maker.minimal()))
    os.utime(path, (time.time() - 60,) * 2)  # older than what is taken for settled
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Digests of what was compiled during the test."""
    seen: list[str] = []
    compile_tokenizer = compiling.compile_tokenizer

    def counted(data: bytes, name: str = "", *, sha256: str | None = None) -> bytes:
        seen.append(hashlib.sha256(data).hexdigest())
        return compile_tokenizer(data, name, sha256=sha256)

    monkeypatch.setattr(compiling, "compile_tokenizer", counted)
    return seen
