"""The router as a process in front of a real llama-server: kill -9 amid a stream (case D29), and draining."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.router.running import SECONDS, Running, running
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.errors import ExitCode

pytestmark = [pytest.mark.unsanitized, pytest.mark.ci]  # processes, each of several seconds
A = tokens(1, 100)


def line(server: LlamaServer, *more: str) -> list[str]:
    return ["--upstream", server.url, "--family", "toktier_mini", "--json", "--quiet", *more]


def client_of(router: Running) -> httpx.Client:
    return httpx.Client(base_url=router.url, trust_env=False, verify=False, timeout=SECONDS)


def body(count: int = 8, **more: Any) -> dict[str, Any]:
    return {"prompt": A, "n_predict": count, "temperature": 0, "ignore_eos": True, **more}


def test_d29_killed_in_a_stream_it_begins_again_without_ownership(llama: LlamaServer, tmp_path: Path) -> None:
    records = str(tmp_path / "requests.db")
    with running(tmp_path, *line(llama, "--records", records), module="toktier_cli.main") as router:
        router.ready()
        with client_of(router) as client:
            assert client.post("/completion", json=body()).json()["timings"]["cache_n"] == 0
            with client.stream("POST", "/completion", json=body(1900, stream=True)) as response:
                lines = response.iter_lines()
                for _ in range(8):
                    next(lines)
                router.signal(signal.SIGKILL)
                router.process.wait()
                with pytest.raises(httpx.HTTPError):
                    list(lines)
    # The upstream saw the connection end.
    held = {slot["id"]: slot["n_prompt_tokens"] for slot in llama.until_idle() if slot.get("n_prompt_tokens")}
    with running(tmp_path, *line(llama, "--records", records), module="toktier_cli.main") as router:
        router.ready()
        with client_of(router) as client:
            rows = client.get("/toktier/slots").json()["slots"]
            assert all((row["tokens"], row["sure"], row["requests"], row["reuses"]) == (0, 0, 0, 0) for row in rows)
            assert {row["slot"] for row in rows if row["state"] == "unknown"} >= {s for s, t in held.items() if t > 107}
            first = client.post("/completion", json=body())
            measured = first.json()["timings"]["cache_n"]
            until = time.monotonic() + SECONDS
            while (stats := client.get("/toktier/stats").json())["requests"] < 1:  # it is recorded behind its answer
                assert time.monotonic() < until
                time.sleep(0.002)
            # Whatever the slots still hold: the record has what was measured, and nothing was promised.
            assert stats["tokens"]["predicted"] == 0
            assert stats["tokens"]["saved"] == measured
            assert stats["stale"] == 0
            assert client.post("/completion", json=body()).json()["timings"]["cache_n"] == 99
        router.signal(signal.SIGTERM)
        assert router.end()[0] == 0


def test_a_stream_that_runs_is_answered_whole_while_the_router_drains(llama: LlamaServer, tmp_path: Path) -> None:
    with running(tmp_path, *line(llama), module="toktier_cli.main") as router:
        router.ready()
        with client_of(router) as client:
            with client.stream("POST", "/completion", json=body(600, stream=True)) as response, router.raw(b"") as idle:
                lines = response.iter_lines()
                next(lines)
                router.signal(signal.SIGTERM)
                assert idle.rest() == b""  # closed: it drains
                events = [json.loads(one[6:]) for one in lines if one.startswith("data: {")]
            assert events[-1]["stop"] is True
            assert events[-1]["timings"]["predicted_n"] == 600
        code, rest, err = router.end()
        assert (code, json.loads(rest)["cut_off"], err) == (0, 0, "")


def test_a_stream_that_does_not_end_in_time_is_cut_off_and_the_upstream_told(
    llama: LlamaServer, tmp_path: Path
) -> None:
    records = tmp_path / "requests.db"
    arguments = line(llama, "--drain-seconds", "0.1", "--records", str(records))
    with running(tmp_path, *arguments, module="toktier_cli.main") as router:
        router.ready()
        with client_of(router) as client, client.stream("POST", "/completion", json=body(1900, stream=True)) as answer:
            lines = answer.iter_lines()
            next(lines)
            router.signal(signal.SIGTERM)
            with pytest.raises(httpx.HTTPError):
                list(lines)
        code, rest, _ = router.end()
        assert (code, json.loads(rest)["cut_off"]) == (ExitCode.INCOMPLETE, 1)
    assert all(slot.get("n_prompt_tokens", 0) < 1999 for slot in llama.until_idle())
    with sqlite3.connect(records) as database:
        rows = database.execute("SELECT outcome, status, stream FROM requests").fetchall()
    assert rows == [("shut_down", 200, 1)]
