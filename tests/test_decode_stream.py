"""The stream of decoded text equals the installed reference's, on every kind of decoder, and its work is bounded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.decoders import DecodeStream as ReferenceStream

from tests.support.material import small_tokenizers
from toktier.decode_stream import (
    ByteFallbackTail,
    ByteLevelTail,
    DecodeStream,
    NoTail,
    TailRule,
    checked_id,
)
from toktier.errors import InvalidToken

REFERENCES = {path.stem: tokenizers.Tokenizer.from_file(str(path)) for path in small_tokenizers()}


def decode_of(reference: tokenizers.Tokenizer, skip: bool) -> Callable[[Sequence[int]], str]:
    return lambda ids: reference.decode(list(ids), skip_special_tokens=skip)


def silent_of(reference: tokenizers.Tokenizer, skip: bool) -> Callable[[int], bool]:
    special = {t.content for t in reference.get_added_tokens_decoder().values() if t.special}

    def is_silent(token_id: int) -> bool:
        token = reference.id_to_token(token_id)
        return token is None or (skip and token in special)

    return is_silent


def byte_of(reference: tokenizers.Tokenizer) -> Callable[[int], int | None]:
    def value(token_id: int) -> int | None:
        token = reference.id_to_token(token_id)
        if token is not None and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return int(token[3:5], 16)
        return None

    return value


def tails(reference: tokenizers.Tokenizer, skip: bool) -> list[TailRule]:
    """Every rule that is true of the decoder of this tokenizer."""
    kind = type(reference.decoder).__name__
    if kind == "ByteLevel":
        decode = decode_of(reference, skip)
        rules: list[TailRule] = [NoTail(), ByteLevelTail(decode, concatenates=False)]
        normalized = any(token.normalized for token in reference.get_added_tokens_decoder().values())
        return rules if normalized else [*rules, ByteLevelTail(decode)]
    return [NoTail(), ByteFallbackTail(byte_of(reference))]


class Hostile:
    """Ids of halves of characters, byte tokens, added tokens, whole tokens and ids that do not exist."""

    def __init__(self, reference: tokenizers.Tokenizer, seed: str) -> None:
        vocabulary = reference.get_vocab(with_added_tokens=True)
        self.parts = [
            i for token, i in vocabulary.items() if token.startswith("<0x") or (len(token) == 1 and ord(token) > 127)
        ]
        self.added = list(reference.get_added_tokens_decoder()) or self.parts
        self.end = len(vocabulary) + 20
        self.rng = random.Random(seed)

    def ids(self, lengths: list[int]) -> list[int]:
        rng = self.rng
        return [
            rng.choice(self.parts)
            if rng.random() < 0.65
            else rng.choice(self.added)
            if rng.random() < 0.3
            else rng.randrange(self.end)
            for _ in range(rng.choice(lengths))
        ]


def reference_steps(reference: tokenizers.Tokenizer, ids: list[int], prompt: list[int], skip: bool) -> list[str | None]:
    """What the reference's stream gives, up to where it fails for good."""
    stream = (
        ReferenceStream(ids=prompt, skip_special_tokens=skip) if prompt else ReferenceStream(skip_special_tokens=skip)
    )
    out: list[str | None] = []
    for token_id in ids:
        try:
            out.append(stream.step(reference, token_id))
        except Exception as error:
            assert "prefix" in str(error).lower()  # noqa: PT017 - any other failure would be a new fact
            return out
    return out


@pytest.mark.parametrize("name", sorted(REFERENCES))
@pytest.mark.parametrize("skip", [False, True])
def test_equals_the_reference_on_hostile_ids(name: str, skip: bool) -> None:
    reference = REFERENCES[name]
    hostile = Hostile(reference, f"{name}{skip}")
    silent = silent_of(reference, skip)
    complete = failed = texts = 0
    for _ in range(400):
        ids, prompt = hostile.ids([1, 3, 8, 20, 60]), hostile.ids([0, 0, 1, 4])
        expected = reference_steps(reference, ids, prompt, skip)
        complete += len(expected) == len(ids)
        failed += len(expected) < len(ids)
        texts += sum(step is not None for step in expected)
        for tail in tails(reference, skip):
            stream = DecodeStream(decode_of(reference, skip), silent, tail, prompt)
            got = [stream.step(token_id) for token_id in ids]
            assert got[: len(expected)] == expected, (ids, prompt, type(tail).__name__)
    assert complete > 100
    assert texts > 500
    if type(reference.decoder).__name__ == "ByteLevel":
        assert failed == 0, "the recovery rule was meant for byte fallback"


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_text_of_the_stream_is_text_of_all_ids_for_real_text(name: str) -> None:
    reference = REFERENCES[name]
    text = "Grüße, 世界! 👩‍👩‍👧 สวัสดี\n" * 3 + "plain words and more of them"
    ids = reference.encode(text, add_special_tokens=False).ids
    for tail in tails(reference, True):
        stream = DecodeStream(decode_of(reference, True), silent_of(reference, True), tail)
        assert "".join(part for part in map(stream.step, ids) if part) == reference.decode(ids)


def test_goes_on_where_the_reference_gives_up() -> None:
    reference = next(r for r in REFERENCES.values() if type(r.decoder).__name__ == "Sequence")
    vocabulary = reference.get_vocab()
    c3, a9, e4, word = (vocabulary[t] for t in ("<0xC3>", "<0xA9>", "<0xE4>", "a"))
    ids = [c3, a9, e4, word, word]
    assert reference_steps(reference, ids, [], False) == [None, "é", None]
    for tail in tails(reference, False):
        stream = DecodeStream(decode_of(reference, False), silent_of(reference, False), tail)
        assert [stream.step(i) for i in ids] == [None, "é", None, "\ufffda", "a"]


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_work_is_linear_in_malformed_and_in_silent_ids(name: str) -> None:
    """Ids decoded in all, for N and 2N ids that never complete a character, and for ids that say nothing."""
    reference = REFERENCES[name]
    vocabulary = reference.get_vocab()
    lead = vocabulary["<0xE4>"] if "<0xE4>" in vocabulary else vocabulary["ä"]  # ä stands for byte E4 at byte level
    special = next(i for i, t in reference.get_added_tokens_decoder().items() if t.special)

    def decoded(ids: list[int]) -> int:
        count = 0

        def decode(some: Sequence[int]) -> str:
            nonlocal count
            count += len(some)
            return reference.decode(list(some), skip_special_tokens=True)

        kind = type(reference.decoder).__name__
        tail: TailRule = ByteLevelTail(decode) if kind == "ByteLevel" else ByteFallbackTail(byte_of(reference))
        stream = DecodeStream(decode, silent_of(reference, True), tail)
        assert all(stream.step(i) is None for i in ids)
        return count

    assert decoded([lead] * 4000) <= 2.2 * decoded([lead] * 2000)
    assert decoded([special] * 4000) == 0


@given(st.lists(st.integers(0, 255), max_size=60), st.integers(0, 59))
@settings(deadline=None, max_examples=300)
def test_law_a_tail_rule_never_claims_too_much(data: list[int], tail_length: int) -> None:
    """Whatever the bytes: a rule that says "unfinished" speaks of a text that ends in U+FFFD."""

    def byte_level(ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def byte_fallback(ids: Sequence[int]) -> str:
        try:
            return bytes(ids).decode("utf-8")
        except UnicodeDecodeError:
            return "\ufffd" * len(ids)

    level, fallback = ByteLevelTail(byte_level), ByteFallbackTail(lambda i: i)
    ids: list[int] = [0xE4] * tail_length
    for token_id in ids:
        fallback.feed(token_id)
    for token_id in data:
        ids.append(token_id)
        fallback.feed(token_id)
        if level.unfinished(ids):
            assert byte_level(ids).endswith("\ufffd")
        if fallback.unfinished(ids):
            assert byte_fallback(ids).endswith("\ufffd")


@pytest.mark.parametrize("value", [-1, 2**32, 1.0, "7", None, True, [1]])
def test_what_is_no_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidToken) as caught:
        checked_id(value)
    assert caught.value.details["value"] == repr(value)
    stream = DecodeStream(lambda ids: "x" * len(ids), lambda i: False)
    with pytest.raises(InvalidToken):
        stream.step(value)  # type: ignore[arg-type]
    assert stream.step(5) == "x"


@pytest.mark.ci
@pytest.mark.parametrize("name", ["qwen3", "llama2", "gemma3", "claude", "deepseek_v3"])
def test_equals_the_reference_on_real_artifacts(artifacts, name: str) -> None:  # type: ignore[no-untyped-def]
    path: Path = artifacts.path(name)
    reference = tokenizers.Tokenizer.from_file(str(path))
    hostile = Hostile(reference, name)
    for skip in (False, True):
        silent = silent_of(reference, skip)
        for _ in range(500):
            ids, prompt = hostile.ids([3, 20, 60]), hostile.ids([0, 4])
            expected = reference_steps(reference, ids, prompt, skip)
            for tail in tails(reference, skip):
                stream = DecodeStream(decode_of(reference, skip), silent, tail, prompt)
                assert [stream.step(i) for i in ids][: len(expected)] == expected
