"""Hostile tokenizer.json files: whatever the bytes, the outcome is a program or one of our errors, in bounded memory.

Mutations know the structure: types are swapped, fields dropped, repeated and added, numbers driven to their limits,
files cut and bits flipped. What still compiles must also give the reference's ids, or the mutation found a field that
is not understood.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from tests.support.material import SMALL_DIR, small_tokenizers
from tests.support.slow_program import Refused, SlowProgram
from tests.support.tiers import blocks_of_seeds
from tests.support.tokenizer_maker import Document, added
from toktier.errors import ArtifactDamaged, NotATokenizer, ProgramUnsupported, ToktierError, UnsupportedConfig
from toktier.program.compile import compile_tokenizer

OUTCOMES = (ArtifactDamaged, NotATokenizer, ProgramUnsupported, UnsupportedConfig)
JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**64, 1.5, -0.0, "", "x", "é" * 300, "\ud83d\ude00", [], {}, [[]],
    [None], {"type": "Sequence"}, {"type": None}, "Isolated", "Left", [["a", "b"]], {"String": "a"}, {"Regex": "("},
    {"Regex": "(a*)*b"}, {"Fixed": 3},
]  # fmt: skip


def outcome(data: bytes) -> bytes | ToktierError:
    """The program, or the error; anything else that is raised is the finding."""
    try:
        return compile_tokenizer(data, "hostile.json")
    except OUTCOMES as refusal:
        error = refusal
    assert error.message
    assert len(error.message) < 2000
    assert "\n" not in error.message
    assert isinstance(json.dumps(error.to_dict()), str)
    return error


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Places in a document; of long arrays and of the vocabulary a few."""
    found = [path]
    if isinstance(value, dict):
        keys = list(value)
        for key in keys if len(keys) < 40 else keys[:3] + keys[-2:]:
            found += places(value[key], (*path, key))
    elif isinstance(value, list):
        indexes = list(range(len(value)))
        for index in indexes if len(indexes) < 40 else indexes[:3] + indexes[-2:]:
            found += places(value[index], (*path, index))
    return found


def mutated(document: Document, rng: random.Random) -> Document:
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        candidates = [path for path in places(document) if path]
        path = rng.choice(candidates)
        at: Any = document
        for key in path[:-1]:
            at = at[key]
        action = rng.randrange(6)
        if action == 0:
            del at[path[-1]]
        elif action == 1 and isinstance(at, dict):
            at[rng.choice(("extra", "type", "id", "content"))] = rng.choice(JUNK)
        elif action == 2 and isinstance(at, list):
            at.insert(path[-1], copy.deepcopy(rng.choice(at)))
        elif action == 3:
            other: Any = document
            for key in rng.choice(candidates):
                if not isinstance(other, (dict, list)):
                    break
                other = other[key]
            at[path[-1]] = copy.deepcopy(other)
        else:
            at[path[-1]] = copy.deepcopy(rng.choice(JUNK))
    return document


def check_mutations(document: Document, seeds: range) -> tuple[int, int]:
    """(mutants compiled, mutants refused). Those compiled are compared with the reference on a few texts."""
    compiled = refused = 0
    for seed in seeds:
        rng = random.Random(seed)
        data = json.dumps(mutated(document, rng), ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        result = outcome(data)
        if isinstance(result, ToktierError):
            refused += 1
            continue
        compiled += 1
        program, reference = SlowProgram(result), Tokenizer.from_buffer(data)
        for text in ("Hello  world 12 <|x|> it's é", maker.random_text(rng), maker.random_text(rng)):
            for special in (False, True):
                found: list[int] | None = None
                expected: list[int] | None = None
                with contextlib.suppress(Refused):
                    found = program.encode(text, special)
                with contextlib.suppress(BaseException):  # a panic is no Exception
                    expected = reference.encode(text, add_special_tokens=special).ids
                assert found == expected, (seed, text)
    return compiled, refused


FAMILIES = [path.stem for path in small_tokenizers()]


@pytest.mark.parametrize("name", FAMILIES)
def test_law_mutated_structure_is_compiled_right_or_refused(name: str) -> None:
    compiled, refused = check_mutations(maker.small(name), range(60))
    assert compiled >= 1
    assert refused >= 20


@pytest.mark.parametrize("seed", range(6))
def test_law_mutations_of_random_tokenizers(seed: int) -> None:
    check_mutations(maker.random_document(seed), range(30))


@pytest.mark.parametrize("block", blocks_of_seeds(3, in_ci=1))
@pytest.mark.parametrize("name", FAMILIES)
def test_law_many_mutations(name: str, block: int) -> None:
    compiled, refused = check_mutations(maker.small(name), range(1000 + 240 * block, 1240 + 240 * block))
    assert compiled >= 5
    assert refused >= 60


@pytest.mark.parametrize("name", ["cl100k_like", "llama_like"])
def test_every_fiftieth_cut_is_damage(name: str) -> None:
    data = (SMALL_DIR / f"{name}.json").read_bytes().rstrip()
    for k in range(50):
        error = outcome(data[: len(data) * k // 50])
        assert isinstance(error, ArtifactDamaged), k
        assert error.details["ends_early"]
    assert isinstance(outcome(data[:-1]), ArtifactDamaged)


@pytest.mark.parametrize("name", ["o200k_like", "gemma_like"])
def test_flipped_bits_never_escape(name: str) -> None:
    data = (SMALL_DIR / f"{name}.json").read_bytes()
    rng = random.Random(name)
    refused = 0
    for _ in range(120):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        refused += isinstance(outcome(bytes(damaged)), ToktierError)
    assert refused > 20


def test_random_bytes_and_random_json_never_escape() -> None:
    rng = random.Random(6)
    for _ in range(300):
        assert isinstance(outcome(rng.randbytes(rng.randrange(60))), ToktierError)
        assert isinstance(outcome(json.dumps(rng.choice(JUNK)).encode("utf-8", "surrogatepass")), ToktierError)


# Files that ask for more than they weigh. Each must end within the limits of the child process.
BOMBS = {
    "an id near 2**32": '{"model":{"type":"BPE","vocab":{"a":4294967295},"merges":[]}}',
    "an id of ten million": '{"model":{"type":"BPE","vocab":{"a":10000000},"merges":[]}}',
    "deep arrays": '{"model":' + "[" * 200_000,
    "deep normalizers": '{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":'
    + '{"type":"Sequence","normalizers":[' * 300
    + "]}" * 300
    + "}",
    "a counted pattern": json.dumps(
        maker.changed(
            maker.minimal(),
            pre_tokenizer={
                "type": "Split",
                "pattern": {"Regex": "((a{1,1000}){1,1000}){1,1000}"},
                "behavior": "Isolated",
                "invert": False,
            },
        )
    ),
    "a nested pattern": json.dumps(
        maker.changed(
            maker.minimal(),
            pre_tokenizer={
                "type": "Split",
                "pattern": {"Regex": "(" * 5000 + "a" + ")*" * 5000},
                "behavior": "Isolated",
                "invert": False,
            },
        )
    ),
    "a long literal": json.dumps(
        maker.changed(
            maker.minimal(),
            pre_tokenizer={
                "type": "Split",
                "pattern": {"String": "ab" * 50_000},
                "behavior": "Isolated",
                "invert": False,
            },
        )
    ),
    "padding to a billion": json.dumps(
        maker.changed(
            maker.minimal(),
            padding={
                "strategy": {"Fixed": 10**9},
                "direction": "Right",
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "a",
            },
        )
    ),
    "a growing replacement": json.dumps(
        maker.changed(
            maker.minimal(),
            normalizer={
                "type": "Sequence",
                "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}] * 6,
            },
            added_tokens=[added("aaaaaaaa", normalized=True)],
        )
    ),
    "a million stages": json.dumps(
        maker.changed(
            maker.minimal(),
            pre_tokenizer={
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": f"x{k}"}, "behavior": "Isolated", "invert": False}
                    for k in range(2000)
                ],
            },
        )
    ),
    "a long token": json.dumps(
        maker.changed(maker.minimal(), model__vocab={"a": 0, "b": 1, "ab" * 500_000: 2}, model__merges=[])
    ),
    "a large template": json.dumps(
        maker.changed(
            maker.minimal(),
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "X", "type_id": 0}}] * 5000
                + [{"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [],
                "special_tokens": {"X": {"id": "X", "ids": [0] * 1000, "tokens": ["a"] * 1000}},
            },
        )
    ),
}


@pytest.mark.parametrize("case", BOMBS)
def test_bombs_end_in_bounded_time_and_memory(case: str, tmp_path: Path) -> None:
    code = """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        from toktier.errors import ToktierError
        from toktier.program.compile import compile_tokenizer
        try:
            print("compiled", len(compile_tokenizer(open(sys.argv[1], "rb").read())))
        except ToktierError as error:
            print(error.code, error.message[:300].replace(chr(10), " "))
        """
    (tmp_path / "bomb.json").write_text(BOMBS[case], encoding="utf-8")
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "bomb.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    word = done.stdout.split()[0]
    assert word in ("compiled", "PROGRAM_UNSUPPORTED", "ARTIFACT_DAMAGED", "NOT_A_TOKENIZER", "UNSUPPORTED_CONFIG")
    if word == "compiled":
        assert int(done.stdout.split()[1]) < 300_000_000
