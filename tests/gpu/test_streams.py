"""Ids that stay on the device, in a stream of the caller: the host does not wait for the copies that put them together,
and whatever is queued in that stream, or in one that a consumer names, finds them complete."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.test_host_engine import NFC, SMALL, TEMPLATE, by_cpu, device_ids, mixed
from tests.support.fake_cuda import FakeCuda
from tests.support.native_encoders import program_bytes
from toktier import _native

TEXTS = ["", *mixed(30), "cafe\u0301", "l" * 3 * SMALL, *mixed(5, 2), *["12"] * 600]


def flat(program: _native.Program, texts: list[str], **options: bool) -> list[int]:
    return [identity for row in by_cpu(program, texts, **options) for identity in row]


class AsMethod:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class AsAttribute:
    def __init__(self, handle: int) -> None:
        self.__cuda_stream__ = (0, handle)


@pytest.mark.parametrize("changes", [{}, TEMPLATE], ids=["bare", "template"])
@pytest.mark.parametrize("form", [int, AsMethod, AsAttribute])
def test_ids_are_complete_for_what_the_caller_queues(
    cuda: FakeCuda, form: Callable[[int], Any], changes: dict[str, Any]
) -> None:
    program = _native.Program(program_bytes("cl100k_like", **NFC, **changes))
    engine, stream = cuda.engine(program, lane_bytes=SMALL), cuda.stream()
    ids = engine.encode_on_device(TEXTS, add_special_tokens=True, stream=form(stream))
    expected = flat(program, TEXTS, add_special_tokens=True)
    splits = list(ids.row_splits)
    assert [b - a for a, b in itertools.pairwise(splits)] == [
        len(row) for row in by_cpu(program, TEXTS, add_special_tokens=True)
    ]
    assert ids.__cuda_array_interface__["stream"] == stream
    assert device_ids(ids) != expected  # the copies are queued, and nobody has waited
    cuda.settle(stream)
    assert device_ids(ids) == expected
    engine.close()
    del ids, engine
    cuda.assert_clean()


def test_lanes_serve_others_before_the_caller_has_waited(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine, stream = cuda.engine(program, lanes=1, lane_bytes=SMALL), cuda.stream()
    batches = [mixed(12, seed) for seed in range(4)]
    found = [engine.encode_on_device(texts, stream=stream) for texts in batches]
    engine.encode_batch(mixed(12, 9))
    engine.close()
    cuda.settle(stream)
    assert [device_ids(ids) for ids in found] == [flat(program, texts) for texts in batches]
    found.clear()
    cuda.assert_clean()


def test_ids_that_are_dropped_before_the_copies_end(cuda: FakeCuda) -> None:
    engine, stream = cuda.engine(_native.Program(program_bytes()), lane_bytes=SMALL), cuda.stream()
    del_at_once = engine.encode_on_device(mixed(12), stream=stream)
    del del_at_once
    engine.close()
    cuda.settle(stream)
    cuda.assert_clean()


def test_a_consumer_of_dlpack_names_a_stream_of_its_own(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine, stream, other = cuda.engine(program, lane_bytes=SMALL), cuda.stream(), cuda.stream()
    texts = mixed(12)
    ids = engine.encode_on_device(texts, stream=stream)
    waits = cuda.calls("cuStreamWaitEvent")
    capsules = [ids.__dlpack__(stream=stream), ids.__dlpack__(stream=-1)]
    assert cuda.calls("cuStreamWaitEvent") == waits
    capsules.append(ids.__dlpack__(stream=other))
    assert cuda.calls("cuStreamWaitEvent") == waits + 1
    assert device_ids(ids) != flat(program, texts)
    cuda.settle(other)
    assert device_ids(ids) == flat(program, texts)
    capsules.append(ids.__dlpack__())  # the legacy default stream
    assert cuda.calls("cuStreamWaitEvent") == waits + 2
    engine.close()
    del ids, capsules
    cuda.settle(stream)
    cuda.assert_clean()


def test_without_a_stream_ids_are_complete_and_nobody_is_to_wait(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    texts = mixed(12)
    ids = engine.encode_on_device(texts)
    waits = cuda.calls("cuStreamWaitEvent")
    assert device_ids(ids) == flat(program, texts)
    assert ids.__cuda_array_interface__["stream"] is None
    ids.__dlpack__(stream=cuda.stream())
    assert cuda.calls("cuStreamWaitEvent") == waits


def test_the_default_stream(cuda: FakeCuda) -> None:
    ids = cuda.engine(_native.Program(program_bytes())).encode_on_device(["a b"], stream=0)
    assert ids.__cuda_array_interface__["stream"] == 1  # 0 would be ambiguous there


def test_ids_of_the_cpu_engine_alone_come_from_memory_that_is_not_page_locked(cuda: FakeCuda) -> None:
    """The driver stages such copies, which costs time: of a few ids, never of texts."""
    engine = cuda.engine(_native.Program(program_bytes()), lane_bytes=SMALL)
    opening = cuda.get("staged")
    engine.encode_batch(mixed(20))
    engine.encode_on_device(mixed(20))
    assert cuda.get("staged") == opening
    engine.encode_on_device(["l" * 3 * SMALL, *mixed(3)])
    assert cuda.get("staged") == opening + 1


def test_a_device_that_reads_memory_of_the_host_by_itself_finds_the_ids_of_the_cpu_engine(cuda: FakeCuda) -> None:
    """Then a copy of them reads when its turn comes, long after the call that queued it."""
    program = _native.Program(program_bytes())
    engine, stream = cuda.engine(program, lane_bytes=SMALL), cuda.stream()
    cuda.set(takes_over=0)
    texts = ["l" * 3 * SMALL, *mixed(3)]
    ids = engine.encode_on_device(texts, stream=stream)
    cuda.settle(stream)
    assert device_ids(ids) == flat(program, texts)
    engine.close()
    del ids, engine
    cuda.assert_clean()


@pytest.mark.parametrize("takes_over", [0, 1])
def test_the_tables_have_arrived_before_a_run_may_read_them(cuda: FakeCuda, takes_over: int) -> None:
    """Runs wait for no stream but their own, and a copy of ordinary memory may come back before it is done."""
    cuda.set(takes_over=takes_over)
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    assert cuda.get("queued") == 0
    assert engine.encode("a b").backend == "gpu"


@pytest.mark.parametrize("bad", ["0", 1.0, True, object(), AsMethod("7"), [0]])  # type: ignore[arg-type]
def test_what_is_no_stream(cuda: FakeCuda, bad: object) -> None:
    engine = cuda.engine(_native.Program(program_bytes()))
    with pytest.raises(TypeError, match=r"expected None, the handle of a stream \(an int from 0 on\) or an object"):
        engine.encode_on_device(["a"], stream=bad)


@pytest.mark.parametrize("bad", [-1, 1 << 64])
def test_a_number_that_is_no_handle(cuda: FakeCuda, bad: int) -> None:
    engine = cuda.engine(_native.Program(program_bytes()))
    with pytest.raises(ValueError, match="an int from 0 on that fits an address"):
        engine.encode_on_device(["a"], stream=bad)
