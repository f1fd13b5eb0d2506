"""Kits from tiny wheels: what lies in one, that it is whole or absent, and every refusal before anything is made."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.artifacts.conftest import pin, tokenizer_bytes
from tests.cli.command import check_document, run, validator
from tests.support.tiny_wheels import make_wheel
from toktier import resources
from toktier.artifacts import kit as kit_module
from toktier.artifacts import verify_kit
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.kit import KitReport, make_kit
from toktier.artifacts.kit_wheels import PINS_MEMBER
from toktier.artifacts.pins import SCHEMA, SCHEMA_VERSION, Pins, parse_pins, root_digest
from toktier.canonical import canonical_json
from toktier.config import Config, Settings, resolve_settings
from toktier.errors import (
    ArtifactNotFound,
    EnvironmentFault,
    SourceUnreachable,
    ToktierError,
    UnknownFamily,
    UsageError,
)

MINI = "toktier_mini"
TAG = "cp311-cp311-manylinux_2_28_x86_64"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    table = (resources.tables_dir() / "artifact_pins.json").read_bytes()
    members = {PINS_MEMBER: table}
    return make_wheel(tmp_path / "ours", "toktier", "0.1.0", requires=["a", "b"], tag=TAG, members=members)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    make_wheel(folder, "a", headers=["License-Expression: MIT"])
    make_wheel(folder, "b", "2", requires=["a"])
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def make(
    tmp_path: Path, own: Path | None, out: Path | None = None, families: tuple[str, ...] = (MINI,), **more: Any
) -> KitReport:
    settings = resolve_settings(Config(home=tmp_path / "home", offline=True), environ={})
    target = out or tmp_path / "out" / "kit"
    return make_kit(list(families), settings, target, wheel=own, timeout=600, notify=lambda _: None)


def left(tmp_path: Path) -> list[str]:
    """What lies where kits are made."""
    return sorted(os.listdir(tmp_path / "out")) if (tmp_path / "out").exists() else []


def test_what_lies_in_a_kit(tmp_path: Path, own: Path, index: Path) -> None:
    report = make(tmp_path, own)
    kit = report.path
    names = sorted(str(path.relative_to(kit)) for path in kit.rglob("*") if path.is_file())
    assert [name for name in names if not name.startswith("notices/")] == [
        "INSTALL.txt", "SHA256SUMS", "kit.json", own.name, "verify_kit.py",
        "wheels/a-1-py3-none-any.whl", "wheels/b-2-py3-none-any.whl",
    ]  # fmt: skip
    assert left(tmp_path) == ["kit"]
    document = json.loads((kit / "kit.json").read_text("utf-8"))
    assert (kit / "kit.json").read_bytes() == canonical_json(document) + b"\n"
    validator("kit").validate(document)
    assert document == report.manifest
    assert document["target"] == {"python": "3.11", "platform": "manylinux_2_28_x86_64"}
    assert [(w["name"], w["version"], w["licence"]) for w in document["wheels"]] == [
        ("a", "1", "MIT"),
        ("b", "2", None),
    ]
    assert (document["bundle"], document["cubins"]) == (None, [])
    outcome = verify_kit.check(kit, report.digest)
    assert (outcome.complete, outcome.valid, outcome.files) == (True, True, report.files)
    ran = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=kit, check=False)
    assert ran.returncode == 0


@pytest.mark.ci
def test_two_kits_are_equal_whatever_the_umask_and_the_place(tmp_path: Path, own: Path, index: Path) -> None:
    first = make(tmp_path, own)
    before = os.umask(0o077)
    try:
        second = make(tmp_path, own, tmp_path / "other place" / "über")
    finally:
        os.umask(before)
    assert first.digest == second.digest
    modes = {stat.S_IMODE(path.stat().st_mode) for path in second.path.rglob("*") if path.is_file()}
    assert modes == {0o644}
    assert stat.S_IMODE(second.path.stat().st_mode) == stat.S_IMODE((second.path / "wheels").stat().st_mode) == 0o755


def test_the_lines_to_type_fit_the_kit(tmp_path: Path, own: Path, index: Path) -> None:
    text = (make(tmp_path, own).path / "INSTALL.txt").read_text("ascii")
    assert f"    pip install --no-index --find-links wheels {own.name}\n" in text
    assert "Cubins: none" in text
    assert str(tmp_path) not in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.ci
def test_an_empty_directory_may_be_there(tmp_path: Path, own: Path, index: Path) -> None:
    (tmp_path / "out" / "kit").mkdir(parents=True)
    assert make(tmp_path, own).files > 4


def occupied(out: Path) -> None:
    out.mkdir(parents=True)
    (out / "x").write_bytes(b"")


def a_file(out: Path) -> None:
    out.parent.mkdir()
    out.write_bytes(b"")


def a_link(out: Path) -> None:
    (out.parent / "empty").mkdir(parents=True)
    out.symlink_to(out.parent / "empty")


def a_dead_link(out: Path) -> None:
    out.parent.mkdir()
    out.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("prepare", "said"),
    [(occupied, "is not empty"), (a_file, "is no directory"), (a_link, "no directory"), (a_dead_link, "no directory")],
)
def test_what_is_there_is_never_replaced(
    tmp_path: Path, own: Path, index: Path, prepare: Callable[[Path], None], said: str
) -> None:
    prepare(tmp_path / "out" / "kit")
    before = left(tmp_path)
    with pytest.raises(UsageError, match=said):
        make(tmp_path, own)
    assert left(tmp_path) == before


def test_a_mount_point_is_no_place_to_rename_to(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out" / "kit").mkdir(parents=True)
    monkeypatch.setattr(Path, "is_mount", lambda self: True)
    with pytest.raises(UsageError, match="file system is mounted") as caught:
        make(tmp_path, own)
    assert "below" in (caught.value.remedy or "")


@pytest.mark.ci
def test_who_comes_second_is_refused(tmp_path: Path, own: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seal = kit_module._seal

    def slow(kit: Path, manifest: dict[str, Any]) -> tuple[str, int, int]:
        occupied(tmp_path / "out" / "kit")
        return seal(kit, manifest)

    monkeypatch.setattr(kit_module, "_seal", slow)
    with pytest.raises(UsageError, match="not empty"):
        make(tmp_path, own)
    assert left(tmp_path) == ["kit"]
    assert os.listdir(tmp_path / "out" / "kit") == ["x"]


@pytest.mark.parametrize(
    ("families", "expected"), [(("nobody",), UnknownFamily), ((MINI, "qwen3_8b"), ArtifactNotFound)]
)
def test_families_that_cannot_be_had(
    tmp_path: Path, own: Path, index: Path, families: tuple[str, ...], expected: type[ToktierError]
) -> None:
    with pytest.raises(expected) as caught:
        make(tmp_path, own, families=families)
    assert caught.value.exit_code == 3
    assert left(tmp_path) == []


def test_a_wheel_of_other_pins_is_refused(tmp_path: Path, index: Path) -> None:
    document: dict[str, Any] = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION}
    document["families"] = {
        MINI: {"repo_id": None, "revision": None, "shipped": True, "files": {"tokenizer.json": pin(b"other")}}
    }
    document["root_digest"] = root_digest(document)
    members = {PINS_MEMBER: json.dumps(document).encode()}
    other = make_wheel(tmp_path / "ours", "toktier", "0.2.0", tag=TAG, members=members)
    with pytest.raises(UsageError, match=f"pins other files under {MINI}"):
        make(tmp_path, other)
    assert left(tmp_path) == []


@dataclass(frozen=True)
class Bundled:
    """A family that is not shipped, in a cache without its side file; `own`: a wheel with the same pins."""

    pins: Pins
    own: Path
    settings: Settings

    def make(self, out: Path, families: tuple[str, ...] = ("alpha",), **more: Any) -> KitReport:
        return make_kit(
            list(families),
            self.settings,
            out,
            wheel=self.own,
            timeout=600,
            notify=lambda _: None,
            pins=self.pins,
            **more,
        )


@pytest.fixture
def bundled(tmp_path: Path, index: Path) -> Bundled:
    data = tokenizer_bytes(1)
    files = {"tokenizer.json": pin(data), "tokenizer_config.json": pin(b"{}")}
    shipped = {"tokenizer.json": pin(b"[]")}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "families": {
            "alpha": {"repo_id": "org/Alpha", "revision": "a" * 40, "files": files},
            "mini": {"repo_id": None, "revision": None, "shipped": True, "files": shipped},
        },
    }
    document["root_digest"] = root_digest(document)
    table = json.dumps(document).encode()
    pins = parse_pins(table)
    requires = ["a", "cryptography>=42; extra == 'sign'"]
    own = make_wheel(tmp_path / "ours", "toktier", requires=requires, tag=TAG, members={PINS_MEMBER: table})
    settings = resolve_settings(Config(home=tmp_path / "home", offline=True), environ={})
    ArtifactCache(settings.require_cache()).store(pins.family("alpha").tokenizer, data)
    return Bundled(pins, own, settings)


def pins_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {PINS_MEMBER: archive.read(PINS_MEMBER)}


def test_a_family_comes_in_the_bundle_and_what_lacks_is_said(tmp_path: Path, bundled: Bundled) -> None:
    report = bundled.make(tmp_path / "out" / "kit", ("mini", "alpha", "alpha"))
    validator("kit").validate(report.manifest)
    families = [(e["family"], e["comes_in"], e["missing"]) for e in report.manifest["families"]]
    assert families == [("alpha", "bundle.tar", ["tokenizer_config.json"]), ("mini", bundled.own.name, [])]
    assert (report.manifest["bundle"], report.manifest["signature"]) == ("bundle.tar", None)
    assert "    toktier artifacts import bundle.tar\n" in (report.path / "INSTALL.txt").read_text("ascii")
    assert report.digest == bundled.make(tmp_path / "out" / "again", ("alpha", "mini")).digest


def test_a_signed_kit_carries_what_verifies_it(tmp_path: Path, bundled: Bundled, index: Path) -> None:
    make_wheel(index, "cryptography", "42", requires=["cffi"])
    make_wheel(index, "cffi")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    key = tmp_path / "key.pem"
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(*form))
    key.chmod(0o600)
    report = bundled.make(tmp_path / "out" / "kit", sign_key=key)
    assert report.manifest["signature"] == "bundle.tar.sig.json"
    assert (report.path / "bundle.tar.sig.json").is_file()
    assert [wheel["name"] for wheel in report.manifest["wheels"]] == ["a", "cffi", "cryptography"]
    text = (report.path / "INSTALL.txt").read_text("ascii")
    assert f'    pip install --no-index --find-links wheels "{bundled.own.name}[sign]"\n' in text
    assert "    toktier artifacts import bundle.tar --verify-key PUBLIC.pem\n" in text
    raw = serialization.load_pem_private_key(key.read_bytes(), None).public_key().public_bytes_raw()
    assert f"the id {hashlib.sha256(raw).hexdigest()}.\n" in text
    assert max(map(len, text.splitlines())) <= 120
    unsigned = bundled.make(tmp_path / "out" / "unsigned")
    assert [wheel["name"] for wheel in unsigned.manifest["wheels"]] == ["a"]
    (index / "cffi-1-py3-none-any.whl").unlink()
    with pytest.raises(SourceUnreachable, match="cffi"):
        bundled.make(tmp_path / "out" / "lacking", sign_key=key)
    old = make_wheel(tmp_path / "old", "toktier", requires=["a"], tag=TAG, members=pins_of(bundled.own))
    with pytest.raises(UsageError, match="has no extra sign"):
        replace(bundled, own=old).make(tmp_path / "out" / "old", sign_key=key)
    with pytest.raises(UsageError, match="part of our wheel"):
        bundled.make(tmp_path / "out" / "none", ("mini",), sign_key=key)


def test_nothing_is_left_when_a_dependency_lacks(tmp_path: Path, own: Path, index: Path) -> None:
    (index / "a-1-py3-none-any.whl").unlink()
    with pytest.raises(SourceUnreachable, match=r"no index was asked.* a"):
        make(tmp_path, own)
    assert left(tmp_path) == []


@pytest.mark.ci
def test_nothing_is_left_after_an_interrupt(
    tmp_path: Path, own: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kit_module, "_seal", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, own)
    assert left(tmp_path) == []


@pytest.mark.ci
def test_a_full_disk_says_so(tmp_path: Path, own: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(EnvironmentFault, match="No space left"):
        make(tmp_path, own)
    assert left(tmp_path) == []


@pytest.mark.ci
def test_killed_in_the_middle_nothing_has_the_final_name(tmp_path: Path, own: Path, index: Path) -> None:
    script = (
        "import os, signal, sys\nfrom toktier.artifacts import kit\n"
        "kit._rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from toktier_cli.main import main\nmain(sys.argv[1:])"
    )
    command = ["artifacts", "kit", MINI, "--out", str(tmp_path / "out" / "kit"), "--wheel", str(own), "--offline"]
    ran = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == -9, ran.stderr
    assert not (tmp_path / "out" / "kit").exists()
    assert make(tmp_path, own).files > 4, "what the killed one left is in nobody's way"


# The verb.


def kit_verb(tmp_path: Path, index: Path, *arguments: str, json: bool = True) -> Any:
    line = ["artifacts", "kit", *arguments, *(["--json"] if json else [])]
    return run(*line, home=tmp_path / "home", env={"PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull})


@pytest.mark.ci
def test_the_verb_prints_what_was_made_and_what_to_compare(tmp_path: Path, own: Path, index: Path) -> None:
    out = tmp_path / "out" / "kit"
    said = kit_verb(tmp_path, index, MINI, "--out", str(out), "--wheel", str(own))
    document = check_document(said)
    assert said.code == 0
    assert (document["out"], document["digest"]) == (str(out), verify_kit.check(out).digest)
    text = kit_verb(tmp_path, index, MINI, "--out", str(out) + "2", "--wheel", str(own), json=False)
    assert f"kit digest: {document['digest']}\n" in text.text
    assert f"toktier_mini: in {own.name}\n" in text.text


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("--wheel", "nowhere-1-py3-none-any.whl"), 3, "ARTIFACT_NOT_FOUND"),
        (("--wheel", "nowhere.zip"), 2, "USAGE"),
        (("--wheel", "OWN", "--python", "3.12"), 2, "USAGE"),
        (("--wheel", "OWN", "--python", "three"), 2, "USAGE"),
        (("--wheel", "OWN", "--platform", "manylinux2014_x86_64"), 2, "USAGE"),
        (("--wheel", "OWN", "--platform", "win_amd64"), 2, "USAGE"),
    ],
)
def test_refusals_of_the_verb(
    tmp_path: Path, own: Path, index: Path, arguments: tuple[str, ...], code: int, error: str
) -> None:
    line = [str(own) if word == "OWN" else word for word in arguments]
    said = kit_verb(tmp_path, index, MINI, "--out", str(tmp_path / "out" / "kit"), *line)
    assert (said.code, check_document(said)["error"]["code"]) == (code, error)
    assert left(tmp_path) == []


@pytest.mark.ci
def test_an_index_that_cannot_be_reached_is_exit_3(tmp_path: Path, own: Path, index: Path) -> None:
    for wheel in index.iterdir():
        wheel.unlink()
    environment = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    said = run("artifacts", "kit", MINI, "--out", str(tmp_path / "out" / "kit"), "--wheel", str(own), "--json",
               home=tmp_path / "home", env=environment)  # fmt: skip
    document = check_document(said)
    assert (said.code, document["error"]["code"]) == (3, "SOURCE_UNREACHABLE")
    assert "No matching distribution found for a" in document["error"]["message"]
    assert left(tmp_path) == []


def test_artifacts_verify_answers_as_the_verifier_does(tmp_path: Path, own: Path, index: Path) -> None:
    kit = make(tmp_path, own).path
    whole = run("artifacts", "verify", str(kit), "--json", home=None)
    (entry,) = check_document(whole)["paths"]
    assert (whole.code, entry["error"]) == (0, None)
    assert entry["kit"] == {
        "digest": verify_kit.check(kit).digest, "complete": True, "valid": True,
        "files": verify_kit.check(kit).files, "problems": [], "bundle": None,
    }  # fmt: skip
    (kit / "wheels" / "a-1-py3-none-any.whl").unlink()
    missing = run("artifacts", "verify", str(kit), "--json", home=None)
    (entry,) = check_document(missing)["paths"]
    assert (missing.code, entry["kit"]["complete"], entry["kit"]["valid"]) == (6, False, True)
    make_wheel(kit / "wheels", "toktier", "9.9")
    added = run("artifacts", "verify", str(kit), home=None)
    assert added.code == 5
    assert "is not valid: wheels/a-1-py3-none-any.whl: it is not there" in added.text
    (kit / "kit.json").unlink()
    assert run("artifacts", "verify", str(kit), home=None).code == 5


def test_licences_and_notices_of_our_wheel_lie_in_the_open(tmp_path: Path, index: Path) -> None:
    table = (resources.tables_dir() / "artifact_pins.json").read_bytes()
    members = {
        PINS_MEMBER: table,
        "toktier-0.1.0.dist-info/licenses/LICENSE": b"licence",
        "toktier-0.1.0.dist-info/sboms/toktier.cdx.json": b"{}",
        "toktier-0.1.0.dist-info/licenses/../../x": b"outside",
        "other/licenses/y": b"not ours",
    }
    kit = make(
        tmp_path, make_wheel(tmp_path / "ours", "toktier", "0.1.0", tag=TAG, requires=["a"], members=members)
    ).path
    assert sorted(path.name for path in (kit / "notices").iterdir()) == ["LICENSE", "toktier.cdx.json"]
    assert (kit / "notices" / "LICENSE").read_bytes() == b"licence"
