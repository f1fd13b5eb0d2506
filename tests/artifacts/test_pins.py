"""The shipped table of pins and its reader."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.material import ROOT
from toktier import resources
from toktier.artifacts.pins import parse_pins, shipped_file, shipped_pins
from toktier.errors import ArtifactDamaged, RegistryInvalid, UnknownFamily

TABLE = resources.tables_dir() / "artifact_pins.json"


def test_the_shipped_table_holds() -> None:
    pins = shipped_pins()
    assert {"qwen3_8b", "deepseek_v4_flash", "toktier_mini"} <= set(pins.families)
    for family in pins.families.values():
        assert "tokenizer.json" in family.files
        for file in family.files.values():
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert file.size > 0
            assert file in pins.of_digest(file.sha256)
        assert family.shipped or re.fullmatch(r"[0-9a-f]{40}", family.revision or "")


def test_the_generator_reproduces_the_table(tmp_path: Path) -> None:
    run = [sys.executable, str(ROOT / "tools" / "generate_pins.py"), "--check"]
    outcome = subprocess.run(run, capture_output=True, text=True)
    assert outcome.returncode in (0, 3), outcome.stderr
    assert (outcome.returncode == 3) == ("declined:" in outcome.stderr)
    absent = subprocess.run([*run, "--source", str(tmp_path / "absent.json")], capture_output=True, text=True)
    assert (absent.returncode, "declined:" in absent.stderr) == (3, True)


def test_shipped_families_are_the_files_that_lie_there() -> None:
    shipped = [f for f in shipped_pins().families.values() if f.shipped]
    assert shipped
    for family in shipped:
        assert shipped_file(family).stat().st_size == family.tokenizer.size


def test_a_damaged_shipped_file_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = next(f for f in shipped_pins().families.values() if f.shipped)
    data = bytearray(family.shipped_path.read_bytes())
    data[100] ^= 1
    target = tmp_path / "tables" / "artifacts" / family.name / "tokenizer.json"
    target.parent.mkdir(parents=True)
    target.write_bytes(data)
    monkeypatch.setattr(resources, "data_root", lambda: tmp_path)
    with pytest.raises(ArtifactDamaged, match="is damaged"):
        shipped_file(family)
    target.unlink()
    with pytest.raises(ArtifactDamaged, match="cannot be read"):
        shipped_file(family)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("qwen3-8b", "qwen3_8b"),
        ("Qwen/Qwen3-8B", "qwen3_8b"),
        ("deepseekv3", "deepseek_v3"),
        ("LLAMA3.1", "llama_3_1_8b"),
    ],
)
def test_an_unknown_family_names_the_near_ones(asked: str, expected: str) -> None:
    with pytest.raises(UnknownFamily) as caught:
        shipped_pins().family(asked)
    assert expected in caught.value.details["near"]
    assert caught.value.exit_code == 3
    assert caught.value.remedy == "toktier artifacts list --available"


@pytest.mark.parametrize("name", ["", "x" * 100_000, "\x1b[31m", "../../etc/passwd", "\ud800"])
def test_a_hostile_family_name_is_only_unknown(name: str) -> None:
    with pytest.raises(UnknownFamily) as caught:
        shipped_pins().family(name)
    assert len(caught.value.message) < 400
    assert "\x1b" not in caught.value.message


def _changed(change: Any) -> bytes:
    document = json.loads(TABLE.read_bytes())
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        TABLE.read_bytes()[:-10],
        _changed(lambda d: d["families"]["qwen3_8b"]["files"]["tokenizer.json"].update(size=1)),
        _changed(lambda d: d["families"].pop("qwen3_8b")),
        _changed(lambda d: d.update(root_digest="sha256:" + "0" * 64)),
        _changed(lambda d: d.update(schema_version=2)),
        _changed(lambda d: d.update(extra=1)),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_a_table_that_does_not_hold_is_refused(data: bytes) -> None:
    with pytest.raises(RegistryInvalid, match="is damaged"):
        parse_pins(data)
