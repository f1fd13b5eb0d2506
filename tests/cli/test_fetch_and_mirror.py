"""`artifacts fetch --dry-run`, partial fetches, and `artifacts mirror`, through the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import check_document, run
from toktier.artifacts.pins import shipped_pins

FAMILY = "deepseek_v4_flash"
PIN = shipped_pins().family(FAMILY).tokenizer


def test_a_dry_run_counts_bytes_and_makes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = run("artifacts", "fetch", FAMILY, "toktier_mini", "--dry-run", "--json", home=home)
    document = check_document(done)
    assert (done.code, document["dry_run"]) == (0, True)
    assert document["bytes_wanted"] == PIN.size
    assert document["bytes_present"] == shipped_pins().family("toktier_mini").tokenizer.size
    assert document["bytes_available"] > 0
    outcomes = {f["name"]: f["outcome"] for f in document["families"][0]["files"]}
    assert outcomes.pop("tokenizer.json") == "wanted"
    assert set(outcomes.values()) <= {"missing"}
    complete = check_document(run("artifacts", "fetch", FAMILY, "--complete", "--dry-run", "--json", home=home))
    assert complete["bytes_wanted"] == sum(f.size for f in shipped_pins().family(FAMILY).files.values())
    text = run("artifacts", "fetch", FAMILY, "--dry-run", home=home).text
    assert "to bring" in text
    assert not home.exists()


def test_verify_of_an_empty_home_creates_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for line in (["verify"], ["verify", FAMILY], ["list"], ["remove", FAMILY], ["mirror", FAMILY, "--out", "unused"]):
        assert run("artifacts", *line, home=home).code == (0 if line == ["list"] else 3)
        assert not home.exists(), line


@pytest.mark.ci
def test_mirror_then_fetch_from_it_then_a_partial_one(tmp_path: Path, shared: Path) -> None:
    first, second, tree = tmp_path / "first", tmp_path / "second", tmp_path / "tree"
    run("artifacts", "import", str(shared / "artifacts" / "deepseek_v4.json.zst"), home=first)
    written = run("artifacts", "mirror", FAMILY, "--out", str(tree), "--json", home=first)
    document = check_document(written)
    assert written.code == 0
    assert [f["outcome"] for f in document["families"][0]["files"] if f["name"] == "tokenizer.json"] == ["written"]
    assert run("artifacts", "mirror", FAMILY, "--out", str(tree), "--complete", home=first).code == 6
    line = ["artifacts", "fetch", FAMILY, "--from", tree.as_uri(), "--offline", "--json"]
    done = run(*line, home=second)
    assert (done.code, check_document(done)["bytes_wanted"]) == (0, 0)
    partial = run(*line, "--complete", home=second)
    assert partial.code == 6
    document = check_document(partial)
    assert document["families"][0]["loadable"]
    assert document["errors"][0]["details"]["missing"]
    assert document["bytes_wanted"] > 0
