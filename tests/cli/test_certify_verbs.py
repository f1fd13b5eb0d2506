"""The verbs of certification, with small suites: exit codes, documents, files, and what CI systems read."""

from __future__ import annotations

import json
import os
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.certify import tiny_suites
from tests.certify.tiny_suites import MINI
from tests.cli.command import Outcome, check_document, run_here, run_on_terminal
from toktier.certify.summary import MAX_BYTES

pytestmark = pytest.mark.unsanitized


class Command:
    def __init__(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes], fault: str = ""
    ) -> None:
        self.home, self.monkeypatch, self.capture = home, monkeypatch, capture
        self.suites: tuple[Any, ...] = tiny_suites.SUITES

    def __call__(self, *arguments: str, fault: str = "", **environ: str) -> Outcome:
        with self.monkeypatch.context() as patch:
            patch.setattr("toktier.certify.suites.SUITES", self.suites)
            patch.setattr("toktier.certify.subject.Subject", tiny_suites.PlantedSubject)
            patch.setenv("TINY_FAULT", fault)
            for name, value in environ.items():
                patch.setenv(name, value)
            return run_here("certify", *arguments, home=self.home, monkeypatch=self.monkeypatch, capture=self.capture)

    def document(self, *arguments: str, **more: str) -> Any:
        return check_document(self(*arguments, "--json", **more))


@pytest.fixture
def certify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    return Command(tmp_path / "home", monkeypatch, capfdbinary)


def test_a_pass_is_0_and_can_be_shown_verified_and_compared(certify: Command, tmp_path: Path) -> None:
    document = certify.document("toktier_mini")
    assert document["exit_code"] == 0
    assert document["outcome"] == "passed"
    assert document["artifact"]["name"] == "toktier_mini"
    directory = Path(document["directory"])
    assert directory.parent == tmp_path / "home" / "state" / "certify"
    shown = certify.document("show")["runs"]
    assert [(run["path"], run["outcome"], run["current"]) for run in shown] == [(str(directory), "passed", True)]
    assert certify.document("show", "toktier_mini")["runs"] == shown
    verified = certify.document("verify", document["evidence"]["path"], "--sample", "4")
    assert (verified["exit_code"], len(verified["sampled"]), verified["mismatches"]) == (0, 4, 0)
    again = certify.document("run", str(MINI), "--out", str(tmp_path / "again"))
    assert again["evidence"]["digest"] == document["evidence"]["digest"]
    same = certify.document("diff", str(directory), str(tmp_path / "again"))
    assert (same["exit_code"], same["same"]) == (0, True)
    other = certify.document("toktier_mini", "--seed", "3")
    different = certify.document("diff", str(directory), other["evidence"]["path"])
    assert different["exit_code"] == 1
    assert {"path": "plan.seed", "a": 0, "b": 3} in different["differences"]


def test_results_of_another_host_are_data(certify: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [str(tmp_path / f"part{k}") for k in (1, 2)]
    for k, part in enumerate(parts, 1):
        certify("toktier_mini", "--shard", f"{k}/2", "--out", part)
    assert certify.document("merge", *parts)["stored"] is None
    certify("toktier_mini", "--out", str(tmp_path / "run"), "--time-budget", "0")
    monkeypatch.setattr("toktier_cli.verbs.certify.os.uname", lambda: os.uname_result(("Linux", "else", "", "", "x")))
    outcome = certify("--resume", str(tmp_path / "run"))
    assert outcome.code == 0
    assert "begun on another host" in outcome.stderr
    assert certify.document("--resume", str(tmp_path / "run"))["stored"] is None


def test_a_corpus_is_compared_by_digest_and_an_absent_or_empty_one_is_6(certify: Command, tmp_path: Path) -> None:
    from toktier.certify.suites.corpus import CorpusSuite

    certify.suites = (*tiny_suites.SUITES, CorpusSuite())
    place = tmp_path / "texts"
    place.mkdir()
    assert certify.document("toktier_mini", "--corpus", str(place))["exit_code"] == 6
    (place / "a.txt").touch()  # a document, and nothing that could differ
    empty = certify.document("toktier_mini", "--corpus", str(place))
    assert (empty["exit_code"], [reason["code"] for reason in empty["reasons"]]) == (6, ["empty_corpus"])
    (place / "a.txt").write_text("a text that nobody else may read")
    (place / "b.jsonl").write_text('{"text": "Größe"}\n"more"\n')
    run = ("toktier_mini", "--corpus", str(place), "--out", str(tmp_path / "run"))
    document = certify.document(*run)
    assert document["exit_code"] == 0
    assert document["suites"][-1]["counts"]["documents"] == 3
    for path in (tmp_path / "run").iterdir():
        assert b"nobody else" not in path.read_bytes()
    assert certify.document("--resume", str(tmp_path / "run"))["exit_code"] == 0
    line = ("verify", str(tmp_path / "run"), "--sample", "99")
    assert len(certify.document(*line)["sampled"]) == tiny_suites.BLOCKS
    assert len(certify.document(*line, "--corpus", str(place))["sampled"]) == tiny_suites.BLOCKS + 1
    (place / "a.txt").write_text("another text")
    assert certify.document(*line, "--corpus", str(place))["exit_code"] == 4
    assert certify.document("--resume", str(tmp_path / "run"))["exit_code"] == 4
    assert certify.document("toktier_mini", "--corpus", str(tmp_path / "absent"))["exit_code"] == 6
    assert certify.document("toktier_mini", "--suite", "words", "--corpus", str(place))["exit_code"] == 2


def test_a_difference_is_1_and_replays(certify: Command, tmp_path: Path) -> None:
    outcome = certify("toktier_mini", "--out", str(tmp_path / "run"), fault="ids")
    assert outcome.code == 1
    assert "differs: words block" in outcome.text
    assert "U+00F6 U+00DF" in outcome.text
    failure = next((tmp_path / "run" / "failures").iterdir())
    assert f"toktier certify replay {tmp_path}" in outcome.text
    document = certify.document("replay", str(failure), fault="ids")
    assert (document["exit_code"], document["differs"]) == (1, True)
    assert certify.document("replay", str(failure))["exit_code"] == 0
    assert "U+00F6 U+00DF" in certify("replay", str(failure), fault="ids").text
    assert certify.document("verify", str(tmp_path / "run"))["exit_code"] == 1
    value = certify.document("toktier_mini", "--max-failures", "1", fault="value")
    assert value["exit_code"] == 1
    document = certify.document("replay", value["failures"][0]["path"], fault="value")
    assert (document["got"], document["expected"]) == ("4", "3")


def test_hints_with_the_directory_can_be_pasted(certify: Command, tmp_path: Path) -> None:
    directory = tmp_path / "it's; a run"
    late = certify("toktier_mini", "--out", str(directory), "--time-budget", "0")
    assert f"go on with toktier certify --resume {shlex.quote(str(directory))}\n" in late.stderr
    refused = certify.document("--resume", str(directory), "--level", "quick")
    assert shlex.split(refused["error"]["remedy"]) == ["toktier", "certify", "--resume", str(directory)]
    unfinished = certify.document("verify", str(directory))
    assert shlex.split(unfinished["error"]["remedy"]) == ["toktier", "certify", "--resume", str(directory)]
    failed = certify("toktier_mini", "--out", str(tmp_path / "a $b"), fault="ids")
    assert f"toktier certify replay '{tmp_path}/a $b/failures/" in failed.text


def test_incomplete_is_6_and_goes_on(certify: Command, tmp_path: Path) -> None:
    directory = str(tmp_path / "run")
    outcome = certify("toktier_mini", "--out", directory, "--time-budget", "0")
    assert outcome.code == 6
    assert f"toktier certify --resume {directory}" in outcome.stderr
    assert certify.document("verify", str(Path(directory) / "evidence.json"))["exit_code"] == 6
    assert certify.document("verify", directory)["error"]["code"] == "EVIDENCE_INCOMPLETE"
    assert certify.document("show")["runs"] == []  # it lies elsewhere
    assert certify.document("--resume", directory, "--level", "quick")["exit_code"] == 2
    assert certify.document("--resume", directory)["exit_code"] == 0
    assert certify.document("--resume", directory)["exit_code"] == 0
    assert certify.document("toktier_mini", "--suite", "silent")["outcome"] == "incomplete"
    assert certify.document("toktier_mini", fault="raise")["reasons"][0]["code"] == "fault"
    assert certify.document("toktier_mini", fault="route")["reasons"][0]["code"] == "not_served"


def test_shards_merge(certify: Command, tmp_path: Path) -> None:
    parts = [str(tmp_path / f"part{k}") for k in (1, 2, 3)]
    for k, part in enumerate(parts, 1):
        document = certify.document("toktier_mini", "--shard", f"{k}/3", "--out", part)
        assert (document["exit_code"], document["evidence"]) == (0, None)
    assert "evidence comes of toktier certify merge" in certify("--resume", parts[0]).text
    assert certify.document("merge", *parts[:2])["exit_code"] == 6
    assert certify.document("merge", *parts, parts[0])["exit_code"] == 5
    merged = certify.document("merge", *parts, "--junit", str(tmp_path / "j.xml"))
    assert merged["evidence"]["digest"] == certify.document("toktier_mini")["evidence"]["digest"]
    assert (tmp_path / "j.xml").exists()
    assert certify.document("toktier_mini", "--shard", "1/22")["exit_code"] == 2


def test_edited_evidence_is_5_and_stale_evidence_4(
    certify: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certify("toktier_mini", "--out", str(tmp_path / "run"))
    path = tmp_path / "edited.json"
    data = (tmp_path / "run" / "evidence.json").read_bytes()
    path.write_bytes(data.replace(b'"documents":130', b'"documents":131'))
    assert certify.document("verify", str(path))["error"]["code"] == "EVIDENCE_INVALID"
    (tmp_path / "run" / "summary.md").write_text("all is well")
    assert certify.document("verify", str(tmp_path / "run"))["exit_code"] == 5
    path.write_bytes(data)
    monkeypatch.setattr("toktier.certify.verify.installed_engine", lambda: "0" * 64)
    document = certify.document("verify", str(path))
    assert (document["exit_code"], document["error"]["details"]["differs"][0]["path"]) == (4, "engine")


def test_what_ci_systems_read(certify: Command, tmp_path: Path) -> None:
    page, junit, summary = tmp_path / "step", tmp_path / "j.xml", tmp_path / "s.md"
    page.write_text("before\n")
    files = ("--junit", str(junit), "--summary", str(summary))
    outcome = certify("toktier_mini", *files, fault="ids", GITHUB_STEP_SUMMARY=str(page))
    assert outcome.code == 1
    assert page.read_text() == "before\n" + summary.read_text()
    suite = ElementTree.parse(junit).getroot()[0]
    assert {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3", "failures": "1", "errors": "0", "skipped": "1"
    }  # fmt: skip
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    assert list(cases) == ["words", "values", "silent"]
    found = cases["words"].find("failure")
    assert found is not None
    assert "U+00F6 U+00DF" in (found.text or "")
    skipped = cases["silent"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "there is nothing to say"
    assert certify("toktier_mini", GITHUB_STEP_SUMMARY=str(tmp_path)).code == 0


def test_thousands_of_failures_fit_a_summary(certify: Command, tmp_path: Path) -> None:
    from toktier.certify.outcome import Outcome as Judged
    from toktier.certify.summary import summary

    document = certify.document("toktier_mini", "--out", str(tmp_path / "run"), fault="value")
    failure = json.loads(Path(document["failures"][0]["path"]).read_bytes())
    failure["subject"] = "<b>|x" * 100
    plan = tiny_suites.prepare(tmp_path / "home").plan
    page = summary(plan, Judged.FAILED, [], [], [("f.json", failure)] * 5000)
    assert len(page) <= MAX_BYTES
    assert b"<b>" not in page


def test_what_is_misspelt_is_2_and_what_is_absent_3(certify: Command, tmp_path: Path) -> None:
    for line in (["--level", "deep"], ["--suite", "nope"], ["--backend", "hf"], ["--backend", "x"], ["--shard", "3/2"]):
        assert certify.document("toktier_mini", *line)["exit_code"] == 2
    assert certify.document()["exit_code"] == 2
    assert certify.document("absent_family")["exit_code"] == 3
    assert certify.document("./merge")["exit_code"] == 3
    assert certify.document("--resume", str(tmp_path / "absent"))["exit_code"] == 3
    assert certify.document("toktier_mini", "--backend", "gpu")["exit_code"] == 8
    assert not list((tmp_path / "home").rglob("plan.json"))


def test_what_would_be_found_after_the_run_is_told_before_it(certify: Command, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for line in (["--junit", str(fifo)], ["--summary", str(tmp_path / "no" / "x.md")], ["--junit", str(tmp_path)]):
        assert certify.document("toktier_mini", *line)["exit_code"] == 2
    for seconds in ("nan", "inf"):
        assert certify.document("toktier_mini", "--time-budget", seconds)["exit_code"] == 2
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "evidence.json").write_text("mine")
    assert certify.document("toktier_mini", "--out", str(tmp_path / "used"))["exit_code"] == 7
    assert (tmp_path / "used" / "evidence.json").read_text() == "mine"
    assert not list((tmp_path / "home").rglob("plan.json"))


def test_a_file_named_without_its_directory_is_found_again(
    certify: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.json").write_bytes(MINI.read_bytes().replace(b"{", b"{ ", 1))
    monkeypatch.chdir(tmp_path)
    assert certify("t.json", "--out", str(tmp_path / "run"), "--time-budget", "0").code == 6
    monkeypatch.chdir("/")
    assert certify("--resume", str(tmp_path / "run")).code == 0


def test_names_are_never_more_than_names(certify: Command, tmp_path: Path) -> None:
    from toktier.certify.suites.corpus import CorpusSuite

    certify.suites = (*tiny_suites.SUITES, CorpusSuite())
    file = os.fsdecode(os.fsencode(tmp_path) + b"/t\xff\x1b[31m\n# x.json")
    texts = os.fsdecode(os.fsencode(tmp_path) + b"/c\xff.txt")
    Path(file).write_bytes(MINI.read_bytes().replace(b"{", b"{ ", 1))
    Path(texts).write_text("a text")
    run = tmp_path / "run"
    outcome = certify(file, "--corpus", texts, "--out", str(run))
    assert outcome.code == 0
    for text in (outcome.text, (run / "summary.md").read_text()):
        assert "\x1b" not in text
        assert "\n# x" not in text
    assert certify("run", "--resume", str(run), file).code == 6  # the corpus has to be given by a name that JSON holds


def test_a_shard_alone_is_incomplete(certify: Command, tmp_path: Path) -> None:
    certify("toktier_mini", "--shard", "1/2", "--out", str(tmp_path / "part"))
    told = certify.document("verify", str(tmp_path / "part"))
    assert told["exit_code"] == 6
    assert "merge" in told["error"]["remedy"]


def test_what_the_compiler_does_not_know_is_4_and_named(certify: Command, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")).save(str(tmp_path / "w.json"))
    told = certify.document(str(tmp_path / "w.json"))
    assert (told["exit_code"], told["error"]["code"]) == (4, "PROGRAM_UNSUPPORTED")
    assert "WordPiece" in told["error"]["message"]


def test_a_program_in_the_cache_that_the_compiler_did_not_make_is_no_subject(certify: Command) -> None:
    """It has a digest that holds, so a load believes it: the suites read other tables than those that would serve."""
    from toktier.program.file import read_program, write_program
    from toktier.program.layout import SECTIONS

    assert certify("toktier_mini").code == 0
    (path,) = certify.home.rglob("*.program")
    program = read_program(path.read_bytes())
    sections = {tag: bytes(program.section(tag)) for tag in SECTIONS}
    sections["CLS2"] = sections["CLS2"][:-1] + bytes([sections["CLS2"][-1] ^ 1])
    path.write_bytes(write_program(sections, program.artifact_sha256, program.fingerprint))
    told = certify.document("toktier_mini")
    assert (told["exit_code"], told["error"]["code"]) == (5, "PROGRAM_CORRUPT")
    path.unlink()
    assert certify("toktier_mini").code == 0


def test_a_failure_of_the_reference_beside_itself_is_none(certify: Command, tmp_path: Path) -> None:
    certify("toktier_mini", "--out", str(tmp_path / "run"), fault="ids")
    path = sorted((tmp_path / "run" / "failures").iterdir())[0]
    failure = json.loads(path.read_bytes())
    for edited in (failure | {"backend": "hf"}, {k: v for k, v in failure.items() if k != "plain"}):
        path.write_text(json.dumps(edited))
        assert certify.document("replay", str(path))["exit_code"] == 5
    assert certify.document("replay", str(tmp_path))["exit_code"] == 7


def test_progress_is_for_people_only(tmp_path: Path, certify: Command) -> None:
    assert certify("toktier_mini", "--quiet").stderr == ""
    code, shown = run_on_terminal("certify", "show", home=tmp_path / "home")
    assert code == 0
    assert "passed" in shown
