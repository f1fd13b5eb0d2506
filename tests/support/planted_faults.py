"""Subjects whose engine runs a program with a changed table, the file and the reference being as they were."""

from __future__ import annotations

from tests.support.certify_runs import SuiteRun
from tests.support.material import ROOT, small_tokenizers
from toktier import _native
from toktier.certify.subject import Subject
from toktier.program.file import write_program

MINI = next((ROOT / "tables" / "artifacts" / "toktier_mini").glob("*.json"))
TOKENIZERS = [MINI, *small_tokenizers()]


def plant(subject: Subject, tag: str, changes: dict[int, int]) -> None:
    """Bytes of a section of the engine's program become other ones. ProgramError where the reader refuses that."""
    file = subject.program_file
    sections = {name: bytes(file.section(name)) for name in file.places}
    data = bytearray(sections[tag])
    for place, value in changes.items():
        assert data[place] != value, "no change"
        data[place] = value
    sections[tag] = bytes(data)
    program = _native.Program(write_program(sections, file.artifact_sha256, file.fingerprint))
    subject.__dict__["native"] = program
    subject.__dict__["tokenizer"] = _native.EncoderBase(program)


def assert_agrees(run: SuiteRun) -> None:
    """Something was compared, the engine served all of it, and all agreed."""
    assert run.failures == []
    assert run.counts.checks > 0
    assert (run.counts.mismatches, run.counts.routed) == (0, 0)
