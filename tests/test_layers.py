"""Imports go down the layers only, and `import toktier` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.material import ROOT

# Lowest first. A module may import its own layer and those before it. `routing.vocabulary` is a table that every layer
# derives from; it imports the errors alone (checked below).
LAYERS: list[set[str]] = [
    {
        "toktier.errors",
        "toktier.integer_argument",
        "toktier.missing_distribution",
        "toktier.canonical",
        "toktier.labels",
        "toktier.regular_files",
        "toktier.resources",
        "toktier.shipped_tables",
        "toktier.version",
    },
    {"toktier.storage", "toktier.config", "toktier.routing.vocabulary", "toktier.decode_stream"},
    {"toktier.diagnostics_ring"},
    {"toktier._native"},
    {"toktier.program", "toktier.text_parts", "toktier.speculative"},
    {"toktier.sessions"},
    {"toktier.cache"},
    {"toktier.inspection"},
    {"toktier.conversion"},
    {"toktier.artifacts"},
    {"toktier.gpu"},
    {"toktier.backends"},
    {"toktier.evidence"},
    {"toktier.routing"},
    {"toktier.serving"},
    {"toktier.decoding"},
    {"toktier.tokenizer"},
    {"toktier.gpu_loading", "toktier.third_party_loading"},
    {"toktier.load_arguments", "toktier.opening"},
    {"toktier.api"},
    {"toktier"},
    {"toktier.compat"},
    {"toktier.router"},
    {"toktier.certify"},
    {"toktier.diagnosis"},
    {"toktier_cli"},
]
HEAVY = (
    "typer",
    "rich",
    "huggingface_hub",
    "jsonschema",
    "numpy",
    "tokenizers",
    "zstandard",
    "importlib.metadata",
    "redis",
    "sqlite3",
    "asyncio",
    "concurrent.futures",
    "prometheus_client",
    "fastapi",
    "uvicorn",
    "httpx",
    "orjson",
    "zmq",
    "msgpack",
    "onnxruntime",
)


def layer(module: str) -> int | None:
    """Index of the layer of a module, by its longest listed prefix; None for other distributions."""
    best: tuple[int, int] | None = None
    for index, names in enumerate(LAYERS):
        for name in names:
            within = module == name or (module.startswith(name + ".") and name != "toktier")
            if within and (best is None or len(name) > best[0]):
                best = (len(name), index)
    if best is None and module.split(".")[0] in ("toktier", "toktier_cli"):
        raise AssertionError(f"{module} has no layer: list it in LAYERS")
    return None if best is None else best[1]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    """Modules of this project that a file names in imports, at top level and inside functions."""
    known = {module_name(p) for p in sources()}
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            # `from toktier import errors` names the module toktier.errors, `from toktier.errors import X` its parent
            for alias in node.names:
                dotted = f"{base}.{alias.name}"
                found.add(dotted if dotted in known or dotted == "toktier._native" else base)
    return {name for name in found if name.split(".")[0] in ("toktier", "toktier_cli")}


def sources() -> list[Path]:
    return sorted([*(ROOT / "toktier").rglob("*.py"), *(ROOT / "toktier_cli").rglob("*.py")])


@pytest.mark.parametrize("path", sources(), ids=lambda p: module_name(p))
def test_imports_only_go_down(path: Path) -> None:
    own = layer(module_name(path))
    assert own is not None
    above = {name for name in imported(path) if (layer(name) or 0) > own}
    if module_name(path) == "toktier":
        above -= {"toktier.api"}
    assert not above, f"{module_name(path)} imports upwards: {sorted(above)}"


def test_the_vocabulary_imports_the_errors_alone() -> None:
    assert imported(ROOT / "toktier" / "routing" / "vocabulary.py") == {"toktier.errors"}


def test_only_the_command_prints() -> None:
    for path in (ROOT / "toktier").rglob("*.py"):
        calls = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
        assert not any(isinstance(c.func, ast.Name) and c.func.id == "print" for c in calls), f"{path} prints"


def modules_after(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("statement", ["import toktier", "import toktier; toktier.load; toktier.Tokenizer"])
def test_importing_is_light(statement: str) -> None:
    before = modules_after("pass")
    loaded = modules_after(statement) - before
    assert "toktier" in loaded
    found = {h for h in HEAVY if any(m == h or m.startswith(h + ".") for m in loaded)}
    assert not found, f"{statement!r} imports {sorted(found)}"
