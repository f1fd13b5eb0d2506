"""URLs of Redis stores: understood or refused, and never shown with what could be a password."""

from __future__ import annotations

import contextlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.errors import ConfigInvalid
from toktier.sessions.redis_url import address, namespace


@pytest.mark.parametrize(("url", "shown", "cluster"), [
    ("redis://host", "redis://host:6379/0", False),
    ("redis://host/", "redis://host:6379/0", False),
    ("redis://user:secret@host:7000/3", "redis://host:7000/3", False),
    ("rediss://:secret@[::1]:7000/3?ssl_cert_reqs=none", "rediss://[::1]:7000/3", False),
    ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock", False),
    ("unix://user:secret@/run/redis.sock", "unix:///run/redis.sock", False),
    ("redis+cluster://user:secret@host:7000", "redis+cluster://host:7000", True),
    ("REDIS://user:secret@Host", "redis://host:6379/0", False),
    ("rediss+cluster://host", "rediss+cluster://host:6379", True),
])  # fmt: skip
def test_a_url_is_shown_without_its_credentials(url: str, shown: str, cluster: bool) -> None:
    found = address(url)
    assert (found.shown, found.cluster) == (shown, cluster)
    assert "secret" not in repr(found)
    scheme, _, rest = url.partition("://")
    assert found.url == f"{scheme.lower().removesuffix('+cluster')}://{rest}"


@pytest.mark.parametrize("url", [
    "", "host", "http://secret@host", "redis://", "redis://:6379", "redis://host:secret", "redis://host/secret",
    "redis://:sec/ret@host", "redis://user:12?3@host", "redis://user:12#3@host", "redis://host/0?password=secret",
    "redis://host/0?decode_responses=true", "redis://host/0?db=secret", "redis://host/0#secret", "redis://host:99999",
    "unix://secret", "unix://", "unix:///", "unix://:sec/ret@/run/redis.sock", "redis+cluster://host/1",
    "redis://[secret/0",
])  # fmt: skip
def test_what_is_no_url_of_a_store_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        address(url)
    assert "sec" not in str(caught.value.to_dict()).replace("second", "")
    assert caught.value.__cause__ is None


@given(st.text(st.characters(codec="utf-8"), min_size=8), st.booleans())
def test_no_password_is_shown(password: str, encoded: bool) -> None:
    written = quote(password, safe="") if encoded else password
    shown = "redis://host.example:7000/1"
    with contextlib.suppress(ConfigInvalid):
        shown = address(f"redis://user:{written}@host.example:7000/1").shown
    assert shown == "redis://host.example:7000/1"
    assert not encoded or address(f"redis://user:{written}@host.example:7000/1")


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "é", "x" * 65, "a*"])
def test_a_namespace_is_a_plain_word(name: str) -> None:
    with pytest.raises(ConfigInvalid):
        namespace(name)
    assert namespace("team-1.chats:v2") == "team-1.chats:v2"
