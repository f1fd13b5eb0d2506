"""Canonical JSON (RFC 8785) and tagged digests: the one way anything here is hashed or written as JSON.

Numbers are restricted to integers within ±(2**53 - 1): no document here needs floats, and their canonical form is the
part of RFC 8785 that implementations get wrong.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

MAX_SAFE_INTEGER = 2**53 - 1

# Digest tags: a domain separator for each kind of digest, so that no digest of one kind can pass for another.
TAG_FINGERPRINT = "toktier.fingerprint.v1"
TAG_COMPILER = "toktier.compiler.v1"
TAG_TABLE = "toktier.table.v1"
TAG_PINS = "toktier.pins.v1"
TAG_BUNDLE = "toktier.bundle.v1"  # the public TokTier's, so that bundles are interchangeable
TAG_BUNDLE_INDEX = "toktier.bundle-index.v1"
TAG_SIBLINGS = "toktier.siblings.v1"
TAG_ENGINE = "toktier.engine.v1"
TAG_ENGINE_NATIVE = "toktier.engine-native.v1"
TAG_GPU_HOST = "toktier.gpu-host.v1"
TAG_GPU_HOST_NATIVE = "toktier.gpu-host-native.v1"
TAG_SUPPORT_REGISTRY = "toktier.support-registry.v1"
TAG_CERTIFY_PLAN = "toktier.certify-plan.v1"
TAG_CHECKPOINT = "toktier.certify-checkpoint.v1"
TAG_EVIDENCE = "toktier.evidence.v1"
TAG_STORE_NAME = "toktier.store-name.v1"
TAG_STORE_STATE = "toktier.store-state.v1"
TAG_STORE_IDS = "toktier.store-ids.v1"
TAG_STORE_TEXT = "toktier.store-text.v1"
TAG_STORE_POINT = "toktier.store-point.v1"
TAG_KERNEL_SOURCES = "toktier.kernel-sources.v1"
TAG_KERNEL_DIGESTS = "toktier.kernel-digests.v1"
TAG_CUBIN_KEY = "toktier.cubin-key.v1"

EVIDENCE_UNDIGESTED = ("digest", "environment")  # of an evidence document: time, host and speed are no findings


def _check(value: Any) -> None:
    if value is None or isinstance(value, (bool, str)):
        return
    if isinstance(value, int):
        if abs(value) > MAX_SAFE_INTEGER:
            raise ValueError(f"integer {value} has no exact canonical form")
        return
    if isinstance(value, (list, tuple)):
        for item in value:
            if type(item) is not str:  # most of what there is, and always fine
                _check(item)
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"object key {key!r} is not a string")
            _check(item)
        return
    raise TypeError(f"{type(value).__name__} has no canonical form")


def _sorted(value: Any) -> Any:
    """Objects with keys in UTF-16 code unit order, as RFC 8785 demands (json sorts by code point)."""
    if isinstance(value, dict):
        return {k: _sorted(value[k]) for k in sorted(value, key=lambda k: k.encode("utf-16-be"))}
    if isinstance(value, (list, tuple)):
        return [_sorted(v) if isinstance(v, (dict, list, tuple)) else v for v in value]
    return value


def canonical_json(value: Any) -> bytes:
    """UTF-8 canonical JSON. Raises TypeError or ValueError for what has no canonical form (floats, lone surrogates)."""
    _check(value)
    text = json.dumps(_sorted(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8")


def tagged_digest(tag: str, data: bytes) -> str:
    """Hex SHA-256 over `tag`, a zero byte and `data`."""
    return hashlib.sha256(tag.encode("ascii") + b"\0" + data).hexdigest()


def digest_prefix(tag: str, data: bytes = b"") -> hashlib._Hash:
    """The SHA-256 of a tagged digest after its tag and `data`, to copy and update: for digests made by the thousand."""
    return hashlib.sha256(tag.encode("ascii") + b"\0" + data)


def document_digest(tag: str, value: Any) -> str:
    """Hex tagged digest of a JSON document."""
    return tagged_digest(tag, canonical_json(value))


def evidence_digest(document: dict[str, Any]) -> str:
    """The root digest of an evidence document: everything but when, where and how fast it was made."""
    return document_digest(TAG_EVIDENCE, {k: v for k, v in document.items() if k not in EVIDENCE_UNDIGESTED})
