#!/usr/bin/env python3
"""Runs the fuzz target of the program reader: seeds are programs compiled here, mutations come from the driver.

The driver (native/fuzz/program_reader.cpp) is built with sanitizers by `dev.py test --tier ci`; with clang the same
file is a libFuzzer target. A crash, a sanitizer report or more memory than the limit ends with a non-zero code.
Bounded: a count of iterations, not a time.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from toktier.program.compile import compile_tokenizer

ROOT = Path(__file__).resolve().parent.parent
MEMORY_LIMIT = 2 << 30  # resident bytes; seeds are below 1 MB, so anything near this is unbounded growth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("build", type=Path, help="build directory that holds native/fuzz_program_reader")
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    driver = options.build / "native" / "fuzz_program_reader"
    sources = [ROOT / "tables/artifacts/toktier_mini/tokenizer.json"]
    sources += sorted((ROOT / "tests/data/tokenizers").glob("*.json"))
    with tempfile.TemporaryDirectory() as scratch:
        seeds = []
        for source in sources:
            seed = Path(scratch) / f"{source.parent.name}-{source.stem}.program"
            seed.write_bytes(compile_tokenizer(source.read_bytes()))
            seeds.append(str(seed))
        code = subprocess.call([str(driver), str(options.iterations), str(options.seed), *seeds])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"fuzz: {options.iterations} iterations over {len(seeds)} programs, peak {peak >> 20} MiB, exit {code}")
    if code or peak > MEMORY_LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
