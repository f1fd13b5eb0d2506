"""`inspect FILE`: the digest of the boundaries is that of what the patterns do, not of how they are spelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import check_document, run_here
from toktier import resources
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.pins import shipped_pins
from toktier_cli.verbs.program_text import program_lines

MINI = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"


def test_patterns_that_split_alike_have_one_digest_and_others_have_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = MINI.read_text("utf-8")
    number = "|\\\\p{N}|"
    assert text.count(number) == 1
    digests = {}
    for name, pattern in (("as it is", number), ("other spelling", "|[\\\\p{N}]|"), ("other", "|\\\\p{N}{1,3}|")):
        path = tmp_path / f"{name}.json"
        path.write_text(text.replace(number, pattern), "utf-8")
        line = ("inspect", str(path))
        document = check_document(
            run_here(*line, "--json", home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary)
        )
        digests[name] = document["program"]["meta"]["boundary"]["digest"]
        shown = run_here(*line, home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary).text
        assert f"\nboundaries   {digests[name][:12]}, " in shown
        meta = document["program"]["meta"]
        assert "monotone" not in shown
        assert "ranks not monotone: " in "".join(program_lines(meta | {"model": meta["model"] | {"monotone": False}}))
    assert all(len(digest) == 64 for digest in digests.values())
    assert digests["as it is"] == digests["other spelling"] != digests["other"]


def test_a_damaged_blob_is_shown_as_damaged_and_not_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Same size, other bytes: a family is what its digest says, and nothing is said of a file that is not it."""
    family = shipped_pins().family("qwen3_8b")
    blob = ArtifactCache(tmp_path / "cache").blob_path(family.tokenizer.sha256)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(MINI.read_bytes().ljust(family.tokenizer.size))
    line = ("inspect", family.name)
    document = check_document(run_here(*line, "--json", home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary))
    assert document["on_this_host"]["tokenizer.json"] == "damaged"
    assert (document["program"], document["serves"]) == (None, None)
    shown = run_here(*line, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary).text
    assert f"{family.tokenizer.sha256}, damaged\n" in shown
    assert "serves" not in shown
