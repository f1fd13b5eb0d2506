"""Differences of two tokenizers: found in the part that was changed and no other, with examples that really differ."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.support.material import SMALL_DIR, small_tokenizers
from toktier.inspection.compare import Difference, Side, differences

CL100K = SMALL_DIR / "cl100k_like.json"
LLAMA = SMALL_DIR / "llama_like.json"


def changed(path: Path, change: Callable[[dict[str, Any]], Any]) -> bytes:
    document = json.loads(path.read_text("utf-8"))
    change(document)
    return json.dumps(document).encode()


def swap_merges(document: dict[str, Any]) -> None:
    merges = document["model"]["merges"]
    merges[0], merges[40] = merges[40], merges[0]


def swap_ids(document: dict[str, Any]) -> None:
    vocabulary = document["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def drop_merge(document: dict[str, Any]) -> None:
    document["model"]["merges"].pop()


def other_pattern(document: dict[str, Any]) -> None:
    text = json.dumps(document["pre_tokenizer"])
    assert "{1,3}" in text
    document["pre_tokenizer"] = json.loads(text.replace("{1,3}", "{1,2}"))


CHANGES: dict[str, tuple[Path, Callable[[dict[str, Any]], Any]]] = {
    "normalizer": (CL100K, lambda d: d.update(normalizer={"type": "NFKC"})),
    "added tokens": (CL100K, lambda d: d["added_tokens"].pop()),
    "boundaries": (CL100K, other_pattern),
    "token ids": (CL100K, swap_ids),
    "merges": (CL100K, drop_merge),
    "model": (LLAMA, lambda d: d["model"].update(fuse_unk=False, byte_fallback=False)),
    "template": (LLAMA, lambda d: d.update(post_processor=None)),
    "decoder": (LLAMA, lambda d: d["decoder"]["decoders"].pop()),
    "lengths": (
        CL100K,
        lambda d: d.update(truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}),
    ),
}


def reference_gives(data: bytes, part: str, text: str) -> list[Any]:
    reference = tokenizers.Tokenizer.from_str(data.decode())
    encoding = reference.encode(text, add_special_tokens=part == "template")
    if part == "decoder":
        return [reference.decode(encoding.ids)]
    return encoding.ids[-20:] if part in ("token ids", "template", "lengths") else encoding.tokens


@pytest.mark.parametrize("part", CHANGES)
def test_one_change_is_one_difference_with_an_example_that_the_reference_confirms(part: str) -> None:
    path, change = CHANGES[part]
    data = path.read_bytes(), changed(path, change)
    found = differences(*(Side.of(each, "x") for each in data))
    assert [difference.part for difference in found] == [part]
    (difference,) = found
    assert difference.example is not None
    for seen, each in zip((difference.example.a, difference.example.b), data, strict=True):
        assert seen == reference_gives(each, part, difference.example.text)
    assert difference.example.a != difference.example.b


def test_ranks_exchanged_are_shown_in_the_order() -> None:
    found = differences(Side.of(CL100K.read_bytes(), "a"), Side.of(changed(CL100K, swap_merges), "b"))
    (difference,) = [d for d in found if d.part == "merges"]
    assert difference.facts["count_other_order"] >= 1
    assert (difference.facts["count_a"], difference.facts["count_b"]) == (0, 0)


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_a_file_spelled_differently_is_the_same(path: Path) -> None:
    spelled = json.dumps(json.loads(path.read_text("utf-8")), indent=3).encode()
    assert differences(Side.of(path.read_bytes(), "a"), Side.of(spelled, "b")) == []


def test_every_pair_of_small_tokenizers_differs_somewhere_with_an_example() -> None:
    sides = [Side.of(path.read_bytes(), path.stem) for path in small_tokenizers()]
    for a, b in itertools.pairwise(sides):
        found: list[Difference] = differences(a, b)
        assert any(difference.example is not None for difference in found)
        backwards = differences(b, a)
        assert [difference.part for difference in found] == [difference.part for difference in backwards]
