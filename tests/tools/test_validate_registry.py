"""validate_registry: the shipped tables hold, and each kind of contradiction between them is seen."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.material import ROOT
from toktier.artifacts import pins, siblings
from toktier.evidence import registry

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    copy = tmp_path / "tables"
    copy.mkdir()
    for name in ("artifact_pins", "siblings", "family_licences", "support_registry", "kernel_digests"):
        shutil.copy(ROOT / "tables" / f"{name}.json", copy)
    shutil.copytree(ROOT / "tables" / "schemas", copy / "schemas")
    return copy


def validate(tables: Path) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "tools" / "validate_registry.py"), str(tables)]
    outcome = subprocess.run(command, capture_output=True, text=True)
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr
    return outcome.returncode, outcome.stderr


def change(tables: Path, name: str, edit: Change) -> None:
    """Edits a table and gives it the digest of its new content: only what it says is wrong then."""
    path = tables / f"{name}.json"
    document = json.loads(path.read_bytes())
    edit(document)
    if name != "family_licences":
        document["root_digest"] = (pins if name == "artifact_pins" else siblings).root_digest(document)
    path.write_text(json.dumps(document))


def entry(document: dict[str, Any], basis: str, packaged: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = next(
        e for e in document["siblings"] if e["basis"] == basis and e["canonical_packaged"] == packaged
    )
    return found


def test_an_entry_of_the_registry_that_a_load_would_not_believe_is_named(tables: Path) -> None:
    path = tables / "support_registry.json"
    document = json.loads(path.read_bytes())
    row = document["rows"][0]
    row["references"]["0.23.3"]["status"] = "certain"
    path.write_bytes(registry.sealed(document))
    code, said = validate(tables)
    assert code == 1
    assert f"{row['artifact']['name']} on fast_cpu beside 0.23.3: 'certain' is no status" in said
    assert "support_registry.json: $.rows[0].references['0.23.3'].status" in said
    path.write_bytes(path.read_bytes().replace(b"certain", b"certail"))
    code, said = validate(tables)
    assert (code, "root_digest" in said) == (1, True)


def test_the_shipped_tables_hold(tables: Path) -> None:
    assert validate(tables) == (0, "")
    assert validate(ROOT / "tables") == (0, "")


CONTRADICTIONS: list[tuple[str, Change, str]] = [
    ("siblings", lambda d: entry(d, "identical").update(source_sha256="0" * 64), "is called identical"),
    ("siblings", lambda d: entry(d, "identical").update(source_size=5), "is called identical"),
    ("siblings", lambda d: entry(d, "identical").update(basis="equivalent_serialisation"), "byte for byte"),
    ("siblings", lambda d: entry(d, "identical_source").update(source_sha256="0" * 64), "not derived from"),
    ("siblings", lambda d: entry(d, "identical").update(canonical_packaged=False), "is pinned"),
    ("siblings", lambda d: entry(d, "identical", False).update(canonical_packaged=True), "is not pinned"),
    ("siblings", lambda d: entry(d, "identical").update(canonical_family="nobody"), "is not pinned"),
    ("siblings", lambda d: d["siblings"].append(d["siblings"][0]), "listed twice"),
    (
        "siblings",
        lambda d: d["siblings"].append(d["siblings"][0] | {"repo_id": d["siblings"][0]["repo_id"].swapcase()}),
        "several spellings",
    ),
    ("siblings", lambda d: d["siblings"][0].update(note="x"), "Additional properties"),
    ("artifact_pins", lambda d: d["families"].pop("minimax_m3"), "is not pinned"),
    ("artifact_pins", lambda d: d["families"]["minimax_m3"].update(repo_id="Qwen/Qwen3-8B"), "pinned by two families"),
    ("family_licences", lambda d: d["families"].pop("qwen3_8b"), "qwen3_8b has no entry"),
    ("family_licences", lambda d: d["families"].update(x={"identifier": "MIT"}), "is not valid"),
    ("family_licences", lambda d: d["families"].update(x={"identifier": "unknown"}), "x is no pinned family"),
]


@pytest.mark.parametrize(("name", "edit", "said"), CONTRADICTIONS)
def test_a_contradiction_is_seen(tables: Path, name: str, edit: Change, said: str) -> None:
    change(tables, name, edit)
    code, problems = validate(tables)
    assert code == 1
    assert said in problems


@pytest.mark.parametrize("name", ["artifact_pins", "siblings"])
def test_an_edited_table_is_seen_by_its_digest(tables: Path, name: str) -> None:
    path = tables / f"{name}.json"
    text = path.read_text("utf-8")
    path.write_text(text.replace('"size": 1', '"size": 2', 1).replace('_size": 1', '_size": 2', 1))
    assert path.read_text("utf-8") != text
    code, problems = validate(tables)
    assert (code, "root_digest" in problems) == (1, True)


@pytest.mark.parametrize("data", [b"", b'{"schema": 1, "schema": 2}', b'{"schema": NaN}', b"\xff", b"[" * 50_000])
def test_no_strict_json(tables: Path, data: bytes) -> None:
    (tables / "siblings.json").write_bytes(data)
    assert validate(tables)[0] == 1


def test_a_missing_table(tables: Path) -> None:
    (tables / "siblings.json").unlink()
    code, problems = validate(tables)
    assert (code, "cannot be read" in problems) == (1, True)
