"""Requests that two readers could understand differently do not pass, nor do those of pages of other sites."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.asgi import Echo, ask, headers
from toktier.router.refusals import Refusal, Refused
from toktier.router.request_form import KnownHosts, PlainRequests


def passes(**request: object) -> bool:
    echo = Echo()
    code = refusal(PlainRequests(echo), **request)
    assert code in (None, Refusal.BAD_TARGET, Refusal.BAD_HEADERS, Refusal.BODY_ENCODED)
    assert len(echo.seen) == (code is None)
    return code is None


@pytest.mark.parametrize(
    "path",
    [
        b"/",
        b"/v1/completions",
        b"/v1/models/my-model",
        b"/completion",
        b"/toktier/slots",
        b"/a.b/c~d_e",
        b"/m%20n",
        b"/.well",
        b"/..a",
        b"/v1/models/a:b@c,d",
    ],
)
def test_plain_paths_pass(path: bytes) -> None:
    assert passes(path=path)


@pytest.mark.parametrize(
    "path",
    [
        b"//",
        b"//evil.com/x",
        b"/a//b",
        b"/v1/../admin",
        b"/.",
        b"/..",
        b"/./x",
        b"/x/.",
        b"/v1/completions/..",
        b"/a/%2e%2e/b",
        b"/%2E",
        b"/a%2fb",
        b"/a%2Fb",
        b"/a%5cb",
        b"/a\\b",
        b"/a%00b",
        b"/a%0d%0aSet-Cookie:x",
        b"/a%7fb",
        b"/a%",
        b"/a%4",
        b"/a%zz",
        b"/a%252fb",
        b"/a;b",
        b"http://evil.com/",
        b"evil.com:80",
        b"*",
        b"",
        b"/a b",
        b"/a\tb",
        b"/a\nb",
        b"/a\0b",
        b"/\xff",
        b"/a#b",
        b"/" + b"a" * 2048,
    ],
)
def test_paths_with_a_second_meaning_do_not(path: bytes) -> None:
    assert not passes(path=path)


@given(
    st.lists(
        st.sampled_from([b"/", b".", b"%2e", b"%2F", b"a", b"%", b"%41", b"\\", b"%5c", b"%25", b"5c"]), max_size=12
    )
)
def test_an_accepted_path_means_the_same_to_whoever_decodes_and_normalizes_it(parts: list[bytes]) -> None:
    path = b"/" + b"".join(parts)
    if passes(path=path):
        decoded = unquote_to_bytes(path)
        assert posixpath.normpath(decoded).rstrip(b"/") == decoded.rstrip(b"/")
        assert unquote_to_bytes(decoded) == decoded
        assert decoded.count(b"/") == path.count(b"/")


@pytest.mark.parametrize("query", [b"a b", b"a\nb", b"\xff", b"x" * 4097])
def test_queries_are_plain(query: bytes) -> None:
    assert passes(query=b"a=b&c=%20d")
    assert not passes(query=query)


@pytest.mark.parametrize(
    "given_headers",
    [
        headers(host="a") + headers(host="a"),
        headers(content_length="1") + headers(content_length="1"),
        headers(content_length="1", transfer_encoding="chunked"),
        headers(transfer_encoding="gzip, chunked"),
        headers(transfer_encoding="chunked, chunked"),
        headers(transfer_encoding="identity"),
        headers(transfer_encoding="chunked") + headers(transfer_encoding="chunked"),
        headers(content_length="+1"),
        headers(content_length="-1"),
        headers(content_length="1, 1"),
        headers(content_length="0x1"),
        headers(content_length="\u00b2"),
        headers(authorization="Bearer a") + headers(authorization="Bearer b"),
        headers(content_type="a/b") + headers(content_type="c/d"),
        headers(content_encoding="gzip"),
        headers(content_encoding="identity, br"),
        headers(origin="http://localhost") + headers(origin="http://evil.com"),
        [(b"x-%d" % n, b"") for n in range(101)],
    ],
    ids=range(18),
)
def test_headers_that_contradict_each_other_do_not_pass(given_headers: list[tuple[bytes, bytes]]) -> None:
    assert not passes(method="POST", headers=given_headers)


def test_headers_that_say_one_thing_pass() -> None:
    assert passes(method="POST", headers=headers(transfer_encoding="chunked"))
    assert passes(
        method="POST",
        headers=headers(content_length="0", content_encoding="identity", accept="a") + headers(accept="b"),
    )


def test_an_old_client_sends_no_chunks_and_names_a_host() -> None:
    assert passes(version="1.0")
    assert not passes(version="1.0", headers=headers(transfer_encoding="chunked"))
    assert not passes(version="2.0")
    scope_without_host = [(b"x", b"y"), (b"host", b"")]
    assert passes(headers=scope_without_host)  # an empty one is one; whether it may be is for KnownHosts to say


def refusal(app: object, **request: object) -> Refusal | None:
    try:
        ask(app, **request)  # type: ignore[arg-type]
    except Refused as refused:
        return refused.code
    return None


LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8765", "[::1]", "[::1]:8765", "localhost."])
def test_this_host_is_known_by_its_names(host: str) -> None:
    assert refusal(KnownHosts(Echo(), LOCAL), headers=headers(host=host)) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "evil.com:8765",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "evil.com#localhost",
        "localhost@evil.com",
        "",
        "127.0.0.2",
        "[::1].evil.com",
        "localhost:80:80",
        "[::2]:8765",
        "::1",
        "0.0.0.0:8765",
    ],
)
def test_a_name_that_was_made_to_lead_here_is_not(host: str) -> None:
    echo = Echo()
    assert refusal(KnownHosts(echo, LOCAL), headers=headers(host=host)) is Refusal.FOREIGN_HOST
    assert not echo.seen


def test_where_others_are_served_any_name_may_lead_here() -> None:
    assert refusal(KnownHosts(Echo(), None), headers=headers(host="router.example:8765")) is None


@pytest.mark.parametrize(
    ("origin", "known"),
    [
        ("http://localhost:8765", True),
        ("https://app.example", True),
        ("http://localhost:3000", False),
        ("null", False),
        ("https://localhost:8765", False),
        ("http://evil.com", False),
        ("", False),
        ("https://app.example.evil.com", False),
    ],
)
def test_pages_of_other_sites_may_not_ask(origin: str, known: bool) -> None:
    guard = KnownHosts(Echo(), LOCAL, ["https://app.example"])
    found = refusal(guard, headers=headers(host="localhost:8765", origin=origin))
    assert found is (None if known else Refusal.FOREIGN_ORIGIN)
