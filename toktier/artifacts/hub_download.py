"""Downloads one file of one repository revision with huggingface_hub, in a process of its own.

Run as `python -m toktier.artifacts.hub_download REPO_ID REVISION FILE CACHE_DIR`; stdout gets one JSON object with
`path`, or `reason` and `message`. Apart from the caller, because the client retries for half a minute without a network
and reads its time-outs from the environment when it is imported: a process can be ended, and costs the caller nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.parse
import urllib.request

PROBE_SECONDS = 5.0
_READING_ON = re.compile(r"\s*For more information check: *\S*")


def _probe(endpoint: str) -> str | None:
    """Why the hub's host cannot be reached at all, or None. Behind a proxy only the client can tell."""
    import socket

    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme in urllib.request.getproxies() or parts.hostname is None:
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), timeout=PROBE_SECONDS).close()
    except OSError as error:
        return f"{parts.hostname}:{port}: {error.strerror or error}"
    return None


def download(repo_id: str, revision: str, name: str, cache_dir: str) -> dict[str, str]:
    """The outcome as a JSON-able object."""
    unreachable = _probe(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if unreachable is not None:
        return {"reason": "unreachable", "message": unreachable}
    try:
        from huggingface_hub import hf_hub_download

        path = hf_hub_download(repo_id, name, revision=revision, cache_dir=cache_dir)
        return {"path": str(path)}
    except Exception as error:
        # The client's error classes moved between its 1.x and 2.x lines; their names did not. What went wrong with the
        # connection it gives as the cause of "not in the local cache", which says nothing here.
        told = error.__cause__ if type(error).__name__ == "LocalEntryNotFoundError" and error.__cause__ else error
        names = {c.__name__ for c in type(told).__mro__}
        status = getattr(getattr(told, "response", None), "status_code", None)
        reason = (
            "gated" if "GatedRepoError" in names
            else "no_hub" if "FileMetadataError" in names
            else "refused" if status in (401, 403)
            else "absent" if names & {"RepositoryNotFoundError", "RevisionNotFoundError", "EntryNotFoundError"}
            else "missing_client" if isinstance(told, ImportError)
            else "failed"
        )  # fmt: skip
        return {"reason": reason, "message": _said(told)}


def _said(error: BaseException) -> str:
    """The client's words on one line, without the page about status codes that its HTTP library recommends."""
    return " ".join(_READING_ON.sub("", str(error)).split())[:500] or type(error).__name__


def main() -> int:
    outcome = download(*sys.argv[1:5])
    sys.stdout.write(json.dumps(outcome) + "\n")
    return 0 if "path" in outcome else 1


if __name__ == "__main__":
    raise SystemExit(main())
