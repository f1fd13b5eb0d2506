"""The whole compiler: programs executed slowly, from their sections, give the reference's ids; and equal files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.support import compiled_once
from tests.support import tokenizer_maker as maker
from tests.support.material import Artifacts, small_tokenizers
from tests.support.slow_program import Refused, SlowProgram
from tests.support.tiers import blocks_of_seeds
from toktier.errors import ProgramUnsupported, UnsupportedConfig
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program
from toktier.program.meta import read_meta

TEXT_DIR = Path(__file__).resolve().parent.parent / "data" / "text"


def reference_ids(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> list[int] | str:
    """The ids, or "refused" where the stored truncation makes the reference fail."""
    try:
        return list(tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
    except BaseException as error:  # a panic is no Exception
        if "stride" in str(error) or "Second sequence" in str(error):
            return "refused"
        raise


def program_ids(program: SlowProgram, text: str, add_special_tokens: bool, *, plain: bool = False) -> list[int] | str:
    try:
        return program.encode(text, add_special_tokens, plain=plain)
    except Refused:
        return "refused"


def compare(data: bytes, texts: list[str]) -> int:
    """Compares ids of all texts, special tokens both ways and plain; gives the number of ids."""
    program = SlowProgram(compile_tokenizer(data))
    reference, plain = (Tokenizer.from_str(data.decode()) for _ in range(2))
    plain.encode_special_tokens = True
    count = 0
    for text in texts:
        for special in (False, True):
            expected = reference_ids(reference, text, special)
            assert program_ids(program, text, special) == expected, (text, special)
            count += len(expected)
        assert program_ids(program, text, False, plain=True) == reference_ids(plain, text, False), (text, "plain")
    return count


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda path: path.stem)
def test_program_gives_the_ids_of_the_reference(path: Path) -> None:
    rng = random.Random(1)
    data = path.read_bytes()
    lines = [line for file in sorted(TEXT_DIR.glob("*.txt")) for line in file.read_text(encoding="utf-8").split("\n")]
    texts = rng.sample(lines, min(len(lines), 12)) + [maker.random_text(rng) for _ in range(60)] + [""]
    assert compare(data, texts) > 500


@pytest.mark.parametrize("block", range(4))
def test_law_random_tokenizers_give_the_ids_of_the_reference(block: int) -> None:
    _random_tokenizers(range(block * 6, block * 6 + 6))


@pytest.mark.parametrize("block", blocks_of_seeds(20, in_ci=6))
def test_law_many_random_tokenizers_give_the_ids_of_the_reference(block: int) -> None:
    _random_tokenizers(range(1000 + block * 30, 1030 + block * 30))


def _random_tokenizers(seeds: range) -> None:
    compared = 0
    for seed in seeds:
        document = maker.random_document(seed)
        rng = random.Random(seed)
        try:
            compare(maker.encoded(document), [maker.random_text(rng) for _ in range(25)])
        except (ProgramUnsupported, UnsupportedConfig) as error:
            refusal = error
        else:
            compared += 1
            continue
        # Colliding contents after a random normalizer, and Removed pieces inside a Sequence.
        assert "normaliz" in str(refusal) or "pre_tokenizer" in str(refusal), (seed, refusal)
    assert compared >= len(seeds) // 2, "a compiler that refuses everything proves nothing"


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda path: path.stem)
def test_compilation_is_deterministic(path: Path) -> None:
    data = path.read_bytes()
    first = compile_tokenizer(data)
    compiled_once.forget()
    assert compile_tokenizer(data) == first


@pytest.mark.ci
def test_published_figures_of_real_artifacts(artifacts: Artifacts) -> None:
    figures = {
        "qwen3": (11, 11, 8, 151_387, 0),
        "llama3": (11, 13, 8, 127_156, 588),
        "gptoss": (19, 17, 25, 199_742, 0),
        "deepseek_v3": (12, 15, 14, 127_741, 0),
        "claude": (10, 9, 10, 64_739, 0),
    }
    digests = {}
    for name, expected in figures.items():
        meta = read_meta(read_program(compile_tokenizer(artifacts.path(name).read_bytes())).section("META"))
        digests[name] = meta["boundary"]["digest"]
        boundary, model = meta["boundary"], meta["model"]
        found = (boundary["classes"], boundary["left_states"], boundary["right_states"], model["merges_live"])
        assert found == expected[:4], name
        # claude and deepseek hold tokens in the vocabulary that are added tokens too; merges reach none of these.
        assert model["tokens_unreachable"] >= expected[4], name
    assert len(set(digests.values())) == len(digests)
    for name, other in (("llama3", "gpt35turbo"), ("gptoss", "gpt4o")):
        meta = read_meta(read_program(compile_tokenizer(artifacts.path(other).read_bytes())).section("META"))
        assert meta["boundary"]["digest"] == digests[name], other


@pytest.mark.full
def test_every_real_and_derived_artifact_compiles_or_is_refused_as_stated(artifacts: Artifacts) -> None:
    """In CI tests/conformance/test_cases.py holds the same, with programs that are compiled once for all its tests."""
    outcomes = {}
    for name in artifacts.names + artifacts.derived_names:
        try:
            compile_tokenizer(artifacts.path(name).read_bytes(), name)
            outcomes[name] = "compiled"
        except (ProgramUnsupported, UnsupportedConfig) as refusal:
            outcomes[name] = refusal.code
    refused = {name: outcome for name, outcome in outcomes.items() if outcome != "compiled"}
    assert refused == {
        "d.collide_nfc": "UNSUPPORTED_CONFIG",
        "d.collide_nfkc": "UNSUPPORTED_CONFIG",
    }
