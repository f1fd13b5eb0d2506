"""kernels/shared/layout.h states the same tags, fields, flags and kinds as toktier/program/layout.py."""

from __future__ import annotations

import enum
import re
from pathlib import Path

import pytest

from toktier.program import layout

HEADER = (Path(__file__).resolve().parents[2] / "kernels" / "shared" / "layout.h").read_text(encoding="utf-8")


def test_sections() -> None:
    block = HEADER[HEADER.index("#define TT_SECTIONS(X)") : HEADER.index("enum TtSection")]
    found = {tag: int(size) for tag, size in re.findall(r"X\((\w{4}), (\d)\)", block)}
    assert found == layout.SECTIONS


@pytest.mark.parametrize(
    ("prefix", "values"),
    [
        ("TT_CONF_", {**layout.Conf.__members__, "FIELDS": layout.CONF_FIELDS}),
        ("TT_MODEL_", layout.Model.__members__),
        ("TT_FLAG_", layout.Flag.__members__),
        ("TT_TOKEN_", layout.TokenFlag.__members__),
        ("TT_ADDED_", layout.AddedFlag.__members__),
        ("TT_NORMALIZER_", layout.NormalizerOp.__members__),
        ("TT_DECODER_", layout.DecoderOp.__members__),
        ("TT_JOIN_", layout.Join.__members__),
        ("TT_EDGE_", layout.Edge.__members__),
        ("TT_GUARD_", layout.Guard.__members__),
        ("TT_CUT_", layout.CutKind.__members__),
    ],
)
def test_values(prefix: str, values: dict[str, enum.IntEnum | int]) -> None:
    found = {name: int(value) for name, value in re.findall(rf"\b{prefix}(\w+) = (\d+)", HEADER)}
    assert found == {name: int(value) for name, value in values.items()}


def test_constants() -> None:
    def constant(name: str) -> int:
        match = re.search(rf"constexpr tt_u32 {name} = (0x\w+|\d+)u?;", HEADER)
        assert match is not None, name
        return int(match[1], 0)

    assert f"constexpr tt_u32 TT_ALL_FLAGS = 2 * TT_FLAG_{list(layout.Flag)[-1].name} - 1;" in HEADER
    assert constant("TT_FORMAT_VERSION") == layout.FORMAT_VERSION
    assert constant("TT_HEADER_SIZE") == layout.HEADER_SIZE
    assert constant("TT_ENTRY_SIZE") == layout.ENTRY_SIZE
    assert constant("TT_ALIGNMENT") == layout.ALIGNMENT
    assert constant("TT_MAX_SECTIONS") == layout.MAX_SECTIONS
    assert constant("TT_TRIE_SHIFT") == layout.TRIE_SHIFT
