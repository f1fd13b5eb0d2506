"""Laws of what is said of stored sessions: any name can be pasted, any row is a printable line and fits a schema."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.command import validator
from toktier.config import without_credentials
from toktier.sessions.records import Finding, SessionInfo
from toktier_cli.verbs.session_text import described, findings_text, line, list_text, show_text, totals

# What an argument of a process can be: bytes without NUL; those that are no UTF-8 come as lone surrogates.
_ARGUMENTS = st.one_of(
    st.binary(max_size=20).map(lambda data: os.fsdecode(data.replace(b"\0", b"x"))),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20),
    st.text("-'\"\\$`! \n\t\x1b~*[{#=a", max_size=8),
)
# What a row of a database that nobody verified can hold, beside numbers.
_COUNTS: st.SearchStrategy[Any] = st.one_of(st.integers(-1, 2**63 - 1), st.text(max_size=3), st.binary(max_size=3))
_INFOS = st.builds(
    SessionInfo,
    number=st.integers(1, 2**31),
    name=st.one_of(st.none(), st.text(), st.text(st.characters(categories=("Cc", "Cf", "Cs", "Zl"))), _ARGUMENTS),
    fingerprint=st.one_of(st.just("f" * 64), st.text(), _COUNTS),
    keep_text=st.booleans(),
    **dict.fromkeys(
        ("revision", "appends", "tokens", "text_bytes", "code_points", "tail_bytes", "tail_tokens", "held_bytes"),
        _COUNTS,
    ),
    last_use=st.floats(allow_nan=True, allow_infinity=True),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_ARGUMENTS, min_size=1, max_size=20))
def test_a_name_passes_a_shell_as_it_is(names: list[str]) -> None:
    command = line("remove", "a store", *names)
    assert command.isprintable()
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True)
    words = [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]
    dashes = ["--"] if any(name.startswith("-") for name in names) else []
    assert words == ["toktier", "session", "remove", "--store", "a store", *dashes, *names]


@given(st.text(st.sampled_from("a\0\ud800"), min_size=1))
def test_a_name_that_no_shell_can_pass_has_no_command(name: str) -> None:
    assert line("remove", None, name) == f"toktier session remove {name if set(name) == {'a'} else 'NAME'}"


@given(st.lists(_INFOS, max_size=5), st.lists(_INFOS, max_size=3))
def test_a_row_is_one_printable_line(infos: list[SessionInfo], left_out: list[SessionInfo]) -> None:
    lines = list_text(infos, left_out).splitlines()
    assert len(lines) == bool(infos) + len(infos) + bool(left_out)
    assert all(text.isprintable() for text in lines)
    assert all(len(show_text(info).splitlines()) == 9 for info in infos)
    assert all(text.isprintable() for info in infos for text in show_text(info).splitlines())


@given(
    st.lists(_INFOS, max_size=5), st.lists(st.builds(Finding, st.one_of(st.none(), st.integers(1, 3)), st.just("x")))
)
def test_a_finding_is_one_printable_line(infos: list[SessionInfo], findings: list[Finding]) -> None:
    lines = findings_text(findings, infos, set(), None, None).splitlines()
    assert len(lines) == len(findings) + 1
    assert all(text.isprintable() for text in lines)


@given(st.lists(_INFOS, max_size=5))
def test_any_row_fits_the_schema(infos: list[SessionInfo]) -> None:
    whole = {"schema_version": 1, "store": "x", "exit_code": 0}
    validator("session_list").validate(
        whole | {"schema": "toktier.session_list", "disk_bytes": 0, "sessions": [described(info) for info in infos],
                 "anonymous": {"sessions": 0, "held_bytes": 0}}
    )  # fmt: skip
    validator("session_verify").validate(
        whole | {"schema": "toktier.session_verify", "session": None, "checked": totals(infos), "findings": []}
    )


@given(
    st.sampled_from(["redis", "rediss"]),
    st.text(min_size=1),
    st.from_regex(r"[a-z]{1,9}(:[0-9]{1,5})?", fullmatch=True),
)
def test_no_credential_stays_in_a_url(scheme: str, secret: str, host: str) -> None:
    assert (
        without_credentials(f"{scheme}://user:{secret.replace('?', '').replace('#', '')}@{host}")
        == f"{scheme}://{host}"
    )
    for url in (f"{scheme}://user:{secret}@{host}", f"{scheme}://{host}?password={secret}"):
        assert without_credentials(url) in (f"{scheme}://{host}", f"{scheme}://...")
    assert without_credentials(f"{scheme}://user:pass/w@rd@{host}#x") == f"{scheme}://{host}"
