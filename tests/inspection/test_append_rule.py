"""What is said of the append rule is what the engine does: laws over random texts, and each reason where it belongs."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.material import SMALL_DIR, changed_tokenizer, small_tokenizers
from toktier._native import EncoderBase, Program, SessionBase
from toktier.inspection.append_rule import MANY, AppendRule, append_rule
from toktier.inspection.cut_reasons import RULES, CutReasons
from toktier.program.store import load_or_compile
from toktier.program.tokenizer_json import TokenizerSpec, read_tokenizer

ALL = 10**6
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
LETTERS = "ab AB12 \n\r\t'.,<|>-_érße\u0301\u0308\u1100\u1161ⅷﬁ港の\U0001f600\u200d▁\x1b\0"
WORDS = ["<|endoftext|>", "<s>", "it's", " ", "12345", "Grö", "e\u0301", "\r\n", "   "]
TEXTS = st.one_of(
    st.text(st.one_of(st.sampled_from(LETTERS), st.characters(codec="utf-8")), max_size=40),
    st.lists(st.sampled_from(WORDS)).map("".join),
)


@functools.cache
def loaded(path: Path) -> tuple[TokenizerSpec, bytes, Program]:
    image, _ = load_or_compile(path, None)
    return read_tokenizer(path.read_bytes()), bytes(image), Program(bytes(image))


def rule_of(path: Path, text: str, parts: int = ALL, positions: int = ALL) -> AppendRule:
    spec, image, _ = loaded(path)
    return append_rule(spec, image, text, parts=parts, positions=positions)


def session_of(path: Path, text: str) -> SessionBase:
    session = SessionBase(EncoderBase(loaded(path)[2]))
    session.append(text)
    return session


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@settings(deadline=None)
@given(text=TEXTS)
def test_the_parts_are_the_text_and_their_ids_are_those_of_the_whole(path: Path, text: str) -> None:
    rule = rule_of(path, text)
    assert "".join(part.text for part in rule.parts) == text
    assert [i for part in rule.parts for i in part.ids] == session_of(path, text).snapshot().ids
    assert [part.at for part in rule.parts[1:]] == [
        len(text.encode()[:at].decode()) for at in loaded(path)[2].cuts(text, True)[0]
    ]
    assert sum(rule.cuts.values()) == len(rule.parts) - 1


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@settings(deadline=None)
@given(text=TEXTS, more=TEXTS)
def test_an_append_encodes_from_where_it_is_said_and_keeps_what_is_said(path: Path, text: str, more: str) -> None:
    rule, session = rule_of(path, text), session_of(path, text)
    assert len(text[: rule.open_from].encode()) == session.final_bytes
    assert len(session) == rule.tokens
    before = session.snapshot().ids
    patch = session.append(more)
    assert patch.keep_tokens >= rule.kept_tokens
    assert session.snapshot().ids[: rule.kept_tokens] == before[: rule.kept_tokens]


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@settings(deadline=None)
@given(text=TEXTS)
def test_there_is_a_reason_exactly_where_the_engine_has_no_cut(path: Path, text: str) -> None:
    spec, image, program = loaded(path)
    cuts = {len(text.encode()[:at].decode()) for at in program.cuts(text, True)[0]}
    reasons = CutReasons(spec, image)
    for i in range(1, len(text)):
        found = reasons.why_not(text, i)
        assert (found is None) == (i in cuts)
        assert found is None or (found[0] in RULES and found[1])
    rule = rule_of(path, text)
    assert [row.at for row in rule.positions] == (list(range(rule.open_from + 1, len(text) + 1)) if text else [])


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@settings(deadline=None)
@given(text=TEXTS, parts=st.integers(1, 5), positions=st.integers(1, 5))
def test_a_short_list_is_the_end_of_the_long_one(path: Path, text: str, parts: int, positions: int) -> None:
    whole, some = rule_of(path, text), rule_of(path, text, parts, positions)
    kept = [(part.at, part.kind, part.text, part.ids) for part in some.parts]
    assert kept == [(part.at, part.kind, part.text, part.ids) for part in whole.parts[-parts:]]
    for mine, other in zip(some.parts, whole.parts[-parts:], strict=True):
        assert mine.pieces is None or other.pieces is None or mine.pieces == other.pieces
    assert some.positions == whole.positions[-positions:]
    assert some.earlier + len(some.positions) == len(whole.positions)
    assert (some.open_from, some.kept_tokens, some.tokens) == (whole.open_from, whole.kept_tokens, whole.tokens)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fields: dict[str, Any] = {"added_tokens": [], "normalizer": None, "post_processor": None}
    return changed_tokenizer(SMALL_DIR / "cl100k_like.json", tmp_path_factory.mktemp("bare") / "bare.json", **fields)


@settings(deadline=None)
@given(text=TEXTS)
def test_pieces_without_normalizer_and_added_tokens_are_those_of_the_splitter(bare: Path, text: str) -> None:
    program = loaded(bare)[2]
    rule = rule_of(bare, text)
    starts = [at for part in rule.parts for at in part.pieces or ()]
    borders = [len(text.encode()[:at].decode()) for at in program.split(text)[0]]
    assert starts == ([0, *borders] if text else [])


def test_pieces_begin_at_added_tokens_with_the_white_space_that_they_take_in(tmp_path: Path) -> None:
    document = json.loads((SMALL_DIR / "cl100k_like.json").read_text("utf-8"))
    tokens = [*document["added_tokens"], {"id": 5000, "content": "<x>", **ADDED, "lstrip": True}]
    path = changed_tokenizer(SMALL_DIR / "cl100k_like.json", tmp_path / "tokenizer.json", added_tokens=tokens)
    rule = rule_of(path, "ab  <x>cd")
    assert [at for part in rule.parts for at in part.pieces or ()] == [0, 2, 7]


def reason(path: Path, text: str, at: int) -> tuple[str, str]:
    spec, image, _ = loaded(path)
    found = CutReasons(spec, image).why_not(text, at)
    assert found is not None
    return found


def test_each_rule_has_its_text(tmp_path: Path) -> None:
    cl100k, llama = SMALL_DIR / "cl100k_like.json", SMALL_DIR / "llama_like.json"
    assert reason(cl100k, "a <|endof", 4) == ("added_token", "the added token '<|endoftext|>' may go on here")
    assert reason(cl100k, "the", 1)[0] == "merge"
    assert reason(cl100k, "1234", 2)[0] in ("piece", "merge")
    nfc = changed_tokenizer(cl100k, tmp_path / "nfc.json", normalizer={"type": "NFC"})
    assert reason(nfc, "ae\u0301x", 2)[0] == "normalizer"
    assert reason(nfc, "a b", 2) == ("end", "what comes next may combine with 'b'")
    strip = changed_tokenizer(
        cl100k, tmp_path / "strip.json", normalizer={"type": "Strip", "strip_left": True, "strip_right": True}
    )
    assert reason(strip, "a b", 1)[0] == "strip"
    assert reason(llama, "the", 1) == ("merge", "a merge may join 't' and 'h', and there is no pre-tokenizer")
    assert reason(llama, "<s>a", 3)[0] == "prefix"
    word = [{"id": 5000, "content": "zz", **ADDED, "single_word": True}]
    path = changed_tokenizer(cl100k, tmp_path / "word.json", added_tokens=word)
    assert reason(path, "zzé", 2)[1] == "an added token that must be a word of its own may end or begin here"
    blank = [{"id": 5000, "content": "zz", **ADDED, "rstrip": True}]
    path = changed_tokenizer(cl100k, tmp_path / "blank.json", added_tokens=blank)
    assert reason(path, "zz  b", 3)[1] == "an added token may take in white space here"


def test_a_text_without_cuts_is_open_whole_and_its_lists_stay_short() -> None:
    path = SMALL_DIR / "o200k_like.json"
    rule = rule_of(path, "the" * 2000, parts=10, positions=7)
    (part,) = rule.parts
    assert (rule.open_from, rule.kept_tokens, part.characters) == (0, 0, 6000)
    assert max(len(part.text), len(part.ids), len(part.pieces or ())) <= MANY
    assert (len(rule.positions), rule.earlier) == (7, 5993)
