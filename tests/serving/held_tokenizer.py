"""A tokenizer whose calls stop at a gate, so that a test decides what is queued, what is being encoded, what fails.

It encodes with a real one. Nothing is timed: whoever waits here waits for an event, and gives up after minutes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from toktier import Encoding, EncodingBatch, Session, Tokenizer
from toktier.serving.encoder import Traits, traits_of

PATIENCE = 240.0  # seconds after which a test is stuck


def wait_until(holds: Callable[[], bool]) -> None:
    """For what nothing tells: that a thread which fails has said so, which it does last; that garbage was found."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


class HeldTokenizer:
    """An `Encoder`. `open`: whether calls pass. `calls`: texts of each call that came to the gate;
    `fails`: texts at which a call raises what stands beside them, once it has passed. Nothing is encoded inline."""

    def __init__(self, tokenizer: Tokenizer, *, is_open: bool = False, gpu_from: int | None = None) -> None:
        self.tokenizer = tokenizer
        self.gate, self._came = threading.Event(), threading.Condition()
        if is_open:
            self.gate.set()
        self.calls: list[tuple[str, ...]] = []
        self.threads: set[int] = set()
        self.fails: dict[str, BaseException] = {}
        self.gpu_from = gpu_from

    @property
    def _batch_traits(self) -> Traits:
        return traits_of(self.tokenizer)._replace(inline=False)

    @property
    def _gpu_from(self) -> int | None:
        return self.gpu_from

    def _pass(self, texts: tuple[Any, ...]) -> None:
        with self._came:
            self.calls.append(texts)
            self.threads.add(threading.get_ident())
            self._came.notify_all()
        assert self.gate.wait(PATIENCE), "the gate stayed closed"
        for text in texts:
            if text in self.fails:
                raise self.fails[text]

    def wait_for(self, calls: int) -> None:
        """Until so many came to the gate."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.calls) >= calls, PATIENCE), f"{len(self.calls)} calls came"

    def encode(self, text: Any, add_special_tokens: bool = False, **named: Any) -> Encoding:
        self._pass((text,))
        return self.tokenizer.encode(text, add_special_tokens, **named)

    def encode_batch(self, texts: Iterable[Any], add_special_tokens: bool = False, **named: Any) -> EncodingBatch:
        taken = tuple(texts)
        self._pass(taken)
        return self.tokenizer.encode_batch(taken, add_special_tokens, **named)

    def session(self, name: str | None = None, *, keep_text: bool = False) -> Session:
        return self.tokenizer.session(name, keep_text=keep_text)
