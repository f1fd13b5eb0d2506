#!/usr/bin/env python3
"""Speed of toktier beside the reference in one run, as ratios; every timed output is compared with the reference's.

First form: one thread, distinct documents, first and second pass. Megabytes are 10^6 bytes of UTF-8. A number from one
run is never compared with a number from another. Not here yet: other engines, batches, sessions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import tokenizers

import toktier

ROOT = Path(__file__).resolve().parent.parent
CORPORA = ROOT.parent / "shared" / "corpus"


def corpus(name: str, limit: int) -> list[str]:
    """Documents of a corpus up to `limit` bytes; `sample` is the text of this repository."""
    if name == "sample":
        return [p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests/data/text").glob("*.txt"))]
    import zstandard

    raw = zstandard.ZstdDecompressor().decompress((CORPORA / f"{name}.jsonl.zst").read_bytes(), max_output_size=1 << 30)
    found, size = [], 0
    for line in raw.decode("utf-8").splitlines():
        text = json.loads(line)
        found.append(text)
        size += len(text.encode())
        if size >= limit:
            break
    return found


def timed(encode: Callable[[str], Sequence[int]], documents: list[str]) -> tuple[float, list[Sequence[int]]]:
    start = time.perf_counter()
    results = [encode(text) for text in documents]
    return time.perf_counter() - start, results


def reference_encode(reference: tokenizers.Tokenizer) -> Callable[[str], Sequence[int]]:
    return lambda text: reference.encode(text, add_special_tokens=False).ids


def fresh(documents: list[str]) -> list[str]:
    """New str objects: nothing an engine may have left on the old ones helps the next pass."""
    return [(text + "x")[:-1] for text in documents]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help="tokenizer.json files; default: the family toktier_mini")
    parser.add_argument("--corpus", action="append", default=[], help="name in ../shared/corpus, or `sample`")
    parser.add_argument("--bytes", type=int, default=2_000_000)
    options = parser.parse_args()
    files = options.files or [ROOT / "tables/artifacts/toktier_mini/tokenizer.json"]
    wrong = 0
    print(f"reference: tokenizers {tokenizers.__version__}; one thread; MB/s: first pass, second pass; ratio of first")
    for file in files:
        forced = toktier.Config(tokenizer_fallback=False)
        tok = toktier.from_file(file, policy="supported", tokenizer="fast_cpu", config=forced)
        reference = tokenizers.Tokenizer.from_file(str(file))
        for name in options.corpus or ["sample"]:
            documents = corpus(name, options.bytes)
            size = sum(len(d.encode()) for d in documents) / 1e6
            first, ours = timed(tok.encode, fresh(documents))
            second, _ = timed(tok.encode, fresh(documents))
            slow, theirs = timed(reference_encode(reference), fresh(documents))
            bad = sum(list(a) != list(b) for a, b in zip(ours, theirs, strict=True))
            wrong += bad
            label = file.parent.name if file.name == "tokenizer.json" else file.stem
            print(
                f"{label:16} {name:10} {size:6.2f} MB  toktier {size / first:7.1f} {size / second:7.1f}"
                f"  reference {size / slow:6.2f}  ratio {slow / first:6.1f}  differing {bad}",
                flush=True,
            )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
