"""Names of others in messages: printable, bounded, still recognisable."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.tokenizer_maker import added, changed, encoded, minimal
from toktier.errors import ToktierError
from toktier.labels import MAX_MESSAGE, escaped, quoted, shown, typed
from toktier.program.tokenizer_json import read_tokenizer

CLEAR = "\x1b[2J\x1b]0;owned\x07\u202e\n"


def test_escaped_is_printable_and_leaves_print_alone() -> None:
    assert escaped("naïve 日本.json") == "naïve 日本.json"
    assert escaped(CLEAR) == "\\x1b[2J\\x1b]0;owned\\x07\\u202e\\n"
    assert escaped(Path("a\udcff")) == "a\\udcff"


def test_shown_keeps_both_ends() -> None:
    assert shown("x" * 120) == "x" * 120
    long = shown("a" * 500 + "z" * 500)
    assert long.startswith("aaa")
    assert long.endswith("zzz")
    assert len(long) <= 120


def test_quoted_says_how_long_the_text_is() -> None:
    assert quoted("a'b") == '"a\'b"'
    assert quoted("a" * 3_000_000) == f"{'a' * 60!r}... (3,000,000 characters)"
    assert quoted(CLEAR).isprintable()


def test_an_error_is_printable_and_bounded_however_it_is_made() -> None:
    error = ToktierError(CLEAR * 10_000, remedy="toktier encode --file " + CLEAR)
    assert str(error) == error.message == error.args[0]
    error.message = f"item 3: {error.message}" + CLEAR * 100_000
    for text in (str(error), error.message, error.to_dict()["message"], error.remedy):
        assert text.isprintable()
        assert len(text) <= MAX_MESSAGE


HUGE = CLEAR + "k" * 3_000_000
DOCUMENTS = {
    "a key of the file": changed(minimal(), **{HUGE: 1}),
    "a key of the model": {**minimal(), "model": {**minimal()["model"], HUGE: 1}},
    "a vocabulary entry of a wrong type": {**minimal(), "model": {**minimal()["model"], "vocab": {HUGE: "x"}}},
    "two tokens of one id": {**minimal(), "model": {**minimal()["model"], "vocab": {HUGE: 0, HUGE + "2": 0}}},
    "a rule without its tokens": changed(minimal(), model__merges=[[HUGE, "a"]]),
    "an added token that is huge": changed(minimal(), added_tokens=[added(HUGE)]),
    "two that are equal": changed(
        minimal(),
        normalizer={"type": "Lowercase"},
        added_tokens=[added(HUGE, normalized=True), added(HUGE.upper(), normalized=True)],
    ),
    "a repeated one": changed(minimal(), added_tokens=[added(HUGE), added(HUGE, special=True)]),
    "a type": changed(minimal(), decoder={"type": HUGE}),
    "a template token": changed(
        minimal(),
        post_processor={"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {HUGE: 1}},
    ),
    "a padding token": changed(
        minimal(),
        padding={"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 1,
                 "pad_type_id": 0, "pad_token": HUGE},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_what_a_file_names_is_shortened_where_it_stands(kind: str) -> None:
    """The sentence keeps its end: it is not the bound on messages that cuts it."""
    with pytest.raises(ToktierError) as caught:
        read_tokenizer(encoded(DOCUMENTS[kind]), "tokenizer.json")
    error = caught.value
    assert error.message.isprintable()
    assert len(error.message) < 1000, error.message
    assert len(repr(error.details)) < 3000
    assert "…" not in error.message[-20:]


@pytest.mark.parametrize("name", ["a", "a b", "it's", "-x", "$(touch x)", "é\n'\\x", "\x1b[31m", "a\udcff b", ""])
def test_a_typed_path_is_one_argument_of_a_shell(name: str) -> None:
    command = typed(name)
    assert command.isprintable()
    given = subprocess.run(["bash", "-c", f"printf %s {command}"], capture_output=True, check=True).stdout
    assert given == os.fsencode(f"./{name}" if name.startswith("-") else name)
