"""The distributions that the extra `serve` names, and the error of a router that lacks one of them.

Light: the verb asks before it loads anything. Not here: those of the other extras, which their modules ask for.
"""

from __future__ import annotations

import importlib.util
from typing import Final

from toktier.errors import BackendUnavailable
from toktier.missing_distribution import missing_distribution

# By the module that each brings.
DISTRIBUTIONS: Final = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "httpx": "httpx",
    "orjson": "orjson",
    "numpy": "numpy",
    "prometheus_client": "prometheus-client",
}


def missing(module: str) -> BackendUnavailable:
    """The error for a module of the table. The remedy installs all of them: one that is missing is seldom alone."""
    requirement = " ".join(DISTRIBUTIONS.values())
    return missing_distribution("the router needs", DISTRIBUTIONS[module], "serve", requirement)


def require_distributions() -> None:
    """Loads nothing. Raises BackendUnavailable for the first that is not installed."""
    for module in DISTRIBUTIONS:
        if importlib.util.find_spec(module) is None:
            raise missing(module)
