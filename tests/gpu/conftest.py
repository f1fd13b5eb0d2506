"""The fake driver for each test: as it was loaded before, nothing left behind afterwards. And a host that compiles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_cuda import FakeCuda, fake_cuda
from tests.support.kernel_host import fake, installation  # noqa: F401


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    cuda = fake_cuda()
    cuda.reset()
    yield cuda
    cuda.reset()
