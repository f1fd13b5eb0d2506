"""Ranks with a module and a configuration: the layout to the byte, and that the module is only ever read."""

from __future__ import annotations

import json

import pytest
import tokenizers

from tests.artifacts.test_derive import CONFIG, MODULE, RANKS, TOKENS
from toktier.conversion.ranks_with_module import convert, read_pattern
from toktier.errors import ArtifactDamaged, UnsupportedConfig


def test_the_layout() -> None:
    data = convert(RANKS, MODULE, CONFIG)
    assert data.endswith(b"}}\n")
    assert b'", "' in data
    tokenizer = json.loads(data)
    assert list(tokenizer) == [
        "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
        "model",
    ]  # fmt: skip
    added = tokenizer["added_tokens"]
    assert [t["id"] for t in added] == list(range(len(TOKENS), len(TOKENS) + 256))
    assert added[0]["content"] == "[BOS]"
    assert added[1]["content"] == f"<|reserved_token_{len(TOKENS) + 1}|>"
    assert tokenizer["model"]["merges"][-1] == ["Ġw", "orld"], "all splits, by rank"
    assert tokenizer["model"]["ignore_merges"] is True
    reference = tokenizers.Tokenizer.from_str(data.decode())
    assert reference.encode("hello world[BOS]").ids == [259, 264, 265]


def test_vocabulary_is_in_the_order_of_the_file_and_merges_in_that_of_the_ranks() -> None:
    lines = RANKS.splitlines(keepends=True)
    tokenizer = json.loads(convert(b"".join(reversed(lines)), MODULE, CONFIG))
    assert list(tokenizer["model"]["vocab"].values()) == list(reversed(range(len(TOKENS))))
    assert tokenizer["model"]["merges"] == json.loads(convert(RANKS, MODULE, CONFIG))["model"]["merges"]


@pytest.mark.parametrize(
    "written",
    [
        b'pat_str = "a|b"',
        b'pat_str = "|".join(["a", "b"])',
        b'pat_str = "|".join((r"""a""", "b",))',
        b'class T:\n    pat_str = "|".join(\n        [\n            "a",  # one\n            "b",\n        ]\n    )\n',
    ],
)
def test_forms_of_the_pattern(written: bytes) -> None:
    assert read_pattern(written) == "a|b"


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"x = 1",
        b"pat_str = make()",
        b"pat_str = 5",
        b'pat_str = "|".join(parts)',
        b'pat_str = "|".join([])',
        b'pat_str = "|".join(["a", b])',
        b'pat_str = "|".join([f"{a}"])',
        b'pat_str = "a"\npat_str = "b"',
        b"pat_str = (",
        b"\xff",
        b"\0",
        b"(" * 5000,
        b"-" * 200_000 + b"1",
        b"#" * (1 << 20) + b"##",
    ],
)
def test_other_modules_are_damage(written: bytes) -> None:
    with pytest.raises(ArtifactDamaged):
        read_pattern(written)


def test_the_module_is_not_run() -> None:
    assert read_pattern(b'raise SystemExit(3)\npat_str = "a"\n') == "a"


def test_a_pattern_that_would_have_to_be_rewritten_is_refused() -> None:
    with pytest.raises(UnsupportedConfig, match="means something else"):
        convert(RANKS, rb'pat_str = r"\p{N}{1,3}+|\P{N}"', CONFIG)


@pytest.mark.parametrize(
    "configuration",
    [
        b"",
        b"[]",
        b"{}",
        b'{"added_tokens_decoder": []}',
        b'{"added_tokens_decoder": {"a": {"content": "x", "special": true}}}',
        b'{"added_tokens_decoder": {"1": {"content": "x"}}}',
        b'{"added_tokens_decoder": {"1": {"content": 1, "special": true}}}',
        b'{"added_tokens_decoder": {"1": null}}',
        b'{"added_tokens_decoder": {"' + b"1" * 5000 + b'": {"content": "x", "special": true}}}',
        b"[" * 100_000,
        b" " * (1 << 20) + b"{}",
    ],
)
def test_other_configurations_are_damage(configuration: bytes) -> None:
    with pytest.raises(ArtifactDamaged):
        convert(RANKS, MODULE, configuration)


def test_ranks_with_a_gap_are_damage() -> None:
    with pytest.raises(ArtifactDamaged, match="are not 0 to"):
        convert(RANKS.replace(b" 264\n", b" 999\n"), MODULE, CONFIG)
