"""One home for all workers of a run: each of the 35 artifacts is compiled once, not once for each worker.

HOME_OF_SUITES is one for several runs (tools/dev.py)."""

from __future__ import annotations

import os

import pytest

from tests.support.workers import directory_of_all


@pytest.fixture(autouse=True)
def home_of_all_workers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `adapter.native_tokenizer` and the processes that tests start keep programs."""
    home = os.environ.get("HOME_OF_SUITES") or directory_of_all(tmp_path_factory, "home-of-all")
    monkeypatch.setenv("TOKTIER_HOME", str(home))
