"""Which engines a run compares, and where each lives. The adapters are `toktier_cli/bench/engines.py`: the command has
them too. What is added here is the package of our name (`namesake.py`), which no process can load beside ours."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from toktier_cli.bench.engines import ENGINES, REFERENCE, Toktier

__all__ = ["NAMES", "NAMESAKE", "OURS", "REFERENCE", "Places"]

OURS = Toktier.name
NAMESAKE = "namesake"
NAMES = (*(kind.name for kind in ENGINES), NAMESAKE)


@dataclass(frozen=True)
class Places:
    """`peers`: a directory of `pip install --target`, behind this environment. `namesake`: the interpreter of the
    environment that holds it; its TOKTIER_HOME is `namesake_home`."""

    peers: Path | None = None
    namesake: Path | None = None
    namesake_home: Path | None = None

    def interpreter(self, engine: str) -> Path | None:
        return self.namesake if engine == NAMESAKE else Path(sys.executable)

    def environment(self, engine: str) -> dict[str, str]:
        """What the worker gets: settings of engines that would change what is measured are taken out."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FASTOKENS_", "GIGATOKEN_", "RAYON_"))}
        kept["TOKENIZERS_PARALLELISM"] = "false"
        if engine == NAMESAKE:
            kept.pop("PYTHONPATH", None)
            kept |= {"TOKTIER_HOME": str(self.namesake_home or ""), "TOKTIER_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
        return kept

    def version(self, engine: str) -> str | None:
        """None: not installed."""
        distribution = "toktier" if engine == NAMESAKE else engine
        if engine == NAMESAKE:
            if self.namesake is None:
                return None
            script = "import importlib.metadata as m, json; print(json.dumps(m.version('toktier')))"
            told = subprocess.run([str(self.namesake), "-c", script], capture_output=True, text=True, check=False)
            return str(json.loads(told.stdout)) if told.returncode == 0 else None
        path = [*sys.path, str(self.peers)] if self.peers else sys.path
        found = next(iter(importlib.metadata.distributions(name=distribution, path=path)), None)
        return None if found is None else found.version
