"""Settings reach the part that obeys them, each with a value that is not its default. What the parts do with them is
tested beside each part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toktier.router import kv_events, records
from toktier.router.app import RouterApp, create_app
from toktier.router.settings import ServeSettings
from toktier.router.upstream import Timeouts

SECONDS: dict[str, Any] = {"connect_seconds": 1.5, "first_byte_seconds": 2.5, "idle_seconds": 3.5, "whole_seconds": 4.5}


def made(**named: Any) -> RouterApp:
    settings = ServeSettings(upstreams=("http://127.0.0.1:9",), **named)
    return create_app(settings, None)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toktier.router.router.Agreement", lambda upstream, tokenizer: None)


class Given:
    """Stands in for a part, and keeps what it was given."""

    def __init__(self, *values: Any, **named: Any) -> None:
        self.values, self.named = values, named

    counters = state = close = slot_now = clear = None


def test_upstreams_have_the_time_outs_and_bounds(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 20)
    app = made(**SECONDS, max_answer_bytes=5000, max_concurrent=7, upstream_api_key_file=key)
    (upstream,) = app.router.upstreams
    assert upstream.timeouts == Timeouts(connect=1.5, first_byte=2.5, idle=3.5, whole=4.5)
    assert upstream.bounds.answer_bytes == 5000
    assert upstream.bounds.connections >= 7
    assert upstream._headers["authorization"] == f"Bearer {'k' * 20}"


def test_guards_have_the_limits_of_bodies_and_of_requests() -> None:
    app = made(max_body_bytes=2048, body_seconds=6.5, max_concurrent=3, max_queued=4, queue_seconds=5.5)
    assert (app.body.max_bytes, app.body.seconds) == (2048, 6.5)
    assert (app.admission._max_running, app.admission._max_queued, app.admission._seconds) == (3, 4, 5.5)


def test_records_have_their_place_and_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(records, "Records", Given)
    given: Any = made(records=tmp_path / "r.db", keep_rows=12, record_outputs=True).router.records
    assert given.values == (tmp_path / "r.db",)
    assert given.named == {"keep_rows": 12, "outputs": True}
    assert made(records=None).router.records is None


def test_kv_events_have_all_that_is_said_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_events, "KvEvents", Given)
    given: Any = made(
        kv_events="ipc:///a", kv_replay="ipc:///b", kv_topic="t", kv_block_size=32, kv_form="map",
        kv_scheme="vllm-sha256-cbor",
    ).router.kv_events  # fmt: skip
    assert given.values == ("ipc:///a", "ipc:///b")
    said = {"topic": "t", "block_size": 32, "scheme": "vllm-sha256-cbor", "form": "map", "upstreams": 1}
    assert given.named == said
    assert made().router.kv_events is None


def test_the_tokenizer_is_loaded_as_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from toktier_cli import options
    from toktier_cli.verbs import serve

    monkeypatch.setattr(options, "load_tokenizer", Given)
    settings = ServeSettings(
        upstreams=("http://h",),
        family="f",
        policy="supported",
        device="cpu",
        tokenizer="hf",
        no_tokenizer_fallback=True,
    )
    given: Any = serve._tokenizer(None, settings)  # type: ignore[arg-type]
    assert given.values == (None, "f", None)
    assert given.named == {"policy": "supported", "device": "cpu", "tokenizer": "hf", "no_fallback": True}
    of_file: Any = serve._tokenizer(None, ServeSettings(upstreams=("http://h",), tokenizer_file="t.json"))  # type: ignore[arg-type]
    assert of_file.values == (None, None, "t.json")
