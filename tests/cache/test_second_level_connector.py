"""Which URLs and arguments are taken, what is said of others, and that nothing of a password is."""

from __future__ import annotations

import datetime
import ipaddress
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.sessions.redis_process import RedisProcess, needed
from tests.support.ports import free_port
from tests.support.second_levels import PATIENT, ids_of, keys_of, stored
from toktier.cache.second_level import RedisSecondLevel
from toktier.errors import BackendUnavailable, ConfigInvalid


@pytest.mark.parametrize("url", [
    "http://host", "host:6379", "", "redis://", "redis://us:s3cret@/0", "redis://host/x", "redis://host#s3cret",
    "redis://host?socket_timeout=9&password=s3cret", "redis://s3c@ret/@host", "unix://", "redis+cluster://us:s3cret@host",
    "rediss+cluster://host", "rediss://us:s3cret@host?ssl_cert_reqs=s3cret", "redis://host:99999",
])  # fmt: skip
def test_a_url_that_is_not_understood_is_refused_and_quoted_nowhere(url: str) -> None:
    needed()
    with pytest.raises(ConfigInvalid) as caught:
        RedisSecondLevel(url)
    assert "second level" in f"{caught.value.remedy}"
    shown = [f"{caught.value.to_dict()}", *traceback.format_exception(caught.value)]
    assert "s3c" not in "".join(shown).replace(f"{url!r}", "")


@pytest.mark.parametrize("prefix", ["", "x" * 65, "a{b}", "}{", "a b", "a\r\nFLUSHALL\r\n", "a*", "é", "a\0"])
def test_a_prefix_that_could_mean_something_to_a_server_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigInvalid, match="prefix"):
        RedisSecondLevel("redis://localhost", prefix=prefix)


@pytest.mark.parametrize("options", [
    {"timeout": 0}, {"timeout": -1.0}, {"timeout": float("nan")}, {"timeout": float("inf")}, {"timeout": 11},
    {"ttl": 0}, {"ttl": 10**9}, {"max_pending_writes": 0},
    {"timeout": "1"}, {"timeout": None}, {"ttl": 1.5}, {"ttl": True}, {"max_pending_writes": "9"}, {"prefix": b"a"},
    {"url": b"redis://localhost"}, {"url": 5},
])  # fmt: skip
def test_arguments_of_another_kind_or_out_of_their_bounds_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ConfigInvalid, match=name):
        RedisSecondLevel(**{"url": "redis://localhost", **options})


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(BackendUnavailable, match="redis") as caught:
        RedisSecondLevel("redis://localhost")
    assert caught.value.details == {"distribution": "redis", "extra": "redis"}
    assert caught.value.remedy == "pip install 'redis>=6'"


def test_nothing_is_connected_before_the_first_call() -> None:
    needed()
    level = RedisSecondLevel("redis://user:s3cret@nobody.invalid:1/0")
    assert level.stats()["server"] == "redis://nobody.invalid:1/0"
    assert "s3cret" not in repr(level)
    assert level._upkeep._thread is None
    level.close()


def certificate(directory: Path) -> tuple[Path, Path]:
    """(certificate, key) of 127.0.0.1, by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "certificate.pem", directory / "key.pem"
    pem, secret = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    paths[0].write_bytes(made.public_bytes(pem))
    paths[1].write_bytes(key.private_bytes(pem, secret, serialization.NoEncryption()))
    return paths


@pytest.mark.usefixtures("patient")
def test_over_tls(tmp_path: Path) -> None:
    """The deadline is of a socket that the client library made, whatever kind it is."""
    needed()
    public, secret = certificate(tmp_path)
    port = free_port()
    options = ("--tls-cert-file", str(public), "--tls-key-file", str(secret), "--tls-auth-clients", "no")
    process = RedisProcess(tmp_path / "tls", "--tls-port", str(port), *options)
    try:
        level = RedisSecondLevel(f"rediss://127.0.0.1:{port}?ssl_ca_certs={public}", timeout=PATIENT)
        keys = keys_of("tls", 1000)
        stored(level, keys[999:], 200_000)
        assert level.lookup(keys) == (999, ids_of(keys[999], 200_000))
        assert level.stats()["pauses"] == 0
        level.close()
        unknown = RedisSecondLevel(f"rediss://127.0.0.1:{port}", timeout=PATIENT)
        assert unknown.lookup(keys) is None
        assert unknown.stats()["last_failure"] == "CONNECTION"
        unknown.close()
    finally:
        process.close()
