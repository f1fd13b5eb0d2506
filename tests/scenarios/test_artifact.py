"""The open scenarios of the areas artifact and offline: one test for each, or the name of the test that is it.

`PLACES` is held against the list in ../shared, so that no scenario is without a test.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import toktier
from tests.cli.command import check_document, environment, run
from tests.support.material import ROOT, SHARED, Artifacts
from tests.support.namespaces import can_unshare, no_network, read_only
from toktier.artifacts.pins import shipped_pins
from toktier.errors import ArtifactHashMismatch, UnsupportedConfig

pytestmark = pytest.mark.ci

FAMILY = "qwen3_8b"
PIN = shipped_pins().family(FAMILY).tokenizer
HERE = "tests/scenarios/test_artifact.py"

PLACES = {
    "art-truncated": [f"{HERE}::test_art_truncated"],
    "art-zero-bytes": [f"{HERE}::test_art_zero_bytes"],
    "art-bitflip": [f"{HERE}::test_art_bitflip"],
    "art-two-writers": [
        "tests/cli/test_artifacts_verbs.py::test_eight_processes_import_into_one_empty_store",
        "tests/artifacts/test_many_writers.py::test_eight_processes_import_fifty_times_each",
    ],
    "art-crossvolume": [f"{HERE}::test_art_crossvolume"],
    "art-revision-branch": [
        "tests/artifacts/test_pretrained.py::test_branch_tag_full_and_short_commit_are_one_snapshot",
        "tests/artifacts/test_pretrained.py::test_an_unknown_revision_says_which_are_here_in_no_time",
    ],
    "art-dup-added": [f"{HERE}::test_art_dup_added"],
    "art-config-only-specials": [f"{HERE}::test_art_config_only_specials"],
    "art-unknown-component": [
        f"{HERE}::test_art_unknown_component",
        f"{HERE}::test_art_unknown_component_that_is_known_by_now",
    ],
    "art-string-pattern": [f"{HERE}::test_art_string_pattern"],
    "art-truncation-baked": [f"{HERE}::test_art_truncation_baked"],
    "art-same-name": [f"{HERE}::test_art_same_name"],
    "off-env": [f"{HERE}::test_off_env"],
    "off-carry": [
        f"{HERE}::test_off_carry",
        "tests/cli/test_artifacts_verbs.py::test_a_carried_cache_works_read_only_in_the_c_locale_under_another_path",
        "tests/packaging/test_air_gap.py::test_from_nothing_to_token_ids_without_a_network",
    ],
    "off-mirror": [
        "tests/artifacts/test_mirror_source.py::test_what_a_server_may_do_and_still_gives_the_file",
        "tests/artifacts/test_mirror_source.py::test_a_server_that_fails_is_an_error_that_says_how",
        "tests/artifacts/test_hub_source.py::test_a_hub_that_fails",
    ],
}


def test_every_scenario_of_these_areas_has_a_test() -> None:
    for places in PLACES.values():
        for place in places:
            path, name = place.split("::")
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            assert name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}, place
    if SHARED is None:
        pytest.skip("the list of scenarios lies in ../shared, which is not here")
    listed = re.findall(
        r"^### (\S+)\s+\((artifact|offline);", (SHARED / "cases" / "scenarios.md").read_text("utf-8"), re.M
    )
    assert {name for name, _ in listed} == set(PLACES)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def qwen(artifacts: Artifacts) -> Path:
    return artifacts.path("qwen3")


def files_below(home: Path) -> list[Path]:
    return [p for p in home.rglob("*") if p.is_file()]


@pytest.mark.parametrize("cut", [1_000_000, 1])
def test_art_truncated(home: Path, tmp_path: Path, qwen: Path, cut: int) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(qwen.read_bytes()[:-cut])
    size = f"{path.stat().st_size:,}"
    for line in (["encode", "--file", str(path), "x"], ["artifacts", "import", str(path)], ["inspect", str(path)]):
        done = run(*line, home=home)
        assert done.code == 5, line
        assert str(path) in done.stderr
        assert size in done.stderr
        assert "ends" in done.stderr
    assert run("artifacts", "verify", str(path), home=home).code == 5
    # Digests by stat data, of the file and of the installation, are no content.
    kept = [p for p in files_below(home) if p.parent.name not in ("sources", "installations")]
    assert kept == []
    shutil.copy(qwen, path)
    assert run("encode", "--file", str(path), "x", home=home).code == 0


def test_art_zero_bytes(home: Path, tmp_path: Path, qwen: Path) -> None:
    assert run("artifacts", "import", str(qwen), home=home).code == 0
    other = shipped_pins().family("deepseek_v4_flash").tokenizer
    empty = home / "cache" / "artifacts" / "blobs" / "sha256" / other.sha256[:2] / other.sha256
    empty.parent.mkdir(parents=True, exist_ok=True)
    empty.touch()
    done = run("encode", "--family", "deepseek_v4_flash", "x", "--offline", home=home)
    assert done.code == 5
    assert "is damaged: it is empty (0 bytes)" in done.stderr
    assert run("artifacts", "verify", home=home).code == 5
    assert run("encode", "--family", FAMILY, "x", "--offline", home=home).code == 0


def test_art_bitflip(home: Path, qwen: Path) -> None:
    assert run("artifacts", "import", str(qwen), home=home).code == 0
    assert run("encode", "--family", FAMILY, "hello", home=home).code == 0, "its program is compiled and kept"
    blob = home / "cache" / "artifacts" / "blobs" / "sha256" / PIN.sha256[:2] / PIN.sha256
    data = bytearray(blob.read_bytes())
    at = data.index(b'"hello"') + 1
    data[at] ^= 1
    blob.write_bytes(data)
    for _ in range(2):
        done = run("encode", "--family", FAMILY, "hello", "--offline", "--json", home=home)
        assert (done.code, done.document["error"]["code"]) == (5, "ARTIFACT_HASH_MISMATCH")
        assert run("artifacts", "verify", FAMILY, home=home).code == 5
    config = toktier.Config(home=home, offline=True)
    with pytest.raises(ArtifactHashMismatch):
        toktier.load(FAMILY, config=config)


def test_art_crossvolume(home: Path, tmp_path: Path, qwen: Path) -> None:
    # A file system without links: the calls fail as they do there. Another volume for temporary files: /dev/shm.
    code = """
        import errno, os, sys
        def refused(*arguments, **more):
            raise OSError(errno.EPERM, "no links here")
        os.link = os.symlink = refused
        from toktier_cli.main import main
        sys.exit(main(sys.argv[1:]))
    """
    volume = Path("/dev/shm")
    if not volume.is_dir() or volume.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second volume here")
    command = [sys.executable, "-c", textwrap.dedent(code), "artifacts", "import", str(qwen)]
    done = subprocess.run(command, env=environment(home, TMPDIR=str(volume)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert run("artifacts", "verify", FAMILY, home=home).code == 0


@pytest.mark.parametrize("name", ["d.collide_nfc", "d.collide_nfkc"])
def test_art_dup_added(home: Path, artifacts: Artifacts, name: str) -> None:
    path = artifacts.path(name)
    done = run("encode", "--file", str(path), "x", "--json", home=home)
    assert (done.code, done.document["error"]["code"]) == (2, "UNSUPPORTED_CONFIG")
    assert len(done.document["error"]["details"]["tokens"]) == 2
    with pytest.raises(UnsupportedConfig):
        toktier.from_file(path, policy="reference")


def test_art_config_only_specials(home: Path, tmp_path: Path, artifacts: Artifacts) -> None:
    # The tokenizer.json alone decides, as in `tokenizers`; what lies beside it changes neither ids nor fingerprint.
    import json

    import tokenizers

    bare, beside = tmp_path / "bare", tmp_path / "beside"
    for directory in (bare, beside):
        directory.mkdir()
        shutil.copy(artifacts.path("qwen3"), directory / "tokenizer.json")
    added = {"151999": {"content": "<|only_here|>", "special": True, "normalized": False}}
    (beside / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    text = "a<|only_here|>b"
    expected = tokenizers.Tokenizer.from_file(str(bare / "tokenizer.json")).encode(text).ids
    documents: list[Any] = []
    for directory in (bare, beside):
        path = str(directory / "tokenizer.json")
        assert check_document(run("encode", "--file", path, text, "--json", home=home))["ids"] == expected
        documents.append(check_document(run("inspect", path, "--json", home=home)))
    assert documents[0]["program"]["fingerprint"] == documents[1]["program"]["fingerprint"]


UNKNOWN = {
    "unigram": ("model", {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}, "Unigram"),
    "wordpiece": (
        "model",
        {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
         "vocab": {"[UNK]": 0, "a": 1}},
        "WordPiece",
    ),
    "precompiled": ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}, "Precompiled"),
    "unknown type": ("pre_tokenizer", {"type": "Quantum"}, "Quantum"),
    "no model": ("model", None, "model"),
}  # fmt: skip


def test_art_unknown_component_that_is_known_by_now(home: Path, artifacts: Artifacts) -> None:
    """d.falcon: the compiler reads its Punctuation and Digits, so that its ids are what counts."""
    import tokenizers

    path = artifacts.path("d.falcon")
    tok = toktier.from_file(path, policy="supported", config=toktier.Config(home=home))
    reference = tokenizers.Tokenizer.from_file(str(path))
    for text in (
        "a, b; c! 1234567 x1y22z333",
        "\u00bfQu\u00e9? \u201cno\u201d \u0663\u0664\u0665",
        "...!!!  \n\n 12,345.67",
    ):
        assert tok.encode(text).ids == reference.encode(text).ids
    assert tok.encode("x").backend == "fast_cpu"


@pytest.mark.parametrize("case", UNKNOWN)
def test_art_unknown_component(home: Path, tmp_path: Path, artifacts: Artifacts, case: str) -> None:
    import json

    field, value, named = UNKNOWN[case]
    document = json.loads(artifacts.path("llama3").read_bytes())
    document["added_tokens"] = []
    if value is None:
        del document[field]
    else:
        document[field] = value
    if field == "model" and value is not None:
        document |= {"pre_tokenizer": None, "post_processor": None, "decoder": None, "normalizer": None}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    done = run(
        "encode", "--file", str(path), "a", "--no-tokenizer-fallback", "--tokenizer", "fast_cpu", "--json", home=home
    )
    assert done.code != 0
    error = done.document["error"]
    assert named in error["message"] + str(error["details"])
    assert "untagged" not in error["message"]


def test_art_string_pattern(home: Path, artifacts: Artifacts) -> None:
    import tokenizers

    path = artifacts.path("d.stringpat")
    reference = tokenizers.Tokenizer.from_file(str(path))
    tok = toktier.from_file(path, config=toktier.Config(home=home))
    for text in ("a.b.c", "a|b (c) [d] \\d+ .*", "x" * 40, "...", "1.5\n2.5"):
        assert tok.encode(text).ids == reference.encode(text).ids


@pytest.mark.parametrize("name", ["d.trunc", "d.pad"])
def test_art_truncation_baked(home: Path, artifacts: Artifacts, name: str) -> None:
    import tokenizers

    path = artifacts.path(name)
    reference = tokenizers.Tokenizer.from_file(str(path))
    tok = toktier.from_file(path, config=toktier.Config(home=home))
    for text in ("short", "a long text that goes on and on " * 20):
        expected = reference.encode(text).ids
        assert tok.encode(text).ids == expected
        assert len(expected) in ({8, len(expected)} if name == "d.trunc" else {16, len(expected)})


def test_art_same_name(home: Path, tmp_path: Path, artifacts: Artifacts) -> None:
    import tokenizers

    path = tmp_path / "tokenizer.json"
    config = toktier.Config(home=home)
    text = "the same text, 12345 times"
    kept: list[tuple[Any, list[int]]] = []
    for name in ("qwen3", "llama3", "qwen3"):
        shutil.copy(artifacts.path(name), path)
        expected = tokenizers.Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
        tok = toktier.from_file(path, config=config)
        assert tok.encode(text, add_special_tokens=False).ids == expected
        kept.append((tok, expected))
    for tok, expected in kept:
        assert tok.encode(text, add_special_tokens=False).ids == expected, "what is loaded stays what it was"


LINES: list[tuple[list[str], int]] = [
    (["encode", "--family", FAMILY, "hello"], 0),
    (["encode", "--family", "toktier_mini", "hello"], 0),
    (["artifacts", "verify"], 0),
    (["artifacts", "list", "--available"], 0),
    (["artifacts", "fetch", "llama_3_1_8b", "--offline"], 3),
    (["artifacts", "fetch", "llama_3_1_8b", "--dry-run"], 0),
    (["inspect"], 0),
    (["config", "show", "--origin"], 0),
    (["help", "exit-codes"], 0),
]


def processor_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def connects(trace: str) -> list[str]:
    """Calls in a strace that could reach another host."""
    return [
        line for line in trace.splitlines() if "connect(" in line and "AF_UNIX" not in line and "resumed" not in line
    ]


@pytest.mark.skipif(not can_unshare("--net") or shutil.which("strace") is None, reason="needs strace and a namespace")
def test_off_env(home: Path, tmp_path: Path, qwen: Path) -> None:
    import toktier_cli.app as app

    run("artifacts", "import", str(qwen), home=home)
    run("encode", "--family", FAMILY, "hello", home=home)
    snapshot = tmp_path / "hf" / "hub" / "models--meta-llama--Llama-3.1-8B"
    env = environment(home, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hf"))
    assert not snapshot.exists()
    del env["PIP_NO_INDEX"], env["HF_ENDPOINT"]
    helps = [[verb, "--help"] for verb in app.VERBS] + [["artifacts", verb, "--help"] for verb in app.ARTIFACTS]
    by_path = ["encode", "--file", str(qwen), "hello"]
    for line, wanted in [*LINES, (by_path, 0), *((line, 0) for line in helps)]:
        trace = tmp_path / "trace"
        command = [sys.executable, "-m", "toktier_cli.main", *line]
        before = processor_seconds()
        done = subprocess.run(no_network(*command), env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)
        took = processor_seconds() - before
        assert done.returncode == wanted, (line, done.stderr)
        assert took < 5, f"{line}: {took:.1f} s of the processor (the promise is 1 s in all, where nobody else has it)"
        subprocess.run(["strace", "-f", "-qq", "-e", "trace=connect,sendto", "-o", str(trace), *command], env=env,
                       cwd=ROOT, capture_output=True)  # fmt: skip
        assert connects(trace.read_text()) == [], line


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs the right to make a read-only mount")
def test_off_carry(tmp_path: Path, qwen: Path) -> None:
    first, second, bundle = tmp_path / "machine-a", tmp_path / "machine-b", tmp_path / "carried" / "bundle.tar"
    bundle.parent.mkdir()
    run("artifacts", "import", str(qwen), home=first)
    assert run("artifacts", "export", FAMILY, "--out", str(bundle), home=first).code == 0
    shutil.move(first, tmp_path / "gone")
    assert b"machine-a" not in bundle.read_bytes()
    env = environment(second, LC_ALL="C", HOME="/nonexistent", USER="other")
    assert run("artifacts", "import", str(bundle), home=second, env=env).code == 0
    blob = second / "cache" / "artifacts" / "blobs" / "sha256" / PIN.sha256[:2] / PIN.sha256
    assert hashlib.sha256(blob.read_bytes()).hexdigest() == PIN.sha256
    for line in (["artifacts", "verify"], ["encode", "--family", FAMILY, "grün", "--offline"], ["artifacts", "list"]):
        command = read_only(second, sys.executable, "-m", "toktier_cli.main", *line)
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "machine-a" not in done.stdout + done.stderr
    assert os.path.exists(bundle)
