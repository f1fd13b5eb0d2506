"""Where test material lies: the wider material beside the repository (../shared), and the small tokenizers inside it.

Used by tests and by the runners in tests/conformance. Nothing here decides what is checked.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
_BESIDE = ROOT.parent / "shared"
SHARED: Path | None = _BESIDE if (_BESIDE / "cases" / "ids.jsonl").is_file() else None

SMALL_DIR = ROOT / "tests" / "data" / "tokenizers"


def small_tokenizers() -> list[Path]:
    """tokenizer.json files of every kind, trained on text of the repository; always there."""
    return sorted(SMALL_DIR.rglob("*.json"))


def changed_tokenizer(base: Path, target: Path, **fields: Any) -> Path:
    """`target`: the tokenizer.json `base` with some of its top-level fields replaced."""
    target.write_text(json.dumps({**load_json(base), **fields}), encoding="utf-8")
    return target


def unpack(path: Path) -> bytes:
    """Contents of a zstd file, at most 128 MiB."""
    import zstandard

    data: bytes = zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=1 << 27)
    return data


def load_json(path: Path) -> Any:
    """A JSON document of ../shared."""
    return json.loads(path.read_text(encoding="utf-8"))


def load_script(path: Path) -> ModuleType:
    """A script of ../shared/cases as a module, without putting its directory on the path."""
    spec = importlib.util.spec_from_file_location(f"shared_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Artifacts:
    """Real tokenizer.json files by name (`qwen3`), and those derived from them (`d.norm`), kept in `directory`."""

    def __init__(self, shared: Path, directory: Path) -> None:
        self._shared, self._directory = shared, directory
        self._specs = {spec["name"]: spec for spec in load_json(shared / "cases" / "derived.json")}

    @property
    def names(self) -> list[str]:
        """Every real artifact."""
        return sorted(p.name.removesuffix(".json.zst") for p in (self._shared / "artifacts").glob("*.json.zst"))

    @property
    def derived_names(self) -> list[str]:
        return sorted(self._specs)

    def path(self, name: str) -> Path:
        """Path of the file; made on first use."""
        target = self._directory / f"{name}.json"
        if target.is_file():
            return target
        if name in self._specs:
            self.path(self._specs[name]["base"])
            text = load_script(self._shared / "cases" / "derive.py").derive(self._specs[name], str(self._directory))
            data = text.encode("utf-8")
        else:
            data = unpack(self._shared / "artifacts" / f"{name}.json.zst")
        made = target.with_suffix(f".{os.getpid()}")  # whole or absent for other workers, which share the directory
        made.write_bytes(data)
        made.replace(target)
        return target


def corpora(shared: Path) -> list[str]:
    """Names of the corpora of plain documents (`agent_chats` is made of messages and not among them)."""
    names = (p.name.removesuffix(".jsonl.zst") for p in (shared / "corpus").glob("*.jsonl.zst"))
    return sorted(name for name in names if name != "agent_chats")


def lines(shared: Path, corpus: str) -> Iterator[Any]:
    """The JSON values of a corpus: strings, or lists of {role, content} for agent_chats."""
    for line in unpack(shared / "corpus" / f"{corpus}.jsonl.zst").decode("utf-8").split("\n"):
        if line:
            yield json.loads(line)
