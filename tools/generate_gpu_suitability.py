"""Writes tables/gpu_suitability.json: whether the kernels of the GPU can follow a tokenizer, by SHA-256 of its file.

The premises are looked at by the native module, as a load looks at them; the table is for the support matrix, which
must speak of tokenizers that are not at hand. It decides nothing. The input is ../shared/artifacts and what is shipped;
what the table has of others stays. Not here: what evidence says (`generate_registry.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from checked_output import Declined, run  # noqa: E402

from toktier._native import Program  # noqa: E402
from toktier.errors import ProgramUnsupported  # noqa: E402
from toktier.gpu.suitability import COMPILER, suitability  # noqa: E402
from toktier.program.compile import compile_tokenizer  # noqa: E402

TABLE = REPOSITORY / "tables" / "gpu_suitability.json"
SHARED = REPOSITORY.parent / "shared" / "artifacts"
SCHEMA, SCHEMA_VERSION = "toktier.gpu_suitability", 1
MOST_BYTES = 1 << 27  # of a tokenizer.json


def premise_of(data: bytes) -> str | None:
    """Code of the first premise that fails; None: the kernels can follow it."""
    try:
        return suitability(Program(compile_tokenizer(data))).premise
    except ProgramUnsupported:
        return COMPILER


def shipped() -> Iterator[bytes]:
    for path in sorted((REPOSITORY / "tables" / "artifacts").glob("*/tokenizer.json")):
        yield path.read_bytes()


def published(source: Path) -> Iterator[bytes]:
    import zstandard

    for path in sorted(source.glob("*.json.zst")):
        yield zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=MOST_BYTES)


def read_table() -> dict[str, str | None]:
    """SHA-256 and premise; empty where there is no table."""
    return dict(json.loads(TABLE.read_bytes())["tokenizers"]) if TABLE.is_file() else {}


def table_bytes(known: dict[str, str | None]) -> bytes:
    document = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "tokenizers": dict(sorted(known.items()))}
    return (json.dumps(document, indent=1) + "\n").encode()


def found_in(files: Iterator[bytes]) -> dict[str, str | None]:
    return {hashlib.sha256(data).hexdigest(): premise_of(data) for data in files}


def generate(options: argparse.Namespace) -> dict[Path, bytes]:
    if not options.source.is_dir():
        raise Declined(f"{options.source} is not here, so that only what is shipped was looked at")
    return {TABLE: table_bytes({**read_table(), **found_in(shipped()), **found_in(published(options.source))})}


def check_alone() -> list[str]:
    known = read_table()
    problems = [] if TABLE.read_bytes() == table_bytes(known) else [f"{TABLE.name} is not in the form that is written"]
    stale = [sha256 for sha256, premise in found_in(shipped()).items() if known.get(sha256, "none") != premise]
    return problems + [f"{TABLE.name} says another thing of {sha256[:12]}" for sha256 in stale]


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", generate, check_alone, source=SHARED))
