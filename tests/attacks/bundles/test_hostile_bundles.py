"""Every hostile bundle is refused with its own error, without a trace of it in memory, in the output or on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.attacks.bundles import archives, claims, frames, manifests
from tests.attacks.bundles.craft import ATTACKS, EXIT, FORGED, MALFORMED, Attack
from tests.cli.command import validator
from tests.support.material import ROOT

assert archives
assert claims
assert frames
assert manifests

MAX_GROWTH_KIB = 64 << 10
# Of directories that an import makes before it reads: they are empty.
SCAFFOLD = {"home/cache", "home/cache/artifacts", "home/cache/artifacts/staging"}


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("attacks")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.attacks.bundles.run_attacks", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return {o["name"]: o for o in map(json.loads, done.stdout.splitlines())}


def test_there_are_enough_and_each_says_what_it_tries() -> None:
    assert len(ATTACKS) >= 40
    assert len({a.name for a in ATTACKS}) == len(ATTACKS)
    assert all(a.tries.endswith(".") and "\n" not in a.tries for a in ATTACKS)


def test_what_the_attacks_vary_is_accepted(outcomes: dict[str, Any]) -> None:
    for name in ("good", "good_parts", "good_frame"):
        for verb in ("import", "verify"):
            assert outcomes[name][verb]["code"] == 0, outcomes[name]
    stored = [p for p in outcomes["good"]["import"]["changed"] if "/blobs/" in p and len(p.split("/")[-1]) == 64]
    assert len(stored) == 2


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_a_hostile_bundle_is_refused(attack: Attack, outcomes: dict[str, Any]) -> None:
    outcome = outcomes[attack.name]["import"]
    document = json.loads(outcome["stdout"])
    validator("error").validate(document)
    error = document["error"]
    assert (error["code"], error["details"].get("reason")) == (attack.code, attack.reason), error
    assert outcome["code"] == document["exit_code"] == EXIT[attack.code]
    assert error["message"].isprintable()
    assert error["remedy"]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_verifying_a_hostile_bundle_says_no(attack: Attack, outcomes: dict[str, Any]) -> None:
    outcome = outcomes[attack.name]["verify"]
    document = json.loads(outcome["stdout"])
    validator("artifacts_verify").validate(document)
    entry = document["paths"][0]
    assert outcome["code"] == document["exit_code"] == EXIT[attack.code]
    # An import stops at a false claim; verifying reads on, and may meet something worse.
    assert entry["error"]["code"] in (attack.code, *([MALFORMED] if attack.code == FORGED else []))
    answers = entry.get("bundle")
    assert answers is None or not (answers["complete"] and answers["valid"] and answers["pinned"])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_a_hostile_bundle_leaves_nothing(attack: Attack, outcomes: dict[str, Any]) -> None:
    for verb in ("import", "verify"):
        outcome = outcomes[attack.name][verb]
        assert outcome["stderr"] == ""
        assert outcome["grown_kib"] < MAX_GROWTH_KIB
        assert set(outcome["changed"]) <= (SCAFFOLD if verb == "import" else set())


def test_extra_members_are_named(outcomes: dict[str, Any]) -> None:
    entry = json.loads(outcomes["undeclared_file"]["verify"]["stdout"])["paths"][0]
    assert entry["bundle"]["extra"] == ["zz_payload"]
    assert entry["bundle"]["valid"]
    assert not entry["bundle"]["complete"]
    entry = json.loads(outcomes["missing_file"]["verify"]["stdout"])["paths"][0]
    assert [f["status"] for f in entry["bundle"]["parts"][0]["files"]] == ["ok", "missing"]
