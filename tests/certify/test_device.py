"""Certification of kernels: what they leave is routed, evidence names them, each process has an engine of its own.

A stand-in is the device here; what the emulated kernels compute is certified in tests/gpu.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import gpu_stand_in
from tests.support.certify_runs import run_suite
from tests.support.gpu_stand_in import StandIn
from tests.support.material import SMALL_DIR
from toktier._native import EncoderBase, Encoding
from toktier.certify.device import DeviceTokenizer
from toktier.certify.levels import Level
from toktier.certify.plan import make_plan, read_plan
from toktier.certify.subject import Subject
from toktier.certify.suites import suite_named
from toktier.errors import BackendUnavailable, UsageError
from toktier.routing.vocabulary import Compared

FILE = SMALL_DIR / "cl100k_like.json"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return gpu_stand_in.install(monkeypatch)


@pytest.fixture
def subject(device: StandIn) -> Subject:
    return Subject(FILE, Compared.GPU)


def test_the_plan_names_the_kernels(subject: Subject, device: StandIn) -> None:
    prepared = make_plan(subject, [suite_named("cases")], Level.QUICK, 0, "it")
    content = prepared.plan.document
    assert content["backend"] == "gpu"
    assert content["kernels"]["cubin"] == hashlib.sha256(gpu_stand_in.CUBIN).hexdigest()
    assert content["kernels"]["compute_capability"] == "9.0"
    assert read_plan(content, "it").document == content
    assert device.asked == 0  # in this process: a child did


def test_what_the_device_answers_agrees(subject: Subject, device: StandIn) -> None:
    ran = run_suite(suite_named("cases"), subject)
    assert (ran.failures, ran.counts.mismatches) == ([], 0)
    assert ran.counts.checks > 1000
    # No device is asked about a text without a byte.
    assert ran.counts.routed <= ran.counts.checks // 100
    assert ran.plan.facts["decoding"] == "of the engine on the CPU"
    assert device.engines


def test_other_ids_are_a_mismatch(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(self: Any, text: str, add_special_tokens: bool = False, plain: bool = False) -> Encoding:
        self._texts += 1
        ids = self._native.encode(text, add_special_tokens, plain=plain).ids
        return Encoding.from_ids([*ids[:-1], 0], [(0, 0)] * len(ids), backend="gpu")

    monkeypatch.setattr(gpu_stand_in._Engine, "encode", encode)
    ran = run_suite(suite_named("cases"), subject, until_mismatch=True)
    assert ran.counts.mismatches
    assert ran.failures[0]["what"] == "ids"


def test_what_the_cpu_engine_redid_is_routed_and_never_agreement(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a text that came to the device, a part was redone: its result still says gpu."""
    counters = gpu_stand_in._Engine.counters
    monkeypatch.setattr(
        gpu_stand_in._Engine, "counters", lambda self: {**counters(self), "device_texts": 0, "redone": {"R": 1}}
    )
    ran = run_suite(suite_named("cases"), subject)
    assert ran.counts.mismatches == 0
    assert ran.counts.checks - ran.counts.routed < 10  # those of the text without a byte, which nobody need serve


def test_a_device_that_fails_makes_checks_routed(subject: Subject, device: StandIn) -> None:
    device.lost = True
    ran = run_suite(suite_named("cases"), subject)
    assert ran.counts.mismatches == 0
    assert ran.counts.routed == ran.counts.checks


def test_sessions_and_decoding_are_not_compared_again(subject: Subject) -> None:
    for name in ("sessions", "decoding"):
        plan = suite_named(name).plan(subject, Level.QUICK, 0)
        assert plan.blocks == 0
        assert plan.why is not None
        assert "CPU" in plan.why


@pytest.mark.unsanitized
def test_each_process_opens_an_engine_of_its_own(subject: Subject, device: StandIn) -> None:
    tokenizer: Any = subject.tokenizer
    assert isinstance(tokenizer, DeviceTokenizer)
    mine = tokenizer.engine
    child = os.fork()
    if child == 0:
        os._exit(0 if tokenizer.engine is not mine and len(device.engines) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tokenizer.engine is mine


def test_no_device_is_told_by_the_child_that_asked(subject: Subject, device: StandIn) -> None:
    device.fails = "driver_missing"
    with pytest.raises(BackendUnavailable, match="the device says driver_missing"):
        _ = subject.chosen


def test_a_driver_that_ends_the_process_is_told(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toktier._native.gpu_device", lambda *_: os._exit(7))
    with pytest.raises(BackendUnavailable, match="ended with 7"):
        _ = subject.chosen


@pytest.mark.parametrize(
    ("backend", "driver"), [(Compared.EMULATOR, None), (Compared.GPU, "lib.so"), (Compared.FAST_CPU, "lib.so")]
)
def test_a_driver_library_is_the_emulators_alone(backend: Compared, driver: str | None) -> None:
    with pytest.raises(UsageError, match="driver library"):
        Subject(FILE, backend, driver=None if driver is None else Path(driver))


def test_the_native_engine_is_what_it_was() -> None:
    subject = Subject(FILE)
    assert (subject.served_as, subject.on_device, subject.kernels) == ("fast_cpu", False, None)
    assert isinstance(subject.tokenizer, EncoderBase)
