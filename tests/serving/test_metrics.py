"""What a scrape says: equal to what was done, by frozen names, with as many series as the tables allow, and no more."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import toktier
from tests.serving.held_tokenizer import PATIENCE, HeldTokenizer
from tests.support import gpu_stand_in
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from toktier.cache import PrefixCache
from toktier.errors import ConfigInvalid, InvalidText, QueueFull
from toktier.routing.vocabulary import BackendId, Reason
from toktier.serving import Batcher, Limits
from toktier.serving.metrics import METRICS, Metrics

ROOT = Path(__file__).resolve().parents[2]


def scraped(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Value of each sample by its name and the values of its labels but `tokenizer`, from the text that is served."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = [value for name, value in sample.labels.items() if name != "tokenizer"]
            found[sample.name, *labels] = sample.value
    return found


def test_a_scrape_tells_what_was_done() -> None:
    tok = native_file(SMALL_DIR / "cl100k_like.json")
    registry = CollectorRegistry()
    Metrics(registry).watch(tok, "small")
    before = scraped(registry)
    assert before["toktier_encoded_texts_total", "fast_cpu"] == 0
    assert not any(name[0].startswith("toktier_batch") for name in before)  # it has no batcher yet
    long = "a text that is not inline " * 100
    tok.encode("one")
    tok.decode([1, 2])

    async def serve() -> None:
        await asyncio.gather(*(tok.aencode(long) for _ in range(10)))
        await tok.asession("s").append("hello")

    asyncio.run(serve())
    found = scraped(registry)
    tokens = len(tok.encode(long))
    assert found["toktier_encoded_texts_total", "fast_cpu"] == 1 + 10 + 1
    assert found["toktier_encoded_bytes_total", "fast_cpu"] == 3 + 10 * len(long) + 5
    assert found["toktier_decodings_total", "fast_cpu"] == 1
    assert found["toktier_session_changes_total",] == 1
    assert found["toktier_batched_texts_total",] == found["toktier_batch_size_texts_sum",] == 10
    assert found["toktier_batched_bytes_total",] == found["toktier_batch_size_bytes_sum",] == 10 * len(long)
    assert found["toktier_batched_tokens_total",] == 10 * tokens
    batches = found["toktier_batches_total", "cpu"]
    assert batches == found["toktier_batch_wait_seconds_count",] == found["toktier_batch_size_texts_bucket", "+Inf"]
    assert 0 < batches <= 10
    assert found["toktier_lone_calls_total",] == 1
    assert found["toktier_unanswered_texts",] == found["toktier_queued_calls",] == 0
    assert found["toktier_tokenizer_info", tok.artifact_sha256, "fast_cpu", tok.explain(summary=True)["status"]] == 1


def test_refusals_withdrawals_errors_and_what_waits_are_counted(held: HeldTokenizer) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    held.fails["poison"] = MemoryError()
    with Batcher(held, Limits(inline_bytes=0, queue_texts=4)) as batcher:
        metrics.watch(held.tokenizer, "small", batcher=batcher)
        batcher.submit("running")
        held.wait_for(1)
        poison, given_up = batcher.submit("poison"), batcher.submit("given up")
        batcher.submit("waits")
        with pytest.raises(QueueFull):
            batcher.submit("too many")
        found = scraped(registry)
        assert (found["toktier_unanswered_texts",], found["toktier_queued_calls",]) == (4, 3)
        assert found["toktier_unanswered_bytes",] == len("running" + "poison" + "given up" + "waits")
        assert found["toktier_refused_texts_total",] == 1
        given_up.cancel()
        held.gate.set()
        assert poison.exception(PATIENCE)
        batcher.submit("later").result(PATIENCE)
        found = scraped(registry)
    assert found["toktier_withdrawn_texts_total",] == 1
    assert found["toktier_failed_calls_total",] == 1
    assert found["toktier_batches_total", "split"] == 1


def test_what_the_reference_took_and_why_is_told(tmp_path: Path) -> None:
    tok = toktier.from_file(SMALL_DIR / "cl100k_like.json", tokenizer="hf")
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.watch(tok, "as asked")
    tok.encode_batch(["a", "b"])
    assert scraped(registry)["toktier_encoded_texts_total", "hf"] == 2
    document = json.loads((SMALL_DIR / "cl100k_like.json").read_text())
    document["model"]["dropout"] = 0.0
    document["pre_tokenizer"] = {"type": "BertPreTokenizer"}
    (tmp_path / "beyond.json").write_text(json.dumps(document))
    with pytest.warns(toktier.ToktierWarning):
        beyond = toktier.from_file(tmp_path / "beyond.json")
    metrics.watch(beyond, "as asked")  # the same name: in its place
    beyond.encode("a")
    assert scraped(registry)["toktier_reasons_total", Reason.PROGRAM_UNSUPPORTED.value] == 1


def test_a_gpu_is_told_as_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_stand_in.install(monkeypatch)
    tok = toktier.from_file(SMALL_DIR / "cl100k_like.json", policy="supported", gpu_min_bytes=1000)
    registry = CollectorRegistry()
    Metrics(registry).watch(tok, "small")
    assert scraped(registry)["toktier_gpu_loaded",] == 0
    tok.encode("long " * 400)
    found = scraped(registry)
    assert (found["toktier_gpu_loaded",], found["toktier_gpu_faults_total",]) == (1, 0)
    assert found["toktier_encoded_texts_total", "gpu"] == 1


@pytest.mark.parametrize("own", [False, True])
def test_a_prefix_cache_is_told(own: bool) -> None:
    tok = native_file(SMALL_DIR / "llama_like.json", prefix_cache=1 << 20 if own else None)
    cache = PrefixCache(tok)
    special = next(iter(tok.special_tokens))
    registry = CollectorRegistry()
    Metrics(registry).watch(tok, "small", prefix_cache=None if own else cache)
    for turns in (1, 2):
        text = f"where are the boats? {'on the beach ' * 100}{special}" * turns + "on the beach"
        (tok if own else cache).encode(text)
    found, stats = scraped(registry), tok.explain()["prefix_cache"]["stats"] if own else cache.stats()
    assert (found["toktier_prefix_cache_hits_total",], found["toktier_prefix_cache_misses_total",]) == (1, 1)
    for name in ("cached_tokens", "uncached_tokens", "bypassed"):
        assert found[f"toktier_prefix_cache_{name}_total",] == stats[name]
    for name in ("entries", "bytes", "resident_bytes"):
        assert found[f"toktier_prefix_cache_{name}",] == stats[name] > 0


def test_names_types_and_helps_are_of_the_table_and_stay() -> None:
    """A name that a dashboard asks for may come, never go or change its kind: this list only grows."""
    registry = CollectorRegistry()
    Metrics(registry)
    told = generate_latest(registry).decode().splitlines()
    types = dict(line.split()[2:] for line in told if line.startswith("# TYPE"))
    assert types == {m.name + ("_total" if m.kind == "counter" else ""): m.kind for m in METRICS}
    helps = [line for line in told if line.startswith("# HELP")]
    assert len(helps) == len(METRICS) == len({m.name for m in METRICS})
    assert all(m.help.endswith(".") and len(m.help) < 100 for m in METRICS)
    assert all(m.name.startswith("toktier_") and m.name.endswith(m.unit) for m in METRICS)
    names = {m.name for m in METRICS}
    assert {
        "toktier_encoded_texts", "toktier_encoded_bytes", "toktier_batched_tokens", "toktier_reasons",
        "toktier_session_changes", "toktier_batch_size_texts", "toktier_batch_wait_seconds", "toktier_queued_calls",
        "toktier_refused_texts", "toktier_gpu_loaded", "toktier_prefix_cache_hits", "toktier_prefix_cache_misses",
        "toktier_prefix_cache_cached_tokens", "toktier_prefix_cache_uncached_tokens",
    } <= names  # fmt: skip


def test_series_are_bounded_whatever_texts_sessions_and_callers_do(tok: toktier.Tokenizer) -> None:
    registry = CollectorRegistry()
    Metrics(registry).watch(tok, "small")

    async def serve(number: int) -> None:
        await asyncio.gather(*(tok.asession(f"s{number}-{i}").append(f"text {i}") for i in range(20)))
        with pytest.raises(InvalidText):
            await tok.aencode("\ud800" * number)

    asyncio.run(serve(1))
    series = set(scraped(registry))
    asyncio.run(serve(2))
    assert set(scraped(registry)) == series
    values = {value for name, *labels in series if not name.endswith("_bucket") for value in labels}
    known = {b.value for b in BackendId} | {r.value for r in Reason} | {"cpu", "split"}
    assert values <= known | {tok.artifact_sha256, tok.explain(summary=True)["status"]}


def test_a_registry_has_one_and_it_keeps_nobody_alive() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    with pytest.raises(ConfigInvalid, match="one Metrics for each registry"):
        Metrics(registry)
    tok = native_file(SMALL_DIR / "gpt2_like.json")
    metrics.watch(tok, "small")
    with pytest.raises(ConfigInvalid):
        metrics.watch(tok, "")
    assert scraped(registry)
    metrics.unwatch("small")
    metrics.unwatch("small")
    assert not scraped(registry)
    metrics.watch(tok, "small")
    del tok
    gc.collect()
    assert not scraped(registry)
    metrics.close()
    Metrics(registry)


def test_without_the_extra_the_remedy_names_it() -> None:
    script = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import toktier.serving\n"
        "try: import toktier.serving.metrics\n"
        "except toktier.errors.BackendUnavailable as error: print(error.remedy)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout == "pip install prometheus-client\n", ran.stderr


def test_what_cannot_be_watched_is_refused_at_once_and_every_scrape_goes_on(tok: toktier.Tokenizer) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.watch(tok, "small")
    for given, said in (
        ({"tokenizer": PrefixCache(tok)}, "tokenizer must be a Tokenizer, not PrefixCache"),
        ({"tokenizer": "small"}, "tokenizer must be a Tokenizer, not str"),
        ({"batcher": tok}, "batcher must be a Batcher, not Tokenizer"),
        ({"prefix_cache": 1 << 20}, "prefix_cache must be a PrefixCache, not int"),
    ):
        with pytest.raises(TypeError, match=said):
            metrics.watch(**({"tokenizer": tok, "name": "other"} | given))  # type: ignore[arg-type]
    for name in ("", None, 5, "a\ud800", b"small"):
        with pytest.raises(ConfigInvalid, match="expected a text"):
            metrics.watch(tok, name)  # type: ignore[arg-type]
    assert scraped(registry)
    metrics.close()
    metrics.close()


def test_a_prefix_cache_made_by_hand_is_not_kept_alive_nor_its_tokenizer() -> None:
    tok = native_file(SMALL_DIR / "gpt2_like.json")
    cache = PrefixCache(tok)
    registry = CollectorRegistry()
    Metrics(registry).watch(tok, "small", prefix_cache=cache)
    assert ("toktier_prefix_cache_entries",) in scraped(registry)
    del cache
    gc.collect()
    found = scraped(registry)
    assert ("toktier_prefix_cache_entries",) not in found
    assert ("toktier_session_changes_total",) in found
    del tok
    gc.collect()
    assert not scraped(registry)


def test_two_tokenizers_are_told_apart_and_one_under_its_name_again_is_told_once(tok: toktier.Tokenizer) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    other = native_file(SMALL_DIR / "gpt2_like.json")
    for watched, name in ((tok, "one"), (other, "two"), (tok, "one")):
        metrics.watch(watched, name)
    other.encode("a text")
    page = generate_latest(registry).decode()
    lines = [line for line in page.splitlines() if line.startswith("toktier_encoded_texts_total{")]
    assert len(lines) == len({line.rsplit(" ", 1)[0] for line in lines})
    assert 'toktier_encoded_texts_total{backend="fast_cpu",tokenizer="two"} 1.0' in lines
    assert {line.split('tokenizer="')[1].split('"')[0] for line in lines} == {"one", "two"}
