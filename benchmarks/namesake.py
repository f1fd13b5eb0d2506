"""The public package that bears the name toktier, as an engine. It is not ours; it lives in an environment of its own.

Runs in that environment's interpreter (`worker.py`), so nothing of this repository's package can be imported here. It
knows pinned families alone: the file must be one of them, and the family must lie in its cache (`TOKTIER_HOME`).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Refused(Exception):
    """It cannot take this file. The message is one line, without paths."""


class Namesake:
    """Its results hold a tuple, made in every call. `lookup="off"`: a text must be encoded, not found again."""

    def __init__(self, file: Path) -> None:
        import toktier  # the other one

        family = self._family(file)
        start = time.perf_counter_ns()
        tok = toktier.load(family)
        self.load_ns = time.perf_counter_ns() - start
        tok.encode("a", lookup="off")
        told = tok.explain(summary=True)
        self.served = f"{told['last_execution_backend']}: {told['last_execution_path']}"
        if told["last_execution_backend"] == "hf":
            raise Refused("its reference serves")
        self._tok = tok
        self.encode: Callable[[str], Any] = lambda text: tok.encode(text, lookup="off")

    def _family(self, file: Path) -> str:
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        listed = subprocess.run(
            [str(Path(sys.executable).with_name("toktier")), "inspect", "--json"], capture_output=True, check=True
        )
        for family, facts in json.loads(listed.stdout).items():
            if facts["files"].get("tokenizer.json", {}).get("sha256") == sha256:
                return str(family)
        raise Refused("the file is no family of its table")

    def ids_of(self, result: Any) -> bytes:
        return array("I", result.ids).tobytes()

    def encode_batch(self, texts: Sequence[str], threads: int) -> Any:
        return self._tok.encode_batch(list(texts))

    def ids_of_batch(self, result: Any) -> list[bytes]:
        return [self.ids_of(row) for row in result]
