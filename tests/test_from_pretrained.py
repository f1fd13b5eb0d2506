"""from_pretrained: who serves a repository's tokenizer, on which ground, and what explain() says of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import toktier
from tests.artifacts.hub_server import Hub, serve
from tests.support.material import SMALL_DIR
from tests.support.namespaces import can_unshare, no_network
from toktier import errors
from toktier.artifacts.hub_refs import repository_folder
from toktier.artifacts.pins import shipped_pins

COMMIT = "c0ffee" + "0" * 34
TEXT = "Hello wörld, 世界! can't  stop\n\n  123456 "
MINI = shipped_pins().family("toktier_mini").shipped_path
UNHEARD = SMALL_DIR / "cl100k_like.json"


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return tmp_path / "hf" / "hub"


@pytest.fixture(autouse=True)
def no_silent_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", toktier.ToktierWarning)
        yield


def snapshot(root: Path, repo_id: str, data: bytes, commit: str = COMMIT) -> Path:
    folder = repository_folder(root, repo_id)
    path = folder / "snapshots" / commit / "tokenizer.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    return path


def reference_ids(path: Path) -> list[int]:
    ids: list[int] = tokenizers.Tokenizer.from_file(str(path)).encode(TEXT, add_special_tokens=False).ids
    return ids


def test_equal_bytes_are_the_family_whatever_the_repository_is_called(hub_cache: Path) -> None:
    path = snapshot(hub_cache, "someone/Copy", MINI.read_bytes())
    tok = toktier.from_pretrained("someone/Copy")
    encoding = tok.encode(TEXT)
    assert encoding.backend == "fast_cpu"
    assert encoding.ids == reference_ids(path)
    assert tok.explain()["model_resolution"] == {
        "family": "toktier_mini",
        "source": "hub-cache",
        "path": str(path),
        "repo_id": "someone/Copy",
        "requested_revision": None,
        "revision": COMMIT,
        "audited_revision": None,
        "basis": "identical",
        "canonical_sha256": tok.artifact_sha256,
        "admitted": True,
        "not_admitted_because": None,
        "side_file": None,
    }


@pytest.mark.parametrize("policy", ["certified", "require_accelerated"])
def test_an_equal_fingerprint_is_the_family_in_another_spelling(hub_cache: Path, policy: str) -> None:
    path = snapshot(hub_cache, "someone/Spelled", json.dumps(json.loads(MINI.read_bytes()), indent=3).encode())
    tok = toktier.from_pretrained("someone/Spelled", policy=policy)
    assert tok.encode(TEXT).backend == "fast_cpu"
    assert tok.encode(TEXT).ids == reference_ids(path)
    found = tok.explain()["model_resolution"]
    assert (found["family"], found["basis"], found["admitted"]) == ("toktier_mini", "equivalent", True)
    assert found["canonical_sha256"] == shipped_pins().family("toktier_mini").tokenizer.sha256 != tok.artifact_sha256


def test_unknown_content_is_served_by_the_reference_and_says_why(hub_cache: Path) -> None:
    path = snapshot(hub_cache, "someone/Unheard", UNHEARD.read_bytes())
    with pytest.warns(toktier.ToktierWarning, match=r"no table names someone/Unheard.*R_UNCERTIFIED_ARTIFACT"):
        tok = toktier.from_pretrained("someone/Unheard")
    assert tok.encode(TEXT).backend == "hf"
    assert tok.encode(TEXT).ids == reference_ids(path)
    report = tok.explain()
    assert report["reasons"] == ["R_NO_GPU_DETECTED", "R_UNCERTIFIED_ARTIFACT"]
    found = report["model_resolution"]
    assert (found["family"], found["basis"], found["admitted"]) == (None, None, False)
    assert re.search("fingerprint is new beside .*toktier_mini", found["not_admitted_because"])
    with pytest.raises(errors.UncertifiedTokenizer, match="someone/Unheard") as caught:
        toktier.from_pretrained("someone/Unheard", policy="require_accelerated")
    assert caught.value.exit_code == errors.ExitCode.REFUSED


def test_policy_supported_takes_it_as_a_file_is_taken(hub_cache: Path) -> None:
    path = snapshot(hub_cache, "someone/Unheard", UNHEARD.read_bytes())
    tok = toktier.from_pretrained("someone/Unheard", policy="supported")
    assert tok.encode(TEXT).backend == toktier.from_file(path, policy="supported").encode(TEXT).backend == "fast_cpu"
    assert tok.encode(TEXT).ids == reference_ids(path)


def test_a_known_repository_whose_bytes_changed_is_not_believed(hub_cache: Path) -> None:
    snapshot(hub_cache, "Qwen/Qwen3-0.6B", UNHEARD.read_bytes())
    with pytest.warns(toktier.ToktierWarning, match="was audited with other bytes, and qwen3_8b, to compare"):
        tok = toktier.from_pretrained("Qwen/Qwen3-0.6B", "main")
    assert tok.encode(TEXT).backend == "hf"
    found = tok.explain()["model_resolution"]
    assert found["audited_revision"] not in (None, found["revision"])


def test_other_bytes_at_the_audited_commit_serve_nobody(hub_cache: Path) -> None:
    family = shipped_pins().family("qwen3_8b")
    assert family.repo_id is not None
    assert family.revision is not None
    snapshot(hub_cache, family.repo_id, MINI.read_bytes(), family.revision)
    with pytest.raises(errors.ArtifactHashMismatch):
        toktier.from_pretrained(family.repo_id, policy="reference")


def test_no_tokenizer_is_an_error_not_a_fallback(hub_cache: Path) -> None:
    snapshot(hub_cache, "someone/Broken", b'{"truncated": ')
    with pytest.raises(errors.ArtifactDamaged):
        toktier.from_pretrained("someone/Broken")
    snapshot(hub_cache, "someone/Empty", b"{}")
    with pytest.raises(errors.NotATokenizer):
        toktier.from_pretrained("someone/Empty")


def test_from_a_hub_on_the_network(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Hub({f"/someone/Copy/resolve/{COMMIT}/tokenizer.json": MINI.read_bytes()})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        tok = toktier.from_pretrained("someone/Copy", COMMIT)
    found = tok.explain()["model_resolution"]
    assert (found["source"], found["revision"], found["basis"]) == ("hub", COMMIT, "identical")
    assert tok.encode(TEXT).ids == reference_ids(MINI)
    offline = toktier.from_pretrained("someone/Copy", COMMIT[:8], config=toktier.Config(offline=True))
    assert offline.explain()["model_resolution"]["source"] == "hub-cache"


def test_a_pickle_opens_with_the_same_judgement(hub_cache: Path) -> None:
    import pickle

    snapshot(hub_cache, "someone/Unheard", UNHEARD.read_bytes())
    with pytest.warns(toktier.ToktierWarning):
        tok = toktier.from_pretrained("someone/Unheard")
    again = pickle.loads(pickle.dumps(tok))
    assert again.encode(TEXT).backend == "hf"
    assert again.explain()["model_resolution"] == tok.explain()["model_resolution"]


SCRIPT = """
import sys, time
def watch(event, arguments):
    if event == "subprocess.Popen" or event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise AssertionError(f"{event} while offline")
def wait(seconds):
    raise AssertionError(f"waited {seconds} s while offline")
import toktier
sys.addaudithook(watch)
time.sleep = wait
start = time.monotonic()
try:
    toktier.from_pretrained(sys.argv[1])
    print("served")
except toktier.ToktierError as error:
    print(error.code)
assert time.monotonic() - start < 60, "longer than a minute"
"""


@pytest.mark.parametrize(("repo_id", "outcome"), [("someone/Copy", "served"), ("someone/Absent", "ARTIFACT_NOT_FOUND")])
def test_offline_nothing_is_asked_of_a_network(hub_cache: Path, repo_id: str, outcome: str) -> None:
    snapshot(hub_cache, "someone/Copy", MINI.read_bytes())
    toktier.from_file(MINI)  # compiled
    command = [sys.executable, "-c", SCRIPT, repo_id]
    if can_unshare("--net"):
        command = no_network(*command)
    run = subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
    assert run.stdout.strip() == outcome, run.stderr
