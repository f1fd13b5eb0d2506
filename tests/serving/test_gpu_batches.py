"""Batches for a GPU form in the batcher: many short texts that are one large batch together go to the device."""

from __future__ import annotations

import pytest

import toktier
from tests.serving.held_tokenizer import PATIENCE, HeldTokenizer
from tests.support import gpu_stand_in
from tests.support.gpu_stand_in import StandIn
from tests.support.material import SMALL_DIR
from toktier.serving import Batcher, Limits


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return gpu_stand_in.install(monkeypatch)


def test_short_texts_of_many_callers_reach_the_device_together(device: StandIn) -> None:
    tok = toktier.from_file(SMALL_DIR / "cl100k_like.json", policy="supported", gpu_min_bytes=1000)
    held = HeldTokenizer(tok, gpu_from=tok._gpu_from)
    assert held.gpu_from == 1000
    texts = [f"a text of many callers, number {i}" for i in range(100)]
    with Batcher(held, Limits(max_wait=0.0)) as batcher:
        first = batcher.submit("alone")
        held.wait_for(1)
        futures = [batcher.submit(text) for text in texts]
        held.gate.set()
        rows = [future.result(PATIENCE) for future in futures]
        assert first.result().backend == "fast_cpu"
        assert {row.backend for row in rows} == {"gpu"}
        assert [row.ids for row in rows] == [tok.encode(text, lookup="off").ids for text in texts]
        assert batcher.stats()["gpu_batches"] == 1
    assert device.calls[device.test_calls :] == [100]


def test_a_tokenizer_with_a_gpu_encodes_nothing_inline_until_the_device_is_lost(device: StandIn) -> None:
    tok = toktier.from_file(SMALL_DIR / "cl100k_like.json", policy="supported", gpu_min_bytes=1000)
    with Batcher(tok, Limits(max_wait=0.0)) as batcher:
        assert batcher.submit("short").result(PATIENCE).ids == tok.encode("short").ids
        assert batcher.stats()["texts"] == 1
        tok.encode("long " * 400)
        device.lost = True
        with pytest.warns(toktier.ToktierWarning):
            tok.encode("long " * 400)
        assert tok._gpu_from is None
        assert batcher.submit("short").done()
        assert batcher.stats()["texts"] == 1
