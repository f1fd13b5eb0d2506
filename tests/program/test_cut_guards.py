"""Guards of cuts: what added tokens and normalizer steps put into the sections, against their definition."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import tokenizer_maker as maker
from toktier.program import unicode
from toktier.program.compile import compile_tokenizer
from toktier.program.cut_guards import cut_guard_sections
from toktier.program.file import read_program
from toktier.program.layout import Edge, Guard
from toktier.program.normalizer import normalize, read_normalizer
from toktier.program.tokenizer_json import read_tokenizer


def guards(normalizer: Any, prefix_space: bool = False) -> tuple[Callable[[str], Guard], dict[str, str]]:
    """Look-up of the trie, and the images."""
    sections = cut_guard_sections(read_normalizer(normalizer), prefix_space, ())
    stage1, stage2 = array("H", sections["GCP1"]), sections["GCP2"]
    words = array("I", sections["GIMG"])
    images = {chr(words[k]): chr(words[k + 1]) for k in range(0, len(words), 2)}
    return lambda c: Guard(stage2[stage1[ord(c) >> 7] * 128 + (ord(c) & 127)]), images


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


def replace(text: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD", "NFKD"])
def test_form_makes_opaque_what_changes_or_meets_what_is_before_it(form: str) -> None:
    guard, images = guards({"type": form})
    steps = read_normalizer({"type": form})
    tables = unicode.normalization(form)
    seconds = {second for _, second in tables.compositions}
    for cp in range(0, 0x30000, 1):
        if 0xD800 <= cp < 0xE000 or 0x3400 <= cp < 0xA000:
            continue
        bound = cp in tables.decompositions or cp in tables.ccc or cp in seconds
        if bound:
            bound = cp in tables.ccc or cp in seconds or normalize(steps, chr(cp)) != chr(cp)
        if bound:
            assert guard(chr(cp)) == Guard.OPAQUE, hex(cp)
        else:  # the tables may hold more characters than these, none of them one of everyday text
            assert guard(chr(cp)) in (Guard(0), Guard.OPAQUE), hex(cp)
    assert images == {}
    assert all(guard(c) == 0 for c in "aZ0 \n.中▁")


def test_replace_and_lowercase_have_images() -> None:
    guard, images = guards(sequence(replace(" ", "▁"), {"type": "Lowercase"}, replace("ab", "c"), replace("x", "yz")))
    assert guard(" ") == Guard.IMAGE
    assert images[" "] == "▁"
    assert images["Q"] == "q"
    assert "q" not in images
    assert guard("q") == 0
    assert guard("İ") == guard("a") == guard("A") == guard("b") == guard("x") == guard("X") == Guard.OPAQUE


def test_an_image_is_what_the_next_step_is_given() -> None:
    guard, images = guards(sequence(replace("a", "é"), {"type": "NFD"}, replace("b", "c"), replace("c", "d")))
    assert guard("a") == guard("é") == Guard.OPAQUE
    assert (guard("b"), images["b"], images["c"]) == (Guard.IMAGE, "d", "d")


def test_prefixes() -> None:
    guard, _ = guards(None, prefix_space=True)
    assert guard("a") == guard("中") == guard("\U0010ffff") == Guard.PREFIX
    assert guard(" ") == 0
    guard, _ = guards(replace("_", " "), prefix_space=True)
    assert guard("_") == Guard.IMAGE
    guard, _ = guards(sequence({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")), prefix_space=True)
    assert guard(" ") == Guard.PREFIX | Guard.IMAGE
    assert guard("a") == Guard.PREFIX


def test_strip() -> None:
    guard, _ = guards({"type": "Strip", "strip_left": True, "strip_right": False})
    assert (guard(" "), guard("\n"), guard("a")) == (Guard.NOT_BEFORE, Guard.NOT_BEFORE, 0)
    guard, _ = guards({"type": "Strip", "strip_left": False, "strip_right": True})
    assert guard("\u3000") == Guard.NOT_AFTER
    # The part before the bar may be stripped to nothing, and then it is the part behind it that gets the prefix.
    guard, _ = guards({"type": "Strip", "strip_left": True, "strip_right": True}, prefix_space=True)
    assert Guard.NOT_BEFORE in guard("a")
    assert Guard.NOT_BEFORE in guard(" ")


def test_added_tokens() -> None:
    document = maker.small("gpt2_like")
    document["normalizer"] = {"type": "Lowercase"}
    document["added_tokens"] = [
        maker.added("Ab", normalized=True, lstrip=True),
        maker.added("Cé", single_word=True),
        maker.added("x", rstrip=True, special=True),
    ]
    data = maker.encoded(document)
    sections = cut_guard_sections((), False, read_tokenizer(data).added_tokens)
    matrix, edges = sections["GPAR"], sections["GBYT"]
    pairs = {(bit >> 8, bit & 255) for bit in range(1 << 16) if matrix[bit >> 3] >> (bit & 7) & 1}
    assert pairs == {(0x61, 0x62), (0x43, 0xC3), (0xC3, 0xA9)}
    assert {byte: Edge(value) for byte, value in enumerate(edges) if value} == {
        0x61: Edge.BEGINS | Edge.LSTRIP,
        0x62: Edge.ENDS,
        0x43: Edge.BEGINS | Edge.BEGINS_WORD,
        0xA9: Edge.ENDS | Edge.ENDS_WORD,
        0x78: Edge.ENDS | Edge.RSTRIP | Edge.BEGINS,
    }
    assert bytes(read_program(compile_tokenizer(data)).section("GPAR")) == matrix


def test_nothing_to_guard_is_no_section() -> None:
    assert cut_guard_sections((), False, ()) == {}
