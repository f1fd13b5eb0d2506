"""FastTokenizer beside `transformers.PreTrainedTokenizerFast`: the same batch calls in turns, in one run, as ratios.

    PYTHONPATH=<a site with transformers> python benchmarks/compat.py tokenizer.json [--texts 64] [--size 2000]

Each line is one call on one batch: the median of theirs over the median of ours (above 1: ours is faster), both in
milliseconds, and which engine served. Every pass takes other stretches of this repository's documents and code, as
users' texts repeat words and not texts, and both results of it are compared. One thread each: the process is held to
one processor, and `TOKENIZERS_PARALLELISM` and `RAYON_NUM_THREADS` are set. Not here: the engines themselves
(`run.py`).
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CALLS: dict[str, dict[str, Any]] = {
    "lists": {},
    "lists, padded and cut": {"padding": True, "truncation": True, "max_length": 256},
    "arrays, padded and cut": {"padding": True, "truncation": True, "max_length": 256, "return_tensors": "np"},
    "arrays, every part": {
        "padding": True, "truncation": True, "max_length": 128, "stride": 16, "return_overflowing_tokens": True,
        "return_tensors": "np",
    },
    "offsets": {"return_offsets_mapping": True},
    "pairs": {"text_pair": ["a question"], "padding": True},
}  # fmt: skip


def batch(draw: random.Random, source: str, count: int, size: int) -> list[str]:
    """`count` stretches of `size` code points of the source."""
    starts = (draw.randrange(len(source) - size) for _ in range(count))
    return [source[start : start + size] for start in starts]


def prose_and_code() -> str:
    """The documents and modules of this repository, as text of both kinds."""
    files = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "toktier").rglob("*.py")])
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--passes", type=int, default=7)
    asked = parser.parse_args(arguments)
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")
    import transformers

    from toktier.compat.transformers import FastTokenizer

    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(asked.tokenizer))
    token = next(iter(theirs.get_added_vocab()))
    theirs.pad_token = token
    ours = FastTokenizer.from_file(asked.tokenizer, load={"policy": "supported"}, pad_token=token)
    draw, source = random.Random(1), prose_and_code()
    print(
        f"{asked.tokenizer.stem}, {asked.texts} texts of {asked.size} code points, "
        f"transformers {transformers.__version__}"
    )
    for name, options in CALLS.items():
        print(f"{name:<24}{line(ours, theirs, options, (draw, source), asked)}", flush=True)
    return 0


def line(
    ours: Any, theirs: Any, options: dict[str, Any], texts_of: tuple[random.Random, str], asked: argparse.Namespace
) -> str:
    """Of one call. Raises AssertionError where the ids or masks differ."""
    if "text_pair" in options:
        options = {**options, "text_pair": options["text_pair"] * asked.texts}
    took: dict[str, list[float]] = {"ours": [], "theirs": []}
    backend = ""
    for number in range(asked.passes + 1):
        texts = batch(*texts_of, asked.texts, asked.size)
        found = {}
        for side, tokenizer in itertools.islice(
            itertools.cycle((("ours", ours), ("theirs", theirs))), number % 2, number % 2 + 2
        ):
            start = time.perf_counter()
            found[side] = tokenizer(texts, **options)
            if number:  # the first pass loads and warms
                took[side].append(time.perf_counter() - start)
        backend = found["ours"].backend
        for name, column in found["theirs"].items():
            other = found["ours"][name]
            assert (column.tolist() == other.tolist()) if hasattr(column, "tolist") else column == other, name
    mine, other = (1000 * statistics.median(took[side]) for side in ("ours", "theirs"))
    return f"{other / mine:6.2f}x   ours {mine:8.2f} ms   theirs {other:8.2f} ms   {backend}"


if __name__ == "__main__":
    raise SystemExit(main())
