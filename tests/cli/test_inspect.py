"""`inspect FILE`: the digest of the boundaries is that of what the patterns do, not of how they are spelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import check_document, run_here
from toktier import resources
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
