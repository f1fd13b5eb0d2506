"""A warm call allocates nothing but its result: the C library's allocator is counted, in a process of its own.

The counter is a library that is loaded before the C library's own functions; CPython's small objects come from its own
arenas, so a short call needs none of what is counted here, and a longer one needs the block of its ids alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MINI = Path(__file__).parents[1] / "data" / "tokenizers" / "llama_like.json"

COUNTER = r"""
#include <dlfcn.h>
#include <stddef.h>
static unsigned long counted;
unsigned long toktier_test_allocations(void) { return counted; }
#define REAL(name, type) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, name)
void *malloc(size_t n) { typedef void *(*F)(size_t); REAL("malloc", F); ++counted; return real(n); }
void *realloc(void *p, size_t n) {
  typedef void *(*F)(void *, size_t); REAL("realloc", F); ++counted; return real(p, n);
}
void *mmap(void *a, size_t n, int p, int f, int d, long o) {
  typedef void *(*F)(void *, size_t, int, int, int, long); REAL("mmap", F); ++counted; return real(a, n, p, f, d, o);
}
"""

SCRIPT = """
import ctypes, json, sys
import toktier
told = ctypes.CDLL(None).toktier_test_allocations
told.restype = ctypes.c_ulong
tok = toktier.from_file(sys.argv[1], policy="supported")
said = {}
for name, text in {"short": "hello you", "ascii": "hello you and me " * 16, "other": "où étés ñandú " * 16,
                   "long": "hello you and me " * 2000}.items():
    for _ in range(3):
        tok.encode(text)
    before = told()
    for _ in range(100):
        tok.encode(text)
    said[name] = told() - before
    before = told()
    for _ in range(100):
        tok.count(text)
    said[name + " count"] = told() - before
said["backend"] = tok.explain(summary=True)["last_execution_backend"]
print(json.dumps(said))
"""


@pytest.mark.unsanitized  # a sanitizer has an allocator of its own
def test_a_warm_call_allocates_its_result_alone(tmp_path: Path) -> None:
    source, library = tmp_path / "count.c", tmp_path / "count.so"
    source.write_text(COUNTER)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", library, source, "-ldl"], check=True)
    env = {**os.environ, "LD_PRELOAD": str(library), "TOKTIER_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", SCRIPT, MINI], env=env, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said.pop("backend") == "fast_cpu"
    results = 100  # one block a call, where the ids are too many for the interpreter's own arenas
    assert {
        name: calls for name, calls in said.items() if calls > (results if name in ("ascii", "other", "long") else 0)
    } == {}
