"""The suites, one a module, in the order in which they run: cheap and telling ones first."""

from __future__ import annotations

from toktier.certify.suite import Suite
from toktier.certify.suites.added import AddedSuite
from toktier.certify.suites.automaton import AutomatonSuite
from toktier.certify.suites.cases import CasesSuite
from toktier.certify.suites.classes import ClassesSuite
from toktier.certify.suites.code_points import CodePointsSuite
from toktier.certify.suites.corpus import CorpusSuite
from toktier.certify.suites.cuts import CutsSuite
from toktier.certify.suites.decoding import DecodingSuite
from toktier.certify.suites.fingerprint import FingerprintSuite
from toktier.certify.suites.fuzz import FuzzSuite
from toktier.certify.suites.normalization import NormalizationSuite
from toktier.certify.suites.scanner import ScannerSuite
from toktier.certify.suites.sessions import SessionsSuite
from toktier.certify.suites.tables import TablesSuite
from toktier.certify.suites.vocabulary import VocabularySuite

SUITES: tuple[Suite, ...] = (
    TablesSuite(),
    AutomatonSuite(),
    ClassesSuite(),
    CodePointsSuite(),
    ScannerSuite(),
    CutsSuite(),
    CasesSuite(),
    AddedSuite(),
    NormalizationSuite(),
    FingerprintSuite(),
    VocabularySuite(),
    DecodingSuite(),
    SessionsSuite(),
    FuzzSuite(),
    CorpusSuite(),
)


def suite_named(name: str) -> Suite:
    """The suite of this name. KeyError for another."""
    return {suite.name: suite for suite in SUITES}[name]
