#!/usr/bin/env python3
"""What the prefix cache costs and spares: conversations of 10, 40 and 200 turns that are sent again at every turn.

For each: the time of a fresh encoding, of a miss, of a hit with one new turn and of one without, over the native engine
and over the reference, the break-even hit rate, and what a conversation takes in memory beside what cumulative copies
would. Every result is compared with the reference's. Times are the best of several rounds that alternate, so that all
meet the same seconds of a machine; a figure of one run says nothing beside one of another. Not here: load with many
users, a second level.

    python benchmarks/prefix_cache.py qwen3.json agent_chats.jsonl.zst --json prefix_cache.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import machine
import zstandard

import toktier
from toktier._native import has_sha_instructions
from toktier.cache import PrefixCache, PrefixStorage

TURNS = (10, 40, 200)
ENGINES = {"fast_cpu": {"policy": "supported", "tokenizer": "fast_cpu"}, "reference": {"tokenizer": "hf"}}


def conversation(corpus: Path, turns: int) -> list[str]:
    """The text before each answer of `turns` turns, in ChatML. Conversations of the corpus are joined where one is too
    short."""
    data = zstandard.ZstdDecompressor().decompress(corpus.read_bytes(), max_output_size=1 << 27)
    chats = [json.loads(line) for line in data.decode("utf-8").split("\n") if line]
    messages = itertools.chain.from_iterable(chat if i == 0 else chat[1:] for i, chat in enumerate(chats))
    text, texts = "", []
    for message in messages:
        if message["role"] == "assistant":
            texts.append(text + "<|im_start|>assistant\n")
            if len(texts) == turns:
                break
        text += f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
    return texts


class Case:
    """One conversation over one engine: calls to time, each on caches that are as the call needs them."""

    def __init__(self, tokenizer: toktier.Tokenizer, texts: list[str]) -> None:
        self.tokenizer, self.texts = tokenizer, texts
        self.names = (str(i) for i in itertools.count())
        self.storage = PrefixStorage(1 << 30, budget="resident")
        self.warm = self.cache()
        self.warm.encode(texts[-1])

    def cache(self) -> PrefixCache:
        return PrefixCache(self.tokenizer, namespace=next(self.names), storage=self.storage)

    def calls(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Prepares what one round needs, and gives what is timed."""
        last = self.texts[-1]
        cold, grown = self.cache(), self.cache()
        grown.encode(self.texts[-2])
        yield "fresh", lambda: self.tokenizer.encode(last)
        yield "miss", lambda: cold.encode(last)
        yield "hit_new_turn", lambda: grown.encode(last)
        yield "hit", lambda: self.warm.encode(last)


def measure(case: Case, rounds: int) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, call in case.calls():
            start = time.perf_counter()
            call()
            best[name] = min(best.get(name, 1e9), time.perf_counter() - start)
        case.storage.clear()
        case.warm.encode(case.texts[-1])
    return {name: round(1e6 * seconds, 1) for name, seconds in best.items()}


def memory(tokenizer: toktier.Tokenizer, texts: list[str], reference: toktier.Tokenizer) -> dict[str, int]:
    """Of all turns in order; the ids of each are compared."""
    cache = PrefixCache(tokenizer, storage=PrefixStorage(1 << 32, budget="resident"))
    for text in texts:
        if cache.encode(text) != reference.encode(text):
            raise SystemExit("other ids than the reference's")
    stats = cache.stats()
    ids = 4 * len(tokenizer.encode(texts[-1]))
    return {
        "ids_bytes": ids,
        "entries": stats["entries"],
        "resident": stats["resident_bytes"],
        "copies": stats["bytes"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json with <|im_start|> and <|im_end|>")
    parser.add_argument("corpus", type=Path, help="agent_chats.jsonl.zst")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    engines = {name: toktier.from_file(options.tokenizer, **arguments) for name, arguments in ENGINES.items()}
    document: dict[str, Any] = {
        "machine": machine.facts(),
        "sha_instructions": has_sha_instructions(),
        "load_average": {"before": machine.load_average()},
        "conversations": [],
    }
    print("turns  KB     engine     fresh us  miss us  hit+turn us  hit us  break-even  memory/ids  copies/ids")
    for turns in TURNS:
        texts = conversation(options.corpus, turns)
        size = len(texts[-1].encode())
        held = memory(engines["fast_cpu"], texts, engines["reference"])
        row: dict[str, Any] = {"turns": turns, "bytes": size, "memory": held, "microseconds": {}}
        for name, tokenizer in engines.items():
            took = measure(
                Case(tokenizer, texts), options.rounds if name == "fast_cpu" else max(2, options.rounds // 10)
            )
            row["microseconds"][name] = took
            lost, won = took["miss"] - took["fresh"], took["fresh"] - took["hit_new_turn"]
            even = max(0.0, lost / (lost + won)) if lost + won > 0 else 1.0
            print(
                f"{turns:5}  {size / 1000:5.0f}  {name:9} {took['fresh']:9.1f} {took['miss']:8.1f}"
                f" {took['hit_new_turn']:12.1f} {took['hit']:7.1f} {100 * even:10.0f}%"
                f" {held['resident'] / held['ids_bytes']:11.2f} {held['copies'] / held['ids_bytes']:11.1f}",
                flush=True,
            )
        document["conversations"].append(row)
    document["load_average"]["after"] = machine.load_average()
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
