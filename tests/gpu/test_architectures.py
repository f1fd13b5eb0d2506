"""Which kernels a device runs."""

from __future__ import annotations

import pytest

from toktier.gpu.architectures import ARCHITECTURES, compiled_for


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_device_of_a_listed_architecture_takes_its_own(name: str) -> None:
    assert compiled_for(name) == name


@pytest.mark.parametrize(
    ("device", "taken"),
    [
        ("sm_87", "sm_86"), ("sm_88", "sm_86"), ("sm_103", "sm_100"), ("sm_121", "sm_120"),
        ("sm_70", None), ("sm_72", None), ("sm_110", None), ("sm_130", None), ("sm_9", None), ("sm_90a", None),
        ("compute_90", None), ("", None), ("sm_९०", None),
    ],
)  # fmt: skip
def test_a_device_takes_the_nearest_below_of_its_major_version(device: str, taken: str | None) -> None:
    assert compiled_for(device) == taken
