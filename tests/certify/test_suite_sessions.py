"""The suite of sessions agrees with the reference on tokenizers of every kind, reports a wrong patch, a wrong length
and wrong ids of its own with the script that shows it, and takes nothing for agreement that the reference would
serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.certify_runs import Altered, changed_file, run_suite
from tests.support.material import small_tokenizers
from toktier._native import SessionBase, TokenPatch
from toktier.certify.edit_scripts import from_rows
from toktier.certify.failures import script_comparison
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suites import sessions
from toktier.certify.suites.sessions import SessionsSuite
from toktier.routing.vocabulary import BackendId

SUITE = SessionsSuite()
NAMES = {path.stem: path for path in small_tokenizers()}


@pytest.fixture
def few_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sessions.BLOCKS, Level.QUICK, 2)
    monkeypatch.setitem(sessions.LONG_BLOCKS, Level.QUICK, 0)
    monkeypatch.setattr(sessions, "SHORT", 60)
    monkeypatch.setattr(sessions, "WITH_PLACES", 3)


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_small_tokenizers_agree(path: Path) -> None:
    run = run_suite(SUITE, Subject(path))
    assert not run.failures
    assert (run.counts.mismatches, run.counts.routed) == (0, 0)
    assert run.counts.checks > run.counts.documents > 9 * run.plan.facts["scripts"]
    assert run.plan.facts["scripts"] > 800


@pytest.mark.usefixtures("few_scripts")
def test_blocks_are_the_same_in_every_process_and_differ_by_seed() -> None:
    once, again, other = (run_suite(SUITE, Subject(NAMES["o200k_like"]), seed=seed) for seed in (3, 3, 4))
    assert once.digests == again.digests
    assert not set(once.digests) & set(other.digests)


class KeepsOneMore(SessionBase):
    def append(self, text: Any, **options: Any) -> TokenPatch:
        keep, ids, revision = super().append(text, **options)
        return TokenPatch((keep + (text == "x"), ids, revision))


class Longer(SessionBase):
    @property
    def text_length(self) -> int:
        return super().text_length + (self.byte_length > 40)


class ForgetsTheEnd(SessionBase):
    def snapshot(self) -> Any:
        other = SessionBase(Subject(NAMES["cl100k_like"]).tokenizer)
        return other.present(self.held_text()[:-1].decode(errors="ignore"))


@pytest.mark.usefixtures("few_scripts")
@pytest.mark.parametrize(
    ("kind", "what"),
    [(KeepsOneMore, "ids"), (Longer, "lengths"), (ForgetsTheEnd, "ids")],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_a_wrong_session_is_reported_with_its_script(
    kind: type[SessionBase], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(NAMES["cl100k_like"])
    monkeypatch.setattr(Subject, "session", property(lambda self: lambda: kind(self.tokenizer)))
    run = run_suite(SUITE, subject, until_mismatch=True)
    assert run.counts.mismatches >= len(run.failures) > 0
    for failure in run.failures:
        assert failure["what"] == f"{what} of a session"
        script = from_rows(failure["script"])
        now = script_comparison(subject, script)
        assert (now["differs"], now["edit"], now["served_by"]) == (what, len(script) - 1, "fast_cpu")


@pytest.mark.usefixtures("few_scripts")
def test_what_the_reference_would_serve_is_routed_and_no_agreement() -> None:
    subject = Subject(NAMES["cl100k_like"])
    subject.__dict__["tokenizer"] = Altered(subject.tokenizer, program=None)
    run = run_suite(SUITE, subject)
    assert run.counts.checks == run.counts.routed > 1_000
    assert run.counts.documents == run.counts.mismatches == 0


@pytest.mark.usefixtures("few_scripts")
def test_changes_that_the_engine_did_not_count_are_routed(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, other = Subject(NAMES["cl100k_like"]), Subject(NAMES["cl100k_like"])
    monkeypatch.setattr(Subject, "session", property(lambda self: lambda: SessionBase(other.tokenizer)))
    run = run_suite(SUITE, subject)
    assert run.counts.checks == run.counts.routed > 1_000
    assert run.counts.mismatches == 0


def test_no_block_where_sessions_are_refused(tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 40, "strategy": "LongestFirst", "stride": 0}
    stored = changed_file(NAMES["cl100k_like"], tmp_path / "t.json", lambda d: d.update(truncation=truncation))
    for subject in (Subject(stored), Subject(NAMES["cl100k_like"], BackendId.GPU)):
        plan = SUITE.plan(subject, Level.QUICK, 1)
        assert plan.blocks == 0
        assert plan.why
