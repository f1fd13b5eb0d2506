"""The engines of others themselves, in the versions of the extra `backends`: which files they take, what they answer.

`dev.py test --tier ci` puts them in a place of their own and demands them (THIRD_PARTY_ENGINES=required); elsewhere
these tests skip. What is done with their answers and faults is tested without them (test_third_party.py).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import toktier
from tests.support.material import SHARED, SMALL_DIR, Artifacts
from tests.support.vocabulary_files import ranks, said, tekken, tokens
from toktier import Config, Tokenizer, ToktierWarning
from toktier.backends.foreign_errors import foreign_errors
from toktier.errors import BackendExecutionFault, BackendUnavailable, UnsupportedConfig
from toktier.routing.vocabulary import THIRD_PARTY, BackendId

pytestmark = pytest.mark.ci

NAMES = [backend.value for backend in THIRD_PARTY]
FAST, BASE, GIGA = NAMES
TEXTS = (
    "Hello, world! It's 1234 tests.\n\n  x", "déjà vu ﬁ ①", "你好，世界 🤔👩‍👩‍👧", "<|im_start|>user\nhi<|im_end|>",
    "   leading\t\ttabs \u00a0nbsp", "e\u0301 \u1100\u1161 क्षि", "a" * 100 + " " * 50, "\x00\x01 control \u200b", "",
    "<s>x</s> <|endoftext|><｜begin▁of▁sentence｜>",
)  # fmt: skip
# Files that an engine refuses, and a part of what it says; it takes the others.
REFUSED = {
    "claude": dict.fromkeys(NAMES, "normalizer type: NFKC"),
    "gpt35turbo": dict.fromkeys((FAST, BASE), "model type: Other"),
    "gpt4o": dict.fromkeys((FAST, BASE), "model type: Other"),
    "gemini": {BASE: "normalizer type: Replace"},
    "gemma3": {BASE: "normalizer type: Replace"},
    "llama2": {BASE: "normalizer type: Prepend"},
}
IN_CI = ("claude", "llama2", "qwen3")  # the others take a second and more each


@pytest.fixture(autouse=True, scope="module")
def engines() -> None:
    missing = [name for name in NAMES if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"needs {', '.join(missing)} (extra backends)"
        if os.environ.get("THIRD_PARTY_ENGINES") == "required":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    if SHARED is None:
        pytest.skip("needs the real tokenizer files of ../shared")
    return Artifacts(SHARED, tmp_path_factory.mktemp("artifacts"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@functools.cache
def strict(path: Path, name: str, home: Path, **more: Any) -> Tokenizer:
    """By the engine or not at all; each loaded once."""
    config = Config(home=home, tokenizer_fallback=False)
    return toktier.from_file(path, policy="experimental", tokenizer=name, config=config, **more)


def check_file(path: Path, artifact: str, home: Path) -> None:
    """What every engine makes of one file: the ids of the reference, or the reason for which the reference serves."""
    reference = tokenizers.Tokenizer.from_file(str(path))
    expected = [reference.encode(text, add_special_tokens=add).ids for text in TEXTS for add in (False, True)]
    for name in NAMES:
        reason = REFUSED.get(artifact, {}).get(name)
        if reason is None:
            tok, by = strict(path, name, home), name
        else:
            with pytest.raises(BackendUnavailable, match=reason):
                strict(path, name, home)
            with pytest.warns(ToktierWarning, match=reason) as caught:
                tok = toktier.from_file(path, policy="experimental", tokenizer=name, config=Config(home=home))
            assert len(caught) == 1
            by = "hf"
        got = [tok.encode(text, add) for text in TEXTS for add in (False, True)]
        assert {encoding.backend for encoding in got} == {by}
        assert [encoding.ids for encoding in got] == expected
        assert [row.ids for row in tok.encode_batch(TEXTS)] == expected[::2]
        report = tok.explain(summary=True)
        assert (report["backend"], report["exact_id_guarantee"]) == (by, by == "hf")


@pytest.mark.parametrize("artifact", IN_CI)
def test_a_file_is_refused_for_a_reason_or_has_the_ids_of_the_reference(
    artifacts: Artifacts, artifact: str, home: Path
) -> None:
    check_file(artifacts.path(artifact), artifact, home)


@pytest.mark.full
def test_so_is_every_other_file(artifacts: Artifacts, home: Path) -> None:
    for artifact in artifacts.names:
        if artifact not in IN_CI:
            check_file(artifacts.path(artifact), artifact, home)


def test_segments(artifacts: Artifacts, home: Path) -> None:
    """Control tokens that a user typed are text. Where non-special added tokens stand in what a user wrote, the engines
    read them as text too; here they count, as they do for the reference that is told to take special ones as text."""
    path = artifacts.path("qwen3")
    ours = toktier.from_file(path, policy="supported", tokenizer="fast_cpu", config=Config(home=home))
    asked = [("<|im_start|>user\n", True), ("<|im_end|>", False)]
    mixed = [(text, bool(n % 2)) for n, text in enumerate(TEXTS)]
    marked = [("x <tool_call>", False)]
    assert ours.encode_segments(asked).ids == [151644, 872, 198, 27, 91, 318, 6213, 91, 29]
    for name in (FAST, BASE):
        tok = strict(path, name, home)
        for parts in (asked, mixed, [("a" * 500_000, False)]):
            assert tok.encode_segments(parts).ids == ours.encode_segments(parts).ids
        assert (
            tok.encode("x <tool_call><|im_end|>", plain=True).ids
            == ours.encode("x <tool_call><|im_end|>", plain=True).ids
        )
        assert 151657 in ours.encode_segments(marked).ids
        assert 151657 not in tok.encode_segments(marked).ids
    with pytest.raises(UnsupportedConfig, match=GIGA):
        strict(path, GIGA, home).encode_segments(asked)


@pytest.mark.parametrize("name", NAMES)
def test_decoding_and_streams_are_those_of_the_reference(name: str, home: Path) -> None:
    """Rows that no text need give: characters in parts, byte tokens, special ones, ids beyond the vocabulary."""
    file = "deepseek_like" if name == BASE else "llama_like"  # with byte fallback, which basetenkenizer refuses
    path = SMALL_DIR / f"{file}.json"
    reference, tok = tokenizers.Tokenizer.from_file(str(path)), strict(path, name, home)
    size, rng = reference.get_vocab_size(), random.Random(7)
    byte_tokens = [i for b in range(256) if (i := reference.token_to_id(f"<0x{b:02X}>")) is not None]
    assert bool(byte_tokens) == (name != BASE)
    for _ in range(600):
        pool = byte_tokens if byte_tokens and rng.random() < 0.5 else range(size + 3)
        ids = [rng.choice(pool) for _ in range(rng.randint(1, 9))]
        for skip in (True, False):
            assert tok.decode(ids, skip) == reference.decode(ids, skip_special_tokens=skip), ids
        mine, theirs = tok.decode_stream(), tokenizers.decoders.DecodeStream(skip_special_tokens=False)
        for token in ids:
            try:
                expected = theirs.step(reference, token)
            except Exception:  # the reference's stream ends there, ours goes on
                break
            assert mine.step(token) == expected, ids
    calls = tok.explain()["counters"]["decode_calls"]
    assert calls[name] > 0 if name == BASE else calls["hf"] > 0 and calls[name] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_special_token_of_the_side_file_is_one_for_every_engine(name: str, home: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes((SMALL_DIR / "cl100k_like.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(
        '{"added_tokens_decoder": {"1300": {"content": "<|side|>", "special": true}}}'
    )
    tok = strict(path, name, home, sidecar="merge")
    encoding = tok.encode("a<|side|>b")
    assert encoding.backend == name
    assert tok.special_tokens["<|side|>"] in encoding.ids
    assert tok.decode(encoding, True) == "ab"


def test_converted_vocabularies(home: Path, tmp_path: Path) -> None:
    """fastokens and basetenkenizer refuse a vocabulary whose ids have gaps."""
    path = ranks(tmp_path / "x.tiktoken")
    text = "Hello <|end|> wörld <s>"
    for special, refusing in (({"<|end|>": len(tokens())}, []), ({"<|end|>": len(tokens()) + 7}, [FAST, BASE])):
        said(path, special_tokens=special)
        for file in (path, tekken(tmp_path / "tekken.json")):
            config = Config(home=home)
            expected = toktier.from_file(file, tokenizer="hf", config=config).encode(text).ids
            for name in NAMES:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    tok = toktier.from_file(file, policy="experimental", tokenizer=name, config=config)
                encoding = tok.encode(text)
                by = "hf" if file is path and name in refusing else name
                assert (encoding.ids, encoding.backend) == (expected, by)


def test_a_real_panic_is_an_error_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    gigatoken = importlib.import_module("gigatoken")
    engine = gigatoken.Tokenizer.from_json((SMALL_DIR / "cl100k_like.json").read_bytes())
    with pytest.raises(BaseException) as bare:  # noqa: PT011 that it is no Exception is what is shown
        engine.decode([10**9])
    assert not isinstance(bare.value, Exception)
    with pytest.raises(BackendExecutionFault, match="out of bounds"), foreign_errors(GIGA, GIGA, "decode", "none"):
        engine.decode([10**9])


@pytest.mark.parametrize("name", NAMES)
def test_threads_share_one(name: str, home: Path) -> None:
    tok = strict(SMALL_DIR / "o200k_like.json", name, home)
    texts = [f"{n} " + "words, 漢字 and é" * n for n in range(60)]
    expected = [tok.encode(text).ids for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: tok.encode(text).ids, texts * 4)) == expected * 4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", ["the tokenizer that ran", "another tokenizer", "one loaded in the child"])
def test_no_child_waits_for_threads_that_it_has_not(name: str, by: str, home: Path) -> None:
    """basetenkenizer's own call hangs in such a child for ever."""

    def opened() -> Tokenizer:
        return toktier.from_file(
            SMALL_DIR / "o200k_like.json", policy="experimental", tokenizer=name, config=Config(home=home)
        )

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran, other = opened(), opened()
    text = "The quick brown fox jumps. 你好 " * 2_000
    expected = ran.encode(text).ids
    assert ran.encode(text).backend == name
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        warnings.simplefilter("ignore")
        tok = {"the tokenizer that ran": lambda: ran, "another tokenizer": lambda: other}.get(by, opened)()
        encoding, rows = tok.encode(text), tok.encode_batch([text] * 4)
        os._exit(0 if (encoding.backend, encoding.ids, rows.backend) == ("hf", expected, "hf") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_installed_versions_are_those_that_were_measured() -> None:
    import tomllib
    from importlib import metadata

    from tests.support.material import ROOT

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["backends"] == [f"{name}=={metadata.version(name)}" for name in NAMES]
    assert [BackendId(name) for name in NAMES] == list(THIRD_PARTY)
