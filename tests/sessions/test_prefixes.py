"""encode() with a store: stored prefixes answer, and never change what is answered."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from tests.sessions.whole_sessions import TOKENIZERS, UNITS, fresh, opened
from toktier import errors
from toktier.sessions import chains
from toktier.tokenizer import LOOKUP_FROM, Tokenizer

NAME = "cl100k_like"
SENTENCE = "The quick brown fox jumps over the lazy dog. "


def test_a_store_is_asked_from_the_first_mark_on() -> None:
    assert LOOKUP_FROM == chains.MARK


def lookups(tok: Tokenizer) -> dict[str, int]:
    counted: dict[str, int] = tok.explain()["sessions"]["lookups"]
    return counted


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_that_branch_are_their_fresh_encodings(tmp_path: Path, name: str) -> None:
    draw, plain = random.Random(1), opened(name)
    tok, texts = opened(name, store=tmp_path), [""]
    for _ in range(30):
        base = draw.choice(texts)
        text = base[: draw.randint(0, len(base))] if draw.random() < 0.4 else base
        text += "".join(draw.choices(UNITS, k=draw.choice((3, 100, 1500))))
        texts.append(text)
        encoding = tok.encode(text if draw.random() < 0.5 else text.encode())
        assert encoding.ids == fresh(name, text)
        assert encoding.offsets == plain.encode(text).offsets
        assert tok.encode(text, True).ids == plain.encode(text, True).ids
        assert tok.encode(text, plain=True).ids == plain.encode(text, plain=True).ids
    assert lookups(tok)["hits"] >= 8
    assert tok._store is not None
    assert tok._store.verify() == []


def test_another_process_finds_what_one_encoded(tmp_path: Path) -> None:
    text = SENTENCE * 4000
    opened(NAME, store=tmp_path).encode(text)
    tok = opened(NAME, store=tmp_path)
    assert tok.encode(text + "More.").ids == fresh(NAME, text + "More.")
    assert lookups(tok)["hits"] == 1
    assert tok.native_calls[1] < 2000


def test_what_grows_is_written_once(tmp_path: Path) -> None:
    tok, text = opened(NAME, store=tmp_path), SENTENCE * 200
    for _ in range(10):
        tok.encode(text)
        text += SENTENCE * 100
    assert tok._store is not None
    (only,) = tok._store.sessions()
    assert only.name is None
    assert only.text_bytes <= len(text)


def test_lookup_off_asks_nobody(tmp_path: Path) -> None:
    tok = opened(NAME, store=tmp_path, lookup="off")
    assert tok.encode(SENTENCE * 200).ids == fresh(NAME, SENTENCE * 200)
    assert opened(NAME, store=tmp_path).encode(SENTENCE * 200, lookup="off").ids == fresh(NAME, SENTENCE * 200)
    assert lookups(tok)["lookups"] == 0
    assert tok.encode(SENTENCE * 200, lookup="auto").ids == fresh(NAME, SENTENCE * 200)
    assert lookups(tok)["lookups"] == 1
    with pytest.raises(errors.ConfigInvalid):
        opened(NAME, store=tmp_path, lookup="maybe")


def test_a_damaged_store_is_a_counted_miss(tmp_path: Path) -> None:
    text = SENTENCE * 4000
    tok = opened(NAME, store=tmp_path)
    tok.encode(text)
    with sqlite3.connect(tmp_path / "sessions.db") as connection:
        connection.execute("UPDATE step SET ids = zeroblob(length(ids))")
    assert tok.encode(text + "More.").ids == fresh(NAME, text + "More.")
    counted = lookups(tok)
    assert (counted["hits"], counted["failed_checks"]) == (0, 1)


def test_a_store_that_cannot_be_asked_is_no_error(tmp_path: Path) -> None:
    tok = opened(NAME, store=tmp_path)
    tok.encode(SENTENCE * 200)
    (tmp_path / "sessions.db").write_bytes(b"no database" * 1000)
    assert tok.encode(SENTENCE * 300).ids == fresh(NAME, SENTENCE * 300)


def test_eviction_changes_no_id(tmp_path: Path) -> None:
    tok = opened(NAME, store=tmp_path)
    assert tok._store is not None
    tok._store.budget_bytes = 1 << 15
    for k in range(30):
        text = f"{k % 7} " + SENTENCE * (150 + k)
        assert tok.encode(text).ids == fresh(NAME, text)
    assert sum(info.held_bytes for info in tok._store.sessions()) <= 1 << 15


def test_a_lone_surrogate_has_its_place(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidText) as caught:
        opened(NAME, store=tmp_path).encode(SENTENCE * 200 + "\ud83d")
    assert caught.value.details == {"position": len(SENTENCE) * 200}
