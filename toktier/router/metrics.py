"""Metrics of the router for Prometheus: the one table of their names, read when somebody scrapes.

Everything is counted anyway (`stats`, the slot table, the health checks, the records): a scrape reads it and a request
pays nothing. Upstreams are told apart by their number, words by the router's tables: no prompt, model, client or key
names a series. Not here: the route; metrics of the tokenizer (`toktier.serving.metrics`), whose series are on the same
page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from toktier.labels import shown
from toktier.router.distributions import missing
from toktier.router.refusals import Refusal
from toktier.router.rows import SlotRow, UpstreamRow
from toktier.router.stats import Stats
from toktier.router.vocabulary import SlotState, UpstreamState
from toktier.version import VERSION

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import choose_encoder
except ImportError:
    raise missing("prometheus_client") from None

from toktier.serving.metrics import Explains, Metrics

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Final = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
MAX_KV_COUNTERS = 32


@dataclass(frozen=True, slots=True)
class Seen:
    """The router at a scrape. What it has not is empty."""

    stats: Mapping[str, Any]
    upstreams: Sequence[UpstreamRow]
    slots: Sequence[SlotRow]
    records: Mapping[str, Any]
    kv_events: Mapping[str, int]
    guards: Mapping[str, int]
    turns: Mapping[str, int]


Values = Iterable[tuple[tuple[str, ...], Any]]  # labels, and a number or a histogram's dict


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table. `unit`: a suffix of `name`, or nothing. Counters are written with `_total` behind."""

    name: str
    kind: str
    help: str
    unit: str
    labels: tuple[str, ...]
    read: Callable[[Seen], Values]


def _words(name: str) -> Callable[[Seen], Values]:
    """The counts of a vocabulary, each by its word."""
    return lambda seen: [((word,), count) for word, count in seen.stats[name].items()]


def _one(*path: str, scale: float = 1) -> Callable[[Seen], Values]:
    def read(seen: Seen) -> Values:
        found: Any = seen.stats
        for name in path:
            found = found[name]
        return [((), found if scale == 1 else found * scale)]

    return read


def _prompt_tokens(seen: Seen) -> Values:
    return [((part,), seen.stats["tokens"][part]) for part in ("saved", "prefilled", "unmeasured")]


def _info(seen: Seen) -> Values:
    return [((VERSION,), 1)]


def _upstream_info(seen: Seen) -> Values:
    return [((str(row.number), shown(row.name), shown(row.model or "")), 1) for row in seen.upstreams]


def _upstream_states(seen: Seen) -> Values:
    return [
        ((str(row.number), state.value), int(row.state is state)) for row in seen.upstreams for state in UpstreamState
    ]


def _restarts(seen: Seen) -> Values:
    return [((str(row.number),), row.restarts) for row in seen.upstreams]


def _slot_states(seen: Seen) -> Values:
    found = Counter((row.upstream, row.state) for row in seen.slots)
    return [((str(row.number), s.value), found[row.number, s]) for row in seen.upstreams for s in SlotState]


def _slots(value: Callable[[SlotRow], int]) -> Callable[[Seen], Values]:
    """A sum over the slots of each upstream."""

    def read(seen: Seen) -> Values:
        found = dict.fromkeys((row.number for row in seen.upstreams), 0)
        for row in seen.slots:
            if row.upstream in found:
                found[row.upstream] += value(row)
        return [((str(number),), total) for number, total in found.items()]

    return read


def _records(name: str) -> Callable[[Seen], Values]:
    return lambda seen: [((), seen.records[name])] if seen.records else []


def _records_faults(seen: Seen) -> Values:
    return [((word,), count) for word, count in seen.records["faults"].items()] if seen.records else []


def _records_failing(seen: Seen) -> Values:
    return [((), int(seen.records["fault"] is not None))] if seen.records else []


def _guards(name: str) -> Callable[[Seen], Values]:
    return lambda seen: [((), seen.guards[name])] if name in seen.guards else []


def _guarded(seen: Seen) -> Values:
    """Every code of the table, from the start."""
    return [((code.value,), seen.guards.get(f"refused_{code.value}", 0)) for code in Refusal] if seen.guards else []


def _waiting(seen: Seen) -> Values:
    return [((), seen.turns["waiting"])] if seen.turns else []


def _turns(seen: Seen) -> Values:
    return [((name,), count) for name, count in seen.turns.items() if name != "waiting"]


def _kv_events(seen: Seen) -> Values:
    return [((shown(name),), count) for name, count in list(seen.kv_events.items())[:MAX_KV_COUNTERS]]


METRICS: Final[tuple[Metric, ...]] = (
    Metric("toktier_serve_info", "gauge", "1; its label is the version of toktier.", "", ("version",), _info),
    Metric("toktier_serve_requests", "counter", "Requests that went to an upstream, by how they ended.", "",
           ("outcome",), _words("outcome")),
    Metric("toktier_serve_refused", "counter", "Requests that the router answered itself with an error, by status.",
           "", ("status",), _words("refused")),
    Metric("toktier_serve_guarded", "counter", "Requests that the guards of the routes refused, by code.", "",
           ("code",), _guarded),
    Metric("toktier_serve_admitted", "counter", "Requests that were let in to be served.", "", (),
           _guards("admitted")),
    Metric("toktier_serve_faults", "counter", "Requests that met a fault of the router itself.", "", (),
           _guards("faults")),
    Metric("toktier_serve_running", "gauge", "Requests that are being served.", "", (), _guards("running")),
    Metric("toktier_serve_waiting", "gauge", "Requests that wait to be let in.", "", (), _guards("queued")),
    Metric("toktier_serve_waiting_for_slot", "gauge", "Requests that wait for a slot to come free.", "", (), _waiting),
    Metric("toktier_serve_turns", "counter", "Events of turns: who waited, left or passed, what was kept free.", "",
           ("what",), _turns),
    Metric("toktier_serve_body_bytes", "counter", "Bytes of bodies that were read.", "bytes", (),
           _guards("body_bytes")),
    Metric("toktier_serve_routes", "counter", "Requests by route.", "", ("route",), _words("routes")),
    Metric("toktier_serve_streams", "counter", "Requests whose answer was a stream.", "", (), _one("streams")),
    Metric("toktier_serve_reuse", "counter", "Requests by what they reused, as the upstream measured it.", "",
           ("reuse",), _words("reuse")),
    Metric("toktier_serve_choices", "counter", "Requests by why their slot was chosen.", "", ("choice",),
           _words("choice")),
    Metric("toktier_serve_unrouted", "counter", "Requests that could not be pinned to a slot, by why.", "",
           ("reason",), _words("unrouted")),
    Metric("toktier_serve_ids", "counter", "Requests by whose token IDs the upstream worked on.", "", ("ids",),
           _words("ids")),
    Metric("toktier_serve_stale", "counter", "Requests whose slot held less than was promised.", "", (),
           _one("stale")),
    Metric("toktier_serve_prompt_tokens", "counter", "Tokens of prompts: saved, prefilled, or not known which.",
           "tokens", ("part",), _prompt_tokens),
    Metric("toktier_serve_predicted_tokens", "counter", "Tokens that slots were thought to hold of prompts.",
           "tokens", (), _one("tokens", "predicted")),
    Metric("toktier_serve_generated_tokens", "counter", "Tokens that upstreams generated.", "tokens", (),
           _one("tokens", "generated")),
    Metric("toktier_serve_prefill_seconds", "counter", "Time in prefill, by the upstreams' own clocks.", "seconds", (),
           _one("upstream_ms", "prefill", scale=0.001)),
    Metric("toktier_serve_generation_seconds", "counter", "Time in generation, by the upstreams' own clocks.",
           "seconds", (), _one("upstream_ms", "generation", scale=0.001)),
    Metric("toktier_serve_first_byte_seconds", "histogram", "From a request's arrival to its answer's first byte.",
           "seconds", (), _one("latency", "first_byte_s")),
    Metric("toktier_serve_duration_seconds", "histogram", "From a request's arrival to its end.", "seconds", (),
           _one("latency", "duration_s")),
    Metric("toktier_serve_router_seconds", "histogram", "What the router itself took before a request went up.",
           "seconds", (), _one("latency", "router_s")),
    Metric("toktier_serve_upstream_info", "gauge", "1 for each upstream: its number, name and model.", "",
           ("upstream", "name", "model"), _upstream_info),
    Metric("toktier_serve_upstream_state", "gauge", "1 for the state that an upstream is in, 0 for the others.", "",
           ("upstream", "state"), _upstream_states),
    Metric("toktier_serve_upstream_restarts", "counter", "How often an upstream was seen to have begun anew.", "",
           ("upstream",), _restarts),
    Metric("toktier_serve_slots", "gauge", "Slots of an upstream, by what is known of their content.", "",
           ("upstream", "state"), _slot_states),
    Metric("toktier_serve_slots_busy", "gauge", "Slots that a request runs on or waits for.", "", ("upstream",),
           _slots(lambda row: int(row.requests > 0))),
    Metric("toktier_serve_slots_held", "gauge", "Slots that are kept while others can be taken.", "", ("upstream",),
           _slots(lambda row: int(row.held))),
    Metric("toktier_serve_slot_requests", "gauge", "Requests that run on slots or wait for them.", "", ("upstream",),
           _slots(lambda row: row.requests)),
    Metric("toktier_serve_slot_tokens", "gauge", "Tokens that slots are thought to hold.", "tokens", ("upstream",),
           _slots(lambda row: row.tokens)),
    Metric("toktier_serve_records_written", "counter", "Rows of requests that are in the file of records.", "", (),
           _records("written")),
    Metric("toktier_serve_records_dropped", "counter", "Rows that were given up.", "", (), _records("dropped")),
    Metric("toktier_serve_records_queued", "gauge", "Rows that wait to be written.", "", (), _records("queued")),
    Metric("toktier_serve_records_faults", "counter", "Failed attempts to write the records, by why.", "",
           ("fault",), _records_faults),
    Metric("toktier_serve_records_failing", "gauge", "1 while the last attempt to write the records failed.", "", (),
           _records_failing),
    Metric("toktier_serve_records_bytes", "gauge", "Bytes of the file of records.", "bytes", (),
           _records("bytes")),
    Metric("toktier_serve_kv_events", "counter", "What the publisher of KV events counts, by name.", "", ("what",),
           _kv_events),
)  # fmt: skip


class RouterMetrics:
    """A registry of its own, with one page. The callables are asked at each scrape; what one has to say when it fails
    is for its caller: a scrape then fails. `records`: `Records.state`; `kv_events`: counters that only grow; `guards`:
    `Guarded.counters`; `turns`: `Turns.counters`."""

    def __init__(
        self,
        stats: Stats,
        *,
        upstreams: Callable[[], Sequence[UpstreamRow]],
        slots: Callable[[], Sequence[SlotRow]],
        records: Callable[[], Mapping[str, Any]] | None = None,
        kv_events: Callable[[], Mapping[str, int]] | None = None,
        guards: Callable[[], Mapping[str, int]] | None = None,
        turns: Callable[[], Mapping[str, int]] | None = None,
        tokenizer: Explains | None = None,
        tokenizer_name: str = "serve",
    ) -> None:
        """`tokenizer`: whose own metrics are on the page too, under the label `tokenizer_name`."""
        self._stats, self._upstreams, self._slots = stats, upstreams, slots
        self._records, self._kv_events, self._guards, self._turns = records, kv_events, guards, turns
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)  # memory, CPU and open files of this process
        if tokenizer is not None:
            Metrics(self.registry).watch(tokenizer, tokenizer_name)

    def page(self, accept: str | None = None) -> tuple[bytes, str]:
        """The answer to GET /metrics and its content type; `accept`: the header of the request."""
        encode, content_type = choose_encoder(accept or "")
        return encode(self.registry), content_type

    def describe(self) -> Iterator[Family]:
        """For the registry: names and types, without asking anybody."""
        return (_family(metric) for metric in METRICS)

    def collect(self) -> Iterator[Family]:
        """For the registry: every series as it is now."""
        seen = Seen(
            self._stats.counters(),
            self._upstreams(),
            self._slots(),
            {} if self._records is None else self._records(),
            {} if self._kv_events is None else self._kv_events(),
            {} if self._guards is None else self._guards(),
            {} if self._turns is None else self._turns(),
        )
        for metric in METRICS:
            family = _family(metric)
            for labels, value in metric.read(seen):
                if metric.kind == "histogram":
                    family.add_metric([*labels], buckets=_buckets(value), sum_value=value["sum"])
                else:
                    family.add_metric([*labels], value)
            yield family


def _family(metric: Metric) -> Any:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels, unit=metric.unit)


def _buckets(histogram: Mapping[str, Any]) -> list[tuple[str, int]]:
    bounds = [f"{bound:g}" if bound < 1 else repr(float(bound)) for bound in histogram["bounds"]]
    return list(zip([*bounds, "+Inf"], accumulate(histogram["counts"]), strict=True))
