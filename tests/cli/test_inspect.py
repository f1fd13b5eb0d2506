"""`inspect FILE`: the digest of the boundaries is that of what the patterns do, not of how they are spelled."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import check_document, run, run_here
from tests.support.material import SMALL_DIR
from tests.support.vocabulary_files import ranks, said, tekken
from toktier import _native, resources
from toktier.artifacts.cache import ArtifactCache, hash_file
from toktier.artifacts.pins import Pins, shipped_pins
from toktier.program.compile import compile_tokenizer
from toktier_cli.verbs.program_text import program_lines

MINI = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"


def test_patterns_that_split_alike_have_one_digest_and_others_have_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = MINI.read_text("utf-8")
    number = "|\\\\p{N}|"
    assert text.count(number) == 1
    digests = {}
    for name, pattern in (("as it is", number), ("other spelling", "|[\\\\p{N}]|"), ("other", "|\\\\p{N}{1,3}|")):
        path = tmp_path / f"{name}.json"
        path.write_text(text.replace(number, pattern), "utf-8")
        line = ("inspect", str(path))
        document = check_document(
            run_here(*line, "--json", home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary)
        )
        digests[name] = document["program"]["meta"]["boundary"]["digest"]
        shown = run_here(*line, home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary).text
        assert f"\nboundaries   {digests[name][:12]}, " in shown
        meta = document["program"]["meta"]
        assert "monotone" not in shown
        assert "ranks not monotone: " in "".join(program_lines(meta | {"model": meta["model"] | {"monotone": False}}))
    assert all(len(digest) == 64 for digest in digests.values())
    assert digests["as it is"] == digests["other spelling"] != digests["other"]


def test_whether_the_kernels_of_a_gpu_can_follow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    beyond = tmp_path / "beyond.json"
    tokenizer = json.loads(MINI.read_text("utf-8"))
    beyond.write_text(json.dumps(tokenizer | {"pre_tokenizer": {"type": "Unheard"}}))
    small, here = SMALL_DIR, tmp_path / "home"
    expected = {MINI: None, small / "o200k_like.json": None, small / "gemma_like.json": "model", beyond: "compiler"}
    for path, premise in expected.items():
        line = ("inspect", str(path))
        document = check_document(run_here(*line, "--json", home=here, monkeypatch=monkeypatch, capture=capfdbinary))
        found = document["gpu"]
        assert (found["suits"], found["premise"]) == (premise is None, premise)
        shown = run_here(*line, home=here, monkeypatch=monkeypatch, capture=capfdbinary).text
        if premise is None:
            image = _native.device_tables(_native.Program(compile_tokenizer(path.read_bytes())))
            assert found["tables_sha256"] == hashlib.sha256(image).hexdigest()
            assert f"\ngpu          kernels can follow it, {len(image):,} bytes of tables\n" in shown
            continue
        assert f"\ngpu          kernels cannot follow it: {found['reason']} ({premise})\n" in shown
        gates = [g for g in document["serves"][0]["gates"] if (g["backend"], g["gate"]) == ("gpu", "program")]
        status = document["certification"]["statuses"]["gpu"]
        assert status == ("compiled_unjudged" if premise == "compiler" else "unsupported")
        reason = "R_PROGRAM_UNSUPPORTED" if premise == "compiler" else "R_GPU_PROGRAM_UNSUITABLE"
        assert [g["reason"] for g in gates] == [reason]


def test_a_damaged_blob_is_shown_as_damaged_and_not_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Same size, other bytes: a family is what its digest says, and nothing is said of a file that is not it."""
    family = shipped_pins().family("qwen3_8b")
    blob = ArtifactCache(tmp_path / "cache").blob_path(family.tokenizer.sha256)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(MINI.read_bytes().ljust(family.tokenizer.size))
    line = ("inspect", family.name)
    document = check_document(run_here(*line, "--json", home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary))
    assert document["on_this_host"]["tokenizer.json"] == "damaged"
    assert (document["program"], document["serves"]) == (None, None)
    shown = run_here(*line, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary).text
    assert f"{family.tokenizer.sha256}, damaged\n" in shown
    assert "serves" not in shown


COMMIT = "c0ffee" + "0" * 34


def in_hub_cache(home: Path, repo_id: str, data: bytes) -> Path:
    folder = home / "hf" / "hub" / ("models--" + repo_id.replace("/", "--"))
    path = folder / "snapshots" / COMMIT / "tokenizer.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    return path


def test_a_repository_is_what_its_bytes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = in_hub_cache(tmp_path, "someone/Copy", MINI.read_bytes())
    env = {"HF_HOME": str(tmp_path / "hf")}
    for arguments in ((), ("--revision", "main"), ("--revision", COMMIT[:7])):
        line = ("inspect", "someone/Copy", *arguments)
        document = check_document(run(*line, "--json", home=tmp_path, env=env))
        assert (document["resolution"]["family"], document["resolution"]["basis"]) == ("toktier_mini", "identical")
        assert (document["resolution"]["path"], document["resolution"]["revision"]) == (str(path), COMMIT)
        assert document["audited"] is None
        assert document["serves"][0]["backend"] == "fast_cpu"
    shown = run("inspect", "someone/Copy", home=tmp_path, env=env).text
    assert "equals       toktier_mini, identical\n" in shown
    assert "fingerprint  " in shown


def test_a_repository_with_unknown_bytes_says_who_serves_it(tmp_path: Path) -> None:
    in_hub_cache(tmp_path, "someone/Unheard", (SMALL_DIR / "cl100k_like.json").read_bytes())
    document = check_document(
        run("inspect", "someone/Unheard", "--json", home=tmp_path, env={"HF_HOME": str(tmp_path / "hf")})
    )
    assert document["resolution"]["admitted"] is False
    served = {row["policy"]: row["backend"] for row in document["serves"]}
    assert (served["certified"], served["supported"], served["require_accelerated"]) == ("hf", "fast_cpu", None)


def test_an_audited_repository_is_known_before_it_is_here(tmp_path: Path) -> None:
    document = check_document(run("inspect", "Qwen/Qwen3-0.6B", "--json", home=tmp_path))
    assert document["audited"]["family"] == "qwen3_8b"
    assert (document["resolution"], document["program"], document["serves"]) == (None, None, None)
    shown = run("inspect", "Qwen/Qwen3-0.6B", home=tmp_path).text
    assert document["audited"]["revision"] in shown
    assert "\nnot here     " in shown


def test_an_unknown_repository_that_is_not_here_is_an_error(tmp_path: Path) -> None:
    outcome = run("inspect", "someone/Absent", "--json", home=tmp_path)
    assert outcome.code == 3
    assert outcome.document["error"]["code"] == "ARTIFACT_NOT_FOUND"
    outcome = run("inspect", "qwen3_8b", "--revision", "main", "--json", home=tmp_path)
    assert outcome.document["error"]["code"] == "USAGE"


def test_the_licence_of_a_family_is_shown_with_the_place_where_it_was_read(tmp_path: Path) -> None:
    document = check_document(run("inspect", "qwen3_8b", "--json", home=tmp_path))
    assert document["licence"]["identifier"] == "Apache-2.0"
    assert document["licence"]["read_in"]
    assert "licence      Apache-2.0 (read in: " in run("inspect", "qwen3_8b", home=tmp_path).text
    assert "licence      unknown: " in run("inspect", "hy3", home=tmp_path).text
    assert all("licence" in family for family in check_document(run("inspect", "--json", home=tmp_path))["families"])


def test_what_was_hashed_before_is_not_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Hashing 11 MB is a tenth of the time that `inspect FAMILY` may take. A changed file is hashed."""
    pins = shipped_pins()
    mini = pins.family("toktier_mini")
    alike = replace(pins.family("qwen3_8b"), files={"tokenizer.json": replace(mini.tokenizer, family="qwen3_8b")})
    monkeypatch.setattr("toktier_cli.verbs.inspect.shipped_pins", lambda: Pins({"qwen3_8b": alike}, pins.root_digest))
    cache = ArtifactCache(tmp_path / "cache")
    assert cache.store(alike.tokenizer, MINI.read_bytes())
    blob = cache.blob_path(alike.tokenizer.sha256)
    os.utime(blob, (1, 1))
    hashed: list[Path] = []

    def counting(path: Path) -> tuple[str, int]:
        hashed.append(path)
        return hash_file(path)

    monkeypatch.setattr("toktier.artifacts.cache.hash_file", counting)

    def shown() -> str:
        outcome = run_here("inspect", "qwen3_8b", home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
        assert outcome.code == 0, outcome.stderr
        return outcome.text

    time.sleep(2.1)  # a file that changed just now is never believed
    assert "fingerprint" in shown()
    assert shown().count("on this host") == 1
    assert hashed == [blob]
    blob.write_bytes(MINI.read_bytes()[:-2] + b" }")
    assert "damaged" in shown()
    assert hashed == [blob, blob]


def test_a_vocabulary_of_another_format_is_what_it_is_converted_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    made = ranks(tmp_path / "vocabulary.tiktoken")
    said(made)
    for path in (made, tekken(tmp_path / "tekken.json")):

        def ask(*more: str, named: str = str(path)) -> dict[str, Any]:
            line = ("inspect", named, *more, "--json")
            return check_document(run_here(*line, home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary))

        alone = ask()
        converted = ask(named=alone["path"])
        assert alone["sha256"] == converted["sha256"] == hash_file(Path(alone["path"]))[0]
        assert ask(alone["path"])["same"]
        assert ask("--text", "Hello")["schema"] == "toktier.inspect_append"
