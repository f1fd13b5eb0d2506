"""What happened since a tokenizer was loaded: calls by backend, and steps down the chain by reason code.

Calls of the native engine are counted by the engine itself, without a Python frame; they are read when asked for.
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
        self._calls: Counter[BackendId] = Counter()

    def called(self, backend: BackendId, fallback: Reason | None = None) -> None:
        """One call was served by `backend`; `fallback`: why by it and not by one above."""
        with self._guard:
            self._calls[backend] += 1
            if fallback is not None:
                self._reasons[fallback] += 1

    def reasons(self) -> dict[str, int]:
        """Steps down the chain by reason code, in code order; reasons that never occurred are left out."""
        with self._guard:
            return {reason.value: self._reasons[reason] for reason in sorted(self._reasons)}

    def calls(self, backend: BackendId) -> int:
        with self._guard:
            return self._calls[backend]
