"""Which parameters of a test are of which tier."""

from __future__ import annotations

import pytest


def blocks_of_seeds(count: int, in_ci: int) -> list[object]:
    """Numbers of blocks of seeds of a law: the first `in_ci` in CI, all in the full tier."""
    return [pytest.param(k, marks=pytest.mark.ci if k < in_ci else pytest.mark.full) for k in range(count)]
