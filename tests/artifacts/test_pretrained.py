"""Where a repository's tokenizer.json is looked for, in which order, and what counts as its bytes."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.artifacts.conftest import World, make_pins, pin
from tests.artifacts.hub_server import Hub, serve
from toktier.artifacts import child_process
from toktier.artifacts.hub_refs import repository_folder
from toktier.artifacts.pretrained import Identity, Pretrained, audited, find, identify
from toktier.artifacts.resolve import Artifact
from toktier.artifacts.siblings import Basis, Sibling, Siblings
from toktier.errors import ArtifactHashMismatch, ArtifactNotFound, ExitCode, SourceUnreachable

ALPHA, BETA, ELSE = "a" * 40, "b" * 40, "c" * 40
OTHER_BYTES = b'{"other": "bytes"}'


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def closed_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No hub, no index and no hub cache but those that a test opens."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def siblings(world: World) -> Siblings:
    """same: alpha's bytes. alike: other bytes that an audit found equal. ranks: what alpha is derived from."""
    data = sha(world.alpha), len(world.alpha)
    other = sha(OTHER_BYTES), len(OTHER_BYTES)
    rows = [
        Sibling("org/Same", ELSE, "tokenizer.json", *data, "alpha", Basis.IDENTICAL, True),
        Sibling("org/Alike", ELSE, "tokenizer.json", *other, "alpha", Basis.EQUIVALENT_SERIALISATION, True),
        Sibling("org/Ranks", ELSE, "tiktoken.model", *other, "alpha", Basis.IDENTICAL_SOURCE, True),
        Sibling("org/Foreign", ELSE, "tokenizer.json", "0" * 64, 9, "nobody", Basis.IDENTICAL, False),
    ]
    return Siblings({row.repo_id: row for row in rows}, {}, "")


def snapshot(tmp_path: Path, repo_id: str, commit: str, data: bytes | None, **refs: str) -> Path:
    """A snapshot in the hub client's cache, as the client lays it out."""
    folder = repository_folder(tmp_path / "hf" / "hub", repo_id)
    path = folder / "snapshots" / commit / "tokenizer.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if data is not None:
        blob = folder / "blobs" / sha(data)
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(data)
        path.symlink_to(blob)
    for name, target in refs.items():
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / name).write_text(target)
    return path


def keep(world: World) -> None:
    """alpha in the imported cache."""
    world.cache.store(world.pins.family("alpha").tokenizer, world.alpha)


def offline(world: World, repo_id: str, revision: str | None, siblings: Siblings) -> Pretrained:
    return find(repo_id, revision, world.with_settings(offline=True), pins=world.pins, siblings=siblings)


def test_what_the_tables_say_of_a_repository(world: World, siblings: Siblings) -> None:
    pinned = audited("org/Alpha", world.pins, siblings)
    assert pinned is not None
    assert (pinned.revision, pinned.canonical, pinned.basis) == (ALPHA, "alpha", Basis.IDENTICAL)
    assert audited("org/Unheard", world.pins, siblings) is None
    bases = {name: audited(f"org/{name}", world.pins, siblings) for name in ("Same", "Alike", "Ranks", "Foreign")}
    assert {name: a.same_bytes is not None for name, a in bases.items() if a is not None} == {
        "Same": True,
        "Alike": False,
        "Ranks": True,
        "Foreign": False,
    }


# offline: the hub's cache


@pytest.mark.parametrize("revision", ["main", "v2", ELSE, ELSE[:7]])
def test_branch_tag_full_and_short_commit_are_one_snapshot(
    world: World, siblings: Siblings, tmp_path: Path, revision: str
) -> None:
    path = snapshot(tmp_path, "org/Unheard", ELSE, world.beta, main=ELSE, v2=ELSE)
    found = offline(world, "org/Unheard", revision, siblings)
    assert (found.path, found.revision, found.source) == (path, ELSE, "hub-cache")
    assert (found.sha256, found.size, found.requested) == (sha(world.beta), len(world.beta), revision)


def test_without_a_revision_main_is_meant_or_the_audited_one(world: World, siblings: Siblings, tmp_path: Path) -> None:
    snapshot(tmp_path, "org/Unheard", BETA, world.beta, main=BETA)
    assert offline(world, "org/Unheard", None, siblings).revision == BETA
    snapshot(tmp_path, "org/Same", BETA, world.beta, main=BETA)
    snapshot(tmp_path, "org/Same", ELSE, world.alpha)
    assert offline(world, "org/Same", None, siblings).revision == ELSE
    assert offline(world, "org/Same", "main", siblings).revision == BETA


def test_an_unknown_revision_says_which_are_here_in_no_time(
    world: World, siblings: Siblings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked who could keep it waiting; of the processor's time, since others use it too."""

    def never(*arguments: object, **more: object) -> None:
        raise AssertionError("a child was started")

    monkeypatch.setattr(child_process.subprocess, "Popen", never)
    snapshot(tmp_path, "org/Unheard", BETA, world.beta, main=BETA)
    snapshot(tmp_path, "org/Unheard", ELSE, world.beta)
    start = time.process_time()
    with pytest.raises(ArtifactNotFound) as caught:
        offline(world, "org/Unheard", "dev", siblings)
    assert time.process_time() - start < 1
    said = str(caught.value)
    assert "'dev'" in said
    assert f"main ({BETA[:12]})" in said
    assert ELSE in said
    assert caught.value.details["present"] == {"names": {"main": BETA}, "commits": [BETA, ELSE]}
    assert caught.value.exit_code == ExitCode.NOT_FOUND
    assert "give a revision that is here: main" in str(caught.value.remedy)


def test_hf_hub_offline_counts(world: World, siblings: Siblings, monkeypatch: pytest.MonkeyPatch) -> None:
    from toktier.config import Config, resolve_settings

    settings = resolve_settings(Config(home=world.home), environ={"HF_HUB_OFFLINE": "1"})
    with pytest.raises(ArtifactNotFound, match="by HF_HUB_OFFLINE"):
        find("org/Unheard", None, settings, pins=world.pins, siblings=siblings)


def test_other_bytes_at_an_audited_commit_are_damage(world: World, siblings: Siblings, tmp_path: Path) -> None:
    keep(world)
    for repo_id, commit in (("org/Same", ELSE), ("org/Alpha", ALPHA)):
        snapshot(tmp_path, repo_id, commit, world.alpha[:-1])
        with pytest.raises(ArtifactHashMismatch) as caught:
            offline(world, repo_id, None, siblings)
        assert caught.value.details["expected_sha256"] == sha(world.alpha)
        assert caught.value.exit_code == ExitCode.INTEGRITY


# offline: the imported cache


@pytest.mark.parametrize("revision", [None, ALPHA, ALPHA[:12]])
def test_an_imported_artifact_answers(world: World, siblings: Siblings, revision: str | None) -> None:
    keep(world)
    found = offline(world, "org/Alpha", revision, siblings)
    assert (found.source, found.revision, found.sha256) == ("cache", ALPHA, sha(world.alpha))


@pytest.mark.parametrize("repo_id", ["org/Same", "org/Ranks"])
def test_it_answers_for_siblings_of_the_same_bytes(world: World, siblings: Siblings, repo_id: str) -> None:
    keep(world)
    found = offline(world, repo_id, None, siblings)
    assert (found.source, found.revision, found.path) == ("cache", ELSE, world.cache.blob_path(sha(world.alpha)))


def test_it_does_not_answer_for_other_bytes_or_another_revision(world: World, siblings: Siblings) -> None:
    keep(world)
    with pytest.raises(ArtifactNotFound) as caught:
        offline(world, "org/Alike", None, siblings)
    assert "toktier.load('alpha')" in str(caught.value.remedy)
    for repo_id, revision in (("org/Alpha", "main"), ("org/Same", BETA), ("org/Foreign", None)):
        with pytest.raises(ArtifactNotFound):
            offline(world, repo_id, revision, siblings)


def test_main_of_the_hub_cache_can_be_the_audited_commit(world: World, siblings: Siblings, tmp_path: Path) -> None:
    keep(world)
    snapshot(tmp_path, "org/Same", ELSE, None, main=ELSE)
    assert offline(world, "org/Same", "main", siblings).source == "cache"


def test_the_hub_cache_comes_first(world: World, siblings: Siblings, tmp_path: Path) -> None:
    keep(world)
    path = snapshot(tmp_path, "org/Same", ELSE, world.alpha)
    assert offline(world, "org/Same", None, siblings).path == path


# the hub


def resolve(repo_id: str, revision: str) -> str:
    return f"/{repo_id}/resolve/{revision}/tokenizer.json"


def test_the_hub_is_asked_last_and_fills_its_own_cache(
    world: World, siblings: Siblings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(Hub({resolve("org/Same", ELSE): world.alpha})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        found = find("org/Same", None, world.settings, pins=world.pins, siblings=siblings)
        assert (found.source, found.revision, found.sha256) == ("hub", ELSE, sha(world.alpha))
        asked = len(hub.requests)
        again = find("org/Same", None, world.settings, pins=world.pins, siblings=siblings)
        assert (again.source, again.path, len(hub.requests)) == ("hub-cache", found.path, asked)
    assert found.path.is_relative_to(tmp_path / "hf" / "hub")


def test_wrong_bytes_of_the_hub_are_refused(world: World, siblings: Siblings, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Hub({resolve("org/Same", ELSE): world.beta})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(ArtifactHashMismatch):
            find("org/Same", None, world.settings, pins=world.pins, siblings=siblings)


def test_a_hub_that_does_not_answer(world: World, siblings: Siblings) -> None:
    with pytest.raises(SourceUnreachable, match="cannot be reached") as caught:
        find("org/Unheard", None, world.settings, pins=world.pins, siblings=siblings)
    assert caught.value.exit_code == ExitCode.NOT_FOUND
    assert "toktier.from_file" in str(caught.value.remedy)


def test_without_network_the_hub_is_not_asked(
    world: World, siblings: Siblings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(Hub({})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(ArtifactNotFound, match="no revision of it is here"):
            find("org/Unheard", None, world.settings, pins=world.pins, siblings=siblings, network=False)
        with pytest.raises(ArtifactNotFound):
            offline(world, "org/Unheard", None, siblings)
    assert hub.requests == []


# identity


def test_bytes_are_identified_by_digest_wherever_they_come_from(
    world: World, siblings: Siblings, tmp_path: Path
) -> None:
    path = snapshot(tmp_path, "org/Unheard", BETA, world.alpha)
    found = Pretrained("org/Unheard", None, BETA, path, sha(world.alpha), len(world.alpha), "hub-cache", None)
    expected = Identity("alpha", "identical", sha(world.alpha))
    assert identify(found, world.settings, pins=world.pins, siblings=siblings) == expected
    other = replace(found, sha256=sha(OTHER_BYTES))
    assert identify(other, world.settings, pins=world.pins, siblings=siblings) == Identity(
        "alpha", "equivalent_serialisation", sha(world.alpha)
    )


# a family whose tokenizer.json no repository holds


def test_a_derived_family_is_made_not_asked_of_the_hub(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = {"name": "tiktoken.model", "sha256": sha(OTHER_BYTES), "size": len(OTHER_BYTES)}
    others = [{"name": n, "sha256": "0" * 64, "size": 9} for n in ("tokenization_kimi.py", "tokenizer_config.json")]
    entry = {
        "repo_id": "org/Derived",
        "revision": BETA,
        "files": {"tokenizer.json": pin(world.alpha)},
        "converted_from": [ranks, *others],
    }
    pins = make_pins({"derived": entry})
    row = Sibling("org/Ranks", ELSE, "tiktoken.model", *(sha(OTHER_BYTES), 18), "derived", Basis.IDENTICAL_SOURCE, True)
    siblings = Siblings({row.repo_id: row}, {}, "")
    asked: list[str] = []

    def obtain(name: str, *_: object, **__: object) -> Artifact:
        asked.append(name)
        return Artifact(pins.family(name), world.home, sha(world.alpha), 1, "derived from tiktoken.model")

    monkeypatch.setattr("toktier.artifacts.pretrained.obtain", obtain)
    with serve(Hub({})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for repo_id, commit in (("org/Ranks", ELSE), ("org/Derived", BETA)):
            found = find(repo_id, None, world.settings, pins=pins, siblings=siblings)
            assert (found.source, found.revision) == ("derived from tiktoken.model", commit)
        with pytest.raises(ArtifactNotFound, match="org/Ranks"):
            find("org/Ranks", None, world.with_settings(offline=True), pins=pins, siblings=siblings)
        assert hub.requests == []
    assert asked == ["derived", "derived"]
