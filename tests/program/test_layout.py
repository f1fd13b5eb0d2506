"""docs/program-format.md and toktier/program/layout.py say the same. (kernels/shared/layout.h: tests/native.)"""

from __future__ import annotations

import enum
import re
from pathlib import Path

import pytest

from toktier.program import layout

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "program-format.md").read_text(encoding="utf-8")
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}


def rows(heading: str) -> list[list[str]]:
    """Cells of the table rows below a heading of the document."""
    section = re.split(r"^#+ ", DOCUMENT.split(f" {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    found = [line for line in section.split("\n") if line.startswith("|") and not set(line) <= set("|-: ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in found[1:]]


def test_sections() -> None:
    documented: dict[str, int] = {}
    for tags, element, content in rows("Sections"):
        named = re.findall(r"`([A-Z0-9]{4})`", tags)
        if element == "–":
            first = re.findall(r"`(A0..)` (u\d+)", content)
            sizes = first or [(f"{tag[:2].replace('A0', 'A1')}{tag[2:]}", size) for tag, size in _first_matcher()]
            documented |= {tag: SIZES[size] for tag, size in sizes}
            continue
        named += re.findall(r"`([A-Z0-9]{4})`", element)
        kinds = re.findall(r"u\d+", element)
        kinds = kinds * len(named) if len(kinds) == 1 else kinds
        assert len(kinds) == len(named), tags
        documented |= {tag: SIZES[kind] for tag, kind in zip(named, kinds, strict=True)}
    assert documented == layout.SECTIONS


def _first_matcher() -> list[tuple[str, str]]:
    row = next(content for tags, _, content in rows("Sections") if tags == "`ATR0`")
    return re.findall(r"`(A0..)` (u\d+)", row)


def test_conf() -> None:
    documented: dict[int, str] = {}
    for index, names, _ in rows("CONF"):
        first, *last = (int(number) for number in re.findall(r"\d+", index))
        fields = [name.strip() for name in names.split(",")]
        indexes = range(first, last[0] + 1) if last else [first]
        assert len(indexes) == len(fields), names
        documented |= dict(zip(indexes, fields, strict=True))
    assert documented == {int(field): field.name.lower() for field in layout.Conf}
    assert len(documented) == layout.CONF_FIELDS


@pytest.mark.parametrize(
    ("kind", "tag", "start"),
    [
        (layout.TokenFlag, "TFLG", r"1 exists"),
        (layout.AddedFlag, "ATOK", r"1 single_word"),
        (layout.Edge, "GBYT", r"1 ends"),
        (layout.Guard, "GCP2", r"1 opaque"),
    ],
)
def test_flags(kind: type[enum.IntFlag], tag: str, start: str) -> None:
    content = next(content for tags, _, content in rows("Sections") if f"`{tag}`" in tags)
    numbers = [int(number) for number in re.findall(r"(?:^|[ (])(\d+) [a-z]", content[content.index(start) - 1 :])]
    assert numbers == [int(flag) for flag in kind]


def test_join_kinds() -> None:
    content = next(content for _, name, content in rows("CONF") if name == "join_kind")
    assert content == " · ".join(f"{int(join)} {join.section or 'none'}" for join in layout.Join)


def test_conf_flags() -> None:
    content = next(content for _, name, content in rows("CONF") if name == "flags")
    stated = [int(number) for number in re.findall(r"(?:^|· )(\d+) ", content)]
    assert stated == [int(flag) for flag in layout.Flag]


@pytest.mark.parametrize(("kind", "heading"), [(layout.NormalizerOp, "NOPS"), (layout.DecoderOp, "DOPS")])
def test_kinds_of_steps(kind: type[enum.IntEnum], heading: str) -> None:
    line = DOCUMENT.split(f"### Kinds of {heading}\n", 1)[1].split("\n", 1)[0]
    documented = {int(number): name.upper() for number, name in re.findall(r"(?:^|· )(\d) ([A-Za-z]+)", line)}
    assert documented == {int(op): op.name.replace("_", "") for op in kind}


def test_header() -> None:
    cells = {row[2]: row for row in rows("Header, 128 bytes")}
    assert cells["magic"][3] == f"`{layout.MAGIC.decode()}`"
    assert cells["format_version"][3] == str(layout.FORMAT_VERSION)
    assert cells["section_count"][3] == f"at most {layout.MAX_SECTIONS}"
    assert int(cells["zero"][0]) + 8 == layout.HEADER_SIZE
    assert f"entries of {layout.ENTRY_SIZE} bytes" in DOCUMENT
    assert f"multiple of {layout.ALIGNMENT}" in DOCUMENT
    assert f"`u16[{layout.TRIE_STAGE1}]`, indexed by `cp >> {layout.TRIE_SHIFT}`" in DOCUMENT
    assert f"`block * {layout.TRIE_BLOCK} + (cp & {layout.TRIE_BLOCK - 1})`" in DOCUMENT
    assert f"*none* is 0x{layout.NONE:X}." in DOCUMENT
