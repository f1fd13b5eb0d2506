"""The ring of fallbacks and errors: bounded, whole under many writers and torn slots, silent when it may not write."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import toktier
from tests.support.material import ROOT
from toktier import diagnostics_ring as ring
from toktier.config import Config, Settings, resolve_settings
from toktier.errors import InvalidText, UnknownFamily


def settings(tmp_path: Path, on: bool = True) -> Settings:
    return resolve_settings(Config(home=tmp_path, diagnostics=on))


def test_off_means_no_file(tmp_path: Path) -> None:
    assert not ring.record(settings(tmp_path, on=False), ring.ERROR, "INVALID_TEXT")
    assert list(tmp_path.iterdir()) == []
    assert ring.read(tmp_path / "state") == []


def test_entries_are_codes_and_numbers(tmp_path: Path) -> None:
    given = settings(tmp_path)
    ring.record_error(given, InvalidText("secret text", details={"position": 7, "text": "secret"}))
    assert ring.record(given, ring.FALLBACK, "R_PROGRAM_UNSUPPORTED", backend="fast_cpu", size=12)
    first, second = ring.read(tmp_path / "state")
    assert (first["kind"], first["code"], first["position"], first["pid"]) == ("error", "INVALID_TEXT", 7, os.getpid())
    assert (second["code"], second["backend"], second["size"]) == ("R_PROGRAM_UNSUPPORTED", "fast_cpu", 12)
    path = tmp_path / "state" / ring.FILE
    assert b"secret" not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    for bad in (("error", "MADE_UP", {}), ("fallback", "INVALID_TEXT", {}), ("error", "INVALID_TEXT", {"length": 3})):
        with pytest.raises(ValueError, match="not an entry"):
            ring.record(given, bad[0], bad[1], **bad[2])


def test_the_oldest_are_replaced(tmp_path: Path) -> None:
    given = settings(tmp_path)
    for number in range(ring.SLOTS + 10):
        assert ring.record(given, ring.ERROR, "INVALID_TEXT", size=number)
    found = ring.read(tmp_path / "state")
    assert [entry["size"] for entry in found] == list(range(10, ring.SLOTS + 10))
    assert (tmp_path / "state" / ring.FILE).stat().st_size == ring.SLOTS * ring.SLOT_BYTES


def test_a_torn_or_foreign_slot_is_passed_over(tmp_path: Path) -> None:
    given = settings(tmp_path)
    for number in range(4):
        ring.record(given, ring.ERROR, "INVALID_TEXT", size=number)
    path = tmp_path / "state" / ring.FILE
    data = bytearray(path.read_bytes())
    data[ring.SLOT_BYTES + 40] ^= 1
    data[2 * ring.SLOT_BYTES : 3 * ring.SLOT_BYTES] = b"\xff" * ring.SLOT_BYTES
    path.write_bytes(data + b"half a slot")
    assert [entry["size"] for entry in ring.read(tmp_path / "state")] == [0, 3]
    assert ring.record(given, ring.ERROR, "INVALID_TEXT", size=9)
    assert [entry["size"] for entry in ring.read(tmp_path / "state")] == [0, 3, 9]


def test_eight_processes_lose_nothing_but_what_they_give_up(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom toktier import diagnostics_ring as r\nfrom toktier.config import Config, resolve_settings\n"
        "r.WAIT_SECONDS = 300\ns = resolve_settings(Config(home=sys.argv[1], diagnostics=True))\n"
        "print(sum(r.record(s, r.ERROR, 'INVALID_TEXT', size=int(sys.argv[2])) for _ in range(20)))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen([*command, str(n)], cwd=ROOT, stdout=subprocess.PIPE, text=True) for n in range(8)]
    assert [int(child.communicate(timeout=600)[0]) for child in running] == [20] * 8
    found = ring.read(tmp_path / "state")
    assert [entry["number"] for entry in found] == list(range(160))
    assert {n: sum(entry["size"] == n for entry in found) for n in range(8)} == dict.fromkeys(range(8), 20)


def test_a_held_file_is_not_waited_for(tmp_path: Path) -> None:
    given = settings(tmp_path)
    assert ring.record(given, ring.ERROR, "INVALID_TEXT")
    with open(tmp_path / "state" / ring.FILE, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not ring.record(given, ring.ERROR, "INVALID_TEXT")
        assert len(ring.read(tmp_path / "state")) == 1  # readers need no lock


def test_a_host_that_refuses_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    assert not ring.record(settings(tmp_path), ring.ERROR, "INVALID_TEXT")
    assert ring.read(tmp_path / "state") == []
    (tmp_path / "state").unlink()
    (tmp_path / "state").mkdir()
    os.mkfifo(tmp_path / "state" / ring.FILE)
    assert ring.read(tmp_path / "state") == []


def test_loads_record_fallbacks_and_errors_once(tmp_path: Path) -> None:
    config = Config(home=tmp_path / "home", diagnostics=True, offline=True)
    with pytest.raises(UnknownFamily):
        toktier.load("nope", config=config)
    odd = tmp_path / "odd.json"
    odd.write_text(
        json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
        })
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tok = toktier.from_file(odd, config=config)
    assert tok.encode("a").backend == "hf"
    found = [(entry["kind"], entry["code"]) for entry in ring.read(tmp_path / "home" / "state")]
    assert found == [("error", "UNKNOWN_FAMILY"), ("fallback", "R_PROGRAM_UNSUPPORTED")]
