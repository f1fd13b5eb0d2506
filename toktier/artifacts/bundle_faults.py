"""Why a bundle is refused: the one table of reasons, and the error made of them.

A reason is stable and stands in `details["reason"]` of BUNDLE_INVALID; its sentence is for people. Not here: bundles
that are well formed and hold something else than they claim (`bundle_admission`), signatures.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

from toktier.errors import BundleInvalid
from toktier.labels import escaped, shown_path


class Reason(enum.Enum):
    """Value: (reason, sentence that follows the bundle's name; braces take facts)."""

    EMPTY = ("empty", "is empty (0 bytes)")
    TOO_LARGE = ("too_large", "has {size:,} bytes, a bundle has at most {limit:,}")
    NOT_A_BUNDLE = ("not_a_bundle", "is no bundle: it begins with neither bundle_manifest.json nor bundle_index.json")
    TRUNCATED = ("truncated", "ends early")
    TRAILING_DATA = ("trailing_data", "goes on after its end")

    HEADER_CHECKSUM = ("header_checksum", "has a header with a wrong checksum")
    HEADER_FORMAT = ("header_format", "has a header that is not plain USTAR")
    HEADER_FIELD = ("header_field", "has a header with a malformed {field}")
    MEMBER_KIND = ("member_kind", "has a member that is {kind}; only regular files are accepted")
    MEMBER_SIZE = ("member_size", "has {member} with {observed:,} bytes, {expected:,} are declared")
    MEMBER_ORDER = ("member_order", "has the member {member} where {expected} is declared")
    MEMBER_MISSING = ("member_missing", "lacks the declared member {expected}")
    MEMBER_EXTRA = ("member_extra", "has the undeclared member {member}")
    MEMBER_PADDING = ("member_padding", "has bytes that are not zero in the padding of {member}")
    FILE_DIGEST = ("file_digest", "has {member} with the SHA-256 {observed}, {expected} is declared")

    MANIFEST_SIZE = ("manifest_size", "has a {member} of {observed:,} bytes, at most {limit:,} are accepted")
    MANIFEST_JSON = ("manifest_json", "has a {member} that is no JSON: {problem}")
    MANIFEST_FORM = ("manifest_form", "has a {member} of another form: {problem}")
    MANIFEST_ORDER = ("manifest_order", "has a {member} whose entries are not in ascending order")
    ROOT_DIGEST = ("root_digest", "has a {member} whose root_digest is {observed}, its content gives {expected}")
    NAME = ("name", "declares the name {name}: {problem}")
    NAME_CLASH = ("name_clash", "declares {name} and {other}, which cannot lie beside each other everywhere")
    DECLARED_SIZE = ("declared_size", "declares {observed:,} bytes for {name}, at most {limit:,} are accepted")
    PART = ("part", "has the part {member}, whose {field} is not what the index says")

    ZSTD_HEADER = ("zstd_header", "has a malformed zstd frame header")
    ZSTD_SKIPPABLE = ("zstd_skippable", "begins with a skippable zstd frame")
    ZSTD_DICTIONARY = ("zstd_dictionary", "needs a zstd dictionary")
    ZSTD_WINDOW = ("zstd_window", "needs a zstd window of {observed:,} bytes, at most {limit:,} are accepted")
    ZSTD_BLOCK = ("zstd_block", "has a zstd block that the format does not allow")
    ZSTD_DAMAGED = ("zstd_damaged", "does not decompress: {problem}")

    @property
    def code(self) -> str:
        return self.value[0]


class FaultMaker:
    """Makes the errors of one bundle."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def __call__(self, reason: Reason, *, offset: int | None = None, **facts: Any) -> BundleInvalid:
        """`offset`: byte of the uncompressed archive near which it was seen."""
        at = "" if offset is None else f" (at byte {offset:,})"
        return BundleInvalid(
            f"{shown_path(self.where)} {reason.value[1].format(**facts)}{at}",
            details={"file": escaped(self.where), "reason": reason.code, "offset": offset, **facts},
            remedy="copy the bundle again, or export it again",
        )
