"""What a scrape of the router says: equal to what was done, by frozen names, in no more series than tables allow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.router.finished_requests import NOW, request, three_slots, two_upstreams
from tests.router.record_files import PATIENCE
from tests.support.material import ROOT, SMALL_DIR
from tests.support.native_tokenizers import native_file
from toktier.router.metrics import METRICS, RouterMetrics
from toktier.router.records import Records
from toktier.router.rows import SlotRow, UpstreamRow
from toktier.router.stats import MAX_ROUTES, Stats
from toktier.router.vocabulary import Outcome, SlotState, Unrouted, UpstreamState


def scraped(metrics: RouterMetrics) -> dict[tuple[str, ...], float]:
    """Value of each sample by its name and the values of its labels, in the order of their names."""
    body, content_type = metrics.page()
    assert content_type.startswith("text/plain")
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in found, f"{key} is told twice"
            found[key] = sample.value
    return found


def watched(stats: Stats) -> RouterMetrics:
    return RouterMetrics(stats, upstreams=two_upstreams, slots=three_slots)


def test_a_scrape_tells_what_was_done() -> None:
    stats = Stats()
    metrics = watched(stats)
    before = scraped(metrics)
    assert before["toktier_serve_requests_total", "done"] == 0
    stats.add(request())
    stats.add(request(measured=4, stream=True, stale=True, unrouted=Unrouted.MEDIA))
    stats.add(request(measured=None, outcome=Outcome.DISCONNECTED, first_byte_ms=None))
    stats.refused(401)
    found = scraped(metrics)
    assert found["toktier_serve_refused_total", "401"] == 1
    assert found["toktier_serve_requests_total", "done"] == 2
    assert found["toktier_serve_requests_total", "disconnected"] == 1
    assert [found["toktier_serve_reuse_total", word] for word in ("hit", "soft_hit", "miss", "unmeasured")] == [
        1,
        1,
        0,
        1,
    ]
    assert [found["toktier_serve_prompt_tokens_total", part] for part in ("saved", "prefilled", "unmeasured")] == [
        *(103, 97, 100)
    ]
    assert found["toktier_serve_predicted_tokens_total",] == 297
    assert found["toktier_serve_generated_tokens_total",] == 24
    assert (found["toktier_serve_streams_total",], found["toktier_serve_stale_total",]) == (1, 1)
    assert found["toktier_serve_unrouted_total", "media"] == 1
    assert found["toktier_serve_routes_total", "/v1/completions"] == 3
    assert found["toktier_serve_first_byte_seconds_bucket", "0.05"] == 2
    assert found["toktier_serve_first_byte_seconds_count",] == 2
    assert found["toktier_serve_duration_seconds_count",] == found["toktier_serve_router_seconds_count",] == 3
    assert found["toktier_serve_prefill_seconds_total",] == pytest.approx(0.0045)


def test_upstreams_and_slots_are_told_as_they_are_when_somebody_asks() -> None:
    found = scraped(watched(Stats()))
    assert found["toktier_serve_upstream_state", "up", "0"] == 1
    assert found["toktier_serve_upstream_state", "up", "1"] == 0
    assert found["toktier_serve_upstream_state", "down", "1"] == 1
    assert found["toktier_serve_upstream_restarts_total", "0"] == 1
    assert found["toktier_serve_upstream_info", "tiny", "http://127.0.0.1:8080", "0"] == 1
    assert [found["toktier_serve_slots", state, "0"] for state in ("empty", "known", "unknown")] == [1, 1, 0]
    assert found["toktier_serve_slots", "unknown", "1"] == 1
    assert found["toktier_serve_slots_busy", "0"] == found["toktier_serve_slots_held", "0"] == 1
    assert found["toktier_serve_slot_requests", "0"] == 2
    assert found["toktier_serve_slot_tokens", "0"] == 107
    assert found["toktier_serve_slots_busy", "1"] == 0


def test_records_events_and_the_tokenizer_are_on_the_page_where_there_are_some(tmp_path: Path) -> None:
    tok = native_file(SMALL_DIR / "gpt2_like.json")
    records = Records(tmp_path / "requests.db", clock=lambda: NOW)
    metrics = RouterMetrics(
        Stats(),
        upstreams=two_upstreams,
        slots=three_slots,
        records=records.state,
        kv_events=lambda: {"stored": 3, "removed": 1},
        guards=lambda: {"running": 2, "queued": 1, "admitted": 9, "faults": 0, "refused_invalid_api_key": 4},
        tokenizer=tok,
    )
    records.add(request())
    assert records.flush(PATIENCE)
    tok.encode("a text")
    found = scraped(metrics)
    assert found["toktier_serve_records_written_total",] == 1
    assert found["toktier_serve_records_failing",] == found["toktier_serve_records_queued",] == 0
    assert found["toktier_serve_records_faults_total", "full"] == 0
    assert found["toktier_serve_records_bytes",] > 0
    assert found["toktier_serve_kv_events_total", "stored"] == 3
    assert found["toktier_serve_guarded_total", "invalid_api_key"] == 4
    assert found["toktier_serve_guarded_total", "overloaded"] == 0
    assert (found["toktier_serve_running",], found["toktier_serve_waiting",]) == (2, 1)
    assert found["toktier_encoded_texts_total", "fast_cpu", "serve"] == 1
    assert found["process_resident_memory_bytes",] > 0
    records.close(PATIENCE)
    optional = ("toktier_serve_records", "toktier_serve_kv", "toktier_encoded", "toktier_serve_guarded")
    assert not any(name.startswith(optional) for name, *_ in scraped(watched(Stats())))


def test_names_types_and_helps_are_of_the_table_and_stay() -> None:
    """A name that a dashboard asks for may come, never go or change its kind: this list only grows."""
    told = watched(Stats()).page()[0].decode().splitlines()
    types = dict(line.split()[2:] for line in told if line.startswith("# TYPE toktier"))
    assert types == {m.name + ("_total" if m.kind == "counter" else ""): m.kind for m in METRICS}
    assert len(METRICS) == len({m.name for m in METRICS}) == len({m.help for m in METRICS})
    assert all(m.help.endswith(".") and len(m.help) < 100 for m in METRICS)
    assert all(m.name.startswith("toktier_serve_") and m.name.endswith(m.unit) for m in METRICS)
    assert {
        "toktier_serve_requests", "toktier_serve_refused", "toktier_serve_reuse", "toktier_serve_choices",
        "toktier_serve_prompt_tokens", "toktier_serve_predicted_tokens", "toktier_serve_generated_tokens",
        "toktier_serve_stale", "toktier_serve_first_byte_seconds", "toktier_serve_duration_seconds",
        "toktier_serve_router_seconds", "toktier_serve_upstream_state", "toktier_serve_slots",
        "toktier_serve_slots_busy", "toktier_serve_slots_held", "toktier_serve_records_dropped",
        "toktier_serve_records_faults", "toktier_serve_kv_events",
    } <= {m.name for m in METRICS}  # fmt: skip


def test_series_are_bounded_whatever_requests_say() -> None:
    stats = Stats()
    metrics = watched(stats)
    for n in range(500):
        stats.add(request(id=f"id {n}", route=f"/route {n}", upstream=n, slot=n, status=n))
    series = set(scraped(metrics))
    for n in range(500, 1000):
        stats.add(request(id=f"id {n}", route=f"/route {n}", upstream=n, slot=n, status=n))
    assert set(scraped(metrics)) == series
    assert sum(key[0] == "toktier_serve_routes_total" for key in series) == MAX_ROUTES + 1
    assert not any("id " in value for key in series for value in key)


def test_names_of_others_cannot_break_the_page() -> None:
    hostile = 'm"} 1\ntoktier_serve_stale_total 99\n\\\ud800\x1b' + "x" * 10_000
    metrics = RouterMetrics(
        Stats(),
        upstreams=lambda: [UpstreamRow(number=0, name=hostile, state=UpstreamState.UP, model=hostile)],
        slots=lambda: [SlotRow(upstream=7, slot=0, state=SlotState.EMPTY)],
    )
    found = scraped(metrics)
    assert found["toktier_serve_stale_total",] == 0
    (info,) = [key for key in found if key[0] == "toktier_serve_upstream_info"]
    assert all(len(value) <= 120 and value.isprintable() for value in info)


def test_the_form_that_a_scraper_asks_for_is_the_one_it_gets() -> None:
    body, content_type = watched(Stats()).page("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_without_the_extra_the_remedy_names_it() -> None:
    script = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import toktier, toktier.router.stats\n"
        "try: import toktier.router.metrics\n"
        "except toktier.errors.BackendUnavailable as error: print(error.remedy)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout == "pip install fastapi uvicorn httpx orjson numpy prometheus-client\n", ran.stderr
