"""Revisions in the hub client's cache: names, full and short commits, and what can be neither."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toktier.artifacts.hub_refs import (
    Revisions,
    checked_repository,
    checked_revision,
    local_revisions,
    repository_folder,
    snapshot_file,
)
from toktier.errors import ConfigInvalid

FIRST, SECOND, OTHER = "ab12" + "0" * 36, "ab12" + "1" * 36, "cd34" + "2" * 36


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = repository_folder(tmp_path, "org/Name")
    for commit in (FIRST, OTHER):
        (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / FIRST / "tokenizer.json").write_text("{}")
    for name, commit in (("main", FIRST), ("v1.0", OTHER), ("refs/pr/7", SECOND)):
        path = folder / "refs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)
    return tmp_path


def test_names_and_commits_are_those_of_the_cache(root: Path) -> None:
    found = local_revisions(root, "org/Name")
    assert found == Revisions({"main": FIRST, "v1.0": OTHER, "refs/pr/7": SECOND}, (FIRST, OTHER))
    assert found.described() == [f"main ({FIRST[:12]})", f"refs/pr/7 ({SECOND[:12]})", f"v1.0 ({OTHER[:12]})"]
    assert local_revisions(root, "org/Absent") == Revisions({}, ())


@pytest.mark.parametrize(
    ("revision", "commit"),
    [
        ("main", FIRST),
        ("v1.0", OTHER),
        ("refs/pr/7", SECOND),
        (FIRST, FIRST),
        (OTHER[:4], OTHER),
        (OTHER[:7], OTHER),
        (FIRST[:5], FIRST),
        (OTHER[:3], None),  # too short to mean a commit
        ("cd34" + "9" * 4, None),
        ("9" * 40, None),
        ("Main", None),
        ("v1", None),
    ],
)
def test_a_revision_means_one_commit_or_none(root: Path, revision: str, commit: str | None) -> None:
    assert local_revisions(root, "org/Name").commit(revision) == commit


def test_a_beginning_of_several_commits_is_refused_by_name(root: Path) -> None:
    with pytest.raises(ConfigInvalid, match="several commits") as caught:
        local_revisions(root, "org/Name").commit("ab12")
    assert caught.value.details["commits"] == [FIRST, SECOND]


def test_a_name_holds_before_a_commit_and_a_known_commit_needs_no_snapshot() -> None:
    present = Revisions({"cd34": FIRST}, (FIRST, OTHER))
    assert present.commit("cd34") == FIRST
    assert Revisions({}, ()).commit(OTHER[:9], also=OTHER) == OTHER
    assert Revisions({}, ()).commit(OTHER[:9]) is None


def test_what_is_no_reference_is_not_there(root: Path) -> None:
    refs = repository_folder(root, "org/Name") / "refs"
    (refs / "long").write_text(FIRST + "0" * 4096)
    (refs / "bytes").write_bytes(b"\xff" * 40)
    (refs / "upper").write_text(FIRST.upper())
    (refs / "folder").mkdir()
    os.mkfifo(refs / "fifo")
    (refs / "dangling").symlink_to(root / "nowhere")
    (repository_folder(root, "org/Name") / "snapshots" / "not-a-commit").mkdir()
    assert set(local_revisions(root, "org/Name").names) == {"main", "v1.0", "refs/pr/7"}
    assert local_revisions(root, "org/Name").commits == (FIRST, OTHER)


def test_the_file_of_a_snapshot(root: Path) -> None:
    assert snapshot_file(root, "org/Name", OTHER, "tokenizer.json") is None
    found = snapshot_file(root, "org/Name", FIRST, "tokenizer.json")
    assert found is not None
    assert found.read_text() == "{}"


@pytest.mark.parametrize("repo_id", ["gpt2", "org/Name", "a-b/c_d.e", "0/1"])
def test_names_of_repositories(repo_id: str) -> None:
    assert checked_repository(repo_id) == repo_id


@pytest.mark.parametrize(
    "repo_id",
    [
        "",
        "/",
        "a/",
        "/a",
        "a/b/c",
        "..",
        "../x",
        "a/..",
        "a/.",
        ".",
        "a b/c",
        "a/b\n",
        "a\0/b",
        "ä/b",
        "a" * 97,
        "a\\b",
    ],
)
def test_what_can_be_no_repository_is_refused(repo_id: str) -> None:
    with pytest.raises(ConfigInvalid, match="is no repository"):
        checked_repository(repo_id)


def test_a_path_is_sent_to_from_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        checked_repository(str(tmp_path))
    assert "toktier.from_file" in str(caught.value.remedy)


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/7", "feature/x-y", FIRST, "ab12"])
def test_revisions(revision: str) -> None:
    assert checked_revision(revision) == revision


@pytest.mark.parametrize(
    "revision", ["", "/", "/etc", "a//b", "../x", "a/..", ".", "a b", "a\n", "a\0", "a?b", "x" * 201]
)
def test_what_can_be_no_revision_is_refused(revision: str) -> None:
    with pytest.raises(ConfigInvalid, match="is no revision"):
        checked_revision(revision)
