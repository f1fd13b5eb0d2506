"""What a report must not hold, whatever field it came into; and that digests and diagnoses survive."""

from __future__ import annotations

import os

import pytest

from toktier.diagnosis.redaction import HIDDEN, Redaction

ENVIRON = {"HOME": "/home/anneliese", "USER": "anneliese", "HOSTNAME": "build-7.example.org"}


@pytest.mark.parametrize(
    ("text", "wanted", "rule"),
    [
        ("/home/anneliese/.cache/toktier", "~/.cache/toktier", "home"),
        ("/home/anneliese", "~", "home"),
        ("/srv/anneliese/x", "/srv/<user>/x", "user"),
        ("anneliese:x:1000", "<user>:x:1000", "user"),
        ("on build-7.example.org now", "on <host> now", "host"),
        ("https://me:pass@mirror.example/a", "https://mirror.example/a", "url"),
        ("https://mirror.example/a?token=abc#x", "https://mirror.example/a", "url"),
        ("hf_AbCdEfGhIjKlMnOp", HIDDEN, "token"),
        ("sk-proj-abcdefgh12345678", HIDDEN, "token"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {HIDDEN}", "token"),
        ("github_pat_11ABCDEFG0abcdefghij", HIDDEN, "token"),
        ("AKIAIOSFODNN7EXAMPLE", HIDDEN, "token"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", HIDDEN, "token"),
        ("x aZ3kLm9QwErTyUiOpAsDf y", f"x {HIDDEN} y", "token"),
    ],
)
def test_taken_out(text: str, wanted: str, rule: str) -> None:
    redaction = Redaction(ENVIRON)
    assert redaction.text(text) == wanted
    assert rule in redaction.fired
    assert Redaction(ENVIRON, enabled=False).text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a89c25ff26e08b624c3dc3dfa097f43ac7caaa8ea0c16b8895b2b1afadcfe519",
        "sha256:a89c25ff26e08b624c3dc3dfa097f43ac7caaa8ea0c16b8895b2b1afadcfe519",
        "b968826d9c46dd6066d109eabc6255188de91218",
        "/home/anneliese2/x",
        "R_UNCERTIFIED_ARTIFACT: no evidence speaks about this tokenizer",
        "toktier artifacts fetch deepseek_v4_flash",
        "fast_cpu registry: status untested, policy certified",
    ],
)
def test_left_alone(text: str) -> None:
    assert Redaction(ENVIRON).text(text) == text


def test_this_host_is_taken_out() -> None:
    node = os.uname().nodename
    told = Redaction({}).text(f"/mnt/{node}/x")
    assert told == f"/mnt/{node}/x" if len(node) < 3 or node == "localhost" else node not in told


def test_names_of_vendors_are_no_tokens() -> None:
    document = {
        "devices": [{"name": "NVIDIA-A100-SXM4-80GB-MIG-1g", "path": "/home/anneliese/NVIDIA-A100-SXM4-80GB-MIG-1g"}]
    }
    told = Redaction(ENVIRON).document(document)
    assert told["devices"][0]["name"] == "NVIDIA-A100-SXM4-80GB-MIG-1g"
    assert told["devices"][0]["path"] == f"~/{HIDDEN}"


def test_short_and_common_names_cut_no_words() -> None:
    redaction = Redaction({"HOME": "/root", "USER": "root", "LOGNAME": "al"})
    assert redaction.text("root_digest also al") == "root_digest also al"
    assert redaction.text("/root/x") == "~/x"
