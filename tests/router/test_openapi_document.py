"""Law: whatever is asked within the router's OpenAPI document, or beside it, is answered as the document says.

By schemathesis (tests/support/schemathesis_site.py), over HTTP, with the router in a process of its own in front of a
real llama-server. Two of its checks say nothing here: the bodies of the routes that pass are the upstream's to refuse
(400), and so are its faults (500), which pass unchanged. Faults of the router itself are in its log.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.router.running import LIFE, running
from tests.support.llama_server import LlamaServer
from tests.support.schemathesis_site import required_schemathesis

KEY = "sk-0123456789abcdef"
LEFT_OUT = "positive_data_acceptance,not_a_server_error"


@pytest.mark.ci
def test_every_answer_is_one_that_the_document_tells_of(llama: LlamaServer, tmp_path: Path) -> None:
    command = required_schemathesis()
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    keys.chmod(0o600)
    line = ("--upstream", llama.url, "--family", "toktier_mini", "--policy", "supported", "--api-key-file", str(keys))
    with running(tmp_path / "home", *line, module="toktier_cli.main") as router:
        router.ready()
        asked = [
            *command, "run", f"{router.url}/openapi.json", "-H", f"Authorization: Bearer {KEY}", "--max-examples", "10",
            "--seed", "1", "--workers", "2", "--generation-database", "none", "--exclude-checks", LEFT_OUT,
            "--request-timeout", "60",
            "--no-color",
        ]  # fmt: skip
        done = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, timeout=LIFE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Tested: 10" in done.stdout, done.stdout  # routes: none was left out
        router.signal()
        code, _, log = router.end()
    assert code == 0, log
    assert "failed:" not in log, log
    assert "Traceback" not in log, log
