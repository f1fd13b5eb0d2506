"""A cache that cannot be read is an error (7), not an empty cache; what to verify is a family or whatever exists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import environment, run
from tests.support.material import ROOT
from toktier.artifacts.pins import shipped_pins

FAMILY = "deepseek_v4_flash"
PIN = shipped_pins().family(FAMILY).tokenizer
NOBODY = 65534
# As root no permission ever stops anything. Modules are imported while everything may still be read.
AS_NOBODY = f"""
import importlib, os, pkgutil, sys
import toktier.artifacts, toktier.program, toktier_cli.verbs
for package in (toktier.artifacts, toktier.program, toktier_cli.verbs):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from toktier_cli.main import main
main(["artifacts", "list", "--available", "--json", "--home", "/nonexistent"])
print()
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
sys.exit(main())
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that everybody may enter, with a blob of the right size in it."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        blob = home / "cache" / "artifacts" / "blobs" / "sha256" / PIN.sha256[:2] / PIN.sha256
        blob.parent.mkdir(parents=True)
        with open(blob, "wb") as file:
            file.truncate(PIN.size)
        for path in (home, *home.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield home


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to drop it")
@pytest.mark.parametrize(
    "line",
    [
        ("artifacts", "list"),
        ("artifacts", "list", "--available"),
        ("artifacts", "verify"),
        ("artifacts", "verify", FAMILY),
        ("artifacts", "remove", FAMILY),
        ("inspect", FAMILY),
        ("encode", "--offline", "--family", FAMILY, "hi"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("closed", ["cache", "cache/artifacts/blobs"])
def test_an_unreadable_cache_is_an_environment_fault(home: Path, line: tuple[str, ...], closed: str) -> None:
    (home / closed).chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *line, "--json"], capture_output=True, cwd=ROOT, env=environment(home)
    )
    document = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == document["exit_code"] == 7, document
    assert document["error"]["code"] == "ENVIRONMENT_FAULT"
    assert document["error"]["message"] == f"cannot read {home / closed}: Permission denied"
    assert document["error"]["details"]["path"] == str(home / closed)
    assert "TOKTIER_HOME" in document["error"]["remedy"]


@pytest.mark.parametrize("name", ["mydir", "myfile", "./myfile", "mydir/", "my file"])
def test_verify_takes_what_exists_as_a_path(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    if "dir" in name:
        place.mkdir()
    else:
        place.write_bytes(b"{}")
    outcome = run("artifacts", "verify", name, "--json", home=tmp_path / "home", cwd=tmp_path)
    (entry,) = outcome.document["paths"]
    assert entry["path"] == name.rstrip("/").removeprefix("./")
    assert entry["error"]["code"] in ("ARTIFACT_NOT_FOUND", "NOT_A_TOKENIZER")


def test_verify_of_a_family_is_not_shadowed_by_a_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "toktier_mini").write_bytes(b"{}")
    outcome = run("artifacts", "verify", "toktier_mini", "--json", home=tmp_path / "home", cwd=tmp_path)
    assert outcome.code == 0
    assert outcome.document["paths"] == []
