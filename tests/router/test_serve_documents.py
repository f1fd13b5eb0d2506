"""What the whole router tells of itself after requests to a real llama-server: documents that fit their schemas, the
metrics and the page; and the file of records says the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import toktier
from tests.cli.command import validator
from tests.router.record_files import PATIENCE
from tests.router.served_router import Served
from tests.support.llama_server import LlamaServer
from toktier.router.records_file import reading
from toktier.router.status_page import status_page

pytestmark = pytest.mark.unsanitized


def test_documents_metrics_page_and_records_say_the_same(
    llama: LlamaServer, mini: toktier.Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "requests.db"
    with Served(llama.url, tokenizer=mini, records=path, record_outputs=True) as served:
        prompt = list(range(100, 160))
        first, second = served.complete(prompt), served.complete(prompt)
        assert [first.facts.measured, second.facts.measured] == [0, 59]
        assert served.post("/completion", {"prompt": 5}).status_code == 400
        assert served.client.get("/nowhere").status_code == 404
        stats, slots = served.client.get("/toktier/stats").json(), served.client.get("/toktier/slots").json()
        validator("serve_stats").validate(stats)
        validator("serve_slots").validate(slots)
        assert (stats["requests"], stats["hit_rate"], stats["refused"]) == (2, 0.5, {"400": 1, "404": 1})
        assert (stats["tokens"]["saved"], stats["tokens"]["prefilled"]) == (59, 61)
        assert sum(stats["series"]["fine"]["saved_tokens"]) == 59
        assert sum(stats["latency"]["first_byte_s"]["counts"]) == 2
        assert sum(stats["latency"]["router_s"]["counts"]) == 2
        (held,) = [slot for slot in slots["slots"] if slot["state"] == "known"]
        assert (held["tokens"], held["requests"], held["reuses"]) == (60 + 8 - 1, 0, 1)
        assert held["last_use"] <= slots["now"]
        scraped = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(served.client.get("/metrics").text)
            for sample in family.samples
        }
        assert scraped["toktier_serve_prompt_tokens_total", "saved"] == 59
        assert scraped["toktier_serve_upstream_state", "up", "0"] == 1
        for place in ("/", "/toktier"):
            page = served.client.get(place)
            assert page.content == status_page().body
            assert page.headers["content-security-policy"] == status_page().headers["Content-Security-Policy"]
        assert served.router.records is not None
        assert served.router.records.flush(PATIENCE)  # its end waits five seconds for the disk
    with reading(path) as connection:
        assert connection.execute("SELECT measured, prompt_tokens, reuse, outcome FROM requests").fetchall() == [
            (0, 60, "miss", "done"),
            (59, 60, "hit", "done"),
        ]
        cold, warm = connection.execute("SELECT prompt_digest, output, reused FROM outputs").fetchall()
        assert cold[:2] == warm[:2]
        assert (cold[2], warm[2]) == (0, 1)
