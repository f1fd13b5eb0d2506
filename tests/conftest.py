"""Fixtures shared by all tests: where the wider material lies, real and small tokenizers, an isolated home; and that no
law is timed.

Tests never read the caller's settings: every TOKTIER_ variable is removed, and TOKTIER_HOME is a fresh directory.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # tests.support is imported by name; last: an installed build takes precedence

from tests.support import compiled_once, workers  # noqa: E402
from tests.support.material import SHARED, Artifacts  # noqa: E402

gc.disable()  # until all tests are collected, of which nothing is garbage: 8 of 25 seconds
compiled_once.install()

# How long an example takes says what else the host does. A law that names health checks of its own names this one too.
settings.register_profile("untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        config.option.loadscopereorder = False
        workers.sort_longest_first(items)


def pytest_collection_finish() -> None:
    workers.keep_what_was_collected()


def pytest_runtest_logfinish() -> None:
    workers.give_memory_back()


@pytest.fixture(scope="session", autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh TOKTIER_HOME for the whole session, and none of the caller's settings."""
    home = tmp_path_factory.mktemp("home")
    saved = {name: value for name, value in os.environ.items() if name.startswith("TOKTIER_")}
    for name in saved:
        del os.environ[name]
    os.environ["TOKTIER_HOME"] = str(home)
    yield home
    del os.environ["TOKTIER_HOME"]
    os.environ.update(saved)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory of cases, corpus and artifacts beside the repository; skips where there is none."""
    if SHARED is None:
        pytest.skip("needs ../shared (real artifacts, corpus, cases), which is not here")
    return SHARED


@pytest.fixture(scope="session")
def artifacts(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    """Real tokenizer.json files, unpacked on first use."""
    return Artifacts(shared, workers.directory_of_all(tmp_path_factory, "artifacts-of-all"))


def pytest_report_header() -> str:
    return f"wider material (../shared): {'present' if SHARED else 'absent, its suites are skipped'}"
