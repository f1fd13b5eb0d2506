"""The tester of OpenAPI documents, as a command. Tests skip without it; with SCHEMATHESIS=required, as in the job of
`dev.py test --tier ci` that has it on its path, they fail.
"""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest


def required_schemathesis() -> list[str]:
    """The words before its arguments."""
    if importlib.util.find_spec("schemathesis") is None:
        reason = "needs schemathesis (extra schemathesis-test), which is not here"
        if os.environ.get("SCHEMATHESIS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return [sys.executable, "-m", "schemathesis.cli"]
