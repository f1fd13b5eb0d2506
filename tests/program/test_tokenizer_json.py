"""What is read, what is refused, and as what: each refusal with its JSON path, and the reference's own verdict."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from tests.support.bad_tokenizers import BROKEN, PADDING, TRUNCATION, UNSUPPORTED, m, nested, without
from tests.support.tokenizer_maker import added, changed, minimal
from toktier.errors import ExitCode, NotATokenizer, ProgramUnsupported, UnsupportedConfig
from toktier.program.tokenizer_json import read_tokenizer


@pytest.fixture(autouse=True)
def quiet_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "RUST_BACKTRACE", "0")


@pytest.mark.parametrize("case", BROKEN)
def test_what_the_reference_cannot_load_is_no_tokenizer(case: str) -> None:
    document, path = BROKEN[case]
    data = json.dumps(document).encode()
    with pytest.raises(NotATokenizer) as caught:
        read_tokenizer(data, "dir/some.json")
    assert path in caught.value.message
    assert caught.value.message.startswith(f"dir/some.json ({len(data):,} bytes)")
    assert caught.value.exit_code is ExitCode.USAGE
    with pytest.raises(BaseException, match=r"."):
        Tokenizer.from_str(json.dumps(document))


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_is_not_understood_is_declined_with_path_and_component(case: str) -> None:
    document, path, component = UNSUPPORTED[case]
    with pytest.raises(ProgramUnsupported) as caught:
        read_tokenizer(maker.encoded(document))
    assert caught.value.path == path
    assert component in caught.value.component
    assert path in caught.value.message
    assert caught.value.details == {"path": path, "component": caught.value.component}


REPEATED_KEYS: dict[str, tuple[Callable[[str], str], str]] = {
    "at the top": (lambda s: s[:-1] + ', "decoder": null}', "decoder"),
    "in the model": (lambda s: s.replace('"fuse_unk"', '"fuse_unk": true, "fuse_unk"'), "model.fuse_unk"),
    "in an added token": (lambda s: s.replace('"content"', '"content": "q", "content"'), "added_tokens[0].content"),
}


@pytest.mark.parametrize("case", REPEATED_KEYS)
def test_a_repeated_key_of_a_typed_object_is_declined(case: str) -> None:
    change, path = REPEATED_KEYS[case]
    text = change(json.dumps(m(added_tokens=[added("x")])))
    with pytest.raises(ProgramUnsupported) as caught:
        read_tokenizer(text.encode())
    assert (caught.value.path, caught.value.component) == (path, "a repeated key")


def test_of_a_token_written_twice_the_last_id_counts() -> None:
    text = json.dumps(minimal()).replace('"a": 0', '"a": 9, "a": 0')
    assert read_tokenizer(text.encode()).model.vocabulary["a"] == Tokenizer.from_str(text).token_to_id("a") == 0


def _normalizing(normalizer: object, *contents: str) -> tuple[object, list[str]]:
    tokens = [added(content, normalized=True) for content in contents]
    return m(normalizer=normalizer, added_tokens=tokens), list(contents)


COLLISIONS = {
    "equal once normalized": _normalizing({"type": "Lowercase"}, "<X>", "<x>"),
    "equal after NFC": _normalizing({"type": "NFC"}, "<\u212b>", "<Å>"),
    "nothing left": _normalizing({"type": "Strip", "strip_left": True, "strip_right": True}, " "),
}


@pytest.mark.parametrize("case", COLLISIONS)
@pytest.mark.parametrize("model", ["BPE", "Unigram"])
def test_what_the_reference_leaves_undefined_is_refused_by_name(case: str, model: str) -> None:
    document, tokens = COLLISIONS[case]
    if model != "BPE":
        document = changed(document, model={"type": model, "vocab": [["a", 0.0]], "unk_id": 0})
    with pytest.raises(UnsupportedConfig) as caught:
        read_tokenizer(maker.encoded(document))
    assert caught.value.details["tokens"] == tokens
    assert all(repr(token) in caught.value.message for token in tokens)
    assert caught.value.exit_code is ExitCode.USAGE


def test_tokens_that_are_not_normalized_never_collide() -> None:
    document = m(normalizer={"type": "Lowercase"}, added_tokens=[added("<X>"), added("<x>", normalized=True)])
    assert [placed.matched for placed in read_tokenizer(maker.encoded(document)).added_tokens] == ["<X>", "<x>"]


ACCEPTED = {
    "every part missing": {"model": minimal()["model"]},
    "a model without type": without(minimal(), "model__type"),
    "switches missing": m(model={"type": "BPE", "vocab": {"a": 0}, "merges": []}),
    "switches null": m(model__fuse_unk=None, model__byte_fallback=None, model__ignore_merges=None),
    "empty prefixes": m(model__continuing_subword_prefix="", model__end_of_word_suffix=""),
    "dropout zero": m(model__dropout=0.0),
    "truncation without direction": m(truncation=without(TRUNCATION, "direction")),
    "padding without multiple": m(padding=without(PADDING, "pad_to_multiple_of")),
    "a regex that is a literal": m(normalizer={"type": "Replace", "pattern": {"Regex": "ab"}, "content": "c"}),
    "an unknown unk_token with bytes": changed(maker.small("cl100k_like"), model__unk_token="<none>"),
    "sequences in sequences": m(pre_tokenizer=nested("pretokenizers", 5), normalizer=nested("normalizers", 5)),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_the_reference_defaults_is_defaulted(case: str) -> None:
    data = json.dumps(ACCEPTED[case])
    read_tokenizer(data.encode())
    Tokenizer.from_str(data)


def test_pairs_and_lines_are_the_same_rules() -> None:
    lines = read_tokenizer(maker.encoded(minimal())).model
    pairs = read_tokenizer(maker.encoded(m(model__merges=[["a", "b"], ["ab", "c"], ["b", "c"]]))).model
    assert lines.rules == pairs.rules
    assert list(lines.rules) == [0, 1, 4, 4, 2, 5, 1, 2, 6]


def test_of_a_rule_written_twice_the_last_place_counts() -> None:
    document = m(model__merges=["a b", "b c", "a b"])
    assert list(read_tokenizer(maker.encoded(document)).model.rules) == [1, 2, 6, 0, 1, 4]
    assert Tokenizer.from_str(json.dumps(document)).encode("abc").ids == [0, 6]


def test_a_line_that_begins_like_a_head_is_no_rule() -> None:
    document = m(model__vocab={"a": 0, "#version": 1, "#versiona": 2}, model__merges=["#version a"])
    assert list(read_tokenizer(maker.encoded(document)).model.rules) == []
    pairs = changed(document, model__merges=[["#version", "a"]])
    assert list(read_tokenizer(maker.encoded(pairs)).model.rules) == [1, 0, 2]
