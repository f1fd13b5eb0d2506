"""The module itself: one interpreter, one set of types, and nothing that its stub does not state."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.support.material import ROOT
from toktier import _native


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_import_has_the_same_types() -> None:
    """What an earlier import made keeps working beside what a later one makes."""
    run(
        "import sys, toktier._native as first\n"
        "made = first.Encoding.from_ids([1])\n"
        "del sys.modules['toktier._native'], sys.modules['toktier']\n"
        "import toktier._native as second\n"
        "for name in ('Program', 'ProgramError', 'Encoding', 'EncodingBatch', 'EncoderBase'):\n"
        "    assert getattr(first, name) is getattr(second, name), name\n"
        "assert made == second.Encoding.from_ids([1])\n"
        "assert second.EncodingBatch.from_encodings([made])[0] is made\n"
    )


def test_another_interpreter_is_refused() -> None:
    """Types belong to one interpreter: an import elsewhere must fail, and leave this one's working."""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    pytest.importorskip(name)
    said = run(
        f"import sys, {name} as interpreters, toktier._native as native\n"
        "other = interpreters.create()\n"
        "script = f'import sys; sys.path[:] = {sys.path!r}; import toktier._native'\n"
        "try:\n"
        "    failed = interpreters.run_string(other, script)\n"
        "    print(failed)\n"
        "except Exception as error:\n"
        "    print(error)\n"
        "interpreters.destroy(other)\n"
        "assert native.Encoding.from_ids([1, 2]) == [1, 2]\n"
    )
    assert "ImportError" in said
    assert "main interpreter only" in said or sys.version_info >= (3, 12)


def test_the_stub_states_every_public_name() -> None:
    tree = ast.parse((ROOT / "toktier" / "_native.pyi").read_text(encoding="utf-8"))
    stated = {n.name: n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    variants = {"take_counters", "set_fault"}  # of builds with operation counts, with faults to plant
    assert {n for n in dir(_native) if not n.startswith("_")} - variants == set(stated) - variants
    for name, node in stated.items():
        if not hasattr(_native, name):
            continue
        if isinstance(node, ast.ClassDef) and name != "ProgramError":
            members = {n.name for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("__")}
            present = {n for n in vars(getattr(_native, name)) if not n.startswith("__") and n != "_restore"}
            present -= {"n_fields", "n_sequence_fields", "n_unnamed_fields"}  # every struct sequence has these
            assert present == members, name
