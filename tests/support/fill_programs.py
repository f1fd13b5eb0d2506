"""Fills a cache of programs from another process. Not here: what is expected of the cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def fill(artifact: Path, cache: Path) -> None:
    """Compiles in a process of its own, like the one under test: this one may have started under older sources."""
    code = (
        "import sys, pathlib; from toktier.program.store import load_or_compile;"
        "load_or_compile(sys.argv[1], pathlib.Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, str(artifact), str(cache)], timeout=300, check=True)
