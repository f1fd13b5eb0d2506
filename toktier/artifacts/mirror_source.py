"""A mirror as a source: a tree of `<repo_id>/resolve/<revision>/<file>` at an HTTP(S) URL, or a directory like that.

It is what `artifacts mirror` writes, and the hub's own layout. A mirror is trusted with nothing: every file has to
equal its pin. Part files stay in the cache's `parts/` until they are whole: the next fetch goes on where one ended.
User name and password of the URL go to its own host and into no message. Not here: the download itself
(`mirror_download`), writing a tree (`mirror_tree`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import urllib.parse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache, hash_file
from toktier.artifacts.mirror_download import Job
from toktier.artifacts.network_client import last_json, last_line, run_client
from toktier.artifacts.pins import Family, PinnedFile
from toktier.errors import ArtifactHashMismatch, ConfigInvalid, EnvironmentFault, SourceUnreachable
from toktier.labels import quoted
from toktier.storage import make_directory, require_space

IDLE_SECONDS = 10.0
SCHEMES = ("http", "https", "file")
Watch = Callable[[PinnedFile, int], None]


@dataclass(frozen=True, slots=True)
class Mirror:
    """A mirror's place. `shown` is the URL without credentials and query; `directory` is set for file:// alone."""

    base: urllib.parse.SplitResult
    authorization: str
    shown: str
    directory: Path | None = None

    def url(self, path: str) -> str:
        quoted_path = urllib.parse.quote(path)
        return urllib.parse.urlunsplit(self.base._replace(path=f"{self.base.path.rstrip('/')}/{quoted_path}"))


def parse_mirror(text: str) -> Mirror:
    """A mirror from its URL. ConfigInvalid for one that is no http, https or file URL; it is not repeated there."""
    try:
        parts = urllib.parse.urlsplit(text)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise _no_mirror("a URL with a host that cannot be read") from None
    if parts.scheme == "file":
        if host not in ("", "localhost"):
            raise _no_mirror(f"a file URL of another host, {quoted(host)}")
        path = Path(urllib.parse.unquote(parts.path))
        return Mirror(parts, "", f"file://{path}", path)
    if parts.scheme not in ("http", "https") or not host:
        raise _no_mirror(f"{quoted(parts.scheme)}://…" if host else "a URL without a host")
    authorization = ""
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")
    netloc = f"[{host}]" if ":" in host else host
    netloc = netloc if port is None else f"{netloc}:{port}"
    base = parts._replace(netloc=netloc, fragment="")
    return Mirror(base, authorization, urllib.parse.urlunsplit(base._replace(query="")))


def _no_mirror(what: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"{what} is no source: expected an http, https or file URL of a tree of <repository>/resolve/<revision>/<file>",
        details={"source": "mirror"},
        remedy="toktier artifacts fetch --help",
    )


def tree_path(family: Family, file: PinnedFile) -> str:
    """Where a mirror has a file, below its root. SourceUnreachable for a family of no repository."""
    if family.repo_id is None or family.revision is None:
        raise SourceUnreachable(
            f"{family.name} belongs to no repository, so no mirror has it",
            details={"source": "mirror", "family": family.name, "reason": "no_repository"},
            remedy="toktier artifacts import PATH",
        )
    return f"{family.repo_id}/resolve/{family.revision}/{file.name}"


def file_of_directory(mirror: Mirror, family: Family, file: PinnedFile) -> Path | None:
    """The file in a file:// tree, or None. ArtifactHashMismatch when it is there with other content."""
    assert mirror.directory is not None
    path = mirror.directory / tree_path(family, file)
    try:
        digest, size = hash_file(path)
    except OSError:
        return None
    if digest != file.sha256:
        raise wrong_bytes(family, file, str(path), f"{size:,} bytes with the SHA-256 {digest}")
    return path


def mirror_file(
    mirror: Mirror, family: Family, file: PinnedFile, cache: ArtifactCache, timeout: float, watch: Watch | None = None
) -> Path:
    """A file of an HTTP mirror, whole and right, in a part file that the caller removes once it is stored.

    Raises SourceUnreachable, ArtifactHashMismatch for other bytes, EnvironmentFault where there is no room.
    """
    path = tree_path(family, file)
    cache.require_writable()
    require_space(cache.root, 2 * file.size)
    directory = make_directory(cache.root / "parts", cache.modes.directory)
    part = directory / f"{file.sha256}.part"
    job = Job(mirror.url(path), str(part), file.size, file.sha256, mirror.authorization, min(IDLE_SECONDS, timeout))

    def look() -> None:
        if watch is not None:
            with contextlib.suppress(OSError):
                watch(file, part.stat().st_size)

    _, stdout, stderr = run_client(
        [sys.executable, "-m", "toktier.artifacts.mirror_download"],
        timeout,
        f"download of {file.name} from {mirror.shown}",
        "mirror",
        given=json.dumps(asdict(job)).encode(),
        watch=None if watch is None else look,
    )
    outcome = last_json(stdout)
    if "path" in outcome:
        return Path(outcome["path"])
    reason = outcome.get("reason", "failed")
    message = outcome.get("message") or last_line(stderr) or "the client gave no reason"
    if reason == "wrong":
        raise wrong_bytes(family, file, f"{mirror.shown}, {path}", message)
    if reason in ("host", "no_space"):
        raise EnvironmentFault(
            f"cannot keep what {mirror.shown} sends in {directory}: {message}",
            details={"path": str(directory), "needed_bytes": file.size},
            remedy="free space on that file system and make it writable, or point TOKTIER_HOME elsewhere",
        )
    said = {
        "unreachable": f"{mirror.shown} cannot be reached ({message})",
        "refused": f"{mirror.shown} refuses {path} ({message})",
        "absent": f"{mirror.shown} has no {path} ({message})",
    }.get(reason, f"{mirror.shown} did not give {path}: {message}")
    remedy = {
        "refused": "give the URL with the user name and password that the mirror expects",
        "absent": f"make the tree with `toktier artifacts mirror {family.name} --out DIR`",
        "cut": "try again: what came is kept, and the next fetch goes on from there",
    }.get(reason, f"try again, or bring the file by hand: toktier artifacts import PATH (SHA-256 {file.sha256})")
    raise SourceUnreachable(
        said, details={"source": "mirror", "url": mirror.shown, "path": path, "reason": reason}, remedy=remedy
    )


def wrong_bytes(family: Family, file: PinnedFile, where: str, observed: str) -> ArtifactHashMismatch:
    """A source that has the file's name and other content."""
    return ArtifactHashMismatch(
        f"{where} is not {family.name}'s {file.name}: it gives {observed}, the pin says {file.size:,} bytes with the "
        f"SHA-256 {file.sha256}",
        details={
            "family": family.name,
            "file": file.name,
            "where": where,
            "expected_sha256": file.sha256,
            "expected_size": file.size,
        },
        remedy=f"fetch it from another source: toktier artifacts fetch {family.name} --from SOURCE",
    )
