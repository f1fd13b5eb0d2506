"""Attacks by bundles that are right in themselves and hold something else than they claim."""

from __future__ import annotations

from tests.attacks.bundles.craft import (
    ALIAS,
    ALPHA,
    BETA,
    BETA_ALIAS,
    CONFIG,
    FORGED,
    UNPINNED,
    attack,
    good,
    of,
)
from tests.attacks.bundles.manifests import parts


@attack("pin_mismatch", code=FORGED)
def forged_tokenizer() -> bytes:
    """Another tokenizer of the same size under a pinned alias: what a public tool installs."""
    return of(ALIAS, {"tokenizer.json": ALPHA.replace(b"a", b"b", 1), "tokenizer_config.json": CONFIG})


@attack("pin_mismatch", code=FORGED)
def forged_side_file() -> bytes:
    """The right tokenizer with another side file."""
    return of(ALIAS, {"tokenizer.json": ALPHA, "tokenizer_config.json": b'{"side": "evil"}'})


@attack("pin_mismatch", code=FORGED)
def file_more_than_pinned() -> bytes:
    """A pinned family with a file that is not pinned."""
    return of(ALIAS, {"tokenizer.json": ALPHA, "tokenizer_config.json": CONFIG, "z.py": b"import os"})


@attack("pin_mismatch", code=FORGED)
def another_revision() -> bytes:
    """A pinned family at a revision that nobody audited."""
    return of("alpha-cccccccccccc", {"tokenizer.json": BETA + b" "})


@attack("pin_mismatch", code=FORGED)
def another_revision_of_the_same_bytes() -> bytes:
    """The pinned bytes under a false revision."""
    return of("alpha-cccccccccccc", {"tokenizer.json": ALPHA})


@attack("pin_mismatch", code=FORGED)
def family_without_a_revision() -> bytes:
    """The bare name of a pinned family."""
    return of("alpha", {"tokenizer.json": b"{}"})


@attack("pin_mismatch", code=FORGED)
def family_in_capitals() -> bytes:
    """A pinned name in another case."""
    return of(ALIAS.upper(), {"tokenizer.json": b"{}"})


@attack("pin_mismatch", code=FORGED)
def another_family_s_tokenizer() -> bytes:
    """The pinned tokenizer of another family under this one's alias."""
    return of(BETA_ALIAS, {"tokenizer.json": ALPHA})


@attack("pin_mismatch", code=FORGED)
def swapped_names() -> bytes:
    """Two pinned files under each other's names."""
    return of(ALIAS, {"tokenizer.json": CONFIG, "tokenizer_config.json": ALPHA})


@attack("pin_mismatch", code=FORGED)
def one_forged_part_of_two() -> bytes:
    """A right part, and a forged one after it: neither may be stored."""
    return parts((ALIAS, good()), (BETA_ALIAS, of(BETA_ALIAS, {"tokenizer.json": b"{}"})))


@attack(None, code=UNPINNED)
def unpinned_content() -> bytes:
    """A tokenizer that nobody pinned, without --as."""
    return of("mine", {"tokenizer.json": b"{}"})


@attack(None, code=UNPINNED)
def unpinned_content_beside_pinned() -> bytes:
    """A pinned file and another one, under a name of no family."""
    return of("mine", {"tokenizer.json": ALPHA, "z.json": b"{}"})


@attack(None, code=UNPINNED)
def evidence() -> bytes:
    """Evidence that would certify something, unsigned."""
    return of("evidence", {"evidence.json": b'{"status": "certified"}'})


@attack(None, code=UNPINNED)
def wheel() -> bytes:
    """A wheel, which no import installs."""
    return of("wheels", {"toktier-9.9-py3-none-any.whl": b"PK\x03\x04"})
