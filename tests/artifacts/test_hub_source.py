"""The hub through its own client, from a hub on loopback: each fault has its exit code and leaves nothing half-written.

Also under the client's other line (1 or 2), where the package index gives it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.artifacts.conftest import World
from tests.artifacts.hub_server import Hub, serve
from toktier.artifacts import network_sources
from toktier.artifacts.fetch import FetchReport, fetch
from toktier.errors import ArtifactHashMismatch, ConfigInvalid, SourceUnreachable, ToktierError


def client_line() -> str:
    from importlib.metadata import version

    return version("huggingface-hub").split(".")[0]


OTHER_LINE = {"1": "huggingface-hub>=2,<3", "2": "huggingface-hub>=1,<2"}.get(client_line(), "")


@pytest.fixture(autouse=True)
def closed_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("HF_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.fixture(scope="session")
def other_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the hub client's other line, to stand first on the path; skips where no index gives it."""
    target = tmp_path_factory.mktemp("client")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), OTHER_LINE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        pytest.skip(f"the package index does not give {OTHER_LINE}: {done.stderr.strip()[-200:]}")
    return target


@pytest.fixture(params=["installed", pytest.param("other", marks=pytest.mark.ci)])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which line of the client serves: the installed one, or the other."""
    if request.param == "other":
        monkeypatch.setenv("PYTHONPATH", str(request.getfixturevalue("other_client")))
    code = "import huggingface_hub as h; print(h.__version__)"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert (seen.split(".")[0] == client_line()) == (request.param == "installed")
    return seen


def files(world: World) -> dict[str, bytes]:
    def place(family: str, name: str) -> str:
        entry = world.pins.families[family]
        return f"/{entry.repo_id}/resolve/{entry.revision}/{name}"

    return {
        place("alpha", "tokenizer.json"): world.alpha,
        place("alpha", "tokenizer_config.json"): world.alpha_config,
        place("beta", "tokenizer.json"): world.beta,
    }


def bring(world: World, family: str = "beta", timeout: float = 600.0, **more: bool) -> FetchReport:
    return fetch(family, world.settings, source="hub", timeout=timeout, pins=world.pins, **more)


def left(world: World) -> list[Path]:
    return [p for p in world.home.rglob("*") if p.is_file()]


@pytest.mark.parametrize("fault", ["none", "redirect", "cut-once"])
def test_the_hub_gives_the_file(world: World, monkeypatch: pytest.MonkeyPatch, client: str, fault: str) -> None:
    with serve(Hub(files(world), fault)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        report = bring(world, "alpha" if fault == "none" else "beta", complete=fault == "none")
    assert report.complete
    assert not [p for p in left(world) if "parts" in p.parts or p.suffix == ".lock" or ".tmp" in p.name]
    if fault == "cut-once":
        # The client keeps whole chunks of 10 MB only, so that a small file is asked for again from its beginning.
        assert [r.split()[0] for r in hub.requests].count("GET") == 2
    assert any(f"hf_hub/{client}" in agent for agent in hub.sent("User-Agent"))


@pytest.mark.parametrize(
    ("fault", "kind", "code", "said"),
    [
        ("404", SourceUnreachable, 3, r"the hub has no tokenizer\.json of org/Beta"),
        ("401", SourceUnreachable, 3, "asks for an accepted licence"),
        ("418", SourceUnreachable, 3, "did not give .*418"),
        ("wrong", ArtifactHashMismatch, 5, "the pin says 160,000 bytes"),
        pytest.param("403", SourceUnreachable, 3, "refuses org/Beta|did not give", marks=pytest.mark.ci),
        pytest.param("500", SourceUnreachable, 3, "500|took longer", marks=pytest.mark.ci),
        pytest.param("cut", SourceUnreachable, 3, "took longer|did not give", marks=pytest.mark.ci),
        pytest.param("slow", SourceUnreachable, 3, "took longer", marks=pytest.mark.ci),
    ],
)
def test_a_hub_that_fails(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    fault: str,
    kind: type[ToktierError],
    code: int,
    said: str,
) -> None:
    with serve(Hub(files(world), fault)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(kind, match=said) as caught:
            bring(world, timeout=6.0 if fault in ("cut", "slow", "500") else 600.0)
    assert caught.value.exit_code == code
    assert "more information" not in str(caught.value.to_dict())
    assert left(world) == []


def test_a_plain_tree_at_hf_endpoint_is_read_by_our_own_download(
    world: World, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    with serve(Hub(files(world), static=True)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        report = bring(world)
    assert report.files["tokenizer.json"].source == f"hub: org/Beta@{'b' * 40}"
    assert "toktier" in hub.sent("User-Agent"), "the hub's client served, so the plain tree was not plain"


def test_the_hub_is_asked_through_the_proxy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Hub(files(world))) as proxy:
        monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
        monkeypatch.setenv("http_proxy", proxy.url)
        bring(world)
    assert all(r.split()[1].startswith("http://hub.invalid/") for r in proxy.requests)


def test_a_token_is_in_no_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Hub(files(world), "401")) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("http://", "http://user:passw0rd@"))
        monkeypatch.setenv("HF_TOKEN", "hf_s3cretTok3n")
        with pytest.raises(SourceUnreachable) as caught:
            bring(world)
    told = str(caught.value.to_dict())
    assert "passw0rd" not in told
    assert "hf_s3cret" not in told


def test_without_the_client_the_remedy_names_it(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shadow" / "huggingface_hub").mkdir(parents=True)
    (tmp_path / "shadow" / "huggingface_hub" / "__init__.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    with serve(Hub(files(world))) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(SourceUnreachable) as caught:
            bring(world)
    assert caught.value.remedy == "install the distribution huggingface-hub"


@pytest.mark.parametrize(
    "value", ["nonsense", "http://", "u:s3cret@host", "http://u:s3cret@host:port/", "http://[::1", "ftp://h", "file:///m",
              "http://ho st/", "https//host"]
)  # fmt: skip
def test_an_endpoint_that_is_no_url_is_named(world: World, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", value)
    with pytest.raises(ConfigInvalid, match=r"^HF_ENDPOINT is no http or https URL of a host") as caught:
        bring(world)
    assert caught.value.exit_code == 2
    assert "s3cret" not in str(caught.value.to_dict())
    assert left(world) == []


def test_no_endpoint_is_no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "")
    assert network_sources.hub_endpoint() is None
