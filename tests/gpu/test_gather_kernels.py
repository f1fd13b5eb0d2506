"""What puts tokens together, under the emulator: ids in order, where each document's begin, and offsets in code points,
beside the reference.
"""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import emulated_pipeline, simt_build
from tests.support.emulated_pipeline import Left
from tests.support.engine_pair import Pair
from tests.support.material import ROOT, SMALL_DIR
from toktier import _native

SEEDS = (1, 2, 3)
# Of one to four bytes; the vocabularies have few of the longer ones, so tokens begin and end inside of them.
CHARACTERS = [*"abel the \n019.-'", *"éßжя", *"中の한ก", *"😀🚀𐍈"]


@functools.cache
def pair(name: str) -> tuple[Pair, bytes]:
    document = json.loads((SMALL_DIR / f"{name}.json").read_text(encoding="utf-8"))
    made = Pair({**document, "post_processor": None})
    return made, _native.device_tables(made.program)


def check(name: str, texts: list[str], **options: int | bool) -> None:
    reference, image = pair(name)
    documents = [text.encode() for text in texts]
    found = emulated_pipeline.run(image, documents, offsets=True, **options)  # type: ignore[arg-type]
    assert len(found) == len(texts)
    for text, document in zip(texts, found, strict=True):
        assert document.flags == Left(0), ascii(text)
        assert (document.ids, document.offsets) == reference.reference(text), ascii(text)


def texts_of(rng: random.Random, count: int, longest: int) -> list[str]:
    """Many are empty, and some have nothing but characters of four bytes."""
    sizes = (0, 0, 1, 2, 31, 32, 33, longest)
    return [
        "".join(rng.choices(CHARACTERS if rng.random() < 0.8 else ["🚀"], k=rng.choice(sizes))) for _ in range(count)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_documents_of_every_size(seed: int) -> None:
    rng = random.Random(seed)
    check("cl100k_like", texts_of(rng, 300, 100), seed=seed, shuffled_blocks=True, resident_blocks=3)
    check("deepseek_like", texts_of(rng, 6, 3000), seed=seed, shuffled_blocks=True)


@pytest.mark.parametrize(
    "texts", [[], [""], ["", "", ""], ["", "a", ""], ["é"], ["🚀"], ["a" * 32], ["a" * 4096, ""], ["", "b" * 8192]]
)
def test_few_documents(texts: list[str]) -> None:
    check("cl100k_like", texts)


def test_added_tokens_have_offsets() -> None:
    names = json.loads((SMALL_DIR / "cl100k_like.json").read_text(encoding="utf-8"))["added_tokens"]
    token = names[0]["content"]
    check(
        "cl100k_like",
        [token, f"é{token}中{token}", f"{token}{token}", f"a {token} b", "é" * 40 + token + "😀" * 2000 + token],
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.sampled_from(CHARACTERS), max_size=80), max_size=8), st.sampled_from(SEEDS))
def test_texts(texts: list[str], seed: int) -> None:
    check("o200k_like", texts, seed=seed)


@pytest.mark.ci
def test_any_bits_stay_in_bounds(tmp_path: Path) -> None:
    """Masks, text and documents of any bits: nothing is promised of the ids, but every access is within its buffer."""
    sources = (simt_build.SIMT / "any_bits.cpp", simt_build.TOKTIER)
    program = simt_build.build_program("any_bits", sources, variant="asan", includes=(ROOT / "native",))
    image = tmp_path / "image"
    image.write_bytes(pair("o200k_like")[1])
    done = simt_build.run(program, image, 60, variant="asan")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 runs" in done.stdout
