"""The generator of tables/unicode: what `--check` notices, what the manifest records, and probes that refuse nonsense.

Whether the tables are right is tested in tests/program; the complete regeneration runs here, in the CI tier.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import tokenizers
from tokenizers import normalizers

from toktier.canonical import TAG_TABLE, tagged_digest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "generate_unicode_tables.py"
VERSION = tokenizers.__version__


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("generate_unicode_tables")


@pytest.fixture
def small(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The generator with two tables that cost nothing, and the folder that it wrote them to."""
    monkeypatch.setattr(tool, "TABLES", {"one.json": lambda: {"set": "41-5A"}, "two.json": lambda: {"set": "61"}})
    folder = tmp_path / "unicode"
    assert tool.main(["--output", str(folder)]) == 0
    return folder


def test_writing_is_deterministic_and_check_then_agrees(tool: ModuleType, small: Path) -> None:
    before = {path.name: path.read_bytes() for path in small.iterdir()}
    assert set(before) == {"one.json", "two.json", "manifest.json"}
    assert tool.main(["--check", "--output", str(small)]) == 0
    assert tool.main(["--output", str(small)]) == 0
    assert {path.name: path.read_bytes() for path in small.iterdir()} == before
    manifest = json.loads(before["manifest.json"])
    assert manifest["probed_with"] == [VERSION]
    assert manifest["tables"]["one.json"] == tagged_digest(TAG_TABLE, before["one.json"])


@pytest.mark.parametrize("name", ["one.json", "two.json", "manifest.json"])
@pytest.mark.parametrize("fault", ["changed", "missing"])
def test_check_names_the_table_that_differs(
    tool: ModuleType, small: Path, capsys: pytest.CaptureFixture[str], name: str, fault: str
) -> None:
    path = small / name
    data = path.read_bytes()
    path.unlink()
    if fault == "changed":
        path.write_bytes(data.replace(b"1", b"2", 1))
    assert tool.main(["--check", "--output", str(small)]) == 1
    sentences = capsys.readouterr().err.strip().splitlines()
    assert len(sentences) == 1
    assert f"unicode/{name} " in sentences[0]
    assert VERSION in sentences[0]
    assert path.exists() == (fault == "changed"), "--check writes nothing"


def test_check_names_a_file_that_is_no_table(tool: ModuleType, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (small / "three.json").write_text("{}")
    assert tool.main(["--check", "--output", str(small)]) == 1
    assert "unicode/three.json is no table" in capsys.readouterr().err


def test_a_second_version_joins_the_list_and_other_tables_start_it_anew(tool: ModuleType) -> None:
    tables = {"one.json": tool.render({"set": "41"})}
    first = tool.manifest_for(tables, "0.22.10", b"")
    both = tool.manifest_for(tables, "0.22.2", first)
    assert json.loads(both)["probed_with"] == ["0.22.2", "0.22.10"]
    assert tool.manifest_for(tables, "0.22.10", both) == both
    anew = tool.manifest_for({"one.json": tool.render({"set": "42"})}, "0.22.2", both)
    assert json.loads(anew)["probed_with"] == ["0.22.2"]


def test_an_unlisted_version_fails_the_check(tool: ModuleType, small: Path) -> None:
    tables = {name: (small / name).read_bytes() for name in ("one.json", "two.json")}
    assert tool.differences(small, tables, VERSION) == []
    (sentence,) = tool.differences(small, tables, "0.99.0")
    assert "manifest.json does not list tokenizers 0.99.0" in sentence


def test_a_probe_that_fails_writes_nothing(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> dict[str, str]:
        raise tool.ProbeError("U+0041 is no letter")

    monkeypatch.setattr(tool, "TABLES", {"one.json": fails})
    assert tool.main(["--output", str(tmp_path / "unicode")]) == 1
    assert "U+0041 is no letter" in capsys.readouterr().err
    assert not (tmp_path / "unicode").exists()


def test_rendering_of_sets_and_maps(tool: ModuleType) -> None:
    assert tool.ranges_text([(0x41, 0x5A), (0xAA, 0xAA)]) == "41-5A AA"
    assert tool.map_text({0xC1: (0x41, 0x301), 0xC0: (0x41, 0x300)}) == "C0=41.300 C1=41.301"


def test_names_that_overlap_or_leave_gaps_are_noticed(tool: ModuleType) -> None:
    for names in (["Lu", "L", "C"], ["L", "M"]):
        with pytest.raises(tool.ProbeError, match="has not exactly one of the names"):
            tool.properties.one_of_each(names, bracketed=True)


def test_an_alias_of_another_set_is_noticed(tool: ModuleType) -> None:
    tool.properties.check_aliases([["Lu", "Uppercase_Letter"]])
    with pytest.raises(tool.ProbeError, match=r"differs from its property at U\+0061"):
        tool.properties.check_aliases([["Ll", "Lowercase_Letter"], ["Uppercase", "Cased"]])


def test_a_normalizer_that_does_more_than_delete_is_noticed(tool: ModuleType) -> None:
    sweep = sys.modules["toktier.certify.unicode_probes.sweep"]
    with pytest.raises(tool.ProbeError, match="changed some"):
        sweep.removed_by(normalizers.Lowercase())


@pytest.mark.ci
def test_the_shipped_tables_are_those_of_the_installed_reference() -> None:
    """The whole regeneration: about a minute."""
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
