"""What the checks look at: settings, environment, import path, system root; each worked out once, whoever asks first.

Replaceable as a whole, so that tests show a host that is not there. Not here: judgements.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from toktier.config import Config, Settings, resolve_settings

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Context:
    """`family`: a family or the path of a tokenizer.json that the caller asks about. `system`: where /proc, /sys, /dev
    and /usr lie."""

    config: Config = field(default_factory=Config)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    import_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    system: Path = Path("/")
    family: str | None = None
    _known: dict[str, Any] = field(default_factory=dict, repr=False)
    _guards: dict[str, threading.Lock] = field(default_factory=dict, repr=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, called once for all checks. One that hangs holds only those who need the same."""
        with self._guard:
            guard = self._guards.setdefault(name, threading.Lock())
        with guard:
            if name not in self._known:
                self._known[name] = make()
            known: T = self._known[name]
            return known

    @property
    def settings(self) -> Settings:
        """Raises ConfigInvalid."""
        return self.once("settings", lambda: resolve_settings(self.config, environ=self.environ))

    @property
    def distributions(self) -> dict[str, list[Distribution]]:
        """Installed distributions by normalized name, those found first on the import path first."""
        return self.once("distributions", lambda: installed(self.import_path))

    def version(self, name: str) -> str | None:
        found = self.distributions.get(normalized(name))
        return None if not found else found[0].version


@dataclass(frozen=True, slots=True)
class Distribution:
    name: str
    version: str
    path: Path


def normalized(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def installed(import_path: tuple[str, ...]) -> dict[str, list[Distribution]]:
    """By the names of *.dist-info directories: nothing is opened. `importlib.metadata` alone would cost 40 ms, a fifth
    of what a report may take; distributions in zip files and *.egg-info are not seen."""
    found: dict[str, list[Distribution]] = {}
    for directory in dict.fromkeys(entry or os.curdir for entry in import_path):
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for entry in sorted(names):
            if entry.endswith(".dist-info"):
                name, _, version = entry.removesuffix(".dist-info").partition("-")
                one = Distribution(name, version, Path(directory, entry))
                found.setdefault(normalized(name), []).append(one)
    return found
