"""Signatures of bundles: a DSSE envelope over the list of checksums, in the OpenSSF model-signing shape.

It lies beside the bundle (`BUNDLE.sig.json`), since a member more would shut out the public TokTier, and it speaks of
names and content, so it holds for the plain and the compressed form. The keys are Ed25519 in PEM files; the arithmetic
is `cryptography`'s, the extra `sign`. Not here: which keys a host demands (`signature_keys` of the settings).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier.artifacts.bundle_manifest import BundleManifest
from toktier.canonical import canonical_json
from toktier.errors import (
    ArtifactNotFound,
    SignatureInvalid,
    SignatureMissing,
    ToktierError,
    UsageError,
)
from toktier.labels import escaped, shown, shown_path
from toktier.missing_distribution import missing_distribution
from toktier.regular_files import open_regular
from toktier.storage import OUT, atomic_write, environment_fault

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SUFFIX = ".sig.json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
SEVERAL = "toktier-bundle"
MAX_KEY_BYTES = 1 << 16
MAX_ENVELOPE_BYTES = 4 << 20
MAX_SIGNATURES = 16
# Pasted as they are, they must not write over a key: genpkey gets a name that nobody has.
_KEY_REMEDIES = {
    "private": "openssl genpkey -algorithm ed25519 -out new-ed25519-key.pem",
    "public": "openssl pkey -in PRIVATE.pem -pubout -out PUBLIC.pem  # gives the public half of a private key",
}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key to verify with. `id`: SHA-256 of the raw key, in hex."""

    id: str
    where: Path
    key: Ed25519PublicKey


def signature_path(bundle: Path) -> Path:
    """Where the signature of a bundle lies."""
    return bundle.with_name(bundle.name + SUFFIX)


def statement(parts: Iterable[BundleManifest]) -> dict[str, Any]:
    """The in-toto statement over the content of these parts."""
    parts = sorted(parts, key=lambda part: part.alias)
    resources = sorted(
        ({"algorithm": "sha256", "digest": f.sha256, "name": f"{p.alias}/{f.path}"} for p in parts for f in p.files),
        key=lambda resource: resource["name"],
    )
    joined = hashlib.sha256(b"".join(bytes.fromhex(r["digest"]) for r in resources)).hexdigest()
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": parts[0].alias if len(parts) == 1 else SEVERAL, "digest": {"sha256": joined}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "resources": resources,
            "serialization": {"allow_symlinks": False, "hash_type": "sha256", "method": "files"},
        },
    }


def sign_bundle(bundle: Path, parts: Iterable[BundleManifest], key: Ed25519PrivateKey) -> str:
    """Writes the signature beside the bundle; gives the key's id. Raises EnvironmentFault."""
    payload = canonical_json(statement(parts))
    key_id = _id_of(key.public_key())
    envelope = {
        "payload": base64.b64encode(payload).decode("ascii"),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(key.sign(_pae(payload))).decode("ascii")}],
    }
    atomic_write(signature_path(bundle), canonical_json(envelope) + b"\n", mode=None, named_by=OUT)
    return key_id


def read_envelope(bundle: Path) -> dict[str, Any] | None:
    """The envelope beside a bundle; None where there is none. SignatureInvalid for what is no envelope."""
    path = signature_path(bundle)
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_ENVELOPE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise environment_fault(error, "read", shown_path(path)) from None
    try:
        if len(data) > MAX_ENVELOPE_BYTES or data.count(b"[") + data.count(b"{") > 4 * MAX_SIGNATURES:
            raise ValueError("it is larger than any signature")
        envelope = json.loads(data)
        if not _is_envelope(envelope):
            raise ValueError("it is no DSSE envelope over an in-toto statement, each signature with keyid and sig")
    except (ValueError, RecursionError) as error:
        raise SignatureInvalid(
            f"{shown_path(path)} is no signature: {shown(str(error))}",
            details={"path": escaped(path), "reason": "malformed"},
            remedy="copy the signature again, or sign the bundle again",
        ) from None
    assert isinstance(envelope, dict)
    return envelope


def _is_envelope(document: Any) -> bool:
    if not isinstance(document, dict) or document.get("payloadType") != PAYLOAD_TYPE:
        return False
    signatures = document.get("signatures")
    if not isinstance(document.get("payload"), str) or not isinstance(signatures, list):
        return False
    texts = [s.get(key) if isinstance(s, dict) else None for s in signatures for key in ("keyid", "sig")]
    return 0 < len(signatures) <= MAX_SIGNATURES and all(isinstance(text, str) for text in texts)


def check_signature(
    bundle: Path, envelope: dict[str, Any] | None, parts: Iterable[BundleManifest], keys: Sequence[PublicKey]
) -> PublicKey:
    """The key of `keys` that signed exactly this content. Raises SignatureMissing without an envelope,
    SignatureInvalid where no key fits or the statement is of other content."""
    path = signature_path(bundle)
    if envelope is None:
        raise SignatureMissing(
            f"{shown_path(bundle)} is not signed, and a signature by {_named(keys)} is required",
            details={"path": escaped(bundle), "expected": escaped(path), "keys": [k.id for k in keys]},
            remedy=f"bring {shown_path(path)} too, or export with --sign KEY",
        )
    payload = _decoded(envelope["payload"])
    by = next((key for key in keys if _signed_by(envelope, payload, key)), None)
    if by is None:
        raise SignatureInvalid(
            f"{shown_path(path)} holds no valid signature by {_named(keys)}",
            details={
                "path": escaped(path),
                "reason": "key",
                "keys": [k.id for k in keys],
                "signed_by": [shown(s["keyid"]) for s in envelope["signatures"]],
            },
            remedy="check the key, or have the bundle signed by the right one",
        )
    if payload != canonical_json(statement(parts)):
        raise SignatureInvalid(
            f"{shown_path(path)} is a signature of other content than {shown_path(bundle)} holds",
            details={"path": escaped(path), "reason": "content", "key": by.id},
            remedy="bring the signature that was made with this bundle",
        )
    return by


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """An Ed25519 private key of a PEM file. UsageError for anything else, BackendUnavailable without the extra."""
    serialization, ed25519 = _cryptography()
    try:
        key = serialization.load_pem_private_key(_key_bytes(path), password=None)
    except ToktierError:
        raise
    except Exception as error:  # ValueError, TypeError for a password, the library's class for unknown key types
        raise _bad_key(path, "private", error) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _bad_key(path, "private", None)
    private: Ed25519PrivateKey = key
    return private


def load_public_keys(paths: Iterable[Path]) -> list[PublicKey]:
    """Ed25519 public keys of PEM files; errors as for `load_private_key`."""
    keys = []
    for path in paths:
        serialization, ed25519 = _cryptography()
        try:
            key = serialization.load_pem_public_key(_key_bytes(path))
        except ToktierError:
            raise
        except Exception as error:
            raise _bad_key(path, "public", error) from None
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise _bad_key(path, "public", None)
        keys.append(PublicKey(_id_of(key), path, key))
    return keys


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise missing_distribution("signatures need", "cryptography", "sign", "cryptography") from None
    return serialization, ed25519


def _key_bytes(path: Path) -> bytes:
    try:
        with open_regular(path) as stream:
            return stream.read(MAX_KEY_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactNotFound(
            f"the key {shown_path(path)} does not exist", details={"path": escaped(path)}, remedy="check the path"
        ) from None
    except OSError as error:
        raise environment_fault(error, "read the key", shown_path(path)) from None


def _bad_key(path: Path, kind: str, error: Exception | None) -> UsageError:
    why = "" if error is None else f": {shown(str(error))}"
    return UsageError(
        f"{shown_path(path)} is no Ed25519 {kind} key in PEM without a password{why}",
        details={"path": escaped(path)},
        remedy=_KEY_REMEDIES[kind],
    )


def _id_of(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _pae(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding."""
    kind = PAYLOAD_TYPE.encode("ascii")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _signed_by(envelope: dict[str, Any], payload: bytes, key: PublicKey) -> bool:
    from cryptography.exceptions import InvalidSignature

    for signature in envelope["signatures"]:
        try:
            key.key.verify(_decoded(signature["sig"]), _pae(payload))
        except InvalidSignature:
            continue
        return True
    return False


def _named(keys: Sequence[PublicKey]) -> str:
    return " or ".join(f"{shown_path(key.where)} ({key.id[:12]})" for key in keys)
