"""Laws of the native session, over tokenizers of every kind: append-associates, patch-reproduces, replace-equals-fresh,
present-equals-fresh, restore-equals-live. And under random tokenizers, with added tokens of every flag and normalizers
of every kind, no random script of edits leaves the reference.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.support.material import ROOT, small_tokenizers
from tests.support.text_cut_cases import hostile_text, random_case, row
from tests.support.tiers import blocks_of_seeds
from toktier._native import EncoderBase, Program, SessionBase, TokenPatch
from toktier.certify.edit_scripts import GRAPHEMES, Edit, Material, difference, play, random_script
from toktier.certify.hostile_texts import POOLS, WORDS
from toktier.errors import ProgramUnsupported, UnsupportedConfig
from toktier.program.compile import compile_tokenizer

PATHS = {path.stem: path for path in small_tokenizers()} | {
    "toktier_mini": ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
}
NAMES = st.sampled_from(sorted(PATHS))
PARTS = st.one_of(
    st.sampled_from(WORDS + GRAPHEMES),
    st.sampled_from("".join(POOLS)).filter(lambda c: not "\ud800" <= c <= "\udfff"),
    st.sampled_from(("<|endoftext|>", "<|im_start|>", "<|im_", "start|>", "<s>", "</s>", "<pad>", " <mask> ", "<bos>")),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.builds(str.__mul__, st.sampled_from(["a", " ", "\n", "1", "中", "\u0301", "ab "]), st.integers(2, 300)),
)
TEXTS = st.lists(PARTS, max_size=8).map("".join)


@functools.cache
def served(name: str) -> tuple[EncoderBase, Tokenizer]:
    data = PATHS[name].read_bytes()
    return EncoderBase(Program(compile_tokenizer(data))), Tokenizer.from_buffer(data)


def fresh(name: str, text: str) -> list[int]:
    found: list[int] = served(name)[1].encode(text, add_special_tokens=False).ids
    return found


def applied(held: list[int], patch: TokenPatch) -> list[int]:
    return held[: patch.keep_tokens] + patch.replacement_ids.ids


@settings(deadline=None, max_examples=300)
@given(NAMES, st.lists(TEXTS, max_size=6))
def test_law_append_associates(name: str, parts: list[str]) -> None:
    """However a text is parted, and where: the same ids, and the same end from which the next append goes on."""
    one, many = SessionBase(served(name)[0]), SessionBase(served(name)[0])
    one.append("".join(parts))
    for part in parts:
        many.append(part)
    assert one.held_ids() == many.held_ids()
    assert one.snapshot() == fresh(name, "".join(parts))
    assert (len(one), one.text_length, one.byte_length) == (len(many), many.text_length, many.byte_length)


@settings(deadline=None, max_examples=300)
@given(NAMES, TEXTS, st.data())
def test_law_append_associates_at_every_code_point(name: str, text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    session = SessionBase(served(name)[0])
    session.append(text[:at])
    for character in text[at : at + 12]:
        session.append(character)
    session.append(text[at + 12 :])
    assert session.snapshot() == fresh(name, text)


@settings(deadline=None, max_examples=300)
@given(NAMES, st.lists(st.tuples(st.integers(0, 1_000), TEXTS), max_size=8))
def test_law_patch_reproduces(name: str, changes: list[tuple[int, str]]) -> None:
    """A list to which the patches alone are applied is the session's ids at every step, and those of the reference."""
    session, held, text = SessionBase(served(name)[0]), list[int](), ""
    for start, put in changes:
        start = min(start, len(text))
        held = applied(held, session.replace(start, put))
        text = text[:start] + put
        assert held == session.snapshot() == fresh(name, text)
        assert session.held_text().decode() == text


@settings(deadline=None, max_examples=300)
@given(NAMES, TEXTS, TEXTS, st.data())
def test_law_replace_equals_fresh(name: str, text: str, put: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    session = SessionBase(served(name)[0])
    session.append(text)
    session.replace(start, put)
    whole = SessionBase(served(name)[0])
    whole.append(text[:start] + put)
    assert session.held_ids() == whole.held_ids()
    assert session.snapshot() == fresh(name, text[:start] + put)
    session.replace(start, text[start:])
    assert session.snapshot() == fresh(name, text)


@settings(deadline=None, max_examples=300)
@given(NAMES, st.lists(TEXTS, min_size=1, max_size=5), st.data())
def test_law_present_equals_fresh(name: str, texts: list[str], data: st.DataObject) -> None:
    """Whatever the text before was: another one, a part of it, or itself with a stretch in its middle changed."""
    session = SessionBase(served(name)[0])
    for text in texts:
        begin, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        for presented in (text, text[:begin] + text[end:], text[:end]):
            assert session.present(presented) == fresh(name, presented)
            assert session.present(presented, True) == served(name)[1].encode(presented).ids


@settings(deadline=None, max_examples=200)
@given(NAMES, st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, max_size=4))
def test_law_restore_equals_live(name: str, before: list[str], behind: list[str]) -> None:
    script = [Edit("append", text) for text in before[:-1]] + [Edit("reopen", before[-1])]
    script += [Edit("append", text) for text in behind]
    for step in play(lambda: SessionBase(served(name)[0]), tuple(script)):
        assert difference(step, fresh(name, step.text)) is None


def check_random(seeds: range, scripts: int) -> int:
    """Steps compared."""
    compared = 0
    for seed in seeds:
        with contextlib.suppress(ProgramUnsupported, UnsupportedConfig):
            case = random_case(seed)
            rng, encoder = random.Random(seed), EncoderBase(case.program)
            words = [hostile_text(case, rng, 4) for _ in range(40)]
            material = Material(case.added, tuple("\u0301a1 \n"), words)
            for number in range(scripts):
                script = random_script(rng, material, 12, 700 if number % 12 == 0 else 0)
                compared += check_script(functools.partial(SessionBase, encoder), script, case.reference, seed)
    return compared


def check_script(new: Callable[[], SessionBase], script: tuple[Edit, ...], reference: Tokenizer, seed: int) -> int:
    for number, step in enumerate(play(new, script)):
        expected = row(reference, step.text)
        if expected is None:
            return number  # the reference fails on such a text
        assert difference(step, expected[0]) is None, (seed, script[: step.edit + 1])
    return len(script)


def test_law_no_script_leaves_the_reference_under_random_tokenizers() -> None:
    assert check_random(range(40), 12) > 3_000


@pytest.mark.parametrize("block", blocks_of_seeds(20, in_ci=1))
def test_law_no_script_leaves_the_reference_under_many_random_tokenizers(block: int) -> None:
    assert check_random(range(30_000 + 100 * block, 30_100 + 100 * block), 60) > 40_000
