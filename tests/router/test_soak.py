"""The soak, short in CI and for its ten minutes when it is asked for (`soak` says what must hold)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.router.soak import Outcome, soak
from tests.support import llama_server


def run(seconds: float, clients: int, directory: Path) -> Outcome:
    llama_server.binary()
    outcome = asyncio.run(soak(seconds, clients, 1, directory))
    assert outcome.failures == []
    # It was a soak: all that happens to a router happened to this one.
    assert {"kill", "freeze"} <= outcome.figures["disturbances"].keys()
    assert {"in a stream", "before an answer"} <= outcome.figures["left"].keys()
    assert outcome.figures["compared"] >= seconds
    assert outcome.figures["reuse"]["hit"] > 0
    return outcome


@pytest.mark.ci
@pytest.mark.unsanitized  # other interpreters
def test_a_router_holds_for_twenty_seconds(tmp_path: Path) -> None:
    run(20, 40, tmp_path)


@pytest.mark.full
@pytest.mark.unsanitized
def test_a_router_holds_for_ten_minutes(tmp_path: Path) -> None:
    run(600, 100, tmp_path)
