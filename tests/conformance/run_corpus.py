"""Real artifacts × real documents, native engine against the installed reference; prints what was compared.

python -m tests.conformance.run_corpus [--artifact X ...] [--corpus Y ...] [--complete]

Without --complete a fixed sample of each corpus. Exit 1 on a mismatch or when nothing was compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import tokenizers

from tests.conformance.adapter import native_tokenizer
from tests.conformance.corpus import SHOWN, all_corpora, compare, texts
from tests.support.material import SHARED, Artifacts

SAMPLE_BYTES = 200_000  # of each corpus for each artifact


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifact", action="append", help="name in ../shared/artifacts, or d.* of derived.json")
    parser.add_argument("--corpus", action="append", help="name in ../shared/corpus")
    parser.add_argument("--complete", action="store_true", help="every document, not a sample")
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    if SHARED is None:
        parser.error("needs ../shared, which is not here")
    failed = compared = 0
    with tempfile.TemporaryDirectory() as directory:
        artifacts = Artifacts(SHARED, Path(directory))
        for name in options.artifact or artifacts.names:
            path = artifacts.path(name)
            tokenizer = native_tokenizer(path)
            reference = tokenizers.Tokenizer.from_file(str(path))
            for corpus in options.corpus or all_corpora(SHARED):
                start = time.monotonic()
                chosen = texts(SHARED, corpus, reference, None if options.complete else SAMPLE_BYTES)
                report = compare(tokenizer, reference, chosen, options.threads)
                failed += len(report.mismatches)
                compared += report.ids
                facts = {k: v for k, v in asdict(report).items() if k != "mismatches"}
                line = " ".join(f"{key}={value}" for key, value in facts.items())
                seconds = time.monotonic() - start
                print(f"{name} {corpus} {line} mismatches={len(report.mismatches)} seconds={seconds:.1f}", flush=True)
                for mismatch in report.mismatches[:SHOWN]:
                    print(f"  MISMATCH {mismatch}", flush=True)
    print(f"tokenizers {tokenizers.__version__}: {compared} ids compared, {failed} mismatches")
    return int(failed > 0 or compared == 0)


if __name__ == "__main__":
    sys.exit(main())
