"""The table of refusals, and the one shape of an error."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from toktier.errors import (
    ConfigInvalid,
    ExitCode,
    InternalError,
    RequestInvalid,
    ToktierError,
    UpstreamBroken,
    UpstreamLost,
    error_codes,
)
from toktier.router.refusals import REFUSALS, Refusal, Refused, as_refused, retry_after


def test_every_refusal_has_a_status_of_http_a_type_and_a_meaning() -> None:
    assert set(REFUSALS) == set(Refusal)
    for code, (status, kind, meaning) in REFUSALS.items():
        assert HTTPStatus(status) >= 400
        assert code == code.lower()
        assert kind in ("invalid_request_error", "authentication_error", "server_error")
        assert (kind == "server_error") == (status >= 500 and code is not Refusal.UNSUPPORTED)
        assert meaning
        assert meaning[0].islower()
        assert not meaning.endswith(".")


def test_codes_of_refusals_are_no_codes_of_errors() -> None:
    """A client tells them apart by the code alone; the one that both have means the same."""
    both = {code.value for code in Refusal} & {code.lower() for code in error_codes()}
    assert both == {"upstream_broken"}
    assert json.loads(as_refused(UpstreamBroken("what"))[1])["error"]["code"] == Refusal.UPSTREAM_BROKEN
    # A body that is wrong has one code, whoever finds it out.
    assert json.loads(as_refused(RequestInvalid("what"))[1])["error"]["code"] == Refusal.BAD_REQUEST


@pytest.mark.parametrize(
    "error", [KeyError("PROMPT"), InternalError("PROMPT"), MemoryError(), ExceptionGroup("PROMPT", [OSError()])]
)
def test_what_nobody_foresaw_is_told_as_such(error: Exception) -> None:
    status, body, headers = as_refused(error)
    assert (status, json.loads(body)["error"]["code"], headers) == (500, "internal_error", ())
    assert b"PROMPT" not in body


def test_an_error_of_toktier_never_looks_like_success() -> None:
    def classes(cls: type[ToktierError] = ToktierError) -> list[type[ToktierError]]:
        return [cls, *(c for sub in cls.__subclasses__() for c in classes(sub))]

    for cls in classes():
        if cls.__init__ is ToktierError.__init__:
            status, body, _ = as_refused(cls("what happened"))
            assert HTTPStatus(status) >= 400
            assert (status < 500) == (cls.exit_code is ExitCode.USAGE)
            assert set(json.loads(body)["error"]) <= {"message", "type", "param", "code", "remedy"}


def test_names_of_others_are_printable_in_an_error() -> None:
    error = json.loads(as_refused(ConfigInvalid("a\x1b[2J\udcff" * 1000, remedy="b\n"))[1])["error"]
    assert error["message"].isprintable()
    assert len(error["message"]) <= 1500
    assert error["remedy"] == r"b\n"


def test_headers_of_a_refusal_come_with_it() -> None:
    refused = Refused(Refusal.OVERLOADED, "later", headers=[retry_after(0.2)])
    assert as_refused(refused)[::2] == (503, ((b"retry-after", b"1"),))
    assert as_refused(UpstreamLost("gone"))[::2] == (503, ((b"retry-after", b"2"),))
