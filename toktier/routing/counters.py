"""What happened since a tokenizer was loaded: texts and decodings by backend, steps down the chain by reason code.

Texts of the native engine are counted by the engine itself, without a Python frame; they are read when asked for.
Not here: what was planned (`plan`), how it is told (`explain`).
"""

from __future__ import annotations

import threading
from collections import Counter

from toktier.routing.vocabulary import BackendId, Reason


class Counters:
    """Thread-safe. Counts only grow."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._reasons: Counter[Reason] = Counter()
        self._texts: Counter[BackendId] = Counter()
        self._decodings: Counter[BackendId] = Counter()
        self._native_decodings = 0

    def encoded(self, backend: BackendId, texts: int, fallback: Reason | None = None) -> None:
        """`backend` encoded or counted so many texts; `fallback`: why it and not one above."""
        self._add(self._texts, backend, texts, fallback)

    def decoded_natively(self) -> None:
        """The native engine decoded a list of ids. Apart from the others: a look-up by backend takes longer than to
        decode a few ids."""
        with self._guard:
            self._native_decodings += 1

    def decoded(self, backend: BackendId, fallback: Reason | None = None) -> None:
        """`backend` decoded a list of ids; `fallback`: why it and not one above."""
        self._add(self._decodings, backend, 1, fallback)

    def _add(self, to: Counter[BackendId], backend: BackendId, count: int, fallback: Reason | None) -> None:
        if count == 0:
            return
        with self._guard:
            to[backend] += count
            if fallback is not None:
                self._reasons[fallback] += count

    def reasons(self) -> dict[str, int]:
        """Steps down the chain by reason code, in code order; reasons that never occurred are left out."""
        with self._guard:
            return {reason.value: self._reasons[reason] for reason in sorted(self._reasons)}

    def texts(self, backend: BackendId) -> int:
        with self._guard:
            return self._texts[backend]

    def decodings(self, backend: BackendId) -> int:
        with self._guard:
            return self._decodings[backend] + (self._native_decodings if backend is BackendId.FAST_CPU else 0)
