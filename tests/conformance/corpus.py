"""Real documents through the native engine and the reference: ids, offsets, tokens, batches, threads, decoding.

Counts what was compared and names the first differences. Used by the tests and by run_corpus.py. Not here: which
documents are taken in CI (`sample`'s caller), how results are printed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.decoders import DecodeStream as ReferenceStream

from tests.conformance.adapter import NotServedNatively, assert_only_native, encode_natively
from tests.support.material import corpora, lines
from toktier import Tokenizer
from toktier.certify.conversations import LAYOUTS

STREAMED_IDS = 1500  # of each document: a step costs a Python call on both sides
SHOWN = 5


@dataclass
class Report:
    """What was compared. Sizes of the documents as they were encoded, each counted once."""

    documents: int = 0
    bytes: int = 0
    code_points: int = 0
    ids: int = 0
    offsets: int = 0
    batch_rows: int = 0
    threaded: int = 0
    decoded: int = 0
    streamed_ids: int = 0
    decoded_by: str = ""
    served_by: str = ""
    mismatches: list[str] = field(default_factory=list)

    def differ(self, what: str, name: str, got: object, expected: object) -> None:
        self.mismatches.append(f"{what} of {name}: got {_short(got)}, the reference {_short(expected)}")


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 160 else text[:157] + "..."


def sample(documents: Iterable[tuple[str, str]], budget: int | None) -> Iterator[tuple[str, str]]:
    """All of (name, text), or for a budget in bytes a fixed choice: in the order of a hash of the text, of each
    document at most the first budget / 4 code points."""
    if budget is None:
        yield from documents
        return
    left = budget
    for name, text in sorted(documents, key=lambda item: hashlib.sha256(item[1].encode()).digest()):
        if left <= 0:
            return
        part = text[: budget // 4]
        left -= len(part.encode())
        yield name, part


def documents(shared: Path, corpus: str) -> Iterator[tuple[str, str]]:
    """(name, text) of a corpus of plain documents."""
    for number, text in enumerate(lines(shared, corpus)):
        yield f"{corpus}[{number}]", text


def transcripts(shared: Path, added: list[str]) -> Iterator[tuple[str, str]]:
    """agent_chats, rendered with the added tokens of a tokenizer: by its chat template, and with every added token in
    turn around the messages, so that each meets real text."""
    template = next((t for needed, t in LAYOUTS if set(needed) <= set(added)), None)
    turn = 0
    for number, messages in enumerate(lines(shared, "agent_chats")):
        if template is not None:
            text = "".join(template.format(**_fields(message)) for message in messages)
            yield f"agent_chats[{number}] by template", text
        if added:
            parts: list[str] = []
            for message in messages:
                parts += [added[turn % len(added)], message["role"], "\n", message["content"]]
                turn += 1
            yield f"agent_chats[{number}] with added tokens", "".join(parts)
        elif template is None:
            yield f"agent_chats[{number}]", "\n".join(message["content"] for message in messages)


def _fields(message: dict[str, str]) -> dict[str, str]:
    return {"role": message["role"], "content": message["content"]}


def texts(shared: Path, corpus: str, reference: tokenizers.Tokenizer, budget: int | None) -> list[tuple[str, str]]:
    """The documents of one corpus for one tokenizer."""
    if corpus != "agent_chats":
        return list(sample(documents(shared, corpus), budget))
    added = [token.content for _, token in sorted(reference.get_added_tokens_decoder().items())]
    return list(sample(transcripts(shared, added), budget))


def all_corpora(shared: Path) -> list[str]:
    return [*corpora(shared), "agent_chats"]


def compare(
    tokenizer: Tokenizer, reference: tokenizers.Tokenizer, chosen: list[tuple[str, str]], threads: int = 8
) -> Report:
    """Everything that is compared, over (name, text) pairs. Raises NotServedNatively when another engine answered."""
    report = Report()
    whole = [_one(tokenizer, reference, name, text, report) for name, text in chosen]
    _batch(tokenizer, chosen, whole, report)
    _threads(tokenizer, chosen, whole, threads, report)
    _decoding(tokenizer, reference, chosen, whole, report)
    assert_only_native(tokenizer)
    facts = tokenizer.explain(summary=True)
    report.served_by, report.decoded_by = facts["backend"], facts["decode"]
    return report


def _one(tokenizer: Tokenizer, reference: tokenizers.Tokenizer, name: str, text: str, report: Report) -> list[int]:
    ids: list[int] = []
    for add_special in (True, False):
        got = encode_natively(tokenizer, text, add_special)
        expected = reference.encode(text, add_special_tokens=add_special)
        ids = expected.ids
        if got.ids != ids:
            report.differ(f"ids (add_special_tokens={add_special})", name, got.ids, ids)
        if got.offsets != expected.offsets:
            report.differ(f"offsets (add_special_tokens={add_special})", name, *_first(got.offsets, expected.offsets))
        if len(text) < 20_000 and got.tokens != expected.tokens:
            report.differ(f"tokens (add_special_tokens={add_special})", name, *_first(got.tokens, expected.tokens))
        report.ids += len(ids)
        report.offsets += len(expected.offsets)
    counted = tokenizer.count(text)
    if counted != len(ids):
        report.differ("count", name, counted, len(ids))
    report.documents += 1
    report.bytes += len(text.encode())
    report.code_points += len(text)
    return ids


def _first(got: list[Any], expected: list[Any]) -> tuple[object, object]:
    """The first difference with its place."""
    for place, (a, b) in enumerate(zip(got, expected, strict=False)):
        if a != b:
            return (place, a), (place, b)
    return len(got), len(expected)


def _batch(tokenizer: Tokenizer, chosen: list[tuple[str, str]], whole: list[list[int]], report: Report) -> None:
    for workers in (1, 3):
        batch = tokenizer.encode_batch([text for _, text in chosen], workers=workers)
        if len(batch) != len(chosen):
            report.differ("rows of a batch", f"{workers} workers", len(batch), len(chosen))
        for (name, _), row, expected in zip(chosen, batch, whole, strict=True):
            if row.backend != "fast_cpu":
                raise NotServedNatively(f"{row.backend} answered in a batch")
            if row.ids != expected:
                report.differ(f"batch row ({workers} workers)", name, row.ids, expected)
            report.batch_rows += 1


def _threads(
    tokenizer: Tokenizer, chosen: list[tuple[str, str]], whole: list[list[int]], threads: int, report: Report
) -> None:
    """Every thread encodes every document, each from another place in the order."""
    faults: list[BaseException] = []
    wrong: list[str] = []

    def work(start: int) -> None:
        try:
            for step in range(len(chosen)):
                place = (start * len(chosen) // threads + step) % len(chosen)
                if tokenizer.encode(chosen[place][1]).ids != whole[place]:
                    wrong.append(chosen[place][0])
        except BaseException as error:
            faults.append(error)

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if faults:
        raise faults[0]
    report.threaded += threads * len(chosen)
    for name in wrong:
        report.differ(f"ids with {threads} threads", name, "other ids", "those of one thread")


def _decoding(
    tokenizer: Tokenizer,
    reference: tokenizers.Tokenizer,
    chosen: list[tuple[str, str]],
    whole: list[list[int]],
    report: Report,
) -> None:
    for (name, _), ids in zip(chosen, whole, strict=True):
        for skip in (True, False):
            got, expected = tokenizer.decode(ids, skip), reference.decode(ids, skip_special_tokens=skip)
            if got != expected:
                report.differ(f"text (skip_special_tokens={skip})", name, *_first(list(got), list(expected)))
            report.decoded += len(ids)
        part = ids[:STREAMED_IDS]
        mine = tokenizer.decode_stream()
        theirs = ReferenceStream(skip_special_tokens=False)
        got_steps = [mine.step(i) for i in part]
        expected_steps = [theirs.step(reference, i) for i in part]
        if got_steps != expected_steps:
            report.differ("decode stream", name, *_first(got_steps, expected_steps))
        report.streamed_ids += len(part)
