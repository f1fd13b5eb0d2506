"""`_native.Encoding` and `_native.EncodingBatch`: sequences, buffers, lazy views, pickles, and what they keep alive."""

from __future__ import annotations

import copy
import ctypes
import gc
import json
import pickle
import sys
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.support.native_encoders import document, pair, program_bytes, resident_bytes
from toktier import _native
from toktier.errors import InvalidToken, UnsupportedConfig
from toktier.program.compile import compile_tokenizer

TEXT = "Hello world, 123 café 日本語 😀\n\n  the end"


@pytest.fixture
def enc() -> _native.Encoding:
    return pair()[0].encode(TEXT)


@pytest.fixture
def ids() -> list[int]:
    return pair()[1].encode(TEXT).ids


def test_is_a_sequence_of_int(enc: _native.Encoding, ids: list[int]) -> None:
    assert len(enc) == len(ids)
    assert enc.ids == list(enc) == [enc[i] for i in range(len(ids))] == ids
    assert [enc[-1], enc[-len(ids)]] == [ids[-1], ids[0]]
    assert list(reversed(enc)) == ids[::-1]
    assert ids[0] in enc
    assert [x in enc for x in (1 << 32, -1, 1 << 80, "a", None, 0.5)] == [False] * 6
    match enc:
        case [first, *_]:
            assert first == ids[0]
        case _:
            pytest.fail("an Encoding is matched as a sequence")


@pytest.mark.parametrize(
    "index", [slice(None), slice(1, 4), slice(-3, None), slice(None, None, -2), slice(9, 2), slice(0, 999, 3)]
)
def test_slices_are_lists(enc: _native.Encoding, ids: list[int], index: slice) -> None:
    assert enc[index] == ids[index]
    assert type(enc[index]) is list


@pytest.mark.parametrize("index", [10_000, -10_000, 1 << 70])
def test_indices_beyond_the_end(enc: _native.Encoding, index: int) -> None:
    with pytest.raises(IndexError):
        enc[index]


@pytest.mark.parametrize("index", ["0", None, 0.0])
def test_indices_of_another_type(enc: _native.Encoding, index: Any) -> None:
    with pytest.raises(TypeError):
        enc[index]


def test_lists_are_new_each_time(enc: _native.Encoding, ids: list[int]) -> None:
    """Changing what a property gave must not change what it gives next."""
    for name in ("ids", "offsets", "tokens"):
        first = getattr(enc, name)
        kept = list(first)
        first.clear()
        assert getattr(enc, name) == kept


def test_cannot_be_changed(enc: _native.Encoding) -> None:
    with pytest.raises(TypeError):
        enc[0] = 1  # type: ignore[index]
    for name in ("ids", "offsets", "tokens", "backend", "anything"):
        with pytest.raises(AttributeError):
            setattr(enc, name, [])
    with pytest.raises(TypeError):
        _native.Encoding()
    with pytest.raises(TypeError):
        type("Sub", (_native.Encoding,), {})
    with pytest.raises(TypeError):
        _native.Encoding.from_ids = None  # type: ignore[assignment, method-assign]


def test_equality_is_of_ids(enc: _native.Encoding, ids: list[int]) -> None:
    assert enc == ids
    assert ids == enc
    assert enc == tuple(ids)
    assert enc == pair()[0].encode(TEXT.encode())
    assert enc != ids[:-1]
    assert enc != [*ids[:-1], ids[-1] + 1]
    assert enc != [*ids[:-1], "x"]
    assert enc != "text"
    assert enc != [float("nan")] * len(ids)
    with pytest.raises(TypeError):
        enc < ids  # type: ignore[operator]  # noqa: B015
    with pytest.raises(TypeError):
        hash(enc)


def test_an_item_that_fails_to_compare_is_heard() -> None:
    class Spiteful:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        assert pair()[0].encode("a") == [Spiteful()]


def test_a_list_that_shrinks_while_compared() -> None:
    """An item's __eq__ may empty the list that holds it."""
    values: list[Any] = []

    class Emptier:
        def __eq__(self, other: object) -> bool:
            values.clear()
            return True

    encoding = pair()[0].encode(TEXT)
    values[:] = [Emptier() for _ in encoding]
    assert encoding == values


def test_buffer_is_uint32_and_read_only(enc: _native.Encoding, ids: list[int]) -> None:
    view = memoryview(enc)
    assert (view.format, view.itemsize, view.ndim, view.shape, view.readonly) == ("I", 4, 1, (len(ids),), True)
    assert view.tolist() == ids
    assert bytes(view) == array("I", ids).tobytes()
    assert array("I", bytes(enc)).tolist() == ids
    values = np.asarray(enc)
    assert values.dtype == np.uint32
    assert values.tolist() == ids
    assert not values.flags.writeable
    assert not values.flags.owndata
    assert np.shares_memory(values, np.frombuffer(memoryview(enc), dtype=np.uint32))
    with pytest.raises(TypeError, match="not writable"):
        (ctypes.c_char * 4).from_buffer(enc)


def test_views_outlive_the_encoding(ids: list[int]) -> None:
    encoder = pair()[0]
    values, view = np.asarray(encoder.encode(TEXT)), memoryview(encoder.encode(TEXT))
    batch = encoder.encode_batch([TEXT, TEXT])
    row, column, splits = batch[1], batch.ids, batch.row_splits
    del batch, encoder
    assert values.tolist() == view.tolist() == row.ids == ids
    assert row.offsets == pair()[1].encode(TEXT).offsets
    assert column.tolist() == ids * 2
    assert splits.tolist() == [0, len(ids), 2 * len(ids)]


def test_lazy_views_keep_text_and_program(ids: list[int]) -> None:
    """Neither the encoder nor the text is held by anyone else when offsets are asked for."""
    encoding = pair()[0].encode("".join([TEXT]))
    expected = pair()[1].encode(TEXT)
    assert encoding.offsets == expected.offsets
    assert encoding.tokens == expected.tokens


def test_empty() -> None:
    encoding = pair()[0].encode("")
    assert len(encoding) == 0
    assert (encoding.ids, encoding.offsets, encoding.tokens) == ([], [], [])
    assert encoding == []
    assert memoryview(encoding).tolist() == []
    assert np.asarray(encoding).shape == (0,)
    assert pickle.loads(pickle.dumps(encoding)) == encoding


def test_repr_is_short() -> None:
    encoder = pair()[0]
    assert repr(encoder.encode("")) == "Encoding([], backend='fast_cpu')"
    assert len(repr(encoder.encode(TEXT * 1000))) < 120
    assert repr(encoder.encode_batch(["a", "b"])).startswith("EncodingBatch(2 texts, 2 ids")


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
def test_copies_keep_everything(copier: Callable[[Any], Any], protocol: int) -> None:
    """Also of a copy, and also where the offsets were never looked at."""
    encoder, reference = pair("gpt2_like")
    expected = reference.encode(TEXT)
    for encoding in (copier(encoder.encode(TEXT)), pickle.loads(pickle.dumps(encoder.encode(TEXT), protocol))):
        again = pickle.loads(pickle.dumps(encoding, protocol))
        for e in (encoding, again):
            assert (e.ids, e.offsets, e.tokens, e.backend) == (
                expected.ids,
                expected.offsets,
                expected.tokens,
                "fast_cpu",
            )
    batch = copier(encoder.encode_batch([TEXT, "", "x"]))
    assert batch[0].offsets == expected.offsets
    assert [list(row) for row in batch] == [e.ids for e in reference.encode_batch([TEXT, "", "x"])]
    assert batch.backend == "fast_cpu"


@pytest.mark.parametrize(
    "arguments",
    [(b"abc", None, None, "x"), (b"abcd", b"1234567", None, "x"), (b"abcd", "12345678", None, "x"),
     ("abcd", None, None, "x"), (b"abcd", None, ("a", "b"), "x"), (b"abcd", None, (1,), "x"),
     (b"abcd", None, None, 1), (b"abcd",)],
)  # fmt: skip
def test_hostile_pickles_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        _native.Encoding._restore(*arguments)  # type: ignore[attr-defined]


def test_from_ids() -> None:
    made = _native.Encoding.from_ids([1, 2], offsets=[(0, 1), (1, 3)], tokens=["a", "bc"])
    assert (made.ids, made.offsets, made.tokens, made.backend) == ([1, 2], [(0, 1), (1, 3)], ["a", "bc"], "hf")
    assert made == [1, 2]
    again = pickle.loads(pickle.dumps(made))
    assert (again.offsets, again.tokens, again.backend) == (made.offsets, made.tokens, "hf")
    bare = _native.Encoding.from_ids(array("I", [7, 4294967295]), backend="other")
    assert (bare.ids, bare.backend) == ([7, 4294967295], "other")
    assert pickle.loads(pickle.dumps(bare)) == bare
    for name in ("offsets", "tokens"):
        with pytest.raises(UnsupportedConfig, match=f"no {name}"):
            getattr(bare, name)
        with pytest.raises(UnsupportedConfig, match=f"no {name}"):
            getattr(pickle.loads(pickle.dumps(bare)), name)


@pytest.mark.parametrize(
    "source",
    [[3, 70000], (3, 70000), iter([3, 70000]), array("I", [3, 70000]), np.array([3, 70000], dtype=np.uint32),
     np.array([3, 70000]), np.array([9, 3, 9, 70000, 9], dtype=np.uint32)[1::2], memoryview(array("I", [3, 70000])),
     array("q", [3, 70000]), {3: 0, 70000: 0}],
    ids=lambda s: type(s).__name__,
)  # fmt: skip
def test_ids_come_from_any_integers(source: Any) -> None:
    assert _native.Encoding.from_ids(source) == [3, 70000]


@pytest.mark.parametrize(
    "bad", [[-1], [1 << 32], [1 << 90], [0.5], ["1"], [None], [1, 2, "x"], np.array([0.5]), ["日" * 99], ["\ud800"]]
)
def test_ids_that_are_none(bad: Any) -> None:
    with pytest.raises(InvalidToken) as caught:
        _native.Encoding.from_ids(bad)
    assert caught.value.details["index"] == len(bad) - 1
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("bad", ["12", b"1234", bytearray(4), None, 5])
def test_ids_of_another_type(bad: Any) -> None:
    with pytest.raises(TypeError):
        _native.Encoding.from_ids(bad)


@pytest.mark.parametrize(
    ("offsets", "error"),
    [([], ValueError), ([(0, 1)], ValueError), ([(0, 1), (1,)], ValueError), ([(0, 1), (1, 2, 3)], ValueError),
     ([(0, 1), 5], TypeError), ([(0, 1), (0, -1)], (ValueError, OverflowError)), ([(0, 1), (0, 1 << 32)], ValueError),
     ([(0, 1), ("a", 1)], TypeError)],
)  # fmt: skip
def test_hostile_offsets(offsets: Any, error: Any) -> None:
    with pytest.raises(error):
        _native.Encoding.from_ids([1, 2], offsets=offsets)


@pytest.mark.parametrize("tokens", [["a"], ["a", "b", "c"], ["a", 1], 5])
def test_hostile_tokens(tokens: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        _native.Encoding.from_ids([1, 2], tokens=tokens)


def test_an_index_that_changes_its_list() -> None:
    values: list[Any] = []

    class Index:
        def __index__(self) -> int:
            values.clear()
            return 4

    values[:] = [Index() for _ in range(100)]
    assert _native.Encoding.from_ids(values) == [4] * 100


def test_batch_is_a_sequence_of_encodings() -> None:
    encoder, reference = pair()
    texts = [TEXT, "", "a", b"bytes", "é"]
    rows = [reference.encode(t.decode() if isinstance(t, bytes) else t) for t in texts]
    batch = encoder.encode_batch(texts)
    assert len(batch) == 5
    assert [row.ids for row in batch] == [row.ids for row in rows]
    assert [row.offsets for row in batch] == [row.offsets for row in rows]
    assert [row.tokens for row in batch] == [row.tokens for row in rows]
    assert batch[-1] == rows[-1].ids
    assert [row.ids for row in batch[1:4]] == [row.ids for row in rows[1:4]]
    assert [row.ids for row in batch[::-2]] == [row.ids for row in rows[::-2]]
    flat = [i for row in rows for i in row.ids]
    assert (batch.ids.format, batch.ids.readonly, batch.ids.tolist()) == ("I", True, flat)
    assert (batch.row_splits.format, batch.row_splits.readonly) == ("Q", True)
    assert batch.row_splits.tolist() == [0, *np.cumsum([len(row.ids) for row in rows]).tolist()]
    assert np.asarray(batch.row_splits).dtype == np.uint64
    assert np.shares_memory(np.asarray(batch.ids), np.asarray(batch[0]))
    for index in (5, -6):
        with pytest.raises(IndexError):
            batch[index]
    with pytest.raises(TypeError):
        batch["a"]  # type: ignore[call-overload]


def test_batch_of_nothing() -> None:
    batch = pair()[0].encode_batch([])
    assert (len(batch), batch.ids.tolist(), batch.row_splits.tolist(), list(batch)) == (0, [], [0], [])


def test_batch_from_encodings() -> None:
    first, second = _native.Encoding.from_ids([1, 2], [(0, 1), (1, 2)], ["a", "b"]), _native.Encoding.from_ids([])
    batch = _native.EncodingBatch.from_encodings([first, second])
    assert batch[0] is first
    assert (batch.ids.tolist(), batch.row_splits.tolist(), batch.backend) == ([1, 2], [0, 2, 2], "hf")
    assert _native.EncodingBatch.from_encodings([], backend="other").backend == "other"
    again = pickle.loads(pickle.dumps(batch))
    assert (again[0].offsets, again[0].tokens, again.backend) == (first.offsets, first.tokens, "hf")
    with pytest.raises(TypeError, match="item 1"):
        _native.EncodingBatch.from_encodings([first, [1]])  # type: ignore[list-item]


def test_small_footprint() -> None:
    """Header and ids in one allocation."""
    encoder = pair()[0]
    one, many = encoder.encode("a"), encoder.encode("a b" * 100)
    assert len(many) > 100
    assert sys.getsizeof(one) <= 112
    assert sys.getsizeof(many) == sys.getsizeof(one) + 4 * (len(many) - len(one))


def test_nothing_leaks() -> None:
    """Every path that allocates, and those that fail, many times: the interpreter's blocks and resident memory stay."""
    encoder = pair()[0]
    text, long = TEXT * 4, TEXT * 8000

    def every_path() -> None:
        encoding = encoder.encode(text)
        _ = (
            encoding.ids,
            encoding.offsets,
            encoding.tokens,
            memoryview(encoding),
            repr(encoding),
            list(encoding),
            encoding[2:5],
        )
        _ = pickle.loads(pickle.dumps(encoding)), encoding == encoding.ids, encoding != [1], encoder.count(text)
        batch = encoder.encode_batch([text, text.encode(), bytearray(b"x")], workers=2)
        _ = batch[0].offsets, batch.ids, batch.row_splits, list(batch), pickle.loads(pickle.dumps(batch))
        _ = encoder.count_batch([text, text])
        _ = _native.Encoding.from_ids(encoding, encoding.offsets, encoding.tokens)
        for bad in ("a\ud800", b"\xff", 5, None):
            with pytest.raises((ValueError, TypeError)):
                encoder.encode(bad)
            with pytest.raises((ValueError, TypeError)):
                encoder.encode_batch(["a", bad])
        for bad_ids in ([-1], ["x"], 5):
            with pytest.raises((ValueError, TypeError)):
                _native.Encoding.from_ids(bad_ids, [(0, 1)])
        with pytest.raises(ValueError, match="offset"):
            _native.Encoding.from_ids([1], [])

    def growth(run: Callable[[], object], times: int) -> tuple[int, int]:
        gc.collect()
        blocks, resident = sys.getallocatedblocks(), resident_bytes()
        for _ in range(times):
            run()
        gc.collect()
        return sys.getallocatedblocks() - blocks, resident_bytes() - resident

    # Free lists and pools fill at first; a leak of one block a call would show as 60 in every round.
    assert any(growth(every_path, 60)[0] < 30 for _ in range(20))
    large: list[Callable[[], object]] = [
        lambda: encoder.encode(long).offsets,
        lambda: encoder.encode_batch([long, long]),
    ]
    for run in large:  # more than a megabyte a call
        assert any(growth(run, 8)[1] < 5 << 20 for _ in range(4))


def test_references_are_given_back() -> None:
    encoder = pair()[0]
    program, text = encoder.program, "".join(["reference ", "counts é"])
    before = sys.getrefcount(program), sys.getrefcount(text)
    one, batch, row = encoder.encode(text), encoder.encode_batch([text]), encoder.encode_batch([text])[0]
    assert sys.getrefcount(text) > before[1]
    assert one.offsets == row.offsets
    del one, batch, row
    assert (sys.getrefcount(program), sys.getrefcount(text)) == before


def test_the_program_buffer_is_held_exactly_as_long() -> None:
    buffer = bytearray(program_bytes())
    encoding = _native.EncoderBase(_native.Program(buffer)).encode(TEXT)
    with pytest.raises(BufferError):
        buffer.append(0)
    assert encoding.offsets
    del encoding
    buffer.append(0)


@pytest.mark.parametrize("normalizer", [None, {"type": "Lowercase"}, {"type": "NFKC"}, {"type": "NFC"}])
def test_tokens_of_added_tokens_read_what_they_matched(normalizer: dict[str, Any] | None) -> None:
    """Stripped white space belongs to the token, and one that matches normalized text reads that."""
    small: dict[str, Any] = {"vocab": {"a": 0, "Ġ": 1, "Ċ": 2, "b": 3, "c": 4, "<S>": 5}, "merges": []}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    added = [
        {"id": 9, "content": "<m>"} | flags | {"lstrip": True, "rstrip": True, "special": True},
        {"id": 9, "content": "<S>"} | flags | {"normalized": True, "lstrip": True},
        {"id": 9, "content": "ﬁX"} | flags | {"normalized": True},
    ]
    file = document("gpt2_like", normalizer=normalizer)
    file["model"] |= small
    file["added_tokens"] = added
    text = json.dumps(file)
    reference = Tokenizer.from_str(text)
    encoder = _native.EncoderBase(_native.Program(compile_tokenizer(text.encode())))
    for sample in (
        "a  <m>  b",
        "a \n<S>b ﬁX FIX fix",
        "  <m>   <m> <S> c",
        "a\u3000\u00a0<m>\u3000<S>",
        "bc",
        "<S><m>bc\n",
    ):
        expected = reference.encode(sample)
        for encoding in (encoder.encode(sample), encoder.encode_batch(["", sample])[1]):
            assert (encoding.ids, encoding.tokens) == (expected.ids, expected.tokens)
            assert encoding.offsets == expected.offsets
            assert pickle.loads(pickle.dumps(encoding)).tokens == expected.tokens
