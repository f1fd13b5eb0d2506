"""Added tokens of a side file, merged: equal to what transformers makes of the pair, in one form, and strict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.support.material import ROOT, SMALL_DIR
from toktier.errors import ArtifactDamaged, UnsupportedConfig
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program
from toktier.program.side_file import DeclaredToken, declared_tokens, merged, missing

RECORDED = json.loads((ROOT / "tests" / "data" / "side_files.json").read_text("utf-8"))["cases"]
MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"


def base(name: str) -> Path:
    return MINI if name == "toktier_mini" else SMALL_DIR / name


def config(**members: Any) -> bytes:
    return json.dumps(members).encode()


def fingerprint(data: bytes) -> str:
    return read_program(memoryview(compile_tokenizer(data)), verify_digest=True).fingerprint


@pytest.mark.parametrize("case", RECORDED, ids=range(len(RECORDED)))
def test_ids_and_text_are_those_that_transformers_gave(case: dict[str, Any]) -> None:
    document = merged(base(case["base"]).read_bytes(), declared_tokens(json.dumps(case["config"]).encode()))
    tokenizer = tokenizers.Tokenizer.from_str(document.decode("utf-8"))
    for text, ids, decoded in case["texts"]:
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids, text
        assert tokenizer.decode(ids, skip_special_tokens=True) == decoded, text


def test_the_recording_says_something() -> None:
    """Most cases change ids, and every kind of declaration occurs."""
    changed = 0
    for case in RECORDED:
        plain = tokenizers.Tokenizer.from_file(str(base(case["base"])))
        changed += any(plain.encode(text, add_special_tokens=False).ids != ids for text, ids, _ in case["texts"])
    assert changed > len(RECORDED) / 2
    keys = {key for case in RECORDED for key in case["config"]}
    assert {"added_tokens_decoder", "bos_token", "extra_special_tokens", "image_token"} <= keys


def test_the_fingerprint_tells_the_two_apart_and_equals_for_nothing_new() -> None:
    data = MINI.read_bytes()
    assert fingerprint(merged(data, ())) == fingerprint(data)
    same = [DeclaredToken("<|im_end|>", normalized=False, special=True)]
    assert fingerprint(merged(data, same)) == fingerprint(data)
    added = declared_tokens(config(added_tokens_decoder={"1205": {"content": "<|new|>", "special": True}}))
    assert fingerprint(merged(data, added)) != fingerprint(data)
    other = declared_tokens(config(added_tokens_decoder={"1205": {"content": "<|new|>", "special": False}}))
    assert fingerprint(merged(data, other)) not in (fingerprint(data), fingerprint(merged(data, added)))


def test_one_pair_gives_one_document_however_it_is_spelled() -> None:
    tokens = declared_tokens(config(bos_token="<|new|>"))
    spelled = json.dumps(json.loads(MINI.read_bytes()), indent=4, sort_keys=True).encode()
    assert merged(MINI.read_bytes(), tokens) == merged(spelled, tokens)
    assert merged(merged(MINI.read_bytes(), tokens), tokens) == merged(MINI.read_bytes(), tokens)


def test_special_false_is_not_promoted_and_survives_decoding() -> None:
    entries = {"1205": {"content": "<a>", "special": True}, "1206": {"content": "<b>", "special": False}}
    document = merged(MINI.read_bytes(), declared_tokens(config(added_tokens_decoder=entries)))
    tokenizer = tokenizers.Tokenizer.from_str(document.decode())
    ids = tokenizer.encode("x<a><b>").ids
    assert ids[-2:] == [1205, 1206]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "x<b>"


def test_what_is_missing_is_named() -> None:
    tokens = declared_tokens(
        config(added_tokens_decoder={"7": {"content": "<a>", "special": True}, "8": {"content": "b"}}, pad_token="c")
    )
    assert [t.content for t in tokens] == ["<a>", "b", "c"]
    assert missing(tokens, {"<a>": 7, "b": 8, "c": 9}.get, ["<a>", "c"]) == []
    assert missing(tokens, {"<a>": 7, "b": 8}.get, []) == ["<a>", "c"]


def test_floats_have_a_form_too() -> None:
    document = json.loads(MINI.read_bytes())
    document["model"]["dropout"] = 0.5
    once = merged(json.dumps(document).encode(), declared_tokens(config(bos_token="<s>")))
    assert json.loads(once)["model"]["dropout"] == 0.5
    assert once == merged(json.dumps(document, indent=2).encode(), declared_tokens(config(bos_token="<s>")))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"bos_token": "\\ud800"}'])
def test_a_side_file_that_is_no_json(data: bytes) -> None:
    with pytest.raises(ArtifactDamaged):
        declared_tokens(data)


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"added_tokens_decoder": []}, None),
        ({"added_tokens_decoder": [1]}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"x": {"content": "a"}}}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"1": {"special": True}}}, "added_tokens_decoder[1]"),
        ({"added_tokens_decoder": {"1": {"content": "a", "lstrip": 1}}}, "added_tokens_decoder[1]"),
        ({"bos_token": {"content": ""}}, "bos_token"),
        ({"extra_special_tokens": [3]}, "extra_special_tokens[0]"),
        ({"additional_special_tokens": 3}, "extra_special_tokens"),
        ({"bos_token": None, "add_bos_token": True, "extra_special_tokens": None}, None),
    ],
)
def test_an_odd_declaration_is_refused_by_its_path(members: dict[str, Any], path: str | None) -> None:
    if path is None:
        assert declared_tokens(config(**members)) == ()
        return
    with pytest.raises(UnsupportedConfig) as caught:
        declared_tokens(config(**members))
    assert caught.value.details["path"] == path


@pytest.mark.parametrize("value", [[], {}, {"model": {"vocab": []}}, {"model": {"vocab": {}}, "added_tokens": {}}])
def test_a_tokenizer_without_a_vocabulary_of_names_is_not_merged(value: Any) -> None:
    with pytest.raises(UnsupportedConfig):
        merged(json.dumps(value).encode(), ())


def test_a_repeated_key_is_not_repaired_in_passing() -> None:
    with pytest.raises(UnsupportedConfig, match="each key once"):
        merged(b'{"model": {"vocab": {}}, "added_tokens": [], "added_tokens": []}', ())
