"""The benchmark of the router: its orders, its tables, the tokenizer of a GGUF file, and a tiny run of all of it.
Nothing here is judged by time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.scripts import script
from tests.support import llama_server
from tests.support.material import ROOT
from toktier import resources

MINI = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"


@pytest.mark.parametrize("name", ["round robin", "random", "bursts"])
def test_an_order_has_every_turn_once_and_those_of_a_conversation_in_sequence(name: str) -> None:
    order = script("router_conversations").order(name, 5, 7)
    assert len(set(order)) == len(order) == 35
    for conversation in range(5):
        assert [turn.number for turn in order if turn.conversation == conversation] == list(range(7))
    assert order == script("router_conversations").order(name, 5, 7)


def test_bursts_are_turns_of_one_conversation_in_a_row() -> None:
    order = script("router_conversations").order("bursts", 8, 10)
    same = sum(a.conversation == b.conversation for a, b in itertools.pairwise(order))
    assert same > len(order) / 3


def test_questions_are_of_different_places() -> None:
    text = " ".join(f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(600))
    asked = script("router_conversations").questions(text, 4, 5, 20)
    said = [question for conversation in asked for question in conversation]
    assert [len(question.split()) for question in said] == [20] * 20
    assert len(set(said)) == 20
    with pytest.raises(SystemExit, match="expected 480 or more"):
        script("router_conversations").questions("only a few words", 4, 6, 20)


def test_a_turn_is_sent_with_the_whole_history() -> None:
    sent = script("router_conversations").messages("be brief", ["a", "b", "c"], ["A", "B"], 2)
    assert [(one.role, one.content) for one in sent] == [
        ("system", "be brief"), ("user", "a"), ("assistant", "A"), ("user", "b"), ("assistant", "B"), ("user", "c"),
    ]  # fmt: skip


def test_processor_time_of_a_process_is_that_of_its_clock() -> None:
    cpu = script("server_processes").process_cpu_seconds
    before = cpu(os.getpid())
    sum(range(2_000_000))
    assert cpu(os.getpid()) > before
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(ProcessLookupError):
        cpu(ended.pid)


def figures(**changed: Any) -> dict[str, Any]:
    saved = {
        "route": "chat",
        "order": "random",
        "mode": "router",
        "requests": 8,
        "prompt_tokens": 1000,
        "evaluated_tokens": 400,
        "saved_tokens": 600,
        "of_most": 0.75,
        "miscounted": 0,
        "different_answers": [[0, 1]],
        "first_token_mean": 0.02,
        "first_token_p95": 0.05,
    }
    first = {way: {"p50": 1.0, "p99": 2.0} for way in ("direct", "pass-through", "router")}
    cost = {"kind": "ids", "stream": True, "cpu_ms": {"pass-through": 2.0, "router": 3.2}, "cpu_ratio": 1.6}
    return {
        "savings": [
            {
                "model": "tiny", "weights": "random", "conversations": 2, "turns": 4, "slots": 1, "longest_prompt": 200,
                "load_average": [0.1, 0.2],
                "rows": [{**saved, **changed}],
            }
        ],
        "costs": [
            {
                "model": "tiny", "tokens": 4096, "load_average": [0.3, 0.4],
                "rows": [{**cost, "first_byte_ms": first, **changed}],
            }
        ],
    }  # fmt: skip


def test_what_was_missed_is_said() -> None:
    said = "\n".join(script("router_tables").tables(figures()))
    assert "tiny, chat, random: 75.0%, MISSED" in said
    assert "ids, stream: 1.60, MISSED" in said
    assert "7 of 8" in said
    assert "Load average 0.1 before, 0.2 after." in said
    assert "Load average 0.3 before, 0.4 after." in said


def test_the_page_shows_the_results() -> None:
    document = json.loads((ROOT / "benchmarks" / "router.json").read_text("utf-8"))
    page = (ROOT / "docs" / "router-benchmarks.md").read_text("utf-8")
    assert script("router_tables").page(page, document) == page
    with pytest.raises(SystemExit, match="no place for savings"):
        script("router_tables").page("# A page without marks\n", document)


def test_what_was_reached_is_said() -> None:
    said = "\n".join(script("router_tables").tables(figures(of_most=0.8, cpu_ratio=1.5, miscounted=3)))
    assert "80.0%, reached" in said
    assert "1.50, reached" in said
    assert "router, random: 3 answers counted other tokens than were sent" in said


def test_the_tokenizer_of_a_gguf_file_is_the_one_that_it_was_made_of(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="needs gguf (the extra serve-test), which is not here")
    import toktier

    model = llama_server.make_model(MINI, tmp_path / "mini.gguf")
    document = script("gguf_tokenizer").tokenizer_document(model)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    made = toktier.from_file(tmp_path / "tokenizer.json", policy="supported", device="cpu")
    mini = toktier.from_file(MINI, policy="supported", device="cpu")
    for text in ("There were 14 boats on the beach.", "<|im_start|>user\nØl  und\tKäse 1234<|im_end|>\n", "漁港 🚤"):
        assert made.encode(text).ids == mini.encode(text).ids
    writer = gguf.GGUFWriter(str(tmp_path / "other.gguf"), "llama")
    writer.add_tokenizer_model("llama")
    writer.add_uint32("some.number", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(SystemExit, match="of kind 'llama'"):
        script("gguf_tokenizer").tokenizer_document(tmp_path / "other.gguf")


@pytest.mark.ci
@pytest.mark.unsanitized  # other interpreters
def test_a_run_says_what_was_saved_and_what_it_cost(tmp_path: Path) -> None:
    out = tmp_path / "router.json"
    line = ["--llama-server", str(llama_server.binary()), "--model", "tiny", "--turns", "3", "--order", "round robin"]
    line += ["--route", "chat", "--tokens", "512", "--rounds", "1", "--requests", "3", "--json", str(out)]
    path = os.pathsep.join(part for part in (str(llama_server.SITE), os.environ.get("PYTHONPATH")) if part)
    ran = subprocess.run(
        [sys.executable, "benchmarks/router.py", *line],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    document = json.loads(out.read_text("utf-8"))
    rows = {row["mode"]: row for row in document["savings"][0]["rows"]}
    assert rows.keys() == {
        "no reuse", "llama-server", "router", "llama-server, host cache", "router, host cache",
    }  # fmt: skip
    cold, routed = rows["no reuse"], rows["router"]
    assert (cold["saved_tokens"], cold["requests"], cold["miscounted"], routed["miscounted"]) == (0, 24, 0, 0)
    assert 0 < routed["saved_tokens"] <= routed["most_tokens"] <= routed["most_without_bound"]
    assert routed["evaluated_tokens"] + routed["saved_tokens"] == cold["prompt_tokens"]
    kinds = [(row["kind"], row["stream"]) for row in document["costs"][0]["rows"]]
    assert kinds == [(kind, stream) for kind in ("text", "ids", "chat") for stream in (False, True)]
    assert all(row["cpu_ratio"] > 0 for row in document["costs"][0]["rows"])
    assert "target 80% of the most that can be saved, tiny, chat, round robin" in ran.stdout
