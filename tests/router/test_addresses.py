"""Addresses: one spelling of each, nothing hidden in a URL, and no credentials in what is said of a wrong one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.router import addresses


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("gpu1", "http://gpu1"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("https://host/v1?key=S3CRET", "https://host"),
        ("ftp://host", None),
        ("user:S3CRET@host:8080", None),
        ("http://", None),
    ],
)
def test_a_near_miss_is_told_which_server_was_meant(typed: str, meant: str | None) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        addresses.server_url(typed)
    said = str(raised.value)
    assert said.partition("; did you mean ")[2] == (f"{meant}?" if meant else "")
    assert "S3CRET" not in said


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("HTTP://Example.COM:8080", "http://example.com:8080"),
        ("http://host:80", "http://host"),
        ("https://host:443", "https://host"),
        ("https://host.", "https://host"),
        ("http://[::1]:9", "http://[::1]:9"),
        ("http://[0:0:0:0:0:0:0:1]:9", "http://[::1]:9"),
        ("http://gpu_1.local:8080", "http://gpu_1.local:8080"),
    ],
)
def test_a_server_has_one_spelling(typed: str, kept: str) -> None:
    assert addresses.server_url(typed) == kept


@pytest.mark.parametrize(
    "typed",
    [
        "", "host:8080", "ftp://host", "file:///etc/passwd", "http://", "http://:8080", "http:///v1", "http://host:0",
        "http://host:65536", "http://host:-1", "http://host:", "http://host:8080/v1", "http://host:8080//", "http://h/..",
        "http://host?x", "http://host/?", "http://host#x", "http://host/#", "http://host\n", "http://ho\tst", " http://host",
        "http://ho st", "http://host\\@other", "http://host%2eother", "http://127.1", "http://0x7f.1", "http://2130706433",
        "http://0177.0.0.1", "http://127.0.0.1.", "http://[::1", "http://[::1%25eth0]", "http://hôst", "http://-host", "http://a..b",
        "http://" + "a" * 64, "http://" + "a." * 200, "http://host" + "/" * 3000, None, 80, ["http://host"],
    ],
)  # fmt: skip
def test_what_could_be_read_otherwise_is_no_server(typed: object) -> None:
    with pytest.raises(ValueError, match=r"^expected "):
        addresses.server_url(typed)


@given(st.text(max_size=60))
def test_what_is_accepted_stays_as_it_is(text: str) -> None:
    for prefix in ("http://", "https://", ""):
        try:
            kept = addresses.server_url(prefix + text)
        except ValueError:
            continue
        assert addresses.server_url(kept) == kept
        assert not set(kept) & set(' \\?#@%"<>\r\n\t')
        assert kept.count("/") == 2


@given(st.text("abc:@/?#%[]", max_size=12), st.text("abc:@/?#%[]", max_size=12))
def test_no_message_holds_credentials(user: str, password: str) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        addresses.server_url(f"http://{user}S3CRET:{password}S3CRET@host:8080")
    assert "S3CRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "host", "port", "itself"),
    [
        ("http://127.0.0.1:8765", "127.0.0.1", 8765, True),
        ("http://localhost:8765", "127.0.0.1", 8765, True),
        ("http://127.0.0.1:8765", "localhost", 8765, True),
        ("http://0.0.0.0:8765", "127.0.0.1", 8765, True),
        ("http://[::]:8765", "::1", 8765, True),
        ("http://127.0.0.7:8765", "0.0.0.0", 8765, True),
        ("http://127.0.0.1:8765", "::", 8765, True),
        ("http://10.0.0.1:8765", "10.0.0.1", 8765, True),
        ("http://127.0.0.1", "127.0.0.1", 80, True),
        ("http://127.0.0.1:8080", "127.0.0.1", 8765, False),
        ("http://127.0.0.2:8765", "127.0.0.1", 8765, False),
        ("http://10.0.0.2:8765", "127.0.0.1", 8765, False),
        ("http://gpu1:8765", "0.0.0.0", 8765, False),
    ],
)
def test_the_router_knows_its_own_address(url: str, host: str, port: int, itself: bool) -> None:
    assert addresses.leads_to(addresses.server_url(url), host, port) is itself


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("::ffff:10.0.0.1", False)],
)  # fmt: skip
def test_loopback_is_this_host_alone(host: str, loopback: bool) -> None:
    assert addresses.is_loopback(addresses.listening_host(host)) is loopback


@pytest.mark.parametrize("host", ["", "example.com", "127.1", "fe80::1%eth0", "[::1]", "0", "127.0.0.1:80", None, 1])
def test_the_router_listens_on_addresses_alone(host: object) -> None:
    with pytest.raises(ValueError, match="expected an IP address or localhost"):
        addresses.listening_host(host)


@pytest.mark.parametrize("name", ["Example.com", "example.com.", "[::1]", "::1", "10.0.0.1", "router"])
def test_names_of_hosts_are_kept_as_headers_have_them(name: str) -> None:
    kept = addresses.host_name(name)
    assert kept == kept.lower()
    assert addresses.host_name(kept) == kept
    assert kept in ("example.com", "[::1]", "10.0.0.1", "router")


@pytest.mark.parametrize("name", ["", "host:80", "a/b", "*", "*.com", "1.2.3", "a b", "a\nb", None, "x" * 300])
def test_names_of_hosts_are_plain(name: object) -> None:
    with pytest.raises(ValueError, match="expected the name of a host"):
        addresses.host_name(name)


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [("tcp://127.0.0.1:5557", True), ("tcp://*:5557", False), ("tcp://0.0.0.0:5557", False), ("tcp://[::1]:5557", True),
     ("ipc:///run/kv", True), ("tcp://127.0.0.1:*", True)],
)  # fmt: skip
def test_endpoints_say_who_can_reach_them(endpoint: str, local: bool) -> None:
    assert addresses.is_local_endpoint(addresses.zmq_endpoint(endpoint)) is local


@pytest.mark.parametrize(
    "endpoint",
    ["", "tcp://host:5557", "tcp://127.0.0.1", "tcp://127.0.0.1:0", "tcp://127.0.0.1:65536", "udp://127.0.0.1:1", "ipc://x",
     "inproc://x", "ipc:///" + "a" * 200, "tcp://127.0.0.1:5557 ", None, 5557],
)  # fmt: skip
def test_other_endpoints_are_refused(endpoint: object) -> None:
    with pytest.raises(ValueError, match="expected tcp://"):
        addresses.zmq_endpoint(endpoint)
