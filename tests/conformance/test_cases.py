"""The case files, run by their own checker through the adapter, and checks that the adapter cannot be fooled."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers

import toktier
from tests.conformance import adapter
from tests.support.material import ROOT, Artifacts, small_tokenizers

VERSION = tokenizers.__version__
KNOWN_VERSIONS = ("0.22.2", "0.23.3")
SUMMARY = re.compile(r"(\d+) checks, (\d+) mismatches, (\d+) cases on refused artifacts .*")

# Undefined in the reference itself: added tokens that collide. Nothing else is refused.
REFUSED = {
    "d.collide_nfc": toktier.errors.UnsupportedConfig,
    "d.collide_nfkc": toktier.errors.UnsupportedConfig,
}


def check(
    shared: Path, files: list[str], directory: Path, adapter_name: str = "tests.conformance.adapter:make"
) -> subprocess.CompletedProcess[str]:
    """`check.py` puts its own directory and the current one first on the path: `directory` must hold no package."""
    flags = ["-S"] if sys.flags.no_site else []
    script = [str(shared / "cases" / "check.py"), "--adapter", adapter_name, "--version", VERSION]
    paths = [str(shared / "cases" / name) for name in files]
    path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), str(ROOT)) if part)
    return subprocess.run(
        [sys.executable, *flags, *script, *paths],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.ci
@pytest.mark.parametrize(("name", "at_least"), [("ids.jsonl", 11_500), ("sessions.jsonl", 2_000)])
def test_no_case_differs(shared: Path, name: str, at_least: int, tmp_path: Path) -> None:
    assert VERSION in KNOWN_VERSIONS, f"the cases hold no expectations for tokenizers {VERSION}"
    run = check(shared, [name], tmp_path)
    summary = SUMMARY.fullmatch(run.stdout.splitlines()[-1])
    assert summary is not None, run.stdout + run.stderr
    checks, mismatches, refused = map(int, summary.groups())
    assert (run.returncode, mismatches) == (0, 0), run.stdout
    assert checks >= at_least
    cases = [json.loads(line)["artifact"] for line in (shared / "cases" / name).read_text().splitlines()]
    assert refused == sum(artifact in REFUSED for artifact in cases)


@pytest.mark.ci
def test_only_these_artifacts_are_refused(shared: Path, artifacts: Artifacts) -> None:
    outcome: dict[str, type[Exception]] = {}
    for name in [*artifacts.names, *artifacts.derived_names]:
        try:
            adapter.make(str(artifacts.path(name)))
        except toktier.ToktierError as error:
            outcome[name] = type(error)
    assert outcome == REFUSED


def test_the_adapter_refuses_what_the_native_engine_does_not_serve(tmp_path: Path) -> None:
    unknown = tmp_path / "tokenizer.json"
    unknown.write_text('{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}}')
    with pytest.raises(toktier.errors.ProgramUnsupported):
        adapter.make(str(unknown))


def test_the_adapter_sees_through_a_silent_fallback(monkeypatch: pytest.MonkeyPatch, isolated_home: Path) -> None:
    """An encoding of another engine, and one that nobody counted, both raise."""
    path = small_tokenizers()[0]
    other = toktier.from_file(path, tokenizer="hf")
    with pytest.raises(adapter.NotServedNatively):
        adapter.encode_natively(other, "text", False)
    with pytest.raises(adapter.NotServedNatively):
        adapter.assert_only_native(other)
    native = adapter.native_tokenizer(path, isolated_home)
    made = native.encode("text")

    class Lying:
        native_calls = (7, 7)

        def encode(self, text: str, add_special_tokens: bool) -> toktier.Encoding:
            return made

    with pytest.raises(adapter.NotServedNatively):
        adapter.encode_natively(Lying(), "text", False)  # type: ignore[arg-type]
    assert adapter.encode_natively(native, "text", False) == made
    adapter.assert_only_native(native)
