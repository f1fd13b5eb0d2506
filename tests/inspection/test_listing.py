"""The long tables say what the file and the engine say."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.support.material import changed_tokenizer, small_tokenizers
from toktier._native import Program
from toktier.inspection.listing import listing, stages
from toktier.program.store import load_or_compile


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_the_tables_are_the_files(path: Path) -> None:
    image, info = load_or_compile(path, None)
    tables = listing(memoryview(image), info.meta)
    written = {token["content"]: token for token in json.loads(path.read_text("utf-8"))["added_tokens"]}
    assert {token["content"]: token for token in tables["added_tokens"]} == written
    assert len(tables["unreachable_tokens"]) == info.meta["model"]["tokens_unreachable"]
    assert [stage["path"] for stage in stages(info.meta)] == [s["path"] for s in info.meta["pre_tokenizer"]["stages"]]
    if info.meta["boundary"] is None:
        assert tables["cuts"] is None
        return
    assert sum(row.count("|") for row in tables["cuts"]["pairs"]) == info.meta["boundary"]["pair_cuts"]


def test_cuts_of_classes_are_cuts_of_texts(tmp_path: Path) -> None:
    """Without added tokens and normalizer nothing else forbids one."""
    checked = 0
    for base in small_tokenizers():
        bare = {"added_tokens": [], "normalizer": None, "post_processor": None}
        image, info = load_or_compile(changed_tokenizer(base, tmp_path / base.name, **bare), None)
        cuts = listing(memoryview(image), info.meta)["cuts"]
        if cuts is None or info.meta["pre_tokenizer"]["prefix_space"]:
            continue
        names, program = list(map(chr, cuts["representatives"])), Program(image)
        for (a, left), (b, right) in itertools.product(enumerate(names), repeat=2):
            if cuts["pairs"][a][b] == "|":
                assert len(left.encode()) in program.cuts(left + right)[0]
                checked += 1
    assert checked > 100


def test_one_stage_alone_has_the_automata_of_the_whole() -> None:
    for path in small_tokenizers():
        _, info = load_or_compile(path, None)
        listed = stages(info.meta)
        if len(listed) == 1:
            whole = info.meta["boundary"]
            sizes = [whole[key] for key in ("classes", "left_states", "right_states")]
            assert [listed[0][key] for key in ("classes", "left_states", "right_states")] == sizes
