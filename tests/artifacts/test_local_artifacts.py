"""Unpinned tokenizers under a name of the user's: registered, loaded, listed, verified, removed, carried on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import toktier
from tests.artifacts.conftest import World
from tests.artifacts.test_bundle_format import part
from tests.artifacts.test_bundle_import import alpha, blobs
from tests.cli.command import check_document, run
from tests.support.material import SMALL_DIR
from toktier.artifacts.bundle_import import import_bundle, import_local_file
from toktier.artifacts.bundle_writer import write_bundle
from toktier.artifacts.export import export_bundle
from toktier.artifacts.inventory import cached_families, extra_blobs, remove_family
from toktier.artifacts.local_artifacts import find_local, is_local_name, local_families, parse_name
from toktier.artifacts.resolve import obtain
from toktier.config import Config
from toktier.errors import (
    AliasConflict,
    ArtifactDamaged,
    ArtifactHashMismatch,
    ArtifactNotFound,
    NotATokenizer,
    UsageError,
)

SMALL = SMALL_DIR / "llama_like.json"
OTHER = next(p for p in sorted(SMALL_DIR.glob("*.json")) if p != SMALL)


@pytest.mark.parametrize(
    "name",
    ["mine", "local/", "local/../x", "local/a/b", "local/.x", "local/x.", "local/x.json", "local/é", "local/a b",
     "local/-x", "LOCAL/x", "local/" + "a" * 65, "local/a\n", ""],
)  # fmt: skip
def test_names_are_validated(name: str) -> None:
    assert not is_local_name(name)
    with pytest.raises(UsageError):
        parse_name(name)


@pytest.mark.parametrize("name", ["local/x", "local/My-Tokenizer_2.1", "local/" + "a" * 64])
def test_good_names(name: str) -> None:
    assert parse_name(name) == name.removeprefix("local/")


def test_a_bare_file_is_registered_and_loads(world: World) -> None:
    report = import_local_file(SMALL, world.settings, "local/mine")
    assert [i.outcome for i in report.imported] == ["stored"]
    assert [i.outcome for i in import_local_file(SMALL, world.settings, "local/mine").imported] == ["cached"]
    artifact = obtain("local/mine", world.settings, pins=world.pins)
    assert artifact.path.read_bytes() == SMALL.read_bytes()
    tok = toktier.load("local/mine", config=Config(home=world.home))
    assert tok.encode("hello you").ids == toktier.from_file(SMALL).encode("hello you").ids
    assert [f.name for f in local_families(world.cache)] == ["local/mine"]
    assert [s.family.name for s in cached_families(world.pins, world.cache)] == ["local/mine"]
    assert not extra_blobs(world.pins, world.cache)


def test_a_bundle_is_registered_only_under_a_name(world: World, tmp_path: Path) -> None:
    data = SMALL.read_bytes()
    write_bundle(tmp_path / "b.tar", [part(tmp_path, "x", {"tokenizer.json": data, "side.txt": b"1"})])
    outcome = import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins, local="local/mine")
    assert outcome.local == "local/mine"
    assert set(find_local("local/mine", world.cache).files) == {"tokenizer.json", "side.txt"}
    assert {i.file.family for i in outcome.report.imported} == {"local/mine"}


def test_a_local_artifact_is_carried_on(world: World, tmp_path: Path) -> None:
    import_local_file(SMALL, world.settings, "local/mine")
    report = export_bundle(["local/mine"], world.pins, world.settings, tmp_path / "b.tar")
    assert report.families[0].manifest.alias == "local-mine"
    remove_family(find_local("local/mine", world.cache), world.pins, world.cache)
    assert not blobs(world)
    import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins, local="local/theirs")
    assert obtain("local/theirs", world.settings, pins=world.pins).sha256


def test_a_name_is_taken_once(world: World, tmp_path: Path) -> None:
    import_local_file(SMALL, world.settings, "local/mine")
    for name, path in (("local/mine", OTHER), ("local/MINE", SMALL)):
        with pytest.raises(AliasConflict, match="local/mine"):
            import_local_file(path, world.settings, name)
    write_bundle(tmp_path / "b.tar", [part(tmp_path, "x", {"tokenizer.json": OTHER.read_bytes()})])
    before = blobs(world)
    with pytest.raises(AliasConflict):
        import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins, local="local/mine")
    assert blobs(world) == before


def test_a_false_claim_to_a_pin_is_refused_under_a_local_name_too(world: World, tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.tar", [part(tmp_path, f"alpha-{'a' * 12}", {"tokenizer.json": SMALL.read_bytes()})])
    with pytest.raises(ArtifactHashMismatch):
        import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins, local="local/mine")
    assert not local_families(world.cache)


def test_what_is_no_tokenizer_is_not_registered(world: World, tmp_path: Path) -> None:
    for content, error in ((b"", ArtifactDamaged), (b"{", ArtifactDamaged), (b'{"a": 1}', NotATokenizer)):
        (tmp_path / "t.json").write_bytes(content)
        with pytest.raises(error):
            import_local_file(tmp_path / "t.json", world.settings, "local/mine")
        write_bundle(tmp_path / "b.tar", [part(tmp_path, "x", {"tokenizer.json": content})])
        with pytest.raises(error):
            import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins, local="local/mine")
    write_bundle(tmp_path / "b.tar", [part(tmp_path, "x", {"other.json": b"{}"})])
    with pytest.raises(NotATokenizer):
        import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins, local="local/mine")
    assert not blobs(world)
    with pytest.raises(UsageError):
        import_local_file(tmp_path, world.settings, "local/mine")


def test_one_name_is_for_one_artifact(world: World, tmp_path: Path) -> None:
    small = {"tokenizer.json": SMALL.read_bytes()}
    write_bundle(tmp_path / "b.tar", [part(tmp_path, "x", small), part(tmp_path, "y", small)])
    with pytest.raises(UsageError, match="several"):
        import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins, local="local/mine")


def test_damage_is_found_and_named(world: World) -> None:
    import_local_file(SMALL, world.settings, "local/mine")
    family = find_local("local/mine", world.cache)
    blob = world.cache.blob_path(family.tokenizer.sha256)
    data = bytearray(blob.read_bytes())
    data[100] ^= 1
    blob.write_bytes(data)
    with pytest.raises(ArtifactHashMismatch) as caught:
        obtain("local/mine", world.settings, pins=world.pins)
    assert caught.value.remedy == "toktier artifacts import PATH --as local/mine"
    assert [i.outcome for i in import_local_file(SMALL, world.settings, "local/mine").imported] == ["replaced"]
    blob.unlink()
    with pytest.raises(ArtifactNotFound, match="registered"):
        obtain("local/mine", world.settings, pins=world.pins)
    with pytest.raises(ArtifactNotFound, match="there are: local/mine"):
        obtain("local/other", world.settings, pins=world.pins)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "toktier.local_artifact"}', "[" * 9999])
def test_a_damaged_record_is_an_error_of_its_artifact_alone(world: World, content: str) -> None:
    import_local_file(SMALL, world.settings, "local/mine")
    import_local_file(OTHER, world.settings, "local/other")
    record = world.cache.root / "local" / "mine.json"
    record.write_text(content)
    with pytest.raises(ArtifactDamaged, match="local/mine"):
        find_local("local/mine", world.cache)
    assert [f.name for f in local_families(world.cache)] == ["local/other"]


def test_a_record_cannot_point_elsewhere(world: World) -> None:
    import_local_file(SMALL, world.settings, "local/mine")
    record = world.cache.root / "local" / "mine.json"
    document = json.loads(record.read_text())
    document["files"][0]["sha256"] = "../../../../etc/passwd"
    record.write_text(json.dumps(document))
    with pytest.raises(ArtifactDamaged):
        find_local("local/mine", world.cache)


def test_removing_keeps_what_others_hold(world: World, tmp_path: Path) -> None:
    write_bundle(tmp_path / "a.tar", [alpha(world, tmp_path)])
    import_bundle(tmp_path / "a.tar", world.settings, pins=world.pins)
    import_local_file(SMALL, world.settings, "local/one")
    import_local_file(SMALL, world.settings, "local/two")
    freed, shared = remove_family(find_local("local/one", world.cache), world.pins, world.cache)
    assert (freed, shared) == (0, ["local/two"])
    freed, shared = remove_family(find_local("local/two", world.cache), world.pins, world.cache)
    assert (freed, shared) == (SMALL.stat().st_size, [])
    assert len(blobs(world)) == 2


def test_the_command_knows_local_artifacts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copy(SMALL, tmp_path / "t.json")

    def said(*arguments: str, code: int = 0) -> str:
        outcome = run(*arguments, home=home, cwd=tmp_path)
        assert outcome.code == code, outcome
        return outcome.text + outcome.stderr

    assert "uncertified" in said("artifacts", "import", "t.json", "--as", "local/mine")
    assert "local/mine" in said("artifacts", "list")
    assert "local/mine: ok" in said("artifacts", "verify", "local/mine")
    forced = ("--policy", "supported", "hello")
    assert said("encode", "--family", "local/mine", *forced) == said("encode", "--file", "t.json", *forced)
    said("artifacts", "export", "local/mine", "--out", "m.tar")
    assert "NOT PINNED" in said("artifacts", "verify", "m.tar", code=4)
    check_document(run("artifacts", "list", "--json", home=home, cwd=tmp_path))
    check_document(run("artifacts", "verify", "--json", home=home, cwd=tmp_path))
    assert "freed" in said("artifacts", "remove", "local/mine")
    said("encode", "--family", "local/mine", "hello", code=3)
    said("artifacts", "import", "t.json", "--as", "mine", code=2)
    said("artifacts", "import", "t.json", "m.tar", "--as", "local/mine", code=2)


def test_a_damaged_record_is_told_by_list_and_verify_and_taken_out_by_remove(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name, path in (("bad", SMALL), ("good", OTHER)):
        assert run("artifacts", "import", str(path), "--as", f"local/{name}", home=home).code == 0
    record = home / "cache" / "artifacts" / "local" / "bad.json"
    record.write_text("{")
    listed = run("artifacts", "list", "--json", home=home)
    assert [f["family"] for f in check_document(listed)["families"]] == ["local/good"]
    assert "the record of the local artifact local/bad" in listed.stderr
    verified = run("artifacts", "verify", "--json", home=home)
    document = check_document(verified)
    assert verified.code == 5
    assert [f["family"] for f in document["families"] if f["valid"]] == ["local/good"]
    (entry,) = document["paths"]
    assert (entry["path"], entry["exit_code"], entry["error"]["code"]) == (str(record), 5, "ARTIFACT_DAMAGED")
    assert entry["error"]["remedy"].startswith("toktier artifacts remove local/bad")
    assert run("artifacts", "remove", "local/bad", home=home).text == "local/bad: removed, 0 B freed\n"
    assert not record.exists()
    assert run("artifacts", "verify", home=home).code == 0
    assert run("artifacts", "import", str(SMALL), "--as", "local/bad", home=home).code == 0


def test_remove_names_who_keeps_the_content(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("a", "b"):
        assert run("artifacts", "import", str(SMALL), "--as", f"local/{name}", home=home).code == 0
    assert run("artifacts", "remove", "local/a", home=home).text == (
        "local/a: removed, 0 B freed; local/b keeps the same content\n"
    )
