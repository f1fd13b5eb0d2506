"""Files of keys: what is in them counts, and nothing of it is ever said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.errors import ConfigInvalid
from toktier.router.api_keys import ApiKeys, read_api_keys, read_upstream_key

KEY = "sk-0123456789abcdef"


def file_of(tmp_path: Path, content: bytes, mode: int = 0o600) -> Path:
    path = tmp_path / "keys"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=8), st.binary(max_size=20))
def test_exactly_the_keys_are_accepted(keys: list[bytes], asked: bytes) -> None:
    assert ApiKeys(keys).accepts(asked) == (asked in keys)


def test_a_key_a_line_with_remarks(tmp_path: Path) -> None:
    keys, cautions = read_api_keys(file_of(tmp_path, f"# of the team\n{KEY}\r\n\n  {KEY}2\t\n{KEY}".encode()))
    assert len(keys) == 2
    assert keys.accepts(KEY.encode())
    assert keys.accepts(f"{KEY}2".encode())
    assert not keys.accepts(b"# of the team")
    assert not keys.accepts(b"")
    assert cautions == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds no key"),
        (b"\n# only a remark\n", "holds no key"),
        (b"two words\n", "has a line that is no key"),
        (f"{KEY}\nk\xc3\xa9y\n".encode("latin-1"), "has a line that is no key"),
        (b"a\0b\n", "has a line that is no key"),
        (b"x" * 513, "has a line that is no key"),
        (b"\n".join(b"key-%d" % n for n in range(1001)), "holds 1,001 keys"),
        (b"x\n" * (1 << 20), "is larger than"),
    ],
)
def test_a_file_that_is_none_is_refused_without_its_content(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(ConfigInvalid, match=problem) as raised:
        read_api_keys(file_of(tmp_path, content))
    assert raised.value.details["setting"] == "api_key_file"
    for secret in ("words", "key-1", "xx"):
        assert secret not in str(raised.value)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "absent", tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ConfigInvalid, match="cannot be read"):
            read_api_keys(path)


def test_others_that_may_read_the_keys_are_told_of(tmp_path: Path) -> None:
    assert read_api_keys(file_of(tmp_path, KEY.encode(), 0o600))[1] == []
    for mode in (0o640, 0o604, 0o620, 0o602):
        (caution,) = read_api_keys(file_of(tmp_path, KEY.encode(), mode))[1]
        assert "chmod 600" in caution
    path = file_of(tmp_path, KEY.encode())
    os.chown(path, 31337, -1)
    (caution,) = read_api_keys(path)[1]
    assert "belongs to another user" in caution


def test_a_key_that_can_be_guessed_is_told_of(tmp_path: Path) -> None:
    (caution,) = read_api_keys(file_of(tmp_path, b"hunter2"))[1]
    assert "fewer than 16 characters" in caution
    assert "hunter2" not in caution


def test_upstreams_have_one_key(tmp_path: Path) -> None:
    assert read_upstream_key(file_of(tmp_path, f"{KEY}\n".encode())) == (KEY, [])
    with pytest.raises(ConfigInvalid, match="holds 2 keys: expected one") as raised:
        read_upstream_key(file_of(tmp_path, f"{KEY}\n{KEY}2\n".encode()))
    assert raised.value.details["setting"] == "upstream_api_key_file"
    assert KEY not in str(raised.value)
