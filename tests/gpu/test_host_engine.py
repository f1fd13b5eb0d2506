"""The host side of the GPU engine on the fake driver, whose kernels the emulator runs: same results as the CPU engine,
whatever the texts, and counters that say which of the two served."""

from __future__ import annotations

import ctypes
import itertools
import os
import pickle
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fake_cuda import FakeCuda
from tests.support.material import ROOT, Artifacts
from tests.support.native_encoders import program_bytes
from tests.support.tokenizer_maker import added
from toktier import _native
from toktier.errors import InvalidText
from toktier.program.compile import compile_tokenizer

LINES = [
    line
    for name in ("english", "languages", "code", "chat")
    for line in (ROOT / "tests" / "data" / "text" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
]
SMALL = 4096
"""Bytes of the smallest lane."""
NFC: dict[str, Any] = {"normalizer": {"type": "NFC"}}
TEMPLATE: dict[str, Any] = {
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            token: {"id": token, "ids": [identity], "tokens": [token]}
            for token, identity in (("<|im_start|>", 1201), ("<|im_end|>", 1202))
        },
    }
}


def mixed(count: int, seed: int = 1) -> list[str]:
    """Texts from nothing to about 2 KB."""
    rng = random.Random(seed)
    return ["\n".join(rng.choices(LINES, k=rng.choice([0, 0, 1, 1, 2, 5, 30]))) for _ in range(count)]


def size(texts: list[Any]) -> int:
    return sum(len(text.encode() if isinstance(text, str) else text) for text in texts)


def rows(batch: _native.EncodingBatch) -> list[list[int]]:
    ids, splits = batch.ids, batch.row_splits
    return [ids[a:b].tolist() for a, b in itertools.pairwise(splits)]


def by_cpu(program: _native.Program, texts: list[Any], **options: bool) -> list[list[int]]:
    encoder = _native.EncoderBase(program)
    return [encoder.encode(text, **options).ids for text in texts]


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("name", ["cl100k_like", "o200k_like", "deepseek_like"])
def test_a_batch_is_encoded_on_the_device(cuda: FakeCuda, name: str, lanes: int) -> None:
    program = _native.Program(program_bytes(name))
    engine = cuda.engine(program, lanes=lanes, lane_bytes=SMALL)
    texts = mixed(40)
    batch = engine.encode_batch(texts)
    assert rows(batch) == by_cpu(program, texts)
    counters = engine.counters()
    assert (batch.backend, batch[0].backend) == ("gpu", "gpu")
    assert (counters["texts"], counters["bytes"]) == (len(texts), size(texts))
    assert counters["device_texts"] == sum(1 for text in texts if text)
    assert counters["chunks"] >= size(texts) / SMALL
    assert (counters["faults"], counters["fallen"], counters["last_fault"]) == (0, 0, None)
    assert sum(counters["redone"].values()) == 0
    engine.close()
    cuda.assert_clean()


def test_a_text_longer_than_a_lane_is_parted_where_ids_cannot_tell(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    texts = ["short", "\n".join(LINES * 2)[:20_000], "", "\n".join(reversed(LINES))[:9_000], "end"]
    assert rows(engine.encode_batch(texts)) == by_cpu(program, texts)
    counters = engine.counters()
    assert counters["device_texts"] == 4
    assert counters["device_documents"] >= 2 + 20_000 // SMALL + 9_000 // SMALL
    assert counters["uncut"] == 0
    assert engine.encode(texts[1]) == _native.EncoderBase(program).encode(texts[1])


def test_a_text_that_nothing_cuts_goes_to_the_cpu_engine(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    texts = [LINES[0], "l" * 3 * SMALL, LINES[1], "word " * 1000 + "l" * 3 * SMALL, LINES[2]]
    assert rows(engine.encode_batch(texts)) == by_cpu(program, texts)
    counters = engine.counters()
    assert (counters["uncut"], counters["device_texts"]) == (2, 3)
    assert counters["device_documents"] == 3 + 2  # the words before the second such stretch
    alone = engine.encode("l" * 3 * SMALL)
    assert (alone.backend, alone.ids) == ("fast_cpu", _native.EncoderBase(program).encode("l" * 3 * SMALL).ids)


REASONS = {
    "R_INPUT_NORMALIZED": (NFC, "cafe\u0301"),
    "R_GPU_ADDED_OVERLAP": ({"added_tokens": [added("<tok>"), added("k>x")]}, "<tok>x"),
    "R_GPU_ADDED_FLAGS": ({"added_tokens": [added("<tok>", lstrip=True)]}, "a  <tok>"),
    "R_GPU_GIANT_PIECE": ({}, "l" * 5000),
}


@pytest.mark.parametrize("reason", list(REASONS))
def test_what_a_kernel_leaves_is_put_in_its_place(cuda: FakeCuda, reason: str) -> None:
    changes, odd = REASONS[reason]
    changes = dict(changes)
    if "added_tokens" in changes:
        tokens = [token | {"id": 1200 + k} for k, token in enumerate(changes["added_tokens"])]
        changes["added_tokens"] = tokens
    program = _native.Program(program_bytes("cl100k_like", **changes))
    engine = cuda.engine(program, lane_bytes=8192)
    texts = [LINES[0], odd, LINES[1] * 3, LINES[2] + odd, odd + LINES[3], *LINES[4:40], odd]
    batch = engine.encode_batch(texts)
    assert rows(batch) == by_cpu(program, texts)
    assert batch.backend == "gpu"
    counters = engine.counters()
    assert counters["redone"] == {name: 4 if name == reason else 0 for name in counters["redone"]}
    assert counters["device_texts"] == len(texts) - 4 - texts.count("")
    assert counters["fallen"] == 0


def test_the_template_stands_around_texts_and_not_around_parts(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes("cl100k_like", **NFC, **TEMPLATE))
    engine = cuda.engine(program, lane_bytes=SMALL)
    texts = ["", "cafe\u0301", *mixed(12), "\n".join(LINES)[:15_000], "l" * 3 * SMALL, ""]
    for add in (True, False):
        batch = engine.encode_batch(texts, add_special_tokens=add)
        assert rows(batch) == by_cpu(program, texts, add_special_tokens=add)
    assert engine.encode("", add_special_tokens=True).ids == [1201, 1202]


def test_special_tokens_are_text_where_the_caller_says_so(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    texts = ["<|im_start|>user\nhello<|im_end|>" * 20, "a<|im_end|>", "<|endoftext|>"]
    assert rows(engine.encode_batch(texts)) == by_cpu(program, texts)
    assert rows(engine.encode_batch(texts, plain=True)) == by_cpu(program, texts, plain=True)
    assert rows(engine.encode_batch(texts)) != rows(engine.encode_batch(texts, plain=True))
    assert engine.counters()["device_texts"] == 4 * len(texts)


def test_every_kind_of_text_is_taken_as_the_cpu_engine_takes_it(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program)
    texts: list[Any] = ["ascii", "caf\u00e9", "日本語", "👩\U0001f3fd", b"bytes \xc3\xa9"]
    texts += [bytearray(b"array"), memoryview(b"view")]
    assert rows(engine.encode_batch(tuple(texts))) == by_cpu(program, texts)
    assert rows(engine.encode_batch(iter(texts))) == by_cpu(program, texts)
    assert rows(engine.encode_batch([])) == []
    assert engine.encode_batch([]).backend == "gpu"
    for bad in ("one text", b"one text"):
        with pytest.raises(TypeError, match="expected several texts"):
            engine.encode_batch(bad)
    with pytest.raises(TypeError, match=r"expected str or bytes of UTF-8, not int, item 1"):
        engine.encode_batch(["a", 1])
    with pytest.raises(InvalidText, match="malformed UTF-8 at byte 2\n"):
        engine.encode(b"ab\xff")


def test_a_fault_of_a_text_names_the_first_such_item(cuda: FakeCuda) -> None:
    engine = cuda.engine(_native.Program(program_bytes()), lane_bytes=SMALL)
    texts: list[Any] = [*mixed(30), "a\ud800", b"\xff", *mixed(3)]
    with pytest.raises(InvalidText) as raised:
        engine.encode_batch(texts)
    assert raised.value.details == {"position": 1, "item": 30}
    assert rows(engine.encode_batch(["after"])) == by_cpu(_native.Program(program_bytes()), ["after"])
    engine.close()
    cuda.assert_clean()


def test_an_encoding_is_what_the_cpu_engine_gives(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine, encoder = cuda.engine(program), _native.EncoderBase(program)
    text = "\n".join(LINES[:20]) + "<|im_end|>"
    mine, theirs = engine.encode(text), encoder.encode(text)
    assert (mine.backend, theirs.backend) == ("gpu", "fast_cpu")
    assert (mine.ids, mine.offsets, mine.tokens) == (theirs.ids, theirs.offsets, theirs.tokens)
    back = pickle.loads(pickle.dumps(mine))
    assert (back.ids, back.offsets, back.backend) == (mine.ids, mine.offsets, "gpu")
    batch = pickle.loads(pickle.dumps(engine.encode_batch([text, "b"])))
    assert [row.backend for row in batch] == ["gpu", "gpu"]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    texts=st.lists(st.text(st.sampled_from("ab \n1'.é\u0301日👩<|im_end|>"), max_size=300), max_size=8),
    add=st.booleans(),
)
def test_any_batch_is_the_cpu_engines(cuda: FakeCuda, texts: list[str], add: bool) -> None:
    program = _native.Program(program_bytes("cl100k_like", **NFC, **TEMPLATE))
    engine = cuda.engine(program, lane_bytes=SMALL)
    assert rows(engine.encode_batch(texts, add)) == by_cpu(program, texts, add_special_tokens=add)
    assert engine.counters()["fallen"] == 0


def test_threads_take_turns_at_the_lanes(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    batches = [mixed(8, seed) for seed in range(12)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda texts: rows(engine.encode_batch(texts)), batches))
    assert results == [by_cpu(program, texts) for texts in batches]
    counters = engine.counters()
    assert counters["device_texts"] == sum(1 for texts in batches for text in texts if text)
    engine.close()
    cuda.assert_clean()


def test_a_closed_engine_serves_by_the_cpu(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    assert engine.is_open
    assert cuda.get("objects") > 0
    engine.close()
    engine.close()
    assert not engine.is_open
    cuda.assert_clean()
    texts = mixed(10)
    batch = engine.encode_batch(texts)
    assert (batch.backend, rows(batch)) == ("fast_cpu", by_cpu(program, texts))
    assert engine.counters()["fallen"] == sum(1 for text in texts if text)
    with pytest.raises(_native.GpuError, match="closed") as raised:
        engine.time(texts)
    assert raised.value.code == "closed"


def test_closing_waits_for_calls_and_lets_their_rest_go_to_the_cpu(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    texts = mixed(150)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(engine.encode_batch(texts)))
    thread.start()
    while engine.counters()["chunks"] == 0:
        pass
    engine.close()
    cuda.assert_clean()
    thread.join()
    assert rows(found[0]) == by_cpu(program, texts)
    assert engine.counters()["faults"] == 0


def test_an_engine_that_is_dropped_gives_everything_back(cuda: FakeCuda) -> None:
    engine = cuda.engine(_native.Program(program_bytes()))
    engine.encode("text")
    del engine
    cuda.assert_clean()


@pytest.mark.unsanitized
def test_a_forked_child_is_served_by_the_cpu_and_touches_no_driver(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engine = cuda.engine(program, lane_bytes=SMALL)
    texts = mixed(20)
    expected = by_cpu(program, texts)
    assert rows(engine.encode_batch(texts)) == expected
    child = os.fork()
    if child == 0:
        try:
            batch = engine.encode_batch(texts)
            good = batch.backend == "fast_cpu" and rows(batch) == expected and not engine.is_open
            good = good and engine.counters()["last_fault"]["code"] == "forked"
            engine.close()
            del engine
            os._exit(0 if good and cuda.get("foreign_calls") == 0 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert rows(engine.encode_batch(texts)) == expected
    assert engine.counters()["device_texts"] == 2 * sum(1 for text in texts if text)


@pytest.mark.unsanitized
def test_a_fork_while_threads_wait_for_a_lane(cuda: FakeCuda) -> None:
    program = _native.Program(program_bytes())
    engines = [cuda.engine(program, lanes=1, lane_bytes=SMALL)]
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            engines[0].encode_batch(mixed(6))

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # a child that hangs is a failure, not a test that never ends
                good = engines[0].encode("text").backend == "fast_cpu"
                engines.clear()
                os._exit(0 if good and cuda.get("foreign_calls") == 0 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_facts_of_device_and_engine(cuda: FakeCuda) -> None:
    cuda.set(devices=2, major=12, minor=0, driver_version=12080, local_bytes=16)
    device = _native.gpu_device(1, driver=cuda.path)
    assert device == {
        "name": "Fake device",
        "architecture": "sm_120",
        "compute_capability": "12.0",
        "driver_version": "12.8",
        "memory_bytes": 1 << 30,
        "devices": 2,
    }
    cuda.assert_clean()
    engine = cuda.engine(_native.Program(program_bytes()), device=1, lanes=3, lane_bytes=1 << 16)
    facts = engine.facts()
    assert device.items() <= facts.items()
    assert (facts["index"], facts["lanes"], facts["lane_bytes"]) == (1, 3, 1 << 16)
    assert facts["kernels"]["tt_merge_block"] == {
        "registers": 32, "local_bytes": 16, "shared_bytes": 1024, "resident_blocks": 2
    }  # fmt: skip
    assert len(facts["kernels"]) == 13
    assert facts["device_bytes"] >= cuda.get("device_bytes") - 1024
    assert facts["host_bytes"] == cuda.get("host_bytes")
    assert facts["device_bytes"] < facts["table_bytes"] + 3 * 23 * (1 << 16)


def test_time_says_how_long_each_step_took(cuda: FakeCuda) -> None:
    engine = cuda.engine(_native.Program(program_bytes()), lane_bytes=1 << 16)
    steps = engine.time(["some text", *LINES[:30]])
    kernels = [name for name in engine.facts()["kernels"] if name not in ("tt_characters", "tt_offsets")]
    assert list(steps) == ["h2d", *kernels, "d2h"]
    assert min(steps.values()) >= 0
    assert sum(steps.values()) > 0
    engine.close()
    cuda.assert_clean()


@pytest.mark.ci
@pytest.mark.parametrize("name", ["qwen3", "gptoss", "deepseek_v3"])
def test_real_tokenizers(artifacts: Artifacts, cuda: FakeCuda, name: str) -> None:
    program = _native.Program(compile_tokenizer(artifacts.path(name).read_bytes()))
    engine = cuda.engine(program, lane_bytes=1 << 16)
    texts = mixed(60, seed=5)
    batch = engine.encode_batch(texts)
    assert rows(batch) == by_cpu(program, texts)
    counters = engine.counters()
    assert counters["device_texts"] + sum(counters["redone"].values()) >= sum(1 for text in texts if text)
    assert counters["device_texts"] > 30
    assert counters["fallen"] == 0


def device_ids(ids: _native.GpuIds) -> list[int]:
    """What lies there: the memory of the fake device is this process's."""
    interface = ids.__cuda_array_interface__
    assert (interface["typestr"], interface["shape"], interface["version"]) == ("<i4", (len(ids),), 3)
    return list((ctypes.c_int32 * len(ids)).from_address(interface["data"][0])) if len(ids) else []


@pytest.mark.parametrize("changes", [{}, TEMPLATE], ids=["bare", "template"])
def test_ids_may_stay_on_the_device(cuda: FakeCuda, changes: dict[str, Any]) -> None:
    program = _native.Program(program_bytes("cl100k_like", **NFC, **changes))
    engine = cuda.engine(program, lane_bytes=SMALL)
    texts = ["", *mixed(30), "cafe\u0301", "l" * 3 * SMALL, *mixed(5, 2), *["12"] * 2000]
    expected = by_cpu(program, texts, add_special_tokens=True)
    found = engine.encode_on_device(texts, add_special_tokens=True)
    splits = found.row_splits
    assert [b - a for a, b in itertools.pairwise(splits)] == [len(row) for row in expected]
    assert device_ids(found) == [identity for row in expected for identity in row]
    assert engine.counters()["device_texts"] >= 2000
    assert found.__dlpack_device__() == (2, 0)
    capsule = found.__dlpack__(stream=1, max_version=(1, 0), dl_device=(2, 0))
    engine.close()
    del found, engine
    assert cuda.get("contexts") == 1  # the capsule keeps it
    del capsule
    cuda.assert_clean()


def test_no_ids_on_a_device(cuda: FakeCuda) -> None:
    engine = cuda.engine(_native.Program(program_bytes()))
    empty = engine.encode_on_device([])
    assert (len(empty), list(empty.row_splits), device_ids(empty)) == (0, [0], [])
    engine.close()
    for texts in ([], ["a"]):
        with pytest.raises(_native.GpuError) as raised:
            engine.encode_on_device(texts)
        assert raised.value.code == "closed"


def test_dlpack_offers_no_copy_and_no_other_device(cuda: FakeCuda) -> None:
    ids = cuda.engine(_native.Program(program_bytes())).encode_on_device(["a b"])
    with pytest.raises(BufferError, match="not copied"):
        ids.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="stay on their device"):
        ids.__dlpack__(dl_device=(1, 0))
