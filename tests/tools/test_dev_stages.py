"""Commands that `dev.py` runs beside others: what they said is told, a failure is its own, and none outlives it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from tests.support.material import ROOT


def dev(script: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'tools'); from dev_stages import Job\n{script}"]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_a_job_is_told_of_when_it_is_waited_for() -> None:
    done = dev("job = Job('a word', 'echo', 'boats'); print('before', file=sys.stderr); job.wait()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "before\n+ (a word) echo boats\nboats\n")


def test_a_job_that_fails_ends_the_run_with_its_exit_code() -> None:
    done = dev("Job('fails', 'sh', '-c', 'echo why; exit 7').wait(); print('went on')")
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.endswith("\nwhy\n")


def test_what_a_job_started_ends_with_the_run(tmp_path: Path) -> None:
    pipe, begun = tmp_path / "held", tmp_path / "begun"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        shell = f"exec 3> {pipe}; sleep 600 & touch {begun}; wait"
        dev(f"import os; Job('sleeps', 'sh', '-c', {shell!r})\nwhile not os.path.exists({str(begun)!r}): pass")
        assert begun.exists()
        # Its end comes when nobody holds the other side any more.
        assert select.select([reader], [], [], 120)[0]
        assert reader.read() == b""
