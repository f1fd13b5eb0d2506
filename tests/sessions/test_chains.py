"""The digests are those that docs/session-store.md writes down."""

from __future__ import annotations

import struct
from hashlib import sha256
from pathlib import Path

import pytest

from tests.sessions.model import FINGERPRINT, OTHER, change
from toktier.sessions import chains
from toktier.sessions.store import SessionStore


def tagged(tag: str, data: bytes) -> bytes:
    return sha256(tag.encode() + b"\0" + data).digest()


def documented_text(text: bytes, tokens: int, code_points: int) -> tuple[bytes, bytes]:
    """The text chain and the text digest at the end of a text."""
    chain = tagged("toktier.store-text.v1", FINGERPRINT.encode())
    whole = len(text) // 1024 * 1024
    for at in range(0, whole, 1024):
        chain = sha256(chain + text[at : at + 1024]).digest()
    counts = struct.pack("<3Q", tokens, len(text), code_points)
    return chain, tagged("toktier.store-point.v1", counts + chain + text[whole:])


def test_a_store_holds_the_documented_digests(tmp_path: Path) -> None:
    session = SessionStore(tmp_path).open("chat", FINGERPRINT)
    parts = ["é" * 700, "x" * 648, "y" * 5000, "z"]
    digest, text = tagged("toktier.store-ids.v1", FINGERPRINT.encode()), ""
    for revision, part in enumerate(parts):
        append = change(revision, part)
        session.append(append)
        text += part
        chain, point = documented_text(text.encode(), len(text), len(text))
        digest = sha256(digest + point + append.ids).digest()
        last = session.points()[-1]
        assert (last.text_chain, last.text_digest, last.ids_digest) == (chain, point, digest)


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 4095, 4096, 10_000])
@pytest.mark.parametrize("step", [1, 100, 1024, 4096, 5000])
def test_the_text_chain_does_not_depend_on_how_the_text_comes(size: int, step: int) -> None:
    text = bytes(k * k % 251 for k in range(size))
    start = chains.TextEnd(chains.text_seed(FINGERPRINT), b"")
    whole, marks = chains.extend_text(start, 0, text)
    end, found = start, []
    for at in range(0, size, step):
        end, passed = chains.extend_text(end, at // chains.BLOCK, text[at : at + step])
        found += passed
    assert (end, found) == (whole, marks)
    assert [number for number, _ in marks] == list(range(1, size // chains.MARK + 1))


def test_chains_of_two_fingerprints_have_nothing_in_common() -> None:
    text = b"x" * 8192
    one, two = (chains.extend_text(chains.TextEnd(chains.text_seed(f), b""), 0, text)[1] for f in (FINGERPRINT, OTHER))
    assert not {chain for _, chain in one} & {chain for _, chain in two}
    assert chains.ids_seed(FINGERPRINT) != chains.ids_seed(OTHER)
