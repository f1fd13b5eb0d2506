"""How fast an upstream is and how much it usually generates: what turns waiting into tokens of prefill.

Averages over the last requests, of the upstream's own clock. An upstream may say anything, so each figure is bounded
and one that cannot be is left out. Not here: whether waiting is worth it (`decide`).
"""

from __future__ import annotations

import math

_WEIGHT = 0.2  # of the newest request: five requests back counts a third
_PREFILL = (1.0, 1e7)  # tokens a second
_GENERATION = (0.1, 1e6)
_UNMEASURED_RATIO = 8.0  # a generated token costs as much as so many of a prompt: between small CPUs (2) and GPUs (50)
_RATIO = (1.0, 1000.0)
_STALLED = (0.25, 30.0)  # seconds
_UNMEASURED_LENGTH = 128.0  # tokens that a request generates, before one was seen


class Rates:
    """Of one upstream."""

    def __init__(self) -> None:
        self.prefill: float | None = None  # tokens a second
        self.generation: float | None = None
        self.generated = _UNMEASURED_LENGTH  # mean tokens of a request

    def measured(
        self, *, prompt_tokens: int, prompt_ms: float | None, generated_tokens: int, generated_ms: float | None
    ) -> None:
        """`prompt_tokens`: those that were evaluated. One-token prompts and answers say nothing about a rate."""
        self.prefill = _averaged(self.prefill, prompt_tokens, prompt_ms, _PREFILL)
        self.generation = _averaged(self.generation, generated_tokens, generated_ms, _GENERATION)

    def finished(self, generated_tokens: int) -> None:
        self.generated += _WEIGHT * (min(max(generated_tokens, 0), 1 << 20) - self.generated)

    @property
    def ratio(self) -> float:
        """Tokens of prefill in the time of one generated token."""
        if self.prefill is None or self.generation is None:
            return _UNMEASURED_RATIO
        return min(max(self.prefill / self.generation, _RATIO[0]), _RATIO[1])

    @property
    def stalled_seconds(self) -> float:
        """Behind which a request whose client does not read has most likely been generated to its end."""
        if self.generation is None:
            return _STALLED[1]
        return min(max(2.0 * self.generated / self.generation, _STALLED[0]), _STALLED[1])

    def remaining(self, prompt_tokens: int, limit: int | None, seen: int, elapsed: float | None) -> float:
        """Tokens of prefill that a request still takes. `prompt_tokens`: those it has to evaluate; `limit`: of
        generated tokens, None without; `seen`: generated so far; `elapsed`: seconds since it began, None: it waits.

        What is left to generate is the mean, however much was seen: answers have no memory of their age.
        """
        prefill = float(prompt_tokens)
        generated = float(seen)
        if seen > 0:
            prefill = 0.0
        elif elapsed is not None and self.prefill is not None:
            done = max(elapsed, 0.0) * self.prefill
            if done > prefill:
                generated = (done - prefill) / self.ratio
            prefill = max(prefill - done, 0.0)
        left = self.generated if limit is None else min(self.generated, max(limit - generated, 0.0))
        return prefill + left * self.ratio


def _averaged(old: float | None, tokens: int, milliseconds: float | None, bounds: tuple[float, float]) -> float | None:
    if milliseconds is None or tokens < 2 or not math.isfinite(milliseconds) or milliseconds <= 0:
        return old
    rate = min(max(1000.0 * tokens / milliseconds, bounds[0]), bounds[1])
    return rate if old is None else old + _WEIGHT * (rate - old)
