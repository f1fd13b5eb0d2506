"""Signatures of bundles: by the right key and of this content, or refused; and never silently absent."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.artifacts.conftest import World
from tests.artifacts.test_bundle_import import alpha, beta, blobs
from toktier.artifacts.bundle_import import import_bundle
from toktier.artifacts.bundle_verify import verify_bundle
from toktier.artifacts.bundle_writer import write_bundle
from toktier.artifacts.export import export_bundle
from toktier.artifacts.signatures import (
    PAYLOAD_TYPE,
    load_private_key,
    load_public_keys,
    read_envelope,
    sign_bundle,
    signature_path,
    statement,
)
from toktier.errors import (
    ArtifactNotFound,
    BackendUnavailable,
    EnvironmentFault,
    SignatureInvalid,
    SignatureMissing,
    UsageError,
)

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")


def key_pair(place: Path, name: str, key: Any = None) -> tuple[Path, Path]:
    key = key or ed25519.Ed25519PrivateKey.generate()
    private, public = place / f"{name}.pem", place / f"{name}.pub.pem"
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture
def signed(world: World, tmp_path: Path) -> Path:
    """A bundle of two families, signed by `right`; `wrong` is another key."""
    key_pair(tmp_path, "right")
    key_pair(tmp_path, "wrong")
    parts = [alpha(world, tmp_path), beta(world, tmp_path)]
    write_bundle(tmp_path / "b.tar", parts)
    sign_bundle(tmp_path / "b.tar", [p.manifest for p in parts], load_private_key(tmp_path / "right.pem"))
    return tmp_path / "b.tar"


def keys(place: Path, *names: str) -> Any:
    return load_public_keys(place / f"{name}.pub.pem" for name in names)


def test_the_right_key_is_named(world: World, tmp_path: Path, signed: Path) -> None:
    outcome = import_bundle(signed, world.settings, pins=world.pins, keys=keys(tmp_path, "wrong", "right"))
    public = serialization.load_pem_public_key((tmp_path / "right.pub.pem").read_bytes()).public_bytes_raw()
    assert outcome.signed_by == hashlib.sha256(public).hexdigest()


def test_the_envelope_is_as_documented(world: World, tmp_path: Path, signed: Path) -> None:
    envelope = json.loads(signature_path(signed).read_bytes())
    payload = base64.b64decode(envelope["payload"])
    document = json.loads(payload)
    assert envelope["payloadType"] == PAYLOAD_TYPE == "application/vnd.in-toto+json"
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://model_signing/signature/v1.0"
    resources = document["predicate"]["resources"]
    assert [r["name"] for r in resources] == sorted(r["name"] for r in resources)
    joined = hashlib.sha256(b"".join(bytes.fromhex(r["digest"]) for r in resources)).hexdigest()
    assert document["subject"] == [{"name": "toktier-bundle", "digest": {"sha256": joined}}]
    encoded = b"DSSEv1 28 application/vnd.in-toto+json %d %b" % (len(payload), payload)
    public = serialization.load_pem_public_key((tmp_path / "right.pub.pem").read_bytes())
    public.verify(base64.b64decode(envelope["signatures"][0]["sig"]), encoded)


def test_the_umask_says_who_may_read_a_signature(world: World, tmp_path: Path, signed: Path) -> None:
    part = alpha(world, tmp_path)
    before = os.umask(0o077)
    try:
        sign_bundle(tmp_path / "mine.tar", [part.manifest], load_private_key(tmp_path / "right.pem"))
    finally:
        os.umask(before)
    assert signature_path(tmp_path / "mine.tar").stat().st_mode & 0o777 == 0o600


def test_one_signature_is_good_for_either_form(world: World, tmp_path: Path, signed: Path) -> None:
    write_bundle(tmp_path / "b.tar.zst", [alpha(world, tmp_path), beta(world, tmp_path)])
    signature_path(tmp_path / "b.tar.zst").write_bytes(signature_path(signed).read_bytes())
    assert verify_bundle(tmp_path / "b.tar.zst", world.pins, [keys(tmp_path, "right")]).signed


def test_a_stripped_signature_is_refused(world: World, tmp_path: Path, signed: Path) -> None:
    signature_path(signed).unlink()
    with pytest.raises(SignatureMissing) as caught:
        import_bundle(signed, world.settings, pins=world.pins, keys=keys(tmp_path, "right"))
    assert (caught.value.code, caught.value.exit_code) == ("SIGNATURE_MISSING", 5)
    assert not blobs(world)
    import_bundle(signed, world.settings, pins=world.pins)  # where none is demanded


def test_the_settings_demand_a_signature_whatever_the_call_says(world: World, tmp_path: Path, signed: Path) -> None:
    demanding = world.with_settings(signature_keys=[tmp_path / "right.pub.pem"])
    assert import_bundle(signed, demanding, pins=world.pins).signed_by
    other = world.with_settings(signature_keys=[tmp_path / "wrong.pub.pem"])
    with pytest.raises(SignatureInvalid):
        import_bundle(signed, other, pins=world.pins, keys=keys(tmp_path, "right"))
    signature_path(signed).unlink()
    with pytest.raises(SignatureMissing):
        import_bundle(signed, demanding, pins=world.pins)


def test_config_toml_is_not_overruled_by_the_environment(world: World, tmp_path: Path, signed: Path) -> None:
    from toktier.config import Config, resolve_settings

    world.home.mkdir(exist_ok=True)
    (world.home / "config.toml").write_text(f'signature_keys = ["{tmp_path / "right.pub.pem"}"]\n')
    settings = resolve_settings(Config(home=world.home), environ={"TOKTIER_SIGNATURE_KEYS": "/none"})
    signature_path(signed).unlink()
    with pytest.raises(SignatureMissing):
        import_bundle(signed, settings, pins=world.pins)


def test_another_key_is_refused(world: World, tmp_path: Path, signed: Path) -> None:
    with pytest.raises(SignatureInvalid) as caught:
        import_bundle(signed, world.settings, pins=world.pins, keys=keys(tmp_path, "wrong"))
    assert caught.value.details["reason"] == "key"
    assert not blobs(world)


def test_a_signature_of_other_content_is_refused(world: World, tmp_path: Path, signed: Path) -> None:
    write_bundle(signed, [beta(world, tmp_path)])
    with pytest.raises(SignatureInvalid) as caught:
        import_bundle(signed, world.settings, pins=world.pins, keys=keys(tmp_path, "right"))
    assert caught.value.details["reason"] == "content"
    assert not blobs(world)


@pytest.mark.parametrize("field", ["payload", "sig", "payloadType"])
def test_a_changed_envelope_is_refused(world: World, tmp_path: Path, signed: Path, field: str) -> None:
    path = signature_path(signed)
    envelope = json.loads(path.read_bytes())
    if field == "sig":
        envelope["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    elif field == "payload":
        changed = base64.b64decode(envelope["payload"]).replace(b"toktier-bundle", b"toktier-bundlf")
        envelope["payload"] = base64.b64encode(changed).decode()
    else:
        envelope["payloadType"] = "text/plain"
    path.write_text(json.dumps(envelope))
    with pytest.raises(SignatureInvalid):
        import_bundle(signed, world.settings, pins=world.pins, keys=keys(tmp_path, "right"))


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[" * 100_000, b"\xff", b"null", b'{"payload": 1}', b" " * (5 << 20), b'{"signatures": {}}'],
)
def test_what_is_no_envelope_is_refused(world: World, tmp_path: Path, signed: Path, content: bytes) -> None:
    signature_path(signed).write_bytes(content)
    with pytest.raises(SignatureInvalid):
        import_bundle(signed, world.settings, pins=world.pins, keys=keys(tmp_path, "right"))
    report = verify_bundle(signed, world.pins)
    assert isinstance(report.error, SignatureInvalid)
    assert report.signed is None


def test_the_four_answers_are_separate(world: World, tmp_path: Path, signed: Path) -> None:
    def answers(*demanded: str) -> tuple[bool, bool, bool, bool | None]:
        report = verify_bundle(signed, world.pins, [keys(tmp_path, *demanded)] if demanded else [])
        return report.complete, report.valid, report.pinned, report.signed

    assert answers() == (True, True, True, None)
    assert answers("right") == (True, True, True, True)
    assert answers("wrong") == (True, True, True, False)
    data = bytearray(signed.read_bytes())
    data[data.index(world.beta) + 99] ^= 1
    signed.write_bytes(data)
    assert answers("right") == (True, False, True, True)


def test_export_signs(world: World, tmp_path: Path, signed: Path) -> None:
    world.cache.store(world.pins.family("beta").tokenizer, world.beta)
    out = tmp_path / "beta.tar"
    report = export_bundle(["beta"], world.pins, world.settings, out, sign_key=tmp_path / "right.pem")
    assert report.signature == signature_path(out)
    assert verify_bundle(out, world.pins, [keys(tmp_path, "right")]).signed_by == report.signed_by
    assert statement([report.families[0].manifest])["subject"][0]["name"] == f"beta-{'b' * 12}"


def test_bad_keys_are_named(world: World, tmp_path: Path, signed: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec

    (tmp_path / "text.pem").write_text("no key")
    private, public = key_pair(tmp_path, "curve", ec.generate_private_key(ec.SECP256R1()))
    for path in (tmp_path / "text.pem", private, tmp_path / "right.pub.pem"):
        with pytest.raises(UsageError, match="Ed25519 private key"):
            load_private_key(path)
    for path in (tmp_path / "text.pem", public, tmp_path / "right.pem"):
        with pytest.raises(UsageError, match="Ed25519 public key"):
            load_public_keys([path])
    with pytest.raises(UsageError):
        export_bundle(["beta"], world.pins, world.settings, tmp_path / "x.tar", sign_key=tmp_path / "text.pem")
    assert not (tmp_path / "x.tar").exists()


def test_without_the_extra_the_distribution_is_named(
    world: World, tmp_path: Path, signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendUnavailable, match="cryptography") as caught:
        load_public_keys([tmp_path / "right.pub.pem"])
    assert caught.value.details["distribution"] == "cryptography"
    import_bundle(signed, world.settings, pins=world.pins)  # unsigned work does not need it


@pytest.mark.parametrize("content", ["", "[]", "null", "{}", '{"payload": 1}', "[" * 9999, '{"signatures": [1]}'])
def test_what_is_no_signature_is_said_in_words(tmp_path: Path, content: str) -> None:
    bundle = tmp_path / "b.tar"
    signature_path(bundle).write_text(content)
    with pytest.raises(SignatureInvalid) as caught:
        read_envelope(bundle)
    assert not [word for word in ("NoneType", "indices", "'signatures'", "KeyError") if word in caught.value.message]


def test_a_directory_in_the_place_of_a_signature_is_named_as_such(tmp_path: Path) -> None:
    signature_path(tmp_path / "b.tar").mkdir()
    with pytest.raises(EnvironmentFault, match="it is not a regular file"):
        read_envelope(tmp_path / "b.tar")


def test_a_key_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFound, match=r"the key .*none\.pem does not exist"):
        load_public_keys([tmp_path / "none.pem"])


def test_the_remedy_for_a_wrong_key_writes_over_none(tmp_path: Path) -> None:
    key_pair(tmp_path, "key")
    with pytest.raises(UsageError) as public:
        load_public_keys([tmp_path / "key.pem"])
    with pytest.raises(UsageError) as private:
        load_private_key(tmp_path / "key.pub.pem")
    assert "genpkey" not in (public.value.remedy or "")
    assert "-out key.pem" not in (private.value.remedy or "")
