"""Metrics for Prometheus: the one table of their names, and the collector that reads them when somebody scrapes.

Everything is counted anyway, for `explain()` and `Batcher.stats()`: a scrape reads it and a call pays nothing. Series
are as many as there are tokenizers under watch, backends and reason codes: no text, session or caller names one. With
the extra `metrics`; the multiprocess mode of prometheus_client takes no collectors, so that each process needs a port
of its own there. Not here: serving the page (`prometheus_client.start_http_server` and its siblings).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Protocol

from toktier.errors import ConfigInvalid
from toktier.labels import MAX_QUOTED, shown
from toktier.missing_distribution import missing_distribution
from toktier.serving.batcher import Batcher

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError:
    raise missing_distribution("metrics need", "prometheus-client", "metrics", "prometheus-client") from None

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Final = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Explains(Protocol):
    """What is asked of a tokenizer."""

    def explain(self, summary: bool = False) -> dict[str, Any]: ...

    @property
    def native_session_calls(self) -> int: ...


class HasStats(Protocol):
    """What is asked of a prefix cache."""

    def stats(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """One tokenizer at a scrape. What it has not is empty."""

    report: Mapping[str, Any]
    session_changes: int
    batcher: Mapping[str, Any]
    prefix_cache: Mapping[str, Any]


Values = Iterable[tuple[tuple[str, ...], Any]]  # labels behind `tokenizer`, and a number or a histogram's dict


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table. `unit`: a suffix of `name`, or nothing. Counters are written with `_total` behind."""

    name: str
    kind: str
    help: str
    unit: str
    labels: tuple[str, ...]
    read: Callable[[Seen], Values]


def _counters(*path: str) -> Callable[[Seen], Values]:
    """The numbers under a path of explain(), each by its name."""

    def read(seen: Seen) -> Values:
        found: Any = seen.report
        for name in path:
            found = (found or {}).get(name)
        return [((name,), value) for name, value in (found or {}).items()]

    return read


def _of(member: str, *path: str) -> Callable[[Seen], Values]:
    """One number of the batcher's or the prefix cache's; nothing where there is none."""

    def read(seen: Seen) -> Values:
        found: Any = getattr(seen, member)
        for name in path:
            found = found.get(name)
            if found is None:
                return []
        return [((), found)]

    return read


def _bytes(seen: Seen) -> Values:
    gpu = seen.report["gpu_backend"].get("counters")
    yield ("fast_cpu",), seen.report["counters"]["native_bytes"]
    if gpu is not None:
        yield ("gpu",), gpu["bytes"]


def _info(seen: Seen) -> Values:
    return [((seen.report["backend"], seen.report["status"], seen.report["artifact_sha256"]), 1)]


def _gpu(name: str) -> Callable[[Seen], Values]:
    def read(seen: Seen) -> Values:
        gpu = seen.report["gpu_backend"].get("counters")
        return [] if gpu is None else [((), gpu[name])]

    return read


def _session_changes(seen: Seen) -> Values:
    return [((), seen.session_changes)]


def _gpu_loaded(seen: Seen) -> Values:
    return [((), int(seen.report["gpu_backend"]["loaded"]))]


def _decided(seen: Seen) -> Values:
    """Batches by who encoded them."""
    if seen.batcher:
        gpu, split = seen.batcher["gpu_batches"], seen.batcher["split"]
        yield from ((("gpu",), gpu), (("split",), split), (("cpu",), seen.batcher["batches"] - gpu - split))


METRICS: Final[tuple[Metric, ...]] = (
    Metric("toktier_tokenizer_info", "gauge", "1 for each tokenizer under watch: who serves it, by which status.", "",
           ("backend", "status", "artifact_sha256"), _info),
    Metric("toktier_encoded_texts", "counter", "Texts encoded or counted, by who did it; changes of sessions too.", "",
           ("backend",), _counters("counters", "calls")),
    Metric("toktier_encoded_bytes", "counter", "Bytes of UTF-8 of these texts, where the engine counts them.", "bytes",
           ("backend",), _bytes),
    Metric("toktier_decodings", "counter", "Lists of ids decoded, by who did it.", "", ("backend",),
           _counters("counters", "decode_calls")),
    Metric("toktier_reasons", "counter", "What another backend than the first took, or took long, by reason code.", "",
           ("reason",), _counters("counters", "reasons")),
    Metric("toktier_session_changes", "counter", "Changes of sessions by the native engine.", "", (),
           _session_changes),
    Metric("toktier_store_lookups", "counter", "Look-ups of texts in the store, and what came of them.", "",
           ("result",), _counters("sessions", "lookups")),
    Metric("toktier_gpu_loaded", "gauge", "1 where kernels are loaded on a device.", "", (), _gpu_loaded),
    Metric("toktier_gpu_faults", "counter", "Calls in which the device failed and the CPU engine answered.", "", (),
           _gpu("faults")),
    Metric("toktier_batches", "counter", "Batches by who encoded them; split: text by text, after one failed whole.",
           "", ("by",), _decided),
    Metric("toktier_batched_texts", "counter", "Texts encoded in batches.", "", (), _of("batcher", "texts")),
    Metric("toktier_batched_bytes", "counter", "Bytes of these texts in memory.", "bytes", (),
           _of("batcher", "bytes")),
    Metric("toktier_batched_tokens", "counter", "Tokens of these texts.", "tokens", (), _of("batcher", "tokens")),
    Metric("toktier_batch_size_texts", "histogram", "Texts of a batch.", "texts", (), _of("batcher", "batch_texts")),
    Metric("toktier_batch_size_bytes", "histogram", "Bytes of a batch.", "bytes", (), _of("batcher", "batch_bytes")),
    Metric("toktier_batch_wait_seconds", "histogram", "How long the oldest text of a batch waited for its beginning.",
           "seconds", (), _of("batcher", "waits")),
    Metric("toktier_lone_calls", "counter", "Calls beside the batches: sessions, look-ups in a store, long texts.", "",
           (), _of("batcher", "alone")),
    Metric("toktier_queued_calls", "gauge", "Calls that wait for their turn.", "", (), _of("batcher", "now", "queued")),
    Metric("toktier_unanswered_texts", "gauge", "Texts that wait or are being encoded.", "texts", (),
           _of("batcher", "now", "texts")),
    Metric("toktier_unanswered_bytes", "gauge", "Bytes of these texts in memory.", "bytes", (),
           _of("batcher", "now", "bytes")),
    Metric("toktier_refused_texts", "counter", "Texts refused with QUEUE_FULL.", "texts", (),
           _of("batcher", "refused")),
    Metric("toktier_withdrawn_texts", "counter", "Texts that their callers gave up before they were encoded.", "texts",
           (), _of("batcher", "withdrawn")),
    Metric("toktier_failed_calls", "counter", "Accepted texts and calls that were answered with an error.", "", (),
           _of("batcher", "failed")),
    Metric("toktier_prefix_cache_hits", "counter", "Texts of which a prefix was in the cache.", "", (),
           _of("prefix_cache", "hits")),
    Metric("toktier_prefix_cache_misses", "counter", "Texts of which none was.", "", (),
           _of("prefix_cache", "misses")),
    Metric("toktier_prefix_cache_second_level_hits", "counter", "Hits whose prefix came from the second level.", "", (),
           _of("prefix_cache", "second_level_hits")),
    Metric("toktier_prefix_cache_bypassed", "counter", "Texts that were not looked up.", "", (),
           _of("prefix_cache", "bypassed")),
    Metric("toktier_prefix_cache_cached_tokens", "counter", "Tokens that came from the cache.", "tokens", (),
           _of("prefix_cache", "cached_tokens")),
    Metric("toktier_prefix_cache_uncached_tokens", "counter", "Tokens that were encoded beside it.", "tokens", (),
           _of("prefix_cache", "uncached_tokens")),
    Metric("toktier_prefix_cache_entries", "gauge", "Prefixes in the cache.", "", (), _of("prefix_cache", "entries")),
    Metric("toktier_prefix_cache_bytes", "gauge", "Bytes of ids that the cached prefixes stand for.", "bytes", (),
           _of("prefix_cache", "bytes")),
    Metric("toktier_prefix_cache_resident_bytes", "gauge", "Bytes of ids that the cache holds.", "bytes", (),
           _of("prefix_cache", "resident_bytes")),
)  # fmt: skip


class Metrics:
    """A collector for a registry, for all tokenizers that it watches. It keeps none of them alive. Thread-safe."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Registers itself. None: the registry of the process. Raises ConfigInvalid where another one is registered:
        that one can watch more tokenizers."""
        self.registry = REGISTRY if registry is None else registry
        self._watched: dict[str, tuple[weakref.ref[Any], weakref.ref[Batcher] | None, weakref.ref[Any] | None]] = {}
        try:
            self.registry.register(self)
        except ValueError:
            raise ConfigInvalid(
                "the registry has metrics of toktier: expected one Metrics for each registry",
                details={"argument": "registry"},
                remedy="let the first one watch this tokenizer too, or give another registry",
            ) from None

    def watch(
        self,
        tokenizer: Explains,
        name: str,
        *,
        batcher: Batcher | None = None,
        prefix_cache: HasStats | None = None,
    ) -> None:
        """`name`: the label `tokenizer` of its series; the same name again replaces what it stood for. `batcher`,
        `prefix_cache`: ones made by hand, whose series end with them; None: the tokenizer's own, where it has one.

        Raises TypeError for what is none of these, here and not in every scrape, and ConfigInvalid for a name that no
        page can show.
        """
        if not isinstance(name, str) or not name or any("\ud800" <= c <= "\udfff" for c in name):
            raise ConfigInvalid(
                f"name is {shown(repr(name), MAX_QUOTED)}: expected a text that is not empty, without lone surrogates",
                details={"argument": "name"},
                remedy="name the tokenizer, such as qwen3_8b",
            )
        # Of the class: a PrefixCache hands on what it has not, and explains itself alone.
        if not all(hasattr(type(tokenizer), name) for name in ("explain", "native_session_calls")):
            raise TypeError(f"tokenizer must be a Tokenizer, not {type(tokenizer).__name__}")
        if batcher is not None and not isinstance(batcher, Batcher):
            raise TypeError(f"batcher must be a Batcher, not {type(batcher).__name__}")
        if prefix_cache is not None and not callable(getattr(prefix_cache, "stats", None)):
            raise TypeError(f"prefix_cache must be a PrefixCache, not {type(prefix_cache).__name__}")
        of_batcher = None if batcher is None else weakref.ref(batcher)
        of_cache = None if prefix_cache is None else weakref.ref(prefix_cache)
        self._watched[name] = (weakref.ref(tokenizer), of_batcher, of_cache)

    def unwatch(self, name: str) -> None:
        """Its series end. Nothing happens where there are none."""
        self._watched.pop(name, None)

    def close(self) -> None:
        """Takes itself out of the registry; again: nothing happens."""
        with contextlib.suppress(KeyError):
            self.registry.unregister(self)

    def describe(self) -> Iterator[Family]:
        """For the registry: names and types, without asking anybody."""
        return (_family(metric) for metric in METRICS)

    def collect(self) -> Iterator[Family]:
        """For the registry: every series as it is now. Tokenizers that are gone are left out."""
        seen = [(name, one) for name, watched in list(self._watched.items()) if (one := _look(*watched)) is not None]
        for metric in METRICS:
            family = _family(metric)
            for name, one in seen:
                for labels, value in metric.read(one):
                    if metric.kind == "histogram":
                        family.add_metric([name, *labels], buckets=_buckets(value), sum_value=value["sum"])
                    else:
                        family.add_metric([name, *labels], value)
            yield family


def _family(metric: Metric) -> Any:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=("tokenizer", *metric.labels), unit=metric.unit)


def _look(
    tokenizer: weakref.ref[Any], batcher: weakref.ref[Batcher] | None, prefix_cache: weakref.ref[Any] | None
) -> Seen | None:
    watched = tokenizer()
    if watched is None:
        return None
    of_batcher = getattr(watched, "_batcher", None) if batcher is None else batcher()
    report = watched.explain()
    if prefix_cache is None:
        of_cache = report["prefix_cache"].get("stats") or {}
    else:
        by_hand = prefix_cache()
        of_cache = {} if by_hand is None else by_hand.stats()
    return Seen(report, watched.native_session_calls, {} if of_batcher is None else of_batcher.stats(), of_cache)


def _buckets(histogram: Mapping[str, Any]) -> list[tuple[str, int]]:
    bounds = [f"{bound:g}" if bound < 1 else repr(float(bound)) for bound in histogram["bounds"]]
    return list(zip([*bounds, "+Inf"], accumulate(histogram["counts"]), strict=True))
