"""How the workers of a run (pytest-xdist) share a host: which files they take first, what memory they give back, and a
directory for what is made once for all of them. Nothing is checked here, and no test depends on it.
"""

from __future__ import annotations

import collections
import ctypes
import gc
import os
from pathlib import Path

import pytest

# Files that take longest in the CI tier, the longest first: none is left at the end that keeps one worker while the
# others wait. All others follow by their number of tests.
LONG_FILES = (
    "tests/conformance/test_hostile.py",
    "tests/conformance/test_corpus.py",
    "tests/conformance/test_cases.py",
    "tests/tools/test_generate_unicode_tables.py",
    "tests/packaging/test_air_gap.py",
    "tests/certify/test_suite_code_points.py",
    "tests/test_readme.py",
    "tests/certify/test_suite_tables.py",
    "tests/laws/test_text_cuts_laws.py",
    "tests/certify/test_suite_added.py",
    "tests/certify/test_suite_cuts.py",
    "tests/benchmarks/test_router.py",
    "tests/serving/test_reentry.py",
    "tests/test_text_parts.py",
    "tests/program/test_coverage.py",
    "tests/router/test_soak.py",
    "tests/router/test_status_page_in_chromium.py",
    "tests/router/test_server.py",
    "tests/router/test_serve_restarts.py",
    "tests/router/test_real_upstream.py",
    "tests/router/test_records.py",
    "tests/cli/test_bench.py",
    "tests/cli/test_every_line.py",
    "tests/tools/test_gpu_judge.py",
    "tests/native/test_split_artifacts.py",
    "tests/program/test_boundary.py",
    "tests/native/test_bpe_tables.py",
    "tests/native/test_join_filter.py",
    "tests/program/test_unicode.py",
    "tests/certify/test_suite_scanner.py",
    "tests/certify/test_suite_cases_fuzz.py",
    "tests/native/test_word_encoder.py",
    "tests/program/test_compile.py",
    "tests/artifacts/test_bundle_import.py",
    "tests/cli/test_artifacts_verbs.py",
    "tests/scenarios/test_artifact.py",
    "tests/cli/test_encode_verbs.py",
    "tests/cli/test_interrupts.py",
    "tests/artifacts/test_kit.py",
    "tests/artifacts/test_hub_source.py",
    "tests/artifacts/test_public_toktier.py",
    "tests/laws/test_random_tokenizers_laws.py",
    "tests/artifacts/test_many_writers.py",
    "tests/attacks/test_hostile_tokenizer_json.py",
    "tests/laws/test_cuts_laws.py",
    "tests/packaging/test_wheel.py",
    "tests/benchmarks/test_run.py",
    "tests/certify/test_runner.py",
    "tests/certify/test_vocabulary.py",
    "tests/certify/test_suite_normalization.py",
    "tests/conformance/test_cases_by_command.py",
    "tests/native/test_engine_added_tokens.py",
    "tests/native/test_engine_model.py",
)
HEAP_KEPT = 200 << 20  # bytes by which a process may grow before free memory is given back


def sort_longest_first(items: list[pytest.Item]) -> None:
    files = {item: item.nodeid.split("::")[0] for item in items}
    sizes = collections.Counter(files.values())
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: (places.get(files[item], len(places)), -sizes[files[item]], files[item]))


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_last_resident = _resident_bytes()


def keep_what_was_collected() -> None:
    """Hundreds of thousands of objects stay until the end of the run: no collection looks at them again."""
    gc.enable()
    gc.collect()
    gc.freeze()


def give_memory_back() -> None:
    """Two references of 260,000 tokens leave 420 MB behind that nothing holds: small blocks that are still in use lie
    between, and the C library keeps the whole until it is asked.
    """
    global _last_resident
    if _resident_bytes() > _last_resident + HEAP_KEPT:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _last_resident = _resident_bytes()


def directory_of_all(factory: pytest.TempPathFactory, name: str) -> Path:
    """A directory of this run that all its workers share."""
    base = factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    path.mkdir(exist_ok=True)
    return path
