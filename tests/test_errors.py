"""What every error has: a remedy that its trace ends with, and that stays one through copies."""

from __future__ import annotations

import pickle
import traceback

import pytest

import toktier
from toktier.errors import ArtifactNotFound, NotATokenizer, ToktierError


def test_the_trace_of_an_uncaught_error_ends_with_what_mends_it() -> None:
    with pytest.raises(ArtifactNotFound) as caught:
        toktier.from_file("absent.json")
    assert traceback.format_exception_only(caught.value)[-1] == "hint: check the path\n"
    assert str(caught.value) == "there is no file absent.json"


def test_a_remedy_given_later_takes_the_place_of_the_first() -> None:
    error = ToktierError("it broke", remedy="first")
    error.remedy = "second"
    assert traceback.format_exception_only(error)[1:] == ["hint: second\n"]
    error.remedy = None
    assert traceback.format_exception_only(error)[1:] == []


def test_a_class_has_a_remedy_for_whoever_knows_no_better_one() -> None:
    assert NotATokenizer("none").to_dict()["remedy"] == NotATokenizer.usual_remedy
    assert NotATokenizer("none", remedy="another").remedy == "another"


def test_a_copy_through_a_pickle_says_the_same() -> None:
    error = ToktierError("it broke", details={"a": 1}, remedy="mend it")
    again = pickle.loads(pickle.dumps(error))
    assert again.to_dict() == error.to_dict()
    assert traceback.format_exception_only(again) == traceback.format_exception_only(error)
