"""Who serves where a device is: lazily opened, judged with the kernels at hand, closed by what will not get better."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path

import pytest

import toktier
from tests.support import gpu_stand_in
from tests.support.evidence_documents import gpu_evidence_document
from tests.support.gpu_stand_in import StandIn
from tests.support.material import SMALL_DIR
from toktier import Config, ToktierWarning
from toktier.errors import BackendUnavailable, CudaDriverTooOld, UncertifiedTokenizer
from toktier.evidence import local
from toktier.routing.gpu_route import MOST_FAULTS

FILE = SMALL_DIR / "cl100k_like.json"
LONG, SHORT = "two words " * 200, "two words"
MIN = 1000  # bytes


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return gpu_stand_in.install(monkeypatch)


def opened(policy: str = "supported", **more: object) -> toktier.Tokenizer:
    arguments = {"gpu_min_bytes": MIN, **more}
    return toktier.from_file(FILE, policy=policy, **arguments)  # type: ignore[arg-type]


def gates(tok: toktier.Tokenizer) -> dict[str, str]:
    """The closed gates of the GPU, with their reasons."""
    return {g["gate"]: g["reason"] for g in tok.explain()["gates"] if g["backend"] == "gpu" and not g["open"]}


def expected(text: str) -> list[int]:
    return toktier.from_file(FILE, policy="supported", device="cpu").encode(text).ids


def test_nothing_is_asked_of_a_driver_before_a_text_is_long_enough(device: StandIn) -> None:
    tok = opened()
    assert tok.encode(SHORT).backend == "fast_cpu"
    tok.encode_batch([SHORT] * 3)
    assert tok.count(SHORT) == len(expected(SHORT))
    report = tok.explain()
    assert (device.asked, device.engines) == (0, [])
    assert (report["backend"], report["gpu_backend"]["loaded"]) == ("gpu", False)
    assert report["chain"] == ["gpu", "fast_cpu", "hf"]
    assert report["counters"]["reasons"] == {"R_INPUT_BELOW_GPU_THRESHOLD": 5}
    assert report["last_execution_backend"] == "fast_cpu"
    assert not report["fallback_ever_occurred"]
    encoding = tok.encode(LONG)
    assert (encoding.backend, encoding.ids) == ("gpu", expected(LONG))
    assert device.asked == len(device.engines) == 1
    report = tok.explain()
    assert report["last_execution_backend"] == "gpu"
    assert report["gpu_backend"]["loaded"]
    assert report["counters"]["calls"] == {"fast_cpu": 5, "hf": 0, "gpu": 1}
    tok.encode(SHORT)
    assert tok.explain()["last_execution_backend"] == "fast_cpu"
    tok.encode(LONG)
    assert tok.explain()["last_execution_backend"] == "gpu"
    assert device.asked == 1


def test_batches_go_by_all_their_bytes_and_counts_follow(device: StandIn) -> None:
    tok = opened()
    batch = tok.encode_batch(iter([SHORT] * 200))
    assert (batch.backend, len(batch), batch[7].ids) == ("gpu", 200, expected(SHORT))
    assert tok.encode_batch([SHORT] * 10).backend == "fast_cpu"
    assert tok.count_batch([SHORT, LONG, ""]) == [len(expected(SHORT)), len(expected(LONG)), 0]
    assert tok.count(LONG) == len(expected(LONG))
    assert tok.explain()["counters"]["calls"] == {"fast_cpu": 10, "hf": 0, "gpu": 204}


def test_kernels_that_nobody_judged_pass_a_self_test_and_serve_where_the_policy_says(device: StandIn) -> None:
    tok = opened()
    assert tok.encode(LONG).backend == "gpu"
    told = tok.explain()["gpu_backend"]
    assert (told["status"], told["self_tested"], told["cubin_listed"]) == ("compiled_unjudged", True, True)
    assert (told["cubin"], told["architecture"]) == (gpu_stand_in.SHA256, "sm_90")
    assert told["device"]["name"] == "a device"
    assert len(device.calls) == device.test_calls + 1
    assert tok.explain()["status"] == "compiled_unjudged"


@pytest.mark.parametrize("policy", ["certified", "require_accelerated"])
def test_without_evidence_no_certifying_policy_opens_it(device: StandIn, policy: str) -> None:
    tok = toktier.load("toktier_mini", policy=policy, gpu_min_bytes=1)
    assert tok.encode(LONG).backend == "fast_cpu"
    assert tok.explain()["backend"] == "fast_cpu"
    assert device.asked == 0


def test_a_wrong_self_test_keeps_kernels_from_serving(device: StandIn) -> None:
    device.wrong = True
    tok = opened("experimental")
    with pytest.warns(
        ToktierWarning, match=r"fast_cpu serves, not gpu: the self-test failed: .*R_GPU_SELF_TEST_FAILED"
    ):
        assert tok.encode(LONG).backend == "fast_cpu"
    assert gates(tok) == {"self_test": "R_GPU_SELF_TEST_FAILED"}
    assert not device.engines[0].is_open
    assert tok.explain()["backend"] == "fast_cpu"
    assert tok.encode(LONG).backend == "fast_cpu"
    assert tok.explain()["counters"]["reasons"] == {"R_GPU_SELF_TEST_FAILED": 2}
    assert tok.explain()["fallback_ever_occurred"]


def test_kernels_that_are_not_listed_serve_under_one_policy_alone_and_are_named(device: StandIn) -> None:
    device.listed = False
    tok = opened()
    assert tok.encode(LONG).backend == "fast_cpu"
    assert gates(tok) == {"registry": "R_KERNEL_DIGEST_MISMATCH"}
    assert device.engines == []  # not even loaded
    tok = opened("experimental")
    with pytest.warns(ToktierWarning, match="UNCERTIFIED JIT OPT-IN"):
        assert tok.encode(LONG).backend == "gpu"
    waived = {(w["backend"], w["gate"]): w["reason"] for w in tok.explain()["experimental_waivers"]}
    assert waived["gpu", "registry"] == "R_KERNEL_DIGEST_MISMATCH"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tok.encode(LONG)


@pytest.mark.parametrize(
    ("code", "gate", "reason"),
    [
        ("driver_missing", "device", "R_NO_GPU_DETECTED"),
        ("driver_too_old", "device", "R_DRIVER_TOO_OLD"),
        ("no_device", "device", "R_NO_GPU_DETECTED"),
        ("abi_mismatch", "kernels", "R_KERNEL_BUILD_FAILED"),
        ("load_failed", "kernels", "R_KERNEL_BUILD_FAILED"),
        ("out_of_memory", "execution", "R_EXEC_FAULT"),
    ],
)
def test_what_keeps_it_from_opening_closes_a_gate_once(device: StandIn, code: str, gate: str, reason: str) -> None:
    device.fails = code
    tok = opened(device="cuda")
    with pytest.warns(ToktierWarning, match=reason):
        assert tok.encode(LONG).ids == expected(LONG)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tok.encode_batch([LONG, LONG]).backend == "fast_cpu"
    assert gates(tok)[gate] == reason
    report = tok.explain()
    assert report["counters"]["reasons"] == {reason: 3}
    assert report["gpu_backend"]["fault"] == f"the device says {code}"
    assert device.asked == 1


def test_a_gpu_that_nobody_asked_for_fails_to_open_without_a_word(device: StandIn) -> None:
    device.fails = "no_device"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened().encode(LONG).backend == "fast_cpu"


def test_a_lost_device_loses_no_text_and_is_told_once(device: StandIn) -> None:
    tok = opened()
    tok.encode(LONG)
    device.lost = True
    with pytest.warns(ToktierWarning, match="fell off the bus"):
        assert tok.encode(LONG).ids == expected(LONG)
    assert gates(tok) == {"execution": "R_EXEC_FAULT"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tok.encode(LONG).backend == "fast_cpu"
    report = tok.explain()
    assert report["counters"]["reasons"]["R_EXEC_FAULT"] == 2  # one by the engine, one that no longer came to it
    assert (report["gpu_backend"]["loaded"], report["gpu_backend"]["counters"]["faults"]) == (False, 1)


def test_a_device_that_fails_again_and_again_is_left_alone(device: StandIn) -> None:
    tok = opened()
    tok.encode(LONG)
    device.faults = MOST_FAULTS + 2
    for _ in range(MOST_FAULTS - 1):
        assert tok.encode(LONG).ids == expected(LONG)
    with pytest.warns(ToktierWarning, match=f"failed {MOST_FAULTS} times"):
        assert tok.encode(LONG).ids == expected(LONG)
    assert gates(tok) == {"execution": "R_EXEC_FAULT"}
    assert device.faults == 2


@pytest.mark.unsanitized
def test_a_fork_of_an_open_gpu_is_served_by_the_cpu(device: StandIn) -> None:
    tok = opened()
    tok.encode(LONG)
    child = os.fork()
    if child == 0:
        warnings.simplefilter("ignore")
        served = tok.encode(LONG).backend, gates(tok).get("execution")
        os._exit(0 if served == ("fast_cpu", "R_GPU_FORKED") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tok.encode(LONG).backend == "gpu"


@pytest.mark.unsanitized
def test_a_fork_before_it_was_opened_opens_its_own(device: StandIn) -> None:
    tok = opened()
    child = os.fork()
    if child == 0:
        os._exit(0 if tok.encode(LONG).backend == "gpu" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_that_come_together_open_one_engine(device: StandIn) -> None:
    tok = opened()
    start, served = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        served.append(tok.encode(LONG).backend)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served == ["gpu"] * 8
    assert (device.asked, len(device.engines)) == (1, 1)
    assert tok.explain()["counters"]["calls"]["gpu"] == 8


@pytest.mark.parametrize("asked", [{"device": "cuda"}, {"tokenizer": "gpu"}])
def test_without_fallback_the_load_opens_it_and_every_text_goes_there(device: StandIn, asked: dict[str, str]) -> None:
    alone = Config(tokenizer_fallback=False)
    tok = opened(config=alone, **asked)
    assert device.asked == 1
    assert tok.encode(SHORT).backend == "gpu"
    assert tok.explain()["chain"] == ["gpu"]
    device.fails = "driver_too_old"
    with pytest.raises(CudaDriverTooOld) as refused:
        opened(config=alone, **asked)
    assert refused.value.remedy is not None
    assert "newer driver" in refused.value.remedy
    device.fails, device.listed = None, False
    with pytest.raises(UncertifiedTokenizer, match="none of those") as uncertified:
        opened(config=alone, **asked)
    assert uncertified.value.details["reason"] == "R_KERNEL_DIGEST_MISMATCH"


def test_without_fallback_a_lost_device_is_an_error_from_then_on(device: StandIn) -> None:
    tok = opened(device="cuda", config=Config(tokenizer_fallback=False))
    device.lost = True
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="fell off the bus"):
            tok.encode(SHORT)
    assert tok.explain()["verdict"].startswith("backend gpu cannot serve")


def test_device_cpu_and_the_switch_keep_texts_from_it(device: StandIn) -> None:
    for more in ({"device": "cpu"}, {"config": Config(disable_gpu=True)}, {"tokenizer": "fast_cpu"}):
        tok = opened(**more)
        assert tok.encode(LONG).backend == "fast_cpu"
        assert "gpu" not in tok.explain()["counters"]["calls"]
    assert device.asked == 0


def test_evidence_of_this_host_opens_it_without_a_self_test(device: StandIn, tmp_path: Path) -> None:
    config = Config(home=tmp_path)
    tok = opened(config=config)
    tok.encode(LONG)
    kernels = tok.explain()["gpu_backend"]["kernels"]
    given = gpu_evidence_document(kernels, sha256=tok.artifact_sha256, fingerprint=tok.fingerprint)
    local.store(given, tmp_path / "state")
    device.calls.clear()
    tok = opened(config=config)
    assert tok.explain()["certification"]["statuses"]["gpu"] == "locally_certified"
    assert tok.encode(LONG).backend == "gpu"
    assert device.calls == [1]
    told = tok.explain()["gpu_backend"]
    assert (told["status"], told["self_tested"]) == ("locally_certified", False)
    for changed in ({"cubin": "0" * 64}, {"host": "0" * 64}, {"tables": "0" * 64}, {"compute_capability": "8.6"}):
        local.remove(tmp_path / "state", tok.artifact_sha256)
        other = gpu_evidence_document({**kernels, **changed}, sha256=tok.artifact_sha256, fingerprint=tok.fingerprint)
        local.store(other, tmp_path / "state")
        tok = opened(config=config)
        assert tok.encode(LONG).backend == "gpu"  # policy supported, after the self-test
        assert tok.explain()["gpu_backend"]["status"] == "compiled_unjudged"


def test_sessions_and_decoding_stay_with_the_cpu_engine(device: StandIn) -> None:
    tok = opened()
    with tok.session() as session:
        session.append(LONG)
    assert tok.decode(tok.encode(LONG)) == LONG
    report = tok.explain()
    assert report["last_decode_backend"] == "fast_cpu"
    assert report["counters"]["reasons"] == {"R_GPU_SESSION": 1}  # not too short for a GPU: none of its texts
    assert report["counters"]["calls"]["fast_cpu"] == 1
