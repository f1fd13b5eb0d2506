"""The reference as a backend: its own answers, its settings untouched, its failures in our words."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.support.material import SMALL_DIR
from toktier.backends.hf import ArtifactSource, HfBackend, checked_text
from toktier.errors import (
    ArtifactHashMismatch,
    ArtifactNotFound,
    BackendExecutionFault,
    InvalidText,
    NotATokenizer,
    UnsupportedConfig,
)

PATH = SMALL_DIR / "gpt2_like.json"
TEXT = "Hello <|endoftext|> wörld 👩‍👩‍👧\n"


def backend(data: bytes) -> HfBackend:
    return HfBackend(ArtifactSource(data, hashlib.sha256(data).hexdigest(), "tokenizer.json"))


def changed(**fields: Any) -> bytes:
    document = json.loads(PATH.read_bytes())
    return json.dumps({**document, **fields}).encode()


@pytest.fixture
def hf() -> HfBackend:
    return backend(PATH.read_bytes())


@pytest.fixture
def reference() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(PATH))


@pytest.mark.parametrize("text", [TEXT, TEXT.encode(), bytearray(TEXT.encode()), memoryview(TEXT.encode())])
@pytest.mark.parametrize("add_special", [False, True])
def test_answers_are_the_references(
    hf: HfBackend, reference: tokenizers.Tokenizer, text: Any, add_special: bool
) -> None:
    expected = reference.encode(TEXT, add_special_tokens=add_special)
    got = hf.encode(text, add_special, False)
    assert (got.ids, got.offsets, got.tokens) == (expected.ids, expected.offsets, expected.tokens)
    assert got.backend == "hf"
    assert hf.count(text, add_special, False) == len(expected.ids)
    assert [row.ids for row in hf.encode_batch([text, ""], add_special, False, None)] == [
        expected.ids,
        reference.encode("", add_special_tokens=add_special).ids,
    ]


def test_plain_is_a_second_instance_and_changes_nothing(hf: HfBackend, reference: tokenizers.Tokenizer) -> None:
    special = reference.encode(TEXT, add_special_tokens=False).ids
    reference.encode_special_tokens = True
    plain = reference.encode(TEXT, add_special_tokens=False).ids
    assert special != plain
    wrong: list[bool] = []

    def work(mode: bool) -> None:
        wrong.extend(hf.encode(TEXT, False, mode).ids != (plain if mode else special) for _ in range(200))

    threads = [threading.Thread(target=work, args=(n % 2 == 0,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 1600
    assert not any(wrong)
    assert not hf.load().encode_special_tokens
    assert hf.load(plain=True).encode_special_tokens


def test_vocabulary(hf: HfBackend, reference: tokenizers.Tokenizer) -> None:
    assert hf.vocab_size == reference.get_vocab_size(with_added_tokens=True)
    assert hf.token_to_id("<|endoftext|>") == reference.token_to_id("<|endoftext|>")
    assert hf.id_to_token(3) == reference.id_to_token(3)
    assert hf.id_to_token(10**7) is None
    assert hf.special_tokens
    assert all(reference.token_to_id(token) == token_id for token, token_id in hf.special_tokens.items())
    assert list(hf.special_tokens.values()) == sorted(hf.special_tokens.values())


@pytest.mark.parametrize(
    ("text", "position"),
    [("ab\ud83d", 2), ("👍\udc00", 1), (b"ab\xe4\xb8", 2), (b"\xff", 0), (b"a\xed\xa0\x80", 1), (b"\xc0\xaf", 0)],
)
def test_bad_text_is_named_with_its_position(hf: HfBackend, text: str | bytes, position: int) -> None:
    with pytest.raises(InvalidText) as caught:
        hf.encode(text, False, False)
    assert caught.value.details["position"] == position
    with pytest.raises(InvalidText) as caught:
        hf.encode_batch(["fine", text, "fine"], False, False, None)
    assert caught.value.details == {"position": position, "item": 1}
    assert "item 1" in caught.value.message


@pytest.mark.parametrize("text", [None, 3, ["a"], object()])
def test_what_is_no_text_is_a_type_error(text: Any) -> None:
    with pytest.raises(TypeError, match="expected str or bytes"):
        checked_text(text)


def test_one_text_is_no_batch(hf: HfBackend) -> None:
    with pytest.raises(TypeError, match="not one str"):
        hf.encode_batch("abc", False, False, None)


def test_a_file_that_changed_since_loading_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(PATH.read_bytes())
    digest = hashlib.sha256(PATH.read_bytes()).hexdigest()
    later = HfBackend(ArtifactSource(path, digest, str(path)))
    path.write_bytes(changed(normalizer={"type": "Lowercase"}))
    for _ in range(2):  # also on a second try
        with pytest.raises(ArtifactHashMismatch) as caught:
            later.encode("text", False, False)
        assert caught.value.details["expected"] == digest
    path.unlink()
    with pytest.raises(ArtifactNotFound):
        later.encode("text", False, False)
    path.write_bytes(PATH.read_bytes())
    assert later.encode("text", False, False).ids


@pytest.mark.parametrize("data", [b"{}", b'{"model": {"type": "Nonsense"}}', b"[1, 2]"])
def test_what_the_reference_cannot_load_is_no_tokenizer(data: bytes) -> None:
    with pytest.raises(NotATokenizer) as caught:
        backend(data).load()
    assert caught.value.details["reference"]
    assert "\n" not in caught.value.message


def test_stored_truncation_and_padding_are_kept() -> None:
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": "BatchLongest",
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    data = changed(truncation=truncation, padding=padding)
    hf, reference = backend(data), tokenizers.Tokenizer.from_buffer(data)
    assert hf.changes_length
    long, short = TEXT * 3, "a"
    assert hf.encode(long, True, False).ids == reference.encode(long).ids
    assert len(hf.encode(long, False, False)) == 4
    rows = reference.encode_batch([long, short])
    assert [row.ids for row in hf.encode_batch([long, short], True, False, None)] == [row.ids for row in rows]
    assert len({len(row.ids) for row in rows}) == 1
    assert not backend(PATH.read_bytes()).changes_length


def test_a_panic_of_the_reference_is_an_error_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    """A stored stride that is not below the length: the reference panics on a text that is long enough."""
    stride = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 2}
    hf = backend(changed(truncation=stride))
    assert hf.encode("a", False, False).ids
    with pytest.raises(UnsupportedConfig) as caught:
        hf.encode(TEXT, False, False)
    assert caught.value.details["truncation"]["stride"] == 2
    with pytest.raises(UnsupportedConfig):
        hf.encode_batch([TEXT], False, False, None)


def test_other_failures_carry_the_references_words(hf: HfBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        truncation = None

        def encode(self, *_: object, **__: object) -> None:
            raise Exception("first line\nsecond line")

    monkeypatch.setattr(hf, "load", lambda plain=False: Broken())
    with pytest.raises(BackendExecutionFault) as caught:
        hf.encode("text", False, False)
    assert caught.value.details["reference"] == "first line second line"


def test_an_interrupt_passes(hf: HfBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        truncation = None

        def encode(self, *_: object, **__: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(hf, "load", lambda plain=False: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        hf.encode("text", False, False)
