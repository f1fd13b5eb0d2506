"""Rows of a result composed from ids of texts alone: cut to length, framed by the template's ids, padded.

The engine gives the ids of all texts in one buffer; every step here takes whole slices of it, and lists are made only
where the result is lists. Order and arithmetic are the reference's: truncation with room for the template, then the
template on every part, then padding to the longest first part. Not here: pairs and texts split into words, whose
frames differ (`reference_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toktier._native import EncodingBatch
from toktier.compat import call_options as names
from toktier.compat.call_options import CallOptions, width_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.int64]

Offset = tuple[int, int]
_NOWHERE: Offset = (0, 0)  # offsets of what no text stands behind


@dataclass(frozen=True, slots=True)
class Frame:
    """Ids that a template puts around one text, and the type ids of both and of the text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    before_types: tuple[int, ...] = ()
    text_type: int = 0
    after_types: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


@dataclass(frozen=True, slots=True)
class Row:
    """Ids [begin, end) of text `sample`, to be padded by `lead` and `tail` tokens."""

    sample: int
    begin: int
    end: int
    lead: int
    tail: int


def room(options: CallOptions, frame: Frame, framed: int) -> int | None:
    """Ids of a text that a row has room for, where rows can be composed; None where nothing is truncated. `framed`: ids
    of the template, in this call or not, which the reference counts when it judges a stride. Raises ValueError where
    truncation is one whose outcome, or error, is the reference's own affair."""
    if options.truncation is None:
        return None
    left = (options.max_length or 0) - len(frame)
    if left <= 0 or options.stride >= min(left, left + len(frame) - framed) or options.truncation == "only_second":
        raise ValueError
    return left


def windows(count: int, limit: int, stride: int, side: str) -> Iterator[tuple[int, int]]:
    """[begin, end) of the parts that `count` ids are cut to, the one that is kept first; each shares `stride` ids with
    the one before it."""
    step, done = limit - stride, 0
    while True:
        if side == "right":
            begin, end = done, min(done + limit, count)
        else:
            begin, end = max(count - done - limit, 0), count - done
        yield begin, end
        if end == count if side == "right" else begin == 0:
            return
        done += step


def rows_of(batch: EncodingBatch, options: CallOptions, frame: Frame, limit: int | None) -> list[Row]:
    """Rows in the order of the texts; parts that overflow behind the first of their text, where they are asked for."""
    splits = batch.row_splits
    parts: list[tuple[int, int, int]] = []
    longest = 0
    for sample in range(len(batch)):
        count = splits[sample + 1] - splits[sample]
        if limit is None or count <= limit:
            parts.append((sample, 0, count))
            longest = max(longest, count)
            continue
        cut = windows(count, limit, options.stride, options.truncation_side)
        begin, end = next(cut)
        parts.append((sample, begin, end))
        longest = max(longest, end - begin)
        if options.overflow:
            parts.extend((sample, begin, end) for begin, end in cut)
    width = width_of(longest + len(frame), options)
    rows: list[Row] = []
    for sample, begin, end in parts:
        pad = max(0, width - (end - begin) - len(frame))
        left = options.padding_side == "left"
        rows.append(Row(sample, begin, end, pad if left else 0, 0 if left else pad))
    return rows


def as_lists(batch: EncodingBatch, rows: list[Row], options: CallOptions, frame: Frame) -> dict[str, list[Any]]:
    """Every column as one list for each row."""
    ids, splits = batch.ids, batch.row_splits
    n_before, n_after = len(frame.before), len(frame.after)
    offsets = _Offsets(batch)

    def laid(row: Row, text: list[Any], before: Sequence[Any], after: Sequence[Any], pad: Any) -> list[Any]:
        if not (row.lead or before):
            text += after
            text += [pad] * row.tail
            return text
        return [pad] * row.lead + [*before] + text + [*after] + [pad] * row.tail

    def ids_of(row: Row) -> list[Any]:
        base = splits[row.sample]
        text = ids[base + row.begin : base + row.end].tolist()
        return laid(row, text, frame.before, frame.after, options.pad_id)

    def types(row: Row) -> list[Any]:
        text = [frame.text_type] * (row.end - row.begin)
        return laid(row, text, frame.before_types, frame.after_types, options.pad_type_id)

    def attention(row: Row) -> list[Any]:
        return [0] * row.lead + [1] * (row.end - row.begin + n_before + n_after) + [0] * row.tail

    def special(row: Row) -> list[Any]:
        return laid(row, [0] * (row.end - row.begin), [1] * n_before, [1] * n_after, 1)

    def spans(row: Row) -> list[Any]:
        return laid(row, offsets.of(row), [_NOWHERE] * n_before, [_NOWHERE] * n_after, _NOWHERE)

    made: dict[str, Callable[[Row], list[Any]]] = {
        names.INPUT_IDS: ids_of,
        names.TYPE_IDS: types,
        names.ATTENTION_MASK: attention,
        names.SPECIAL_MASK: special,
        names.OFFSETS: spans,
    }
    columns: dict[str, list[Any]] = {}
    for name in options.columns:
        if name == names.LENGTH:
            columns[name] = [_length(row, frame) for row in rows]
        else:
            columns[name] = [made[name](row) for row in rows]
    return columns


def as_arrays(batch: EncodingBatch, rows: list[Row], options: CallOptions, frame: Frame) -> dict[str, Any]:
    """Every column as one int64 array of (rows, tokens), offsets (rows, tokens, 2); where rows differ in length, as an
    object array of one array for each row. Ids come straight from the buffer of the batch."""
    import numpy as np

    ids, splits = np.frombuffer(batch.ids, dtype=np.uint32), batch.row_splits
    lengths = [_length(row, frame) for row in rows]
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    n_before, n_after = len(frame.before), len(frame.after)
    offsets = _Offsets(batch)

    def shaped(flat: Array, pair: bool = False) -> Any:
        if len(set(lengths)) == 1:
            # A column of nothing is (rows, 0) in transformers, of offsets too.
            return flat.reshape(len(rows), lengths[0], *([2] if pair and lengths[0] else []))
        ragged = np.empty(len(rows), dtype=object)
        for i, part in enumerate(np.split(flat, ends[:-1])):
            ragged[i] = part if len(part) else np.asarray([])
        return ragged

    def framed(
        dtype_of_text: Callable[[Row], Any], before: Sequence[int], after: Sequence[int], pad: int, width: int = 0
    ) -> Any:
        flat = np.full((total, width) if width else total, pad, dtype=np.int64)
        for row, end, length in zip(rows, ends, lengths, strict=True):
            at = int(end) - length + row.lead
            if n_before:
                flat[at : at + n_before] = before
            at += n_before
            if row.end > row.begin:
                flat[at : at + row.end - row.begin] = dtype_of_text(row)
            at += row.end - row.begin
            if n_after:
                flat[at : at + n_after] = after
        return shaped(flat, bool(width))

    def ids_of(row: Row) -> Any:
        base = splits[row.sample]
        return ids[base + row.begin : base + row.end]

    ones = (1,) * n_before, (1,) * n_after
    made: dict[str, Callable[[], Any]] = {
        names.INPUT_IDS: lambda: framed(ids_of, frame.before, frame.after, options.pad_id),
        names.TYPE_IDS: lambda: framed(
            lambda _: frame.text_type, frame.before_types, frame.after_types, options.pad_type_id
        ),
        names.ATTENTION_MASK: lambda: framed(lambda _: 1, *ones, 0),
        names.SPECIAL_MASK: lambda: framed(lambda _: 0, *ones, 1),
        names.OFFSETS: lambda: framed(offsets.of, [0] * bool(n_before), [0] * bool(n_after), 0, width=2),
        names.LENGTH: lambda: np.asarray(lengths),
    }
    return {name: made[name]() for name in options.columns}


class _Offsets:
    """Offsets of the texts of a batch; of the last text asked for they are kept, as its rows follow each other."""

    def __init__(self, batch: EncodingBatch) -> None:
        self._batch = batch
        self._sample, self._offsets = -1, list[Offset]()

    def of(self, row: Row) -> list[Offset]:
        if row.sample != self._sample:
            self._sample, self._offsets = row.sample, self._batch[row.sample].offsets
        return self._offsets[row.begin : row.end]


def _length(row: Row, frame: Frame) -> int:
    return row.lead + len(frame) + row.end - row.begin + row.tail
