"""Vocabularies of other formats given to from_file: recognised whatever they are called, converted once, or refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import toktier
from tests.support import third_party_stand_in
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from tests.support.vocabulary_files import PATTERN, ranks, said, tekken, tokens
from toktier import Config
from toktier.conversion.recognise import VocabularyFormat, vocabulary_format
from toktier.errors import ArtifactDamaged, ConfigInvalid, EnvironmentFault, UnsupportedConfig
from toktier.routing.vocabulary import THIRD_PARTY

TEXT = "Hello <|end|> wörld, it's 42   times"


@pytest.mark.parametrize("name", ["cl100k.tiktoken", "tokenizer.model", "vocab", "tokenizer.json"])
def test_a_file_of_ranks_with_its_document(name: str, tmp_path: Path) -> None:
    path = ranks(tmp_path / name)
    said(path)
    assert vocabulary_format(path) is VocabularyFormat.RANKS
    tok = native_file(path, tmp_path / "home")
    made = tok.explain()["model_resolution"]["converted"]
    reference = tokenizers.Tokenizer.from_file(made["path"])
    encoding = tok.encode(TEXT)
    assert (encoding.ids, encoding.backend) == (reference.encode(TEXT).ids, "fast_cpu")
    assert len(tokens()) in encoding.ids
    assert tok.decode(encoding, False) == TEXT
    assert tok.special_tokens == {"<|end|>": len(tokens()), "<|pad|>": len(tokens()) + 7}
    assert (made["from"], made["converter"]) == ("ranks", "ranks_with_document_v1")


@pytest.mark.parametrize("name", ["tekken.json", "tekken_240911.json", "vocab.bin"])
def test_a_tekken_file(name: str, tmp_path: Path) -> None:
    path = tekken(tmp_path / name)
    assert vocabulary_format(path) is VocabularyFormat.TEKKEN
    tok = native_file(path, tmp_path / "home")
    made = tok.explain()["model_resolution"]["converted"]
    assert tok.encode("<s>Hello").ids == tokenizers.Tokenizer.from_file(made["path"]).encode("<s>Hello").ids
    assert tok.encode("<s>Hello").ids[0] == 1
    assert made["converter"] == "tekken_v1"


@pytest.mark.parametrize("backend", ["hf", *THIRD_PARTY])
def test_every_backend_serves_what_it_was_converted_to(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend in THIRD_PARTY:
        third_party_stand_in.install(monkeypatch, str(backend))
    path = ranks(tmp_path / "cl100k.tiktoken")
    said(path)
    tok = toktier.from_file(
        path, policy="experimental", tokenizer=backend, config=Config(home=tmp_path, tokenizer_fallback=False)
    )
    assert (tok.encode(TEXT).ids, tok.encode(TEXT).backend) == (native_file(path, tmp_path).encode(TEXT).ids, backend)


def test_it_is_converted_once_for_the_same_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ranks(tmp_path / "cl100k.tiktoken")
    said(path)
    first = native_file(path, tmp_path / "home")
    kept = Path(first.explain()["model_resolution"]["converted"]["path"])
    with monkeypatch.context() as patched:
        patched.setattr("toktier.conversion.vocabulary_files.document", None)
        again = native_file(path, tmp_path / "home")
    assert again.artifact_sha256 == first.artifact_sha256
    assert again.explain()["program"]["from_cache"]
    # Another document, another tokenizer; and what others could have written is made again.
    said(path, special_tokens={"<|end|>": len(tokens())})
    assert native_file(path, tmp_path / "home").artifact_sha256 != first.artifact_sha256
    said(path)
    kept.write_text("{}")
    os.chmod(kept, 0o666)
    assert native_file(path, tmp_path / "home").artifact_sha256 == first.artifact_sha256


def test_what_the_file_does_not_say_is_refused_with_what_mends_it(tmp_path: Path) -> None:
    path = ranks(tmp_path / "cl100k_base.tiktoken")
    with pytest.raises(UnsupportedConfig, match="ranks alone") as caught:
        toktier.from_file(path, config=Config(home=tmp_path))
    assert caught.value.details["missing"] == ["pat_str", "special_tokens"]
    assert "cl100k_base.tiktoken.json" in str(caught.value.remedy)
    assert "pat_str" in str(caught.value.remedy)
    said(path)
    assert toktier.from_file(path, policy="supported", config=Config(home=tmp_path)).encode("a").ids


@pytest.mark.parametrize(
    "changes",
    [
        {"pat_str": None}, {"special_tokens": None}, {"more": 1}, {"pat_str": 3}, {"special_tokens": ["a"]},
        {"special_tokens": {"a": "1"}}, {"special_tokens": {"a": True}}, {"special_tokens": {"a": -1}},
    ],
)  # fmt: skip
def test_a_document_that_says_something_else_is_damaged(changes: dict[str, Any], tmp_path: Path) -> None:
    path = ranks(tmp_path / "x.tiktoken")
    said(path, **changes)
    with pytest.raises(ArtifactDamaged, match=r"x\.tiktoken\.json"):
        toktier.from_file(path, config=Config(home=tmp_path))


@pytest.mark.parametrize("kind", ["directory", "fifo", "dangling"])
def test_a_document_that_is_no_file_is_said_to_be_none(kind: str, tmp_path: Path) -> None:
    """Not that there is none, which would ask for a file under a name that is taken."""
    path = ranks(tmp_path / "x.tiktoken")
    beside = tmp_path / "x.tiktoken.json"
    {"directory": beside.mkdir, "fifo": lambda: os.mkfifo(beside), "dangling": lambda: beside.symlink_to("no")}[kind]()
    with pytest.raises(EnvironmentFault, match=r"cannot read .*x\.tiktoken\.json"):
        toktier.from_file(path, config=Config(home=tmp_path))


def test_a_name_that_leaves_no_room_for_the_document_is_refused_as_without_one(tmp_path: Path) -> None:
    path = ranks(tmp_path / ("x" * 252))  # of the 255 bytes that file systems allow
    with pytest.raises(UnsupportedConfig, match="ranks alone"):
        toktier.from_file(path, config=Config(home=tmp_path))


def test_lines_that_end_as_on_other_systems_are_damage_of_the_file(tmp_path: Path) -> None:
    path = ranks(tmp_path / "x.tiktoken")
    said(path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(ArtifactDamaged, match=r"line 1 .*TOKEN RANK"):
        toktier.from_file(path, config=Config(home=tmp_path))


def test_a_special_token_with_the_id_of_a_rank_is_refused(tmp_path: Path) -> None:
    path = ranks(tmp_path / "x.tiktoken")
    said(path, special_tokens={"<|end|>": 5})
    with pytest.raises(UnsupportedConfig, match="id 5"):
        toktier.from_file(path, config=Config(home=tmp_path))


def test_the_layout_whose_conversion_is_pinned_needs_no_document(tmp_path: Path) -> None:
    path = ranks(tmp_path / "tiktoken.model")
    (tmp_path / "tokenization_kimi.py").write_text(f"pat_str = {PATTERN!r}\n")
    size = len(tokens())
    declared = {"added_tokens_decoder": {str(size): {"content": "<|end|>", "special": True}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(declared))
    tok = native_file(path, tmp_path / "home")
    assert size in tok.encode(TEXT).ids
    assert tok.explain()["model_resolution"]["converted"]["converter"] == "ranks_with_module_v1"


def test_a_host_without_a_cache_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TOKTIER_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigInvalid, match="no cache directory"):
        toktier.from_file(tekken(tmp_path / "tekken.json"))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"IQ==", b"IQ== x\n", b"hello 1\x00\n", b'{"config": {}}', b"\x0a\x0e\x0a\x05<unk>"]
)
def test_anything_else_is_left_to_the_reader_of_a_tokenizer_json(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    assert vocabulary_format(path) is None
    assert vocabulary_format(tmp_path) is None
    assert vocabulary_format(tmp_path / "absent") is None
    assert all(vocabulary_format(p) is None for p in SMALL_DIR.glob("*.json"))
