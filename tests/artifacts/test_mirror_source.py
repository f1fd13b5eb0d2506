"""A mirror over HTTP and as a directory: each fault has its own error and exit code; only pinned bytes are stored."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.artifacts.conftest import World
from tests.artifacts.hub_server import Hub, serve
from tests.support.namespaces import can_unshare, small_disk
from toktier.artifacts import child_process, mirror_source
from toktier.artifacts.fetch import FetchReport, fetch
from toktier.artifacts.mirror_source import parse_mirror
from toktier.artifacts.network_client import without_credentials
from toktier.errors import ArtifactHashMismatch, ArtifactNotFound, ConfigInvalid, EnvironmentFault, SourceUnreachable

REPOSITORY = {"alpha": ("org/Alpha", "a" * 40), "beta": ("org/Beta", "b" * 40)}


@pytest.fixture(autouse=True)
def closed_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("HF_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(mirror_source, "IDLE_SECONDS", 100.0)  # a server that is only slow is none that fails


def place(family: str, name: str = "tokenizer.json") -> str:
    repository, revision = REPOSITORY[family]
    return f"/{repository}/resolve/{revision}/{name}"


def tree(world: World, prefix: str = "") -> dict[str, bytes]:
    return {
        prefix + place("alpha"): world.alpha,
        prefix + place("alpha", "tokenizer_config.json"): world.alpha_config,
        prefix + place("beta"): world.beta,
    }


def bring(world: World, url: str, family: str = "beta", timeout: float = 600.0, **more: Any) -> FetchReport:
    return fetch(family, world.settings, source=url, timeout=timeout, pins=world.pins, **more)


def stored(world: World) -> list[str]:
    """Everything under a final name."""
    blobs = [p for p in (world.cache.root / "blobs").rglob("*") if p.is_file()]
    assert all(hashlib.sha256(p.read_bytes()).hexdigest() == p.name for p in blobs)
    return sorted(p.name for p in blobs)


def parts(world: World) -> list[Path]:
    return sorted((world.cache.root / "parts").glob("*")) if (world.cache.root / "parts").exists() else []


@pytest.mark.parametrize(
    "fault",
    ["none", "cut-once", "chunked", "redirect", "416", "bad-range", "no-range"],
)
def test_what_a_server_may_do_and_still_gives_the_file(world: World, fault: str) -> None:
    with serve(Hub(tree(world), fault, static=True)) as hub:
        report = bring(world, hub.url)
    assert report.files["tokenizer.json"].source == f"mirror: {hub.url}"
    assert stored(world) == [world.pins.families["beta"].tokenizer.sha256]
    assert parts(world) == []
    if fault == "cut-once":
        assert hub.sent("Range") == [f"bytes={len(world.beta) // 2}-"]
    note = world.cache.read_note("beta")
    assert note is not None
    assert note["source"] == f"mirror: {hub.url}"


@pytest.mark.parametrize(
    ("fault", "kind", "code", "said"),
    [
        ("404", SourceUnreachable, 3, "has no org/Beta/resolve/"),
        ("401", SourceUnreachable, 3, "refuses org/Beta/.*answers 401"),
        ("403", SourceUnreachable, 3, "answers 403"),
        ("500", SourceUnreachable, 3, "did not give org/Beta/.*: it answers 500"),
        ("wrong", ArtifactHashMismatch, 5, "with the SHA-256"),
        ("longer", ArtifactHashMismatch, 5, "160,001 bytes, the pin says 160,000"),
        ("shorter", ArtifactHashMismatch, 5, "159,999 bytes"),
        ("page", ArtifactHashMismatch, 5, "26 bytes"),
        ("redirect-forever", SourceUnreachable, 3, "did not give .*: it redirects more than 5 times"),
        ("cut", SourceUnreachable, 3, "cut"),
        ("chunked-cut", SourceUnreachable, 3, "the connection was cut, 80,000 of 160,000 bytes came"),
        pytest.param("slow", SourceUnreachable, 3, "nothing came for 1 s|took longer", marks=pytest.mark.ci),
    ],
)
def test_a_server_that_fails_is_an_error_that_says_how(
    world: World, fault: str, kind: type[Exception], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "slow":
        monkeypatch.setattr(mirror_source, "IDLE_SECONDS", 1.0)
    with serve(Hub(tree(world), fault, static=True)) as hub, pytest.raises(kind, match=said) as caught:
        bring(world, hub.url)
    assert caught.value.exit_code == code
    assert stored(world) == []
    assert world.cache.read_note("beta") is None


def test_a_redirect_to_a_host_that_refuses_is_not_the_mirror_that_does(world: World) -> None:
    with serve(Hub({})) as gone:
        closed = gone.url
    hub = Hub(tree(world), "redirect-away", static=True, elsewhere=closed.replace("//", "//u:s3cret@"))
    with serve(hub), pytest.raises(SourceUnreachable) as caught:
        bring(world, hub.url)
    assert f"it redirects to {closed.removeprefix('http://')}, which cannot be reached" in caught.value.message
    assert caught.value.message.startswith(f"{hub.url} did not give ")
    assert (caught.value.details["reason"], caught.value.exit_code) == ("failed", 3)
    assert "s3cret" not in str(caught.value.to_dict())


def test_a_cut_download_goes_on_where_it_ended_in_the_next_run(world: World) -> None:
    with serve(Hub(tree(world), "chunked-cut", static=True)) as hub:
        with pytest.raises(SourceUnreachable, match="80,000 of 160,000"):
            bring(world, hub.url)
        (part,) = parts(world)
        assert part.read_bytes() == world.beta[:80_000]
        hub.fault = "none"
        hub.headers.clear()
        bring(world, hub.url)
    assert hub.sent("Range") == ["bytes=80000-"]
    assert parts(world) == []
    assert len(stored(world)) == 1


@pytest.mark.parametrize("left", [b"other bytes", bytes(160_000), bytes(200_000)])
def test_a_part_file_of_other_content_costs_one_download_and_is_never_believed(world: World, left: bytes) -> None:
    (world.cache.root / "parts").mkdir(parents=True)
    pin = world.pins.families["beta"].tokenizer
    (world.cache.root / "parts" / f"{pin.sha256}.part").write_bytes(left)
    with serve(Hub(tree(world), static=True)) as hub:
        bring(world, hub.url)
    assert stored(world) == [pin.sha256]


def test_a_time_out_ends_a_trickle_and_keeps_what_came(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over once something has come, however long that takes here."""

    def clock() -> float:
        return time.monotonic() + (1000 if any(part.stat().st_size for part in parts(world)) else 0)

    with serve(Hub(tree(world), "trickle", static=True)) as hub:
        with monkeypatch.context() as patch:
            patch.setattr(child_process, "time", SimpleNamespace(monotonic=clock))
            with pytest.raises(SourceUnreachable, match=r"took longer than (200|199)"):
                bring(world, hub.url, timeout=200.0, watch=lambda *_: None)
        assert 0 < parts(world)[0].stat().st_size < 160_000
        assert stored(world) == []
        hub.fault = "none"
        bring(world, hub.url)
    assert len(stored(world)) == 1


def test_one_file_that_is_not_there_does_not_keep_the_others_away(world: World) -> None:
    files = tree(world)
    del files[place("alpha", "tokenizer_config.json")]
    with serve(Hub(files, static=True)) as hub:
        report = bring(world, hub.url, "alpha", complete=True)
    assert report.loadable
    assert not report.complete
    missing = report.files["tokenizer_config.json"]
    assert missing.outcome == "missing"
    assert missing.error is not None
    assert "answers 404" in missing.error.message
    assert report.attempts[-1][1].startswith("gave 1 of 2 files; ")


def test_nobody_listens(world: World) -> None:
    with pytest.raises(SourceUnreachable, match=r"cannot be reached \(Connection refused\)") as caught:
        bring(world, "http://127.0.0.1:9/tree")
    assert caught.value.details["reason"] == "unreachable"


def test_credentials_reach_the_host_and_no_message(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    with serve(Hub(tree(world, "/tree"), static=True, password="us er:pa/ss")) as hub:
        address = hub.url.removeprefix("http://")
        notes: list[str] = []
        url = f"http://us%20er:pa%2Fss@{address}/tree?token=s3cret#frag"
        report = fetch("beta", world.settings, source=url, pins=world.pins, notify=notes.append)
        told = [*notes, str(report.attempts), str(report.files), str(world.cache.read_note("beta"))]
        assert hub.requests[-1].endswith("tokenizer.json?token=s3cret")
        with pytest.raises(SourceUnreachable, match="refuses") as caught:
            fetch("alpha", world.settings, source=f"http://us:wr0ng@{address}/tree?token=s3cret", pins=world.pins)
        told += [caught.value.message, str(caught.value.details), str(caught.value.remedy)]
        with pytest.raises(SourceUnreachable) as caught:
            fetch("alpha", world.settings, source=f"http://us:wr0ng@{address}/none?token=s3cret", pins=world.pins)
        told += [caught.value.message, str(caught.value.details), str(caught.value.remedy), *capfd.readouterr()]
    for secret in ("pa/ss", "pa%2Fss", "wr0ng", "s3cret", "us er", "us%20er"):
        assert not [text for text in told if secret in text]


def test_credentials_are_not_taken_to_another_host(world: World) -> None:
    with serve(Hub(tree(world), static=True)) as other, serve(Hub(tree(world), "redirect-away", static=True)) as hub:
        hub.elsewhere = other.url
        hub.password = "u:p"
        bring(world, hub.url.replace("http://", "http://u:p@"))
    assert hub.sent("Authorization")
    assert other.requests
    assert not other.sent("Authorization")
    assert len(stored(world)) == 1


def test_a_proxy_is_asked_and_no_proxy_is_heeded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Hub(tree(world), static=True)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        bring(world, "http://mirror.invalid")
        assert proxy.requests[0].startswith("GET http://mirror.invalid/org/Beta/resolve/")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        with pytest.raises(SourceUnreachable):
            bring(world, proxy.url, "alpha")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        bring(world, proxy.url, "alpha")


def test_a_mirror_is_not_asked_offline_and_a_directory_is(world: World, tmp_path: Path) -> None:
    offline = world.with_settings(offline=True)
    with serve(Hub(tree(world), static=True)) as hub:
        with pytest.raises(SourceUnreachable, match="offline"):
            fetch("beta", offline, source=hub.url, pins=world.pins)
        assert hub.requests == []
    root = tmp_path / "a mirror" / "größe"
    for path, data in tree(world).items():
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_bytes(data)
    report = fetch("alpha", offline, source=root.as_uri(), complete=True, pins=world.pins)
    assert report.complete
    (root / place("beta")[1:]).write_bytes(world.alpha)
    with pytest.raises(ArtifactHashMismatch):
        fetch("beta", offline, source=root.as_uri(), pins=world.pins)
    (root / place("beta")[1:]).unlink()
    with pytest.raises(ArtifactNotFound):
        fetch("beta", offline, source=root.as_uri(), pins=world.pins)
    (root / "loose.bin").write_bytes(world.beta)
    assert fetch("beta", offline, source=root.as_uri(), pins=world.pins).loadable


@pytest.mark.parametrize(
    "url", ["ftp://u:p4ss@host/x", "http://", "http://host:port/p4ss", "file://other/p4ss", "http://[::1/p4ss"]
)
def test_a_url_that_is_no_mirror(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_mirror(url)
    assert "p4ss" not in str(caught.value.to_dict())


def test_urls_in_what_others_print_lose_their_secrets() -> None:
    text = "Looking in https://u:p@host/simple?t=1 and 'http://x@y:8/z' and ftp://h/p#f, mail a@b.c?"
    clean = without_credentials(text)
    assert clean == "Looking in https://host/simple and 'http://y:8/z' and ftp://h/p mail a@b.c?"


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs the right to mount a small file system")
def test_a_disk_without_room_is_told_before_anything_is_downloaded(world: World, tmp_path: Path) -> None:
    home = tmp_path / "small"
    home.mkdir()
    code = (
        "import sys\nfrom pathlib import Path\nfrom toktier.artifacts.cache import ArtifactCache\n"
        "from toktier.artifacts.pins import Family, PinnedFile\nfrom toktier.artifacts import mirror_source as m\n"
        "pin = PinnedFile('f', 'tokenizer.json', '0' * 64, 50_000_000)\n"
        "family = Family(name='f', repo_id='o/r', revision='0' * 40, shipped=False, files={'tokenizer.json': pin},\n"
        "    inputs={}, publications=())\n"
        "cache = ArtifactCache(Path(sys.argv[1], 'cache'))\n"
        "try:\n    m.mirror_file(m.parse_mirror(sys.argv[2]), family, pin, cache, 20.0)\n"
        "except Exception as error:\n    print(type(error).__name__, sorted(error.details))\n"
    )
    with serve(Hub(tree(world), static=True)) as hub:
        command = small_disk(home, "16m", sys.executable, "-c", code, str(home), hub.url)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert hub.requests == []
    assert done.stdout.startswith(EnvironmentFault.__name__), done.stderr
    assert "needed_bytes" in done.stdout
