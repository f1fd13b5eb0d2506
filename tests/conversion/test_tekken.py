"""tekken.json files made small: what the result holds, and what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.support.native_tokenizers import native_file
from toktier.conversion.tekken import convert
from toktier.errors import ArtifactDamaged, UnsupportedConfig

TOKENS = [*(bytes([v]) for v in range(256)), b"he", b"ll", b"hell", b"hello", b"unused"]
PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}+|\S|\s+"


def entry(rank: int, token: bytes) -> dict[str, Any]:
    return {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}


def tekken(**more: Any) -> dict[str, Any]:
    config = {
        "pattern": PATTERN,
        "num_vocab_tokens": len(TOKENS),
        "default_vocab_size": 30 + len(TOKENS) - 1,
        "default_num_special_tokens": 30,
        "version": "v3",
    }
    return {"config": config, "vocab": [entry(i, token) for i, token in enumerate(TOKENS)]} | more


def converted(file: dict[str, Any]) -> bytes:
    return convert(json.dumps(file).encode())


def test_ids_are_ranks_after_the_special_ones() -> None:
    data = converted(tekken())
    reference = tokenizers.Tokenizer.from_str(data.decode())
    assert reference.encode("hello").ids == [30 + TOKENS.index(b"hello")]
    assert reference.encode("<s>[INST]<SPECIAL_29>").ids == [1, 3, 29]
    assert reference.get_vocab_size() == 30 + len(TOKENS) - 1, "the last rank is beyond default_vocab_size"
    assert reference.encode("12345", add_special_tokens=False).tokens == ["1", "2", "3", "4", "5"]
    assert [piece for piece, _ in reference.pre_tokenizer.pre_tokenize_str("12345")] == ["123", "45"]


def test_the_bytes_are_what_the_reference_would_save() -> None:
    data = converted(tekken())
    assert tokenizers.Tokenizer.from_str(data.decode()).to_str(pretty=True).encode() == data
    assert converted(tekken()) == data


def test_the_native_engine_serves_it(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(converted(tekken()))
    tokenizer = native_file(path)
    encoding = tokenizer.encode("hello 12345[INST]é")
    assert encoding.backend == "fast_cpu"
    assert encoding.ids == tokenizers.Tokenizer.from_file(str(path)).encode("hello 12345[INST]é").ids


def test_written_special_tokens() -> None:
    special = [{"rank": i, "token_str": f"<t{i}>", "is_control": i != 1} for i in range(3)]
    reference = tokenizers.Tokenizer.from_str(converted(tekken(special_tokens=special)).decode())
    assert reference.encode("<t2><SPECIAL_3>").ids == [2, 3]
    added = reference.get_added_tokens_decoder()
    assert [added[i].special for i in range(4)] == [True, False, True, True]


@pytest.mark.parametrize("version", ["v11", "v", "v²", "v" + "9" * 5000, "3", "v 3", "v3\n"])
def test_special_tokens_of_later_versions_have_to_be_written(version: str) -> None:
    file = tekken()
    file["config"]["version"] = version
    with pytest.raises(ArtifactDamaged, match="has to list its special tokens"):
        converted(file)


def change(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(file: dict[str, Any]) -> None:
        place: Any = file
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (change("config", to=[]), "no config"),
        (change("vocab", to={}), "no vocab"),
        (change("config", "pattern", to=None), "no pattern"),
        (change("config", "default_vocab_size", to=True), "no default_vocab_size"),
        (change("config", "default_vocab_size", to=10**9), "do not fit"),
        (change("config", "default_vocab_size", to=30), "do not fit"),
        (change("config", "default_num_special_tokens", to=-1), "no default_num_special_tokens"),
        (change("vocab", 5, "rank", to=6), "no rank 5"),
        (change("vocab", 1, "rank", to=True), "no rank 1"),
        (change("vocab", 5, to=None), "no rank 5"),
        (change("vocab", 5, "token_bytes", to="A"), "expected a token in base64"),
        (change("vocab", 5, "token_bytes", to="é"), "no token_bytes"),
        (change("vocab", 5, "token_bytes", to="AA=="), "repeats the token"),
        (change("special_tokens", to=[{"rank": 1, "token_str": "a"}]), "special_tokens"),
        (change("special_tokens", to=[{"rank": 0, "token_str": 1}]), "special_tokens"),
        (change("special_tokens", to=[None] * 31), "at most 30"),
    ],
)
def test_other_files_are_damage(broken: Callable[[dict[str, Any]], None], said: str) -> None:
    file = tekken()
    broken(file)
    with pytest.raises(ArtifactDamaged, match=said):
        converted(file)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"config": {}}', b"[" * 100_000])
def test_bytes_that_are_no_tekken_are_damage(data: bytes) -> None:
    with pytest.raises(ArtifactDamaged):
        convert(data)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("hello", "spelled like another token"),
        ("Ġh", "what the byte alphabet makes of another text"),
    ],
)
def test_special_tokens_that_text_could_make_are_refused(content: str, said: str) -> None:
    special = [{"rank": 0, "token_str": content, "is_control": True}]
    with pytest.raises(UnsupportedConfig, match=said):
        converted(tekken(special_tokens=special))


def test_a_pattern_without_a_certain_counterpart_is_refused() -> None:
    file = tekken()
    file["config"]["pattern"] = r"\w+|\W"
    with pytest.raises(UnsupportedConfig, match=r"escape \\w"):
        converted(file)
