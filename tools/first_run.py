#!/usr/bin/env python3
"""What `dev.py run` shows: a real pinned tokenizer, real text, our ids beside the reference's, and how fast both were.

The text is what every host has: the sources of Python's standard library, and the many-language sample of this
repository. The engine is forced to fast_cpu; a text that anything else served ends the run with an error. Not a
benchmark (benchmarks/ has those): one pass, one thread.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import tokenizers

import toktier

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = "Hello, world! Größe, 日本語, добрый день, 12,345 and a café 🚀"


def texts(limit: int) -> list[str]:
    """Documents, about `limit` bytes in all."""
    found = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests" / "data" / "text").glob("*.txt"))]
    size = sum(len(t.encode()) for t in found)
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found.append(text)
        size += len(text.encode())
        if size >= limit:
            break
    return found


def load(family: str) -> toktier.Tokenizer:
    """By evidence; without it, as after every change of the engine, by the compiler's own checks, which is said."""
    try:
        return toktier.load(family, policy="require_accelerated")
    except toktier.errors.UncertifiedTokenizer as error:
        print(f"note: {error}; policy supported admits it here, and what follows compares it with the reference")
    except toktier.ToktierError as error:
        sys.exit(f"error: {error}\nhint: {error.remedy}")
    nothing_else = toktier.Config(tokenizer_fallback=False)
    return toktier.load(family, policy="supported", tokenizer="fast_cpu", config=nothing_else)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--family", default="qwen3_8b")
    parser.add_argument("--bytes", type=int, default=4_000_000)
    options = parser.parse_args()

    command = [sys.executable, "-m", "toktier_cli.main"]
    if subprocess.call([*command, "artifacts", "fetch", options.family]) != 0:
        sys.exit(f"{options.family} could not be fetched; `--family toktier_mini` needs no network")

    tok = load(options.family)
    reference = tokenizers.Tokenizer.from_file(tok.explain()["model_resolution"]["path"])
    print(f"family        {options.family}  (tokenizer.json sha256 {tok.artifact_sha256})")
    print(f"fingerprint   {tok.fingerprint}")
    print(f"text          {SAMPLE}")
    print(f"toktier ids   {tok.encode(SAMPLE).ids}")
    print(f"reference ids {reference.encode(SAMPLE, add_special_tokens=False).ids}")

    documents = [SAMPLE, *texts(options.bytes)]
    size = sum(len(d.encode()) for d in documents)
    start = time.perf_counter()
    ours = [tok.encode(d) for d in documents]
    middle = time.perf_counter()
    theirs = [reference.encode(d, add_special_tokens=False).ids for d in documents]
    end = time.perf_counter()
    served = {e.backend for e in ours}
    different = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a.ids != b]
    ids = sum(len(e) for e in ours)
    fast, slow = size / (middle - start) / 1e6, size / (end - middle) / 1e6
    print(f"documents     {len(documents)}, {size} bytes, {ids} ids, {len(different)} differ from the reference")
    print(f"served by     {', '.join(sorted(served))}")
    print(f"speed         toktier {fast:.0f} MB/s, tokenizers {tokenizers.__version__} {slow:.1f} MB/s")
    print(f"ratio         {fast / slow:.0f} times the reference")
    if different or served != {"fast_cpu"}:
        sys.exit("NOT equal to the reference, or another engine served")


if __name__ == "__main__":
    main()
