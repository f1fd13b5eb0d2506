"""What a certification on this host changes: the default policy, `inspect` and `certify forget`."""

from __future__ import annotations

from pathlib import Path

import pytest

import toktier
from tests.certify import tiny_suites
from tests.cli.command import check_document, run_here
from tests.cli.test_certify_verbs import Command
from tests.support.material import SMALL_DIR
from toktier.evidence import admission, registry

pytestmark = pytest.mark.unsanitized
FILE = SMALL_DIR / "cl100k_like.json"


@pytest.fixture
def certify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """The command, in an installation whose registry has a row, about something else."""
    row = {"artifact": {"sha256": "0" * 64, "fingerprint": "1" * 64}, "backend": "fast_cpu", "references": {}}
    document = {"schema": registry.SCHEMA, "schema_version": 1, "engine_identity": "0" * 64, "rows": [row]}
    other = registry.parse_registry(registry.sealed(document))
    monkeypatch.setattr(admission, "shipped_registry", lambda: other)
    return Command(tmp_path / "home", monkeypatch, capfdbinary)


def serves(home: Path, path: Path = FILE) -> tuple[str, str]:
    report = toktier.from_file(path, config=toktier.Config(home=home)).explain()
    certification = report["certification"]["backends"]["fast_cpu"]
    assert certification["status"] == report["certification"]["statuses"]["fast_cpu"]
    return report["backend"], certification["status"]


def test_a_file_is_slow_until_it_is_certified_here_and_after_it_is_forgotten(
    certify: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    home = certify.home
    with pytest.warns(toktier.ToktierWarning, match=rf"R_UNCERTIFIED_ARTIFACT\); mended by `toktier certify {FILE}`"):
        assert serves(home) == ("hf", "untested")
    document = certify.document(str(FILE))
    assert document["exit_code"] == 0
    assert Path(document["stored"]).is_relative_to(home / "state" / "evidence")
    assert serves(home) == ("fast_cpu", "locally_certified")

    copy = tmp_path / "other bytes.json"
    copy.write_bytes(FILE.read_bytes() + b"\n")
    assert serves(home, copy) == ("fast_cpu", "locally_certified")

    shown = run_here("inspect", str(copy), home=home, monkeypatch=monkeypatch, capture=capfdbinary).text
    assert f"undo         toktier certify forget {document['artifact']['sha256']}\n" in shown
    shown = run_here("inspect", str(FILE), home=home, monkeypatch=monkeypatch, capture=capfdbinary).text
    assert "evidence     locally_certified: evidence of this host, level quick" in shown
    assert f"undo         toktier certify forget {FILE}\n" in shown
    line = ("inspect", str(FILE), "--json")
    inspected = check_document(run_here(*line, home=home, monkeypatch=monkeypatch, capture=capfdbinary))
    assert inspected["certification"]["backends"]["fast_cpu"]["source"] == "local"
    assert [gate["gate"] for gate in inspected["serves"][0]["gates"] if gate["backend"] == "fast_cpu"][-1] == "registry"

    (kept,) = certify.document("show", str(FILE))["local_evidence"]
    assert (kept["digest"], kept["path"]) == (document["evidence"]["digest"], document["stored"])
    assert "believed" in certify("show").text
    forgotten = certify.document("forget", str(FILE))
    assert [(e["backend"], e["digest"]) for e in forgotten["forgotten"]] == [
        ("fast_cpu", document["evidence"]["digest"])
    ]
    with pytest.warns(toktier.ToktierWarning, match="R_UNCERTIFIED_ARTIFACT"):
        assert serves(home) == ("hf", "untested")
    with pytest.warns(toktier.ToktierWarning):
        assert serves(home, copy) == ("hf", "untested")
    assert certify("forget", str(FILE)).code == 3


def test_what_is_no_whole_pass_is_not_kept(certify: Command, tmp_path: Path) -> None:
    name = tiny_suites.SUITES[0].name
    for arguments, fault in (
        (("--suite", name), ""),
        (("--shard", "1/2"), ""),
        (("--time-budget", "0"), ""),
        ((), "ids"),
    ):
        document = certify.document(str(FILE), *arguments, fault=fault)
        assert document["stored"] is None, arguments
    assert not (certify.home / "state" / "evidence").exists()
    with pytest.warns(toktier.ToktierWarning):
        assert serves(certify.home)[0] == "hf"


def test_shards_put_together_are_not_known_to_be_of_this_host(certify: Command, tmp_path: Path) -> None:
    parts = [str(tmp_path / f"part{k}") for k in (1, 2)]
    for k, part in enumerate(parts, 1):
        assert certify(str(FILE), "--shard", f"{k}/2", "--out", part).code == 0
    merged = certify.document("merge", *parts)
    assert (merged["outcome"], merged["stored"]) == ("passed", None)
    again = certify("--resume", merged["directory"])
    assert again.code == 0
    assert "not believed" in again.stderr


def test_a_run_that_others_could_have_written_is_not_believed(certify: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    certify(str(FILE), "--out", str(run), "--time-budget", "0")
    (run / "blocks.jsonl").chmod(0o666)
    outcome = certify("--resume", str(run))
    assert outcome.code == 0
    assert "somebody else could have written" in outcome.stderr
    assert not (certify.home / "state" / "evidence").exists()


def test_what_is_damaged_can_be_forgotten_and_is_not_believed_after_that(certify: Command, tmp_path: Path) -> None:
    stored = Path(certify.document(str(FILE))["stored"])
    stored.chmod(0o666)
    with pytest.warns(toktier.ToktierWarning):
        assert serves(certify.home)[0] == "hf"
    assert certify("forget", str(FILE)).code == 0
    with pytest.warns(toktier.ToktierWarning):
        assert serves(certify.home)[0] == "hf"
    assert list((certify.home / "state" / "evidence").iterdir()) == []


def test_forgetting_by_digest_and_where_nothing_can_be_kept(certify: Command) -> None:
    sha256 = certify.document(str(FILE))["artifact"]["sha256"]
    assert "forgotten: fast_cpu beside" in certify("forget", sha256).text
    (certify.home / "state" / "evidence").rmdir()
    (certify.home / "state" / "evidence").write_text("in the way")
    outcome = certify(str(FILE))
    assert outcome.code == 0
    assert b"not kept" in outcome.stderr if isinstance(outcome.stderr, bytes) else "not kept" in outcome.stderr
