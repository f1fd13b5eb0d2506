"""The SIMT emulator (tests/simt) finds what CUDA leaves undefined, shown by small kernels with one mistake planted in
each; and it finds nothing in the same kernels without. What a check said is asserted, not only that one spoke.

Not here: the kernels of toktier under it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import re
from pathlib import Path

import pytest

from tests.support import simt_build

SOURCES = (simt_build.SIMT / "planted.cpp", simt_build.SIMT / "planted_program.cpp")
RIGHT, WRONG, REPORTED = 0, 3, 4  # of planted_run()
RACE, MEMORY, UNDEFINED = 66, 67, 68  # of the sanitizers, as simt_build sets them
BLOCKS = 4
SEEDS = (1, 2, 3)

# Kernel: what the emulator's report says of its mistake.
REPORTS = {
    "divergent_barrier": "a barrier in divergent code",
    "ended_thread": r"ends while \d+ threads, .*, wait at the barrier|waits at the barrier in .* have ended",
    "shuffle_mask": r"ends while lane \d+ waits for it in tt_shuffle in |in tt_shuffle in .* but that lane has ended",
    "inactive_lane": "reads lane 3 in tt_shuffle in planted.cpp",
    "other_mask": r"tt_ballot in .* lanes 0x0001ffff",
    "other_operation": r"is in tt_\w+ of \d bytes in .* while lane \d+ waits for it in tt_\w+ of \d bytes",
    "deadlock": "its threads wait for each other",
    "stuck_flag": "no block publishes anything any more",
    "misaligned_load": "loads 16 bytes from an address that is no multiple of 16",
}
# Results that depend on an order, or on what shared memory holds.
WRONG_RESULTS = ("missing_barrier", "unwritten_shared")
# The second and third compute the right results here: only their order is owed to nothing.
RACES = ("missing_barrier", "missing_warp_barrier", "relaxed_flag")
BEYOND = {
    "store_beyond": (MEMORY, "heap-buffer-overflow"),
    "shared_beyond": (UNDEFINED, "out of bounds"),
    "shared_past_end": (MEMORY, "global-buffer-overflow"),
}
NAMES = (*REPORTS, *WRONG_RESULTS, "missing_warp_barrier", "relaxed_flag", *BEYOND)

pytestmark = pytest.mark.skipif(simt_build.compiler() is None, reason="needs a C++ compiler")


@dataclasses.dataclass(frozen=True)
class Outcome:
    code: int
    said: str
    sanitizer: str = ""


@functools.cache
def library(planted: bool) -> ctypes.CDLL:
    return ctypes.CDLL(str(simt_build.build_library("planted", SOURCES, plants=NAMES if planted else ())))


def run_here(name: str, planted: bool, seed: int = 1, resident: int = 2, shuffled: bool = False) -> Outcome:
    said = ctypes.create_string_buffer(1024)
    line = (name.encode(), BLOCKS, resident, ctypes.c_uint64(seed), shuffled, said, ctypes.c_size_t(len(said)))
    return Outcome(library(planted).planted_run(*line), said.value.decode())


def run_child(variant: str, name: str, planted: bool, resident: int = 2, shuffled: bool = False) -> Outcome:
    program = simt_build.build_program("planted", SOURCES, variant=variant, plants=NAMES if planted else ())
    done = simt_build.run(program, name, BLOCKS, resident, 1, int(shuffled), variant=variant)
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("name", [*NAMES, "look_back"])
def test_right_kernels_are_right(name: str) -> None:
    for seed in SEEDS:
        for resident, shuffled in ((1, False), (2, False), (3, True)):
            outcome = run_here(name, False, seed, resident, shuffled)
            assert outcome.code == RIGHT, (seed, resident, outcome)


@pytest.mark.ci
@pytest.mark.parametrize("variant", ["ucontext", "asan"])
def test_right_kernels_are_right_otherwise_compiled(variant: str) -> None:
    for name in (*NAMES, "look_back"):
        outcome = run_child(variant, name, False)
        assert (outcome.code, outcome.sanitizer) == (RIGHT, ""), (name, outcome)


@pytest.mark.ci
@pytest.mark.parametrize("name", [*NAMES, "look_back"])
def test_right_kernels_have_no_race(name: str) -> None:
    outcome = run_child("tsan", name, False, shuffled=True)
    assert (outcome.code, outcome.sanitizer) == (RIGHT, "")


@pytest.mark.parametrize("name", REPORTS)
def test_misuse_is_reported(name: str) -> None:
    for seed in SEEDS:
        outcome = run_here(name, True, seed)
        assert outcome.code == REPORTED, (seed, outcome)
        assert outcome.said.startswith(f"kernel {name}, block ")
        assert re.search(REPORTS[name], outcome.said), outcome.said


def test_the_process_goes_on_after_a_report() -> None:
    for name in REPORTS:
        assert run_here(name, True).code == REPORTED
        assert run_here("look_back", True).code == RIGHT


@pytest.mark.parametrize("name", WRONG_RESULTS)
def test_orders_and_poison_show_in_results(name: str) -> None:
    outcomes = {run_here(name, True, seed) for seed in SEEDS}
    assert {outcome.code for outcome in outcomes} == {WRONG}
    assert len(outcomes) > 1


@pytest.mark.ci
@pytest.mark.parametrize("name", RACES)
def test_races_are_found_at_their_place(name: str) -> None:
    outcome = run_child("tsan", name, True)
    assert outcome.code == RACE, outcome
    assert "WARNING: ThreadSanitizer: data race" in outcome.sanitizer
    assert re.search(rf"#0 {name} \S+planted\.cpp:\d+", outcome.sanitizer), outcome.sanitizer


@pytest.mark.ci
@pytest.mark.parametrize("name", BEYOND)
def test_memory_beyond_is_found_at_its_place(name: str) -> None:
    code, words = BEYOND[name]
    outcome = run_child("asan", name, True)
    assert outcome.code == code, outcome
    assert words in outcome.sanitizer
    assert re.search(rf"#[01] \w+ in {name} \S+planted\.cpp:\d+", outcome.sanitizer), outcome.sanitizer


@pytest.mark.ci
@pytest.mark.parametrize("resident", [1, 3])
def test_a_race_with_a_block_that_ended_is_found(resident: int) -> None:
    assert run_child("tsan", "relaxed_flag", True, resident).code == RACE


def test_one_resident_block_and_a_seed_give_one_order() -> None:
    said = [run_here("missing_barrier", True, seed=7, resident=1) for _ in range(4)]
    assert len(set(said)) == 1
    assert len({run_here("missing_barrier", True, seed, resident=1) for seed in SEEDS}) == len(SEEDS)


def test_a_launch_that_no_device_takes_is_refused() -> None:
    outcome = run_here("look_back", False, resident=0)
    assert outcome == Outcome(2, "kernel look_back cannot be launched with 4 blocks of 128 threads, 0 of them at once")


def test_what_is_built_is_kept_and_a_plant_is_another_build(tmp_path: Path) -> None:
    source = tmp_path / "answer.cpp"
    source.write_text("int main() { return ANSWER; }\n")
    first = simt_build.compile_object(source, ["-DANSWER=1"])
    made = first.stat().st_ino
    assert simt_build.compile_object(source, ["-DANSWER=1"]) == first
    assert first.stat().st_ino == made
    assert simt_build.compile_object(source, ["-DANSWER=2"]) != first
    source.write_text("int main() { return ANSWER + 1; }\n")
    assert simt_build.compile_object(source, ["-DANSWER=1"]) != first


def test_what_the_compiler_says_is_passed_on(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text("int main() { return nothing; }\n")
    with pytest.raises(AssertionError, match="nothing"):
        simt_build.compile_object(source, [])
