"""Law: every call gives, field by field, what the same call gives on `transformers.PreTrainedTokenizerFast`, or both
refuse it; and the engine served every plain text whose rows it can compose.

Needs the library (tests/support/transformers_site.py).
"""

from __future__ import annotations

import copy
import functools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compat.calls import assert_same, batches, keywords, same, texts
from tests.support.material import SMALL_DIR, Artifacts, changed_tokenizer
from tests.support.native_tokenizers import FORCED
from tests.support.transformers_site import required_transformers
from toktier.compat.transformers import FastTokenizer

SMALL_PADS = {
    "cl100k_like": "<|endoftext|>",
    "deepseek_like": "<|im_end|>",
    "gemma_like": "</s>",
    "gpt2_like": "<|endoftext|>",
    "llama_like": "</s>",
    "o200k_like": "<|im_end|>",
}
REAL_PADS = {
    "deepseek_v3": "<｜end▁of▁sentence｜>",
    "gemma3": "<pad>",
    "gpt4o": "<|endoftext|>",
    "llama3": "<|end_of_text|>",
    "qwen3": "<|endoftext|>",
}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 1}},
        {"Sequence": {"id": "A", "type_id": 2}},
        {"SpecialToken": {"id": "</s>", "type_id": 3}},
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {
        "<s>": {"id": "<s>", "ids": [1, 2], "tokens": ["<s>", "</s>"]},
        "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]},
    },
}
STORED = {
    "truncation": {"direction": "Left", "max_length": 7, "strategy": "LongestFirst", "stride": 1},
    "padding": {
        "strategy": "BatchLongest",
        "direction": "Left",
        "pad_to_multiple_of": 4,
        "pad_id": 2,
        "pad_type_id": 5,
        "pad_token": "</s>",
    },
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@functools.cache
def pair_of(path: Path, **how: Any) -> tuple[FastTokenizer, Any]:
    theirs = required_transformers().PreTrainedTokenizerFast(tokenizer_file=str(path), **how)
    return FastTokenizer.from_file(path, load=FORCED, **how), theirs


def compare(ours: FastTokenizer, theirs: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """Which engine served; None where both refuse the call."""
    try:
        expected = theirs(*arguments, **options)
    except BaseException as error:  # a panic is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        with pytest.raises(ValueError):  # noqa: PT011 - theirs has no class that says more
            ours(*arguments, **options)
        return None
    found = ours(*arguments, **options)
    assert_same(found, expected)
    for row, encoding in enumerate(expected.encodings):
        assert found.tokens(row) == encoding.tokens
        assert found.word_ids(row) == encoding.word_ids
        assert found.sequence_ids(row) == encoding.sequence_ids
    return found.backend


def law(ours: FastTokenizer, theirs: Any, examples: int, *, composes: bool = True) -> None:
    """`composes`: rows of plain texts are the engine's, whatever the keywords, but for those named here."""
    trims = ours._facts.trims_offsets
    served: set[str | None] = set()

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(text=st.one_of(texts, batches), options=keywords(), side=st.sampled_from(("left", "right")))
    def plain(text: Any, options: dict[str, Any], side: str) -> None:
        ours.truncation_side = theirs.truncation_side = side
        backend = compare(ours, theirs, (text,), options)
        served.add(backend)
        cut = options.get("truncation")
        if cut is None:  # a length alone cuts, unless something is said of padding
            cut = "max_length" in options and options.get("padding", False) is False
        short = bool(cut) and (options.get("max_length") or 99) - ours.num_special_tokens_to_add() <= 2
        if composes and backend is not None and not short and not (trims and options.get("return_offsets_mapping")):
            assert backend == "fast_cpu"

    pairs = st.one_of(
        st.tuples(texts, texts),
        st.tuples(batches.map(lambda rows: [(row, "b " + row) for row in rows])),
    )

    @settings(max_examples=max(6, examples // 4), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(arguments=pairs, options=keywords(truncations=(True, "only_first", "only_second", "longest_first")))
    def paired(arguments: Any, options: dict[str, Any]) -> None:
        assert compare(ours, theirs, arguments, options) in (None, "hf", "fast_cpu")

    @settings(max_examples=max(6, examples // 4), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(words=st.one_of(batches, st.lists(batches, min_size=1, max_size=3)), options=keywords())
    def split(words: Any, options: dict[str, Any]) -> None:
        assert compare(ours, theirs, (words,), {**options, "is_split_into_words": True}) in (None, "hf")

    plain()
    paired()
    split()
    if composes:
        assert "fast_cpu" in served


@pytest.mark.ci
@pytest.mark.parametrize("name", sorted(SMALL_PADS))
def test_calls_on_small_tokenizers(name: str) -> None:
    law(*pair_of(SMALL_DIR / f"{name}.json", pad_token=SMALL_PADS[name], model_max_length=16), 120)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["deepseek_v3"])
def test_calls_on_real_tokenizers(name: str, artifacts: Artifacts) -> None:
    law(*pair_of(artifacts.path(name), pad_token=REAL_PADS[name]), 60)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(REAL_PADS))
def test_many_calls_on_real_tokenizers(name: str, artifacts: Artifacts) -> None:
    law(*pair_of(artifacts.path(name), pad_token=REAL_PADS[name]), 400)


@pytest.mark.ci
def test_calls_with_a_template_of_many_types(tmp_path: Path) -> None:
    path = changed_tokenizer(SMALL_DIR / "llama_like.json", tmp_path / "types.json", post_processor=TEMPLATE)
    law(*pair_of(path, pad_token="</s>"), 60)


@pytest.mark.ci
def test_calls_on_stored_truncation_and_padding(tmp_path: Path) -> None:
    path = changed_tokenizer(SMALL_DIR / "llama_like.json", tmp_path / "stored.json", **STORED)
    law(*pair_of(path), 60, composes=False)


@pytest.mark.ci
@pytest.mark.parametrize(("bos", "eos"), [(True, True), (False, True), (False, False)])
def test_calls_where_the_config_sets_bos_and_eos(bos: bool, eos: bool) -> None:
    flags = {"add_bos_token": bos, "add_eos_token": eos, "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    law(*pair_of(SMALL_DIR / "llama_like.json", **flags), 40)


@pytest.mark.parametrize("limit", [2, 3, 4, 5])
@pytest.mark.parametrize("special", [True, False])
def test_a_stride_is_judged_with_the_template_whether_it_is_added_or_not(limit: int, special: bool) -> None:
    flags = {"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>", "eos_token": "</s>"}
    ours, theirs = pair_of(SMALL_DIR / "llama_like.json", **flags)
    for stride in (0, 1, 2):
        options = {"truncation": True, "max_length": limit, "stride": stride, "add_special_tokens": special}
        for text in ("", "some words that are cut"):
            compare(ours, theirs, (text,), options)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["llama_like", "o200k_like"])
def test_ids_tokens_and_texts(name: str) -> None:
    ours, theirs = pair_of(SMALL_DIR / f"{name}.json", pad_token=SMALL_PADS[name], eos_token=SMALL_PADS[name])
    assert (ours.vocab_size, len(ours)) == (theirs.vocab_size, len(theirs))
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.get_added_vocab() == theirs.get_added_vocab()
    for pair in (False, True):
        assert ours.num_special_tokens_to_add(pair) == theirs.num_special_tokens_to_add(pair)
    for attribute in (
        "special_tokens_map", "all_special_tokens", "all_special_ids", "pad_token", "pad_token_id", "bos_token",
        "bos_token_id", "extra_special_tokens", "model_max_length", "padding_side", "truncation_side",
        "model_input_names", "max_len_single_sentence", "is_fast",
    ):  # fmt: skip
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    ids = theirs.encode("Hello there, don't stop. " + SMALL_PADS[name])
    assert ours.encode("Hello there, don't stop. " + SMALL_PADS[name]) == ids
    for skip in (False, True):
        assert ours.decode(ids, skip) == theirs.decode(ids, skip)
        assert ours.batch_decode([ids, ids[:3]], skip) == theirs.batch_decode([ids, ids[:3]], skip)
        assert ours.convert_ids_to_tokens(ids, skip) == theirs.convert_ids_to_tokens(ids, skip)
    assert ours.decode(ids, clean_up_tokenization_spaces=True) == theirs.decode(ids, clean_up_tokenization_spaces=True)
    tokens = theirs.tokenize("Hello there")
    assert ours.tokenize("Hello there") == tokens
    assert ours.convert_tokens_to_ids([*tokens, "nowhere at all"]) == theirs.convert_tokens_to_ids(
        [*tokens, "nowhere at all"]
    )
    assert ours.convert_tokens_to_string(tokens) == theirs.convert_tokens_to_string(tokens)
    found, expected = (t("Hello there", text_target="Good", return_tensors="np") for t in (ours, theirs))
    assert same(found["labels"], expected["labels"])
    result, theirs_result = ours(["Hello there", "you"]), theirs(["Hello there", "you"])
    for row, length in enumerate(map(len, theirs_result.input_ids)):
        for token in range(length):
            assert result.token_to_chars(row, token) == theirs_result.token_to_chars(row, token)
            assert result.token_to_word(row, token) == theirs_result.token_to_word(row, token)
    for character in range(11):
        assert result.char_to_token(0, character) == theirs_result.char_to_token(0, character)


def directory_pair(directory: Path, tokenizer: Path, config: dict[str, Any]) -> tuple[FastTokenizer, Any]:
    # The classes of single models rebuild the tokenizer, each in its own way; the file is the truth here.
    config = {**config, "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    theirs = required_transformers().PreTrainedTokenizerFast.from_pretrained(str(directory))
    ours = FastTokenizer.from_directory(directory, load=FORCED)
    for attribute in (
        "special_tokens_map",
        "all_special_ids",
        "extra_special_tokens",
        "padding_side",
        "truncation_side",
    ):
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    assert ours.get_added_vocab() == theirs.get_added_vocab()
    assert min(ours.model_max_length, 1 << 40) == min(theirs.model_max_length, 1 << 40)
    return ours, theirs


@pytest.mark.ci
@pytest.mark.parametrize("listed", [True, False])
def test_a_directory_with_side_files(listed: bool, tmp_path: Path) -> None:
    flags = {"lstrip": False, "rstrip": True, "single_word": False, "normalized": False, "special": True}
    config: dict[str, Any] = {
        "bos_token": "<s>",
        "pad_token": {"__type": "AddedToken", "content": "<pad>", **flags},
        "extra_special_tokens": ["<extra>"],
        "model_max_length": 12,
        "padding_side": "left",
        "truncation_side": "left",
        "add_bos_token": False,
        "add_eos_token": True,
    }
    if listed:
        added = {"0": "<unk>", "1": "<s>", "2": "</s>", "1757": "<pad>", "1758": "<extra>", "1759": "<mine>"}
        config["added_tokens_decoder"] = {key: {"content": content, **flags} for key, content in added.items()}
    named = {"eos_token": "</s>", "bos_token": "</s>"}  # counts where the config lists no added tokens
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(named))
    law(*directory_pair(tmp_path, SMALL_DIR / "llama_like.json", config), 40)


@pytest.mark.parametrize(
    "family",
    [pytest.param("deepseek_v3", marks=pytest.mark.ci), pytest.param("qwen3_8b", marks=pytest.mark.full)],
)
def test_a_directory_as_it_is_published(family: str, shared: Path, artifacts: Artifacts, tmp_path: Path) -> None:
    config = json.loads((shared / "artifacts" / "sidecars" / family / "tokenizer_config.json").read_text())
    ours, theirs = directory_pair(tmp_path, artifacts.path(family.removesuffix("_8b")), config)
    text = "".join(f"{token} word" for token in list(theirs.get_added_vocab())[:40]) + "日本 don't 123"
    for options in ({}, {"add_special_tokens": False}, {"padding": True, "return_tensors": "np"}):
        assert compare(ours, theirs, ([text, "short"],), copy.copy(options)) == "fast_cpu"
