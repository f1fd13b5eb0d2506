"""Small pinned families, so that every path through the artifact code is quick."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.pins import SCHEMA, SCHEMA_VERSION, Pins, parse_pins, root_digest
from toktier.config import Config, Settings, resolve_settings


def tokenizer_bytes(seed: int, size: int = 150_000) -> bytes:
    """Stands for a tokenizer.json: valid JSON of exactly `size` bytes, large enough for a size to be telling."""
    noise = "".join(random.Random(seed).choices("abcdefgh", k=size - 14))
    return json.dumps({"model": noise[:-1]}).encode()[:size].ljust(size)


@dataclass(frozen=True)
class World:
    """Two families and their bytes. alpha has a wheel and a side file, beta neither."""

    pins: Pins
    settings: Settings
    cache: ArtifactCache
    alpha: bytes
    alpha_config: bytes
    beta: bytes
    home: Path

    def with_settings(self, **more: Any) -> Settings:
        return resolve_settings(Config(home=self.home, **more), environ={})


def make_pins(families: dict[str, Any]) -> Pins:
    document: dict[str, Any] = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "families": families}
    document["root_digest"] = root_digest(document)
    return parse_pins(json.dumps(document).encode())


def pin(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


@pytest.fixture
def world(tmp_path: Path) -> World:
    alpha, beta, config = tokenizer_bytes(1), tokenizer_bytes(2, 160_000), b'{"side": "file"}'
    pins = make_pins(
        {
            "alpha": {
                "repo_id": "org/Alpha",
                "revision": "a" * 40,
                "files": {"tokenizer.json": pin(alpha), "tokenizer_config.json": pin(config)},
                "also_published_in": [
                    {"kind": "pypi", "package": "alpha-tokens", "version": "1.0", "path": "alpha_tokens/tokenizer.json"}
                ],
            },
            "beta": {"repo_id": "org/Beta", "revision": "b" * 40, "files": {"tokenizer.json": pin(beta)}},
        }
    )
    home = tmp_path / "home"
    settings = resolve_settings(Config(home=home), environ={})
    return World(pins, settings, ArtifactCache(settings.require_cache()), alpha, config, beta, home)
