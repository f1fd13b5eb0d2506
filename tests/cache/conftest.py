"""Second levels whose background has time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def patient() -> Iterator[None]:
    """For tests in which no server hangs for long."""
    from tests.support.second_levels import patience  # needs the distribution redis, as those tests do

    with patience():
        yield
