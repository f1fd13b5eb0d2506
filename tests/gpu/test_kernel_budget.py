"""Registers and local memory of the kernels, as ptxas tells them, within tables/kernel_budget.json."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType

import pytest

from tests.cli.command import validator
from tests.support.material import ROOT
from tests.support.nvrtc_site import required_toolchain
from toktier import resources
from toktier.gpu.architectures import ARCHITECTURES
from toktier.gpu.cubin import expected_kernels

LOG = """\
ptxas info    : 0 bytes gmem, 56 bytes cmem[4]
ptxas info    : Compiling entry function 'tt_left' for 'sm_90'
ptxas info    : Function properties for tt_left
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 38 registers, used 1 barriers, 4224 bytes smem
ptxas info    : Compiling entry function 'tt_rows' for 'sm_90'
ptxas info    : Function properties for tt_rows
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 360 bytes cmem[0]
"""


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = ROOT / "tools" / "generate_kernel_budget.py"
    spec = importlib.util.spec_from_file_location("generate_kernel_budget", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_log_of_ptxas_is_read(generator: ModuleType) -> None:
    assert generator.uses(LOG) == {
        "tt_left": generator.Use(38, 4224, 0),
        "tt_rows": generator.Use(8, 0, 28),
    }
    assert generator.in_local_memory({"sm_90": generator.uses(LOG)}) == ["tt_rows on sm_90: 28 bytes"]


HEAD, LEFT, _, LOCAL, USED, *_ = LOG.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", "tells of no kernel"), (HEAD, "tells of no kernel"), (LEFT + LOCAL, "nothing is said of tt_left"),
        (LEFT + USED, "nothing is said of the stack of tt_left"), (LEFT + LOCAL + LEFT, "nothing is said of tt_left"),
    ],
)  # fmt: skip
def test_a_log_that_does_not_tell_all_is_refused(generator: ModuleType, log: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        generator.uses(log)


def test_the_table_fits_its_schema_and_names_every_kernel() -> None:
    table = json.loads((resources.tables_dir() / "kernel_budget.json").read_bytes())
    validator("kernel_budget").validate(table)
    assert {name: sorted(kernels) for name, kernels in table["kernels"].items()} == {
        name: list(expected_kernels()) for name in ARCHITECTURES
    }


@pytest.mark.ci
def test_kernels_keep_within_their_budget(generator: ModuleType) -> None:
    budget = json.loads((resources.tables_dir() / "kernel_budget.json").read_bytes())["kernels"]
    measured = generator.measured(required_toolchain())
    assert generator.in_local_memory(measured) == []
    over = [
        f"{kernel} on {architecture}: {use} and the budget is {budget[architecture].get(kernel)}"
        for architecture, kernels in measured.items()
        for kernel, use in kernels.items()
        if use.registers > budget[architecture].get(kernel, {"registers": 0})["registers"]
    ]
    assert over == []
