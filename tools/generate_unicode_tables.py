"""Writes tables/unicode: what the installed reference takes each character for, probed over all scalar values."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from unicode_probes import properties
from unicode_probes.sweep import Ranges

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from toktier.canonical import TAG_TABLE, tagged_digest  # noqa: E402

FORMAT_VERSION = 1
OUTPUT = ROOT / "tables" / "unicode"


def render_ranges(ranges: Ranges) -> str:
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in ranges)


def properties_document() -> dict[str, Any]:
    found = properties.probe()
    return {
        "properties": {k: render_ranges(v) for k, v in found["properties"].items()},
        "properties_alone": {k: render_ranges(v) for k, v in found["alone"].items()},
        "names": found["names"],
        "shorthands": {k: render_ranges(v) for k, v in found["shorthands"].items()},
        "shorthands_alone": {k: render_ranges(v) for k, v in found["shorthands_alone"].items()},
        "posix": {k: render_ranges(v) for k, v in found["posix"].items()},
    }


TABLES: dict[str, Callable[[], dict[str, Any]]] = {"properties.json": properties_document}


def render(document: dict[str, Any]) -> bytes:
    """JSON with one entry a line, so that a changed property is a changed line."""
    return (json.dumps(document, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def main() -> int:
    tables = {name: render({"format_version": FORMAT_VERSION, **make()}) for name, make in TABLES.items()}
    manifest = {
        "format_version": FORMAT_VERSION,
        "probed_with": [tokenizers.__version__],
        "tables": {name: tagged_digest(TAG_TABLE, data) for name, data in tables.items()},
    }
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name, data in {**tables, "manifest.json": render(manifest)}.items():
        (OUTPUT / name).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
