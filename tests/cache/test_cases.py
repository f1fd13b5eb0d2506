"""Cases A1 to A32 and B7 of ../shared/cases/serving.md, with the figures that stand there."""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Reference
from tokenizers.processors import TemplateProcessing

from tests.cache.backends import IM, LOOK_ALIKES, S2, UNSAFE, Bytes, Watched, chatml, word_level
from tests.support.material import SMALL_DIR, Artifacts
from tests.support.native_tokenizers import native_file
from toktier import Tokenizer
from toktier.cache import PrefixCache, PrefixStorage
from toktier.errors import ToktierWarning, UnsupportedConfig

FIXED = [(0, 136), *((126, 130 + 120 * i) for i in range(9))]
RESERVED = [f"<|reserved_special_token_{i}|>" for i in range(251)]
GROWING = [(0, 136), *((126 + 120 * i, 130) for i in range(9))]


@pytest.fixture(scope="module")
def qwen3(artifacts: Artifacts) -> Tokenizer:
    return native_file(artifacts.path("qwen3"))


def run(inner: Any, specials: list[str] | None, texts: list[str], **more: Any) -> Watched:
    seen = Watched(inner, specials, **more)
    for text in texts:
        assert list(seen.cache.encode(text)) == list(inner.encode(text))
    return seen


def test_a1_without_extension_hits_stay_at_the_first_turn() -> None:
    seen = run(Bytes(), IM, chatml(10), extend=False)
    assert seen.numbers("hits", "misses", "entries", "bytes") == (9, 1, 5, 1512)
    assert seen.usage == FIXED


def test_a2_with_extension_each_turn_pays_for_itself() -> None:
    seen = run(Bytes(), IM, chatml(10))
    assert seen.numbers("hits", "misses", "entries", "bytes") == (9, 1, 14, 27648)
    assert seen.usage == GROWING


@pytest.mark.ci
@pytest.mark.parametrize("engine", ["fast_cpu", "reference"])
def test_a3_and_b7_the_same_figures_over_any_backend(qwen3: Tokenizer, artifacts: Artifacts, engine: str) -> None:
    inner = qwen3 if engine == "fast_cpu" else Reference.from_file(str(artifacts.path("qwen3")))

    class Direct:
        special_tokens = tuple(IM)

        def encode(self, text: str, add_special_tokens: bool = False) -> Any:
            return inner.encode(text, add_special_tokens=add_special_tokens)

    for backend in (inner, Direct()):
        off = Watched(backend, IM, extend=False)
        on = Watched(backend, IM)
        for text in chatml(10):
            want = list(qwen3.encode(text))
            assert list(off.cache.encode(text)) == want == list(on.cache.encode(text))
        assert off.numbers("hits", "misses", "entries", "bytes") == (9, 1, 5, 276)
        assert off.usage == [(0, 26), *((24, 26 + 24 * i) for i in range(9))]
        assert on.numbers("hits", "misses", "entries", "bytes") == (9, 1, 14, 5460)
        assert on.usage == [(0, 26), *((24 + 24 * i, 26) for i in range(9))]


def test_a4_a_full_hit_inserts_nothing() -> None:
    seen = run(Bytes(), IM, [text for text in chatml(10) for _ in range(2)])
    assert seen.numbers("hits", "misses", "entries") == (19, 1, 14)


@pytest.mark.ci
def test_a5_users_share_the_system_prompt(qwen3: Tokenizer) -> None:
    texts = [
        f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        for user in ("alpha", "beta", "gamma")
    ]
    seen = run(qwen3, IM, texts)
    assert seen.numbers("hits", "misses", "entries") == (2, 1, 7)
    assert seen.usage == [(0, 17), (9, 8), (9, 8)]


@pytest.mark.parametrize(
    ("text", "entries", "size", "hits"),
    [
        ("", 0, 0, 0),
        ("plain text", 0, 0, 0),
        ("<s>", 0, 0, 0),
        ("<s>x", 1, 12, 1),
        ("<s>hello</s>tail", 2, 60, 1),
        ("<s>hello</s>", 1, 12, 1),
        ("a<s>b</s>c<s>d", 3, 104, 1),
        ("<s></s>", 1, 12, 1),
        ("</s><s>x", 2, 44, 1),
    ],
)
def test_a6_single_texts(text: str, entries: int, size: int, hits: int) -> None:
    seen = run(Bytes(), S2, [text])
    assert seen.numbers("hits", "misses", "entries", "bytes") == (0, 1, entries, size)
    seen.cache.encode(text)
    assert seen.numbers("hits", "misses", "entries", "bytes") == (hits, 2 - hits, entries, size)


@pytest.mark.parametrize(
    ("extend", "entries", "size", "usage"),
    [(False, 3, 232, [(0, 37), (29, 36), (29, 53)]), (True, 5, 764, [(0, 37), (29, 36), (61, 21)])],
)
def test_a7_texts_beyond_ascii(extend: bool, entries: int, size: int, usage: list[tuple[int, int]]) -> None:
    first = "<s>system\nHello 世界</s><s>user\nOne"
    second = first + "</s><s>assistant\nTwo</s>tail"
    seen = run(Bytes(), S2, [first, second, second + "</s><s>user\nThree"], extend=extend)
    assert seen.numbers("hits", "misses", "entries", "bytes") == (2, 1, entries, size)
    assert seen.usage == usage


def test_a8_an_extension_stores_the_deepest_boundary_alone() -> None:
    seen = run(Bytes(), S2, ["<s>seed", "<s>世界", "<s>世界</s>"])
    assert seen.numbers("entries") == (1,)
    seen.cache.encode("<s>世界</s><s>tail")
    assert seen.numbers("entries") == (2,)
    for deeper, known in (("<s>世界</s>x", 3), ("<s>世界</s><s>x", 16)):
        other = PrefixCache(Bytes(), S2, namespace=seen.cache.namespace, storage=seen.cache.storage, extend=False)
        other.encode(deeper)
        assert other.stats()["cached_tokens"] == known


@pytest.mark.parametrize("specials", [[], [""]])
def test_a9_without_specials_everything_is_the_backend(specials: list[str]) -> None:
    inner = Bytes()
    with pytest.warns(ToktierWarning, match="no special tokens"):
        seen = Watched(inner, specials)
    assert list(seen.cache.encode("<s>x")) == inner.encode("<s>x")
    assert seen.cache.encode_batch(["a", "b"]) == [[97], [98]]
    assert inner.batches == 1
    assert seen.numbers("hits", "misses", "entries") == (0, 0, 0)
    assert seen.events == []
    assert seen.usage == []


@pytest.mark.parametrize(
    "specials",
    [["〈|", "〈|EOS|〉"], ["ab", "bc"], ["|◊|"], ["<s>", "<s>x"], ["aa"], ["<|a|>", "|>"]],
)
def test_a10_overlapping_specials_switch_it_off(specials: list[str]) -> None:
    inner = Bytes()
    with pytest.warns(ToktierWarning) as caught:
        seen = Watched(inner, specials)
    assert len(caught) == 1
    assert all(repr(special) in str(caught[0].message) for special in specials)
    text = "x".join(specials)
    assert list(seen.cache.encode(text)) == inner.encode(text)
    assert seen.numbers("hits", "misses", "entries", "bytes") == (0, 0, 0, 0)
    assert "overlap" in seen.cache.stats()["disabled"]
    assert "overlap" in seen.cache.explain()["disabled"]
    assert (seen.events, seen.usage) == ([], [])


@pytest.mark.parametrize(
    "specials",
    [
        ["<s>", "<s>"],
        IM,
        S2,
        ["[INST]", "[/INST]"],
        ["", "<s>"],
        [f"<|reserved_special_token_{i}|>" for i in range(251)],
    ],
    ids=["twice", "chatml", "s", "inst", "empty", "reserved"],
)
def test_a11_sets_that_stay_on(specials: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = Watched(Bytes(), specials)
    assert seen.cache.enabled
    text = "a".join([*specials, "b"])
    assert list(seen.cache.encode(text)) == list(text.encode())
    assert seen.numbers("entries") == (sum(bool(special) for special in specials),)


def test_a12_a_real_tokenizer_with_overlapping_specials() -> None:
    specials = ["〈|EOS|〉", "〈|", "|〉"]
    ids = dict(zip(specials, (2, 14, 15), strict=True))
    inner = word_level({"EOS": 3, **ids}, *(AddedToken(s, normalized=False) for s in specials))
    with pytest.warns(ToktierWarning):
        cache = PrefixCache(inner)
    assert cache.encode("〈|EOS|〉").ids == [2]
    assert cache.encode("〈|EOS|〉").ids == [2]


def test_a13_wrappers_share_a_storage() -> None:
    storage = PrefixStorage()
    text = "<s>hello</s>tail"
    a = Watched(Bytes(), S2, namespace="model-a", storage=storage)
    assert a.cache.encode(text) == list(text.encode())
    assert a.numbers("hits", "misses") == (0, 1)
    a = Watched(Bytes(), S2, namespace="model-a", storage=storage)
    assert a.cache.encode(text) == list(text.encode())
    assert a.numbers("hits", "misses") == (1, 0)
    b = Watched(Bytes(256), S2, namespace="model-b", storage=storage)
    assert b.cache.encode(text) == [byte + 256 for byte in text.encode()]
    assert b.numbers("hits", "misses") == (0, 1)
    both = [a.numbers("entries", "bytes"), b.numbers("entries", "bytes")]
    assert storage.stats()["entries"] == both[0][0] + both[1][0]
    assert storage.stats()["bytes"] == both[0][1] + both[1][1]
    assert Watched(Bytes(), S2, namespace="unused", storage=storage).numbers("entries", "bytes") == (0, 0)


@pytest.mark.parametrize("specials", [[], ["<s>", "<s>x"]])
def test_a14_a_disabled_wrapper_reports_nothing_of_a_shared_storage(specials: list[str]) -> None:
    storage = PrefixStorage()
    Watched(Bytes(), S2, namespace="n", storage=storage).cache.encode("<s>hello</s>tail")
    before = storage.stats()
    with pytest.warns(ToktierWarning):
        off = Watched(Bytes(), specials, namespace="n", storage=storage)
    off.cache.encode("<s>hello</s>tail")
    assert off.numbers("entries", "bytes", "hit_rate") == (0, 0, 0.0)
    assert storage.stats() == before


def test_a15_namespace_and_prefix_never_run_together() -> None:
    storage = PrefixStorage()
    for offset, (name, text) in enumerate((("", "abc<s>x"), ("a", "bc<s>x"), ("ab", "c<s>x"))):
        inner = Bytes(offset * 256)
        seen = Watched(inner, S2, namespace=name, storage=storage)
        assert seen.cache.encode(text) == inner.encode(text)
        assert seen.numbers("hits", "misses", "entries") == (0, 1, 1)


@pytest.mark.parametrize("capacity", [0, 4096])
def test_a16_threads_and_namespaces_under_a_small_budget(capacity: int) -> None:
    storage = PrefixStorage(capacity)
    wrong: list[str] = []

    def work(thread: int) -> None:
        for space in range(4):
            inner = Bytes(space * 256)
            cache = PrefixCache(inner, S2, namespace=f"n{space}", storage=storage)
            for i in range(100):
                text = f"<s>system {i % 7}</s><s>user {thread} {i}</s>tail"
                if list(cache.encode(text)) != [byte + space * 256 for byte in text.encode()]:
                    wrong.append(text)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    stats = storage.stats()
    assert stats["bytes"] <= capacity
    assert (stats["entries"] > 0) == (capacity > 0)


def test_a17_many_conversations_in_four_kilobytes() -> None:
    cache = PrefixCache(Bytes(), IM, capacity=4096)
    for number in range(50):
        for text in chatml(4):
            text = text.replace("helpful", f"helpful {number}")
            assert cache.encode(text) == list(text.encode())
            assert cache.storage.stats()["bytes"] <= 4096
    assert cache.storage.stats()["evicted"] + cache.storage.stats()["refused"] > 0


def test_a18_a_prefix_heavier_than_the_budget_is_never_stored() -> None:
    cache = PrefixCache(Bytes(), S2, capacity=64)
    text = "x" * 1000 + "<s>tail"
    for _ in range(2):
        assert cache.encode(text) == list(text.encode())
    assert cache.stats()["entries"] == 0
    assert cache.stats()["misses"] == 2


class WithSegments(Bytes):
    def encode_segments(self, segments: Any) -> list[int]:
        return [byte for text, special in segments for byte in (text if special else text.upper()).encode()]


def test_a19_segments_pass_through() -> None:
    segments = [("<ctl>", True), ("user content", False)]
    inner = WithSegments()
    seen = Watched(inner, ["<ctl>"])
    assert seen.cache.encode_segments(segments) == inner.encode_segments(segments)
    assert seen.usage == [(0, 17)]
    with pytest.warns(ToktierWarning):
        off = Watched(inner, [])
    off.cache.encode_segments(segments)
    assert off.usage == []
    for watched in (seen, off):
        assert watched.numbers("entries", "hits", "misses") == (0, 0, 0)
        assert watched.events == []


@pytest.mark.ci
def test_a20_segments_of_our_engine_and_a_backend_without(qwen3: Tokenizer) -> None:
    segments = [("<|im_start|>user\n", True), ("<|im_end|>", False)]
    got = PrefixCache(qwen3).encode_segments(segments)
    assert got == [151644, 872, 198, 27, 91, 318, 6213, 91, 29]
    with pytest.raises(UnsupportedConfig):
        PrefixCache(Bytes(), IM).encode_segments(segments)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a21_a_failing_segment_keeps_those_before_it(failing: int) -> None:
    text = "<s>世界</s><s>tail"
    inner = Bytes()
    seen = Watched(inner, S2)
    inner.arm(failing)
    with pytest.raises(RuntimeError, match=f"call {failing}"):
        seen.cache.encode(text)
    assert seen.numbers("entries") == (failing - 1,)
    assert seen.usage == []
    inner.arm()
    assert seen.cache.encode(text) == list(text.encode())
    assert len(seen.usage) == 1


@pytest.mark.parametrize("failing", [1, 2])
def test_a21_a_failing_extension_inserts_nothing(failing: int) -> None:
    inner = Bytes()
    seen = Watched(inner, S2)
    seen.cache.encode("<s>世界</s>tail")
    before = seen.numbers("entries", "bytes")
    usage = list(seen.usage)
    inner.arm(failing)
    with pytest.raises(RuntimeError):
        seen.cache.encode("<s>世界</s><s>more</s>tail")
    assert seen.numbers("entries", "bytes") == before
    assert seen.usage == usage
    assert seen.events == ["miss", "hit"]


def with_template() -> Reference:
    specials = [AddedToken(s, normalized=False) for s in ("<s>", "</s>")]
    inner = word_level({"<s>": 1, "</s>": 2, "hello": 3}, *specials)
    inner.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return inner


def test_a22_a_template_is_put_around_the_whole_once() -> None:
    text = "hello<s>hello</s>hello"
    inner = with_template()
    want = inner.encode(text, add_special_tokens=True).ids
    cache = PrefixCache(inner)
    for _ in range(3):
        assert cache.encode(text, add_special_tokens=True).ids == want == [1, 3, 1, 3, 2, 3, 2]
        assert cache.encode(text).ids == want[1:-1]
    assert [list(row) for row in cache.encode_batch([text] * 2, True)] == [want] * 2

    class Always:
        special_tokens = ("<s>", "</s>")

        def encode(self, text: str) -> list[int]:
            ids: list[int] = inner.encode(text, add_special_tokens=True).ids
            return ids

    with pytest.warns(ToktierWarning, match="empty text") as caught:
        always = PrefixCache(Always())
    assert len(caught) == 1
    for _ in range(3):
        assert always.encode(text).ids == want
    assert [list(row) for row in always.encode_batch([text] * 2)] == [want] * 2


@pytest.mark.ci
@pytest.mark.parametrize("name", ["llama3", "qwen3"])
def test_a22_our_engine_is_cached_with_its_template(artifacts: Artifacts, name: str) -> None:
    tokenizer = native_file(artifacts.path(name))
    special = next(iter(tokenizer.special_tokens))
    seen = Watched(tokenizer)
    for text in ("one" + special + "two", "one" + special + "two" + special + "three"):
        for _ in range(2):
            for flag in (True, False):
                assert seen.cache.encode(text, flag) == tokenizer.encode(text, flag)
    assert seen.numbers("hits", "misses", "unplaced") == (6, 2, 0)


def test_a23_a_batch_shares_as_it_goes() -> None:
    head = "<s>system\nShared persona.</s><s>user\n"
    texts = [head + "abcdef", head + "ghijkl", head + "mnopqr"]
    seen = Watched(Bytes(), S2)
    rows = seen.cache.encode_batch(texts)
    assert [list(row) for row in rows] == [list(text.encode()) for text in texts]
    assert seen.numbers("hits", "misses") == (2, 1)
    assert seen.usage == [(0, 43), (32, 11), (32, 11)]


def test_a24_threads_grow_one_conversation() -> None:
    cache = PrefixCache(Bytes(), IM)
    texts = chatml(20)
    wrong: list[str] = []

    def work() -> None:
        wrong.extend(text for text in texts if list(cache.encode(text)) != list(text.encode()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    stats = cache.stats()
    assert stats["hits"] + stats["misses"] == 8 * 20
    assert stats["cached_tokens"] + stats["uncached_tokens"] == 8 * sum(len(text.encode()) for text in texts)


def test_a25_observers() -> None:
    seen = run(Bytes(), IM, chatml(3))
    assert seen.events == ["miss", "hit", "hit"]
    assert [cached + uncached for cached, uncached in seen.usage] == [len(text) for text in chatml(3)]
    others: list[str] = []
    seen.cache.on_hit = lambda: others.append("other")
    seen.cache.on_tokens = None
    seen.cache.encode(chatml(3)[2])
    assert others == ["other"]
    assert len(seen.events) == len(seen.usage) == 3


@pytest.mark.parametrize("name", sorted(UNSAFE))
def test_a26_unsafe_tokens_give_the_ids_of_the_whole(name: str) -> None:
    make, ids = UNSAFE[name]
    inner, text = make()
    with pytest.warns(ToktierWarning):
        cache = PrefixCache(inner)
    for _ in range(3):
        assert cache.encode(text).ids == ids == inner.encode(text).ids
    explained = cache.explain()
    assert explained["disabled"] == cache.stats()["disabled"]
    assert explained["disabled"] is not None


@pytest.mark.parametrize("name", sorted(UNSAFE))
def test_a26_an_unknown_backend_is_probed(name: str) -> None:
    make, ids = UNSAFE[name]
    inner, text = make()

    class Opaque:
        special_tokens = ("<s>",)

        def encode(self, text: str) -> list[int]:
            found: list[int] = inner.encode(text).ids
            return found

    with pytest.warns(ToktierWarning):
        cache = PrefixCache(Opaque())
    for _ in range(3):
        assert cache.encode(text).ids == ids


@pytest.mark.parametrize("name", sorted(LOOK_ALIKES))
def test_a27_look_alikes_are_cached(name: str) -> None:
    inner = LOOK_ALIKES[name]()
    seen = Watched(inner)
    texts = [
        "hello<s>world",
        "hello<s> world",
        " hello <s> hello<s>world ",
        "hello<S>world",
        "<S><s>hello",
        "<s><s>world",
    ]
    for text in texts * 2:
        assert seen.cache.encode(text).ids == inner.encode(text).ids
    assert seen.cache.stats()["hits"] >= len(texts) - 1


def test_a29_markup_that_is_no_special_token_is_no_boundary() -> None:
    tokens = [AddedToken(s, normalized=False) for s in IM]
    inner = word_level(dict.fromkeys(IM, 1) | {"<|im_end|>": 2}, *tokens)
    inner.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    counts = []
    for call in ("call", "<tool_call>call</tool_call>"):
        seen = run(_Ids(inner), IM, [f"<|im_start|>user\n{call}<|im_end|>\n<|im_start|>assistant\n"])
        own = Watched(inner)
        text = f"<|im_start|>user\n{call}<|im_end|>\n<|im_start|>assistant\n"
        assert own.cache.encode(text).ids == inner.encode(text).ids
        counts.append((seen.numbers("entries"), own.numbers("entries")))
    assert counts[0] == counts[1] == ((3,), (3,))


class _Ids:
    """A tokenizer of the reference behind a plain call."""

    def __init__(self, inner: Reference) -> None:
        self.inner = inner

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.inner.encode(text, add_special_tokens=False).ids
        return ids


def test_a30_specials_of_several_bytes_a_character() -> None:
    specials = ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>"]
    text = f"{specials[0]}payload{specials[1]}tail"
    inner = Bytes()
    seen = Watched(inner, specials)
    inner.arm()
    assert seen.cache.encode(text) == list(text.encode())
    assert inner.calls == [specials[0], "payload" + specials[1], "tail"]
    assert seen.numbers("entries") == (2,)


def test_a31_tokens_of_the_side_file_are_boundaries(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes((SMALL_DIR / "gpt2_like.json").read_bytes())
    plain = native_file(path)
    start = max(plain.special_tokens.values(), default=0) + plain.vocab_size
    declared = {
        str(start): {"content": "<|side|>", "special": True, "normalized": False},
        str(start + 1): {"content": "<|not|>", "special": False, "normalized": False},
    }
    common = {"lstrip": False, "rstrip": False, "single_word": False}
    config = {"added_tokens_decoder": {i: {**common, **token} for i, token in declared.items()}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    merged = native_file(path, sidecar="merge")
    text = "one<|side|>two<|not|>three"
    seen = Watched(merged)
    for _ in range(2):
        ids = seen.cache.encode(text)
        assert ids == merged.encode(text)
    assert seen.numbers("hits", "misses", "entries") == (1, 1, 1)
    assert "<|side|>" in seen.cache.explain()["boundary_tokens"]
    assert "<|not|>" not in seen.cache.explain()["boundary_tokens"]
    decoded = seen.cache.decode(ids, skip_special_tokens=True)
    assert decoded == merged.decode(ids)
    assert "<|side|>" not in decoded
    assert "<|not|>" in decoded


def test_a32_decoding_is_the_backends() -> None:
    inner = Bytes()
    seen = Watched(inner, S2)
    ids = list(b"<s>x")
    assert seen.cache.decode(ids) == inner.decode(ids) == "<s>x"
    assert seen.numbers("hits", "misses", "entries", "bypassed") == (0, 0, 0, 0)
    assert seen.events == []
