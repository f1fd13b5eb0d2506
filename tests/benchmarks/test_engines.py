"""The adapters: what they take, what they refuse, and that ids of a batch are those of its texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.material import SMALL_DIR
from toktier_cli.bench import engines, timing

TEXTS = ["hello world", "", "größer 12,345", "港の時計 \U0001f600"]


@pytest.mark.parametrize("name", ["toktier", "tokenizers", "fastokens", "gigatoken", "basetenkenizer", "tiktoken"])
def test_ids_of_a_batch_are_those_of_its_texts(name: str) -> None:
    if engines.version(name) is None:
        pytest.skip(f"{name} is not installed")
    try:
        engine = engines.engine(name)(SMALL_DIR / "cl100k_like.json")
    except engines.Refused as reason:
        pytest.skip(f"{name} refuses the file: {reason}")
    alone = [engine.ids_of(engine.encode(text)) for text in TEXTS]
    assert engine.ids_of_batch(engine.encode_batch(TEXTS, 1)) == alone
    assert all(len(ids) % 4 == 0 for ids in alone)


def test_ours_is_served_by_its_own_engine_or_refused(tmp_path: Path) -> None:
    engine = engines.Toktier(SMALL_DIR / "gpt2_like.json")
    assert engine.encode("hello").backend == "fast_cpu"
    wordpiece = tmp_path / "tokenizer.json"
    wordpiece.write_text(
        '{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "hello": 1}, "unk_token": "[UNK]",'
        ' "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}}'
    )
    with pytest.raises(engines.Refused):
        engines.Toktier(wordpiece)


def test_ranks_are_made_only_where_ids_are_ranks() -> None:
    document = json.loads((SMALL_DIR / "cl100k_like.json").read_text("utf-8"))
    with pytest.raises(engines.Refused, match="normalizer"):
        engines._ranks_of(document | {"normalizer": {"type": "NFC"}})
    document["normalizer"] = None
    pattern, ranks, special = engines._ranks_of(document)
    assert "\\p{L}" in pattern
    assert ranks[b"a"] == document["model"]["vocab"]["a"]
    assert not set(special) & {token.decode("latin-1") for token in ranks}
    document["model"]["merges"].reverse()
    with pytest.raises(engines.Refused, match="order of the merges"):
        engines._ranks_of(document)


def test_fresh_texts_are_equal_and_other_objects() -> None:
    for text, copy in zip(TEXTS, timing.fresh(TEXTS), strict=True):
        assert text == copy
        assert text is not copy or len(text) < 2


def test_timing_keeps_every_result_of_a_pass_and_the_last_ones_of_calls() -> None:
    took, results = timing.timed_pass(str.upper, ["a", "b"])
    assert results == ["A", "B"]
    assert took.wall_ns > 0
    _, kept = timing.timed_calls(str.upper, [str(n) for n in range(1000)])
    assert kept == [str(n) for n in range(1000 - timing.KEPT_CALLS, 1000)]
