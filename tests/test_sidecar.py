"""sidecar=: what is said of a tokenizer_config.json beside the file, and what merging it serves."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import toktier
from tests.support.material import ROOT
from toktier import errors
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.side_files import merged_file
from toktier.config import Config, resolve_settings

MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
DECLARED = {"1205": {"content": "<|tool|>", "special": True}, "1206": {"content": "<kept>", "special": False}}
TEXT = "say <|tool|> and <kept> now"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A tokenizer.json, and a side file that declares two tokens more."""
    path = tmp_path / "model" / "tokenizer.json"
    path.parent.mkdir()
    path.write_bytes(MINI.read_bytes())
    write_config(path, added_tokens_decoder=DECLARED)
    return path


def write_config(path: Path, **members: Any) -> None:
    path.with_name("tokenizer_config.json").write_text(json.dumps(members))


def test_by_default_the_file_alone_is_followed_and_the_difference_is_said(pair: Path) -> None:
    with pytest.warns(toktier.ToktierWarning, match=r"declares 2 added tokens .*'<\|tool\|>', '<kept>'.*merge"):
        tok = toktier.from_file(pair)
    assert tok.encode(TEXT).ids == tokenizers.Tokenizer.from_file(str(pair)).encode(TEXT, add_special_tokens=False).ids
    told = tok.explain()["model_resolution"]["side_file"]
    assert told == {
        "path": str(pair.with_name("tokenizer_config.json")),
        "merged": False,
        "missing": ["<|tool|>", "<kept>"],
        "problem": None,
    }
    assert tok.fingerprint == toktier.load("toktier_mini").fingerprint


@pytest.mark.parametrize("backend", ["fast_cpu", "hf"])
def test_merged_tokens_are_atomic_under_every_backend(pair: Path, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tok = toktier.from_file(pair, sidecar="merge", tokenizer=backend, policy="supported")
    encoding = tok.encode(TEXT)
    assert encoding.backend == backend
    assert [i for i in encoding.ids if i > 1204] == [1205, 1206]
    assert tok.decode(encoding.ids) == "say  and <kept> now"  # special: true is passed over, special: false stays
    assert tok.special_tokens["<|tool|>"] == 1205
    assert "<kept>" not in tok.special_tokens


def test_the_fingerprint_tells_the_two_apart(pair: Path) -> None:
    tok = toktier.from_file(pair, sidecar="merge")
    assert tok.fingerprint != toktier.load("toktier_mini").fingerprint
    told = tok.explain()["model_resolution"]["side_file"]
    assert told["merged"]
    assert Path(told["merged_path"]).is_file()
    assert toktier.from_file(pair, sidecar="merge").fingerprint == tok.fingerprint
    assert pickle.loads(pickle.dumps(tok)).encode(TEXT).ids == tok.encode(TEXT).ids


def test_a_side_file_with_nothing_new_is_silent(pair: Path) -> None:
    write_config(pair, eos_token="<|endoftext|>", added_tokens_decoder={"1203": {"content": "<tool>"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tok = toktier.from_file(pair)
    assert tok.explain()["model_resolution"]["side_file"]["missing"] == []


def test_a_broken_side_file_stops_a_merge_and_nothing_else(pair: Path) -> None:
    pair.with_name("tokenizer_config.json").write_text("{")
    tok = toktier.from_file(pair)
    assert "tokenizer_config.json" in tok.explain()["model_resolution"]["side_file"]["problem"]
    with pytest.raises(errors.ArtifactDamaged):
        toktier.from_file(pair, sidecar="merge")


def test_no_side_file_and_no_such_treatment(pair: Path) -> None:
    pair.with_name("tokenizer_config.json").unlink()
    with pytest.raises(errors.ArtifactNotFound, match=r"no tokenizer_config\.json"):
        toktier.from_file(pair, sidecar="merge")
    with pytest.raises(errors.ConfigInvalid, match="no sidecar"):
        toktier.from_file(pair, sidecar="ignore")
    with pytest.raises(errors.ArtifactNotFound, match="toktier_mini"):
        toktier.load("toktier_mini", sidecar="merge")


def test_a_changed_side_file_gives_another_document(pair: Path) -> None:
    first = toktier.from_file(pair, sidecar="merge")
    write_config(pair, added_tokens_decoder={"1205": {"content": "<|other|>", "special": True}})
    second = toktier.from_file(pair, sidecar="merge")
    assert first.fingerprint != second.fingerprint
    assert second.encode("<|other|>").ids == [1205]


def test_a_merged_document_that_others_could_write_is_made_again(pair: Path, tmp_path: Path) -> None:
    settings = resolve_settings(Config(home=tmp_path / "home"), environ={})
    side = pair.with_name("tokenizer_config.json")
    path = merged_file(pair, side, settings, "pair")
    right = path.read_bytes()
    path.write_bytes(b"{}")
    path.chmod(0o666)
    assert merged_file(pair, side, settings, "pair").read_bytes() == right
    path.unlink()
    os.mkfifo(path)
    assert merged_file(pair, side, settings, "pair").read_bytes() == right


def test_of_a_repository_the_snapshot_s_own_side_file_counts(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c0ffee" + "0" * 34
    folder = tmp_path / "hf" / "hub" / "models--someone--Copy"
    (folder / "snapshots").mkdir(parents=True)
    pair.parent.rename(folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    tok = toktier.from_pretrained("someone/Copy", sidecar="merge", config=Config(offline=True))
    assert tok.encode("<|tool|>").ids == [1205]
    found = tok.explain()["model_resolution"]
    assert (found["basis"], found["side_file"]["merged"]) == ("identical", True)


@pytest.mark.ci
def test_a_pinned_side_file_is_used_where_the_cache_has_it(shared: Path, artifacts: Any, tmp_path: Path) -> None:
    """deepseek_v3: its side file declares nothing that its tokenizer.json lacks."""
    from toktier.artifacts.pins import shipped_pins

    config = Config(home=tmp_path / "home")
    family = shipped_pins().family("deepseek_v3")
    cache = ArtifactCache.of(resolve_settings(config))
    side = (shared / "artifacts" / "sidecars" / "deepseek_v3" / "tokenizer_config.json").read_bytes()
    cache.store(family.files["tokenizer_config.json"], side)
    cache.store(family.tokenizer, Path(artifacts.path("deepseek_v3")).read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tok = toktier.load("deepseek_v3", policy="supported", config=config)
    assert tok.explain()["model_resolution"]["side_file"]["missing"] == []
    merged = toktier.load("deepseek_v3", policy="supported", sidecar="merge", config=config)
    assert merged.encode(TEXT).ids == tok.encode(TEXT).ids
