"""The verbs about bundles, as typed: documents that fit their schemas, and the exit code of every answer."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shlex
import shutil
import tarfile
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.artifacts.conftest import World, world  # noqa: F401
from tests.artifacts.test_bundle_format import part
from tests.artifacts.test_signatures import key_pair
from tests.cli.command import check_document, run_here
from tests.support.tokenizer_maker import encoded, minimal
from toktier.artifacts.bundle_writer import write_bundle


class Command:
    """The command with the two small families pinned."""

    def __init__(self, world: World, place: Path, monkeypatch: Any, capture: Any) -> None:  # noqa: F811
        self.world, self.place = world, place
        self._patch, self._capture = monkeypatch, capture
        for verb in ("artifacts_export", "artifacts_show", "artifacts_bring"):
            monkeypatch.setattr(f"toktier_cli.verbs.{verb}.shipped_pins", lambda: world.pins)
        for module in ("bundle_import", "import_paths", "fetch"):
            monkeypatch.setattr(f"toktier.artifacts.{module}.shipped_pins", lambda: world.pins)
        monkeypatch.chdir(place)

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        outcome = run_here(
            "artifacts", *arguments, "--json", home=self.world.home, monkeypatch=self._patch, capture=self._capture
        )
        document = check_document(outcome)
        assert outcome.code == code, document
        return document


@pytest.fixture
def command(
    world: World,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Command:
    key_pair(tmp_path, "right")
    key_pair(tmp_path, "wrong")
    for name, data in (("tokenizer.json", world.alpha), ("tokenizer_config.json", world.alpha_config)):
        world.cache.store(world.pins.family("alpha").files[name], data)
    return Command(world, tmp_path, monkeypatch, capfdbinary)


def answers(document: Any) -> tuple[Any, ...]:
    bundle = document["paths"][0]["bundle"]
    return tuple(bundle[key] for key in ("complete", "valid", "pinned", "signed"))


def test_export_verify_import(command: Command) -> None:
    exported = command("export", "alpha", "--out", "b.tar.zst")
    assert exported["bundle"]["signature"] is None
    verified = command("verify", "b.tar.zst")
    assert answers(verified) == (True, True, True, None)
    assert verified["paths"][0]["bundle"]["content_digest"] == exported["bundle"]["content_digest"]
    imported = command("import", "b.tar.zst")
    assert imported["paths"][0]["bundle"]["content_digest"] == exported["bundle"]["content_digest"]


def test_complete_is_demanded_or_not(command: Command) -> None:
    command.world.cache.remove(command.world.pins.family("alpha").files["tokenizer_config.json"])
    refused = command("export", "alpha", "--out", "b.tar", "--complete", code=6)
    assert refused["bundle"] is None
    assert refused["families"][0]["missing"] == ["tokenizer_config.json"]
    assert not (command.place / "b.tar").exists()
    assert not command("export", "alpha", "--out", "b.tar")["complete"]
    assert command("verify", "b.tar")["paths"][0]["bundle"]["parts"][0]["missing"] == ["tokenizer_config.json"]
    command("verify", "b.tar", "--complete", code=6)


def test_signatures(command: Command) -> None:
    exported = command("export", "alpha", "--out", "b.tar", "--sign", "right.pem")
    right, wrong = ("--verify-key", "right.pub.pem"), ("--verify-key", "wrong.pub.pem")
    assert answers(command("verify", "b.tar", *right)) == (True, True, True, True)
    assert answers(command("verify", "b.tar", *wrong, code=5)) == (True, True, True, False)
    assert command("import", "b.tar", *right)["paths"][0]["bundle"]["signed_by"] == exported["bundle"]["signed_by"]
    assert command("import", "b.tar", *wrong, code=5)["error"]["code"] == "SIGNATURE_INVALID"
    (command.place / "b.tar.sig.json").unlink()
    assert command("import", "b.tar", *right, code=5)["error"]["code"] == "SIGNATURE_MISSING"
    assert answers(command("verify", "b.tar", *right, code=5)) == (True, True, True, False)


def test_the_policy_of_config_toml_holds_for_every_way_in(command: Command) -> None:
    command("export", "alpha", "--out", "b.tar")
    keys = json.dumps([str(command.place / "right.pub.pem")])
    (command.world.home / "config.toml").write_text(f"signature_keys = {keys}\n")
    assert command("import", "b.tar", code=5)["error"]["code"] == "SIGNATURE_MISSING"
    command("verify", "b.tar", code=5)
    command("import", "b.tar", "--as", "local/x", code=5)
    (command.place / "t.json").write_bytes(command.world.beta)
    command("import", "t.json", "--as", "local/x", code=2)


def gzipped(place: Path) -> str:
    (place / "b.tar.gz").write_bytes(gzip.compress((place / "b.tar").read_bytes()))
    return "b.tar.gz"


def in_a_directory(place: Path) -> str:
    (place / "dir" / "below").mkdir(parents=True)
    shutil.copy(place / "b.tar", place / "dir" / "below")
    return "dir"


def compressed_in_a_directory(place: Path) -> str:
    (place / "dir").mkdir()
    (place / "dir" / "b.tar.zst").write_bytes(zstandard.compress((place / "b.tar").read_bytes()))
    return "dir"


def unpacked(place: Path) -> str:
    with tarfile.open(place / "b.tar") as archive:
        archive.extractall(place / "dir", filter="data")
    return "dir"


def repacked(place: Path) -> str:
    with zipfile.ZipFile(place / "b.zip", "w") as archive, tarfile.open(place / "b.tar") as bundle:
        for member in reversed(bundle.getmembers()):
            body = bundle.extractfile(member)
            assert body is not None
            archive.writestr(f"in/{member.name}", body.read())
    return "b.zip"


def itself(place: Path) -> str:
    return "b.tar"


@pytest.mark.parametrize("wrap", [gzipped, in_a_directory, compressed_in_a_directory, unpacked, repacked, itself])
@pytest.mark.parametrize("several", [False, True])
def test_a_bundle_in_something_else_does_not_go_past_the_policy(command: Command, wrap: Any, several: bool) -> None:
    family = command.world.pins.family("alpha")
    names = ["alpha"]
    if several:
        command.world.cache.store(command.world.pins.family("beta").tokenizer, command.world.beta)
        names.append("beta")
    command("export", *names, "--out", "b.tar")
    inside = wrap(command.place)
    for file in family.files.values():
        command.world.cache.remove(file)
    keys = json.dumps([str(command.place / "right.pub.pem")])
    (command.world.home / "config.toml").write_text(f"signature_keys = {keys}\n")
    fetched = ("fetch", "alpha", "--from", inside)
    for line in (("import", inside), *([] if inside == "b.tar" else [("verify", inside)]), fetched):
        document = command(*line, code=5)
        error = document["paths"][0]["error"] if line[0] == "verify" else document["error"]
        assert error["code"] == "SIGNATURE_MISSING", document
    assert command.world.cache.state(family.tokenizer).status == "missing"
    (command.world.home / "config.toml").unlink()
    if not several and inside != "b.tar":
        command("import", inside)
        assert command.world.cache.state(family.tokenizer).status == "ok"


def test_pinned_content_that_is_no_bundle_needs_no_signature(command: Command) -> None:
    keys = json.dumps([str(command.place / "right.pub.pem")])
    (command.world.home / "config.toml").write_text(f"signature_keys = {keys}\n")
    (command.place / "dir").mkdir()
    (command.place / "dir" / "t.json").write_bytes(command.world.beta)
    command("import", "dir")
    command("verify", "dir")


def test_only_bundles_are_signed(command: Command) -> None:
    (command.place / "t.json").write_bytes(command.world.beta)
    error = command("import", "t.json", "--verify-key", "right.pub.pem", code=5)["error"]
    assert error["code"] == "SIGNATURE_MISSING"


def test_damage_is_told_apart(command: Command) -> None:
    command("export", "alpha", "--out", "b.tar")
    data = bytearray((command.place / "b.tar").read_bytes())
    data[data.index(command.world.alpha) + 1000] ^= 1
    (command.place / "b.tar").write_bytes(data)
    document = command("verify", "b.tar", code=5)
    assert answers(document) == (True, False, True, None)
    assert [f["status"] for f in document["paths"][0]["bundle"]["parts"][0]["files"]] == ["damaged", "ok"]
    error = command("import", "b.tar", code=5)["error"]
    assert (error["code"], error["details"]["reason"]) == ("BUNDLE_INVALID", "file_digest")


def test_a_bundle_that_nobody_pinned_is_whole_and_unpinned(command: Command) -> None:
    write_bundle(command.place / "b.tar", [part(command.place, "x", {"tokenizer.json": b"{}"})])
    assert answers(command("verify", "b.tar", code=4)) == (True, True, False, None)
    assert command("import", "b.tar", code=4)["error"]["code"] == "UNCERTIFIED_TOKENIZER"


@pytest.mark.parametrize("out", ["/dev/null", "/dev/stdout", "", ".", "b.tar.gz", "no/b.tar"])
def test_export_leaves_what_is_no_bundle_alone(command: Command, out: str) -> None:
    command("export", "alpha", "--out", out, code=7 if out.startswith("no") else 2)
    assert Path("/dev/null").is_char_device()


def test_another_path_of_one_import_may_bring_the_tokenizer_of_side_files(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in command.world.pins.family("alpha").files.values():
        command.world.cache.remove(file)
    (command.place / "side").write_bytes(command.world.alpha_config)
    (command.place / "alpha").write_bytes(command.world.alpha)
    (command.place / "beta").write_bytes(command.world.beta)
    alone = command("import", "side", code=3)["error"]
    assert (alone["code"], alone["details"]["families"]) == ("ARTIFACT_NOT_FOUND", ["alpha"])
    left = command("import", "side", "beta", code=6)
    assert [file["outcome"] for path in left["paths"] for file in path["files"]] == ["stored"]
    assert command("verify")["families"][0]["family"] == "beta"
    whole = command("import", "side", "alpha")
    assert [file["outcome"] for path in whole["paths"] for file in path["files"]] == ["stored", "stored"]
    for file in command.world.pins.family("alpha").files.values():
        command.world.cache.remove(file)
    (command.place / "dir").mkdir()
    for name in ("side", "beta"):
        (command.place / name).rename(command.place / "dir" / name)
    (said,) = command("import", "dir")["paths"]
    assert [(f["family"], f["outcome"]) for f in said["files"]] == [("beta", "cached"), ("alpha", "not_stored")]


@pytest.mark.parametrize("verb", ["export", "mirror"])
@pytest.mark.parametrize("found", ["before", "while writing"])
def test_a_full_disk_at_out_is_no_matter_of_the_home(
    command: Command, monkeypatch: pytest.MonkeyPatch, verb: str, found: str
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if found == "before":
        none = types.SimpleNamespace(f_bavail=0, f_frsize=4096, f_blocks=1)
        monkeypatch.setattr("toktier.storage.os.statvfs", lambda _: none)
    else:
        monkeypatch.setattr("toktier.storage.os.fsync", full)
    monkeypatch.setattr("toktier_cli.verbs.artifacts_mirror.shipped_pins", lambda: command.world.pins)
    error = command(verb, "alpha", "--out", "there.tar", code=7)["error"]
    assert error["remedy"] == "free space on that file system, or point --out elsewhere"
    assert error["details"]["errno"] == "ENOSPC"


def test_the_remedy_for_unpinned_content_can_be_pasted(command: Command) -> None:
    (command.place / "o d$(d)").mkdir()
    bare = command.place / "o d$(d)" / "my tokenizer.json"
    bare.write_bytes(encoded(minimal()))
    remedy = command("import", str(bare), code=4)["error"]["remedy"]
    line = remedy.partition("toktier artifacts ")[2]
    assert shlex.split(line)[:2] == ["import", str(bare)]
    command(*shlex.split(line))
    command("export", "local/NAME", "--out", str(bare.with_name("my b.tar")))
    command("remove", "local/NAME")
    remedy = command("import", str(bare.with_name("my b.tar")), code=4)["error"]["remedy"]
    assert shlex.split(remedy)[3] == str(bare.with_name("my b.tar"))
