"""Downloads one file of a mirror into a part file, going on where an earlier try ended, in a process of its own.

Run as `python -m toktier.artifacts.mirror_download`; stdin gives one JSON object (`Job`), because a command line is
everybody's to read and a URL may carry a password. stdout gets one JSON object with `path`, or `reason` and `message`.
Apart from the caller, because a name server or a proxy can keep a process waiting beyond any time-out.

The server may be anything: without ETag, Content-Length or ranges, chunked, redirecting, cutting. Only the digest of
the whole decides. Not here: what becomes of the file; messages name status codes and counts, never the URL.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import http.client
import json
import os
import re
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import IO, Any

CHUNK = 1 << 16
MAX_REDIRECTS = 5
MAX_STALLS = 3  # tries in a row that bring nothing new
MAX_TRIES = 50
RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d+)-")


@dataclass(frozen=True, slots=True)
class Job:
    """`idle_s`: seconds without a byte that end a try. `authorization`: a header for the URL's own origin, or empty."""

    url: str
    part: str
    size: int
    sha256: str
    authorization: str
    idle_s: float


class Failed(Exception):
    """Ends the download. `reason`: unreachable, refused, absent, cut, wrong or failed."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Few, to HTTP only, never from TLS to none; credentials stay with the origin that they were given for."""

    max_redirections = MAX_REDIRECTS

    def __init__(self) -> None:
        self.target = ""  # host and port that the last redirect led to

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise Failed("failed", f"redirects from {old.scheme} to {new.scheme[:20]}, which is not followed")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        self.target = new.netloc.rpartition("@")[2]
        authorization = req.unredirected_hdrs.get("Authorization")
        if request is not None and authorization and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            request.add_unredirected_header("Authorization", authorization)
        return request


class Download:
    """One job at work. `best`: the most bytes that were ever there."""

    def __init__(self, job: Job, part: IO[bytes]) -> None:
        self.job = job
        self.part = part
        self.best = 0
        self.answered = False  # a server that answers can be reached
        self.redirects = _Redirects()
        self.opener = urllib.request.build_opener(self.redirects)

    def run(self) -> None:
        """Ends with the right bytes in the part file, or raises Failed."""
        stalls, restarts = 0, 0
        for _ in range(MAX_TRIES):
            have = self.part.seek(0, os.SEEK_END)
            if have >= self.job.size:
                if have == self.job.size and self._digest() == self.job.sha256:
                    return
                if restarts:
                    raise Failed("wrong", f"{have:,} bytes with the SHA-256 {self._digest()}")
                # What an earlier try left may be of another file: once from the beginning before anyone is blamed.
                restarts, have = 1, self._empty()
            if have == 0:
                restarts = 1
            before = self.best
            try:
                self._request(have)
                problem = "the connection was cut"
            except (OSError, http.client.HTTPException) as error:
                problem = self._transient(error)
            self.best = max(self.best, self.part.seek(0, os.SEEK_END))
            stalls = 0 if self.best > before else stalls + 1
            if stalls >= MAX_STALLS and self.part.tell() < self.job.size:
                reason = "cut" if self.best else "failed" if self.answered else "unreachable"
                raise Failed(reason, f"{problem}{self._so_far()}")
            if stalls:
                time.sleep(0.2 * stalls)
        raise Failed("cut", f"{MAX_TRIES} tries were cut short{self._so_far()}")

    def _so_far(self) -> str:
        return f", {self.best:,} of {self.job.size:,} bytes came" if self.best else ""

    def _request(self, have: int) -> None:
        request = urllib.request.Request(self.job.url, headers={"Accept-Encoding": "identity", "User-Agent": "toktier"})
        if self.job.authorization:
            request.add_unredirected_header("Authorization", self.job.authorization)
        self.redirects.target = ""
        if have:
            request.add_header("Range", f"bytes={have}-")
        with self.opener.open(request, timeout=self.job.idle_s) as response:
            self._take(response, have)

    def _take(self, response: Any, have: int) -> None:
        if response.status == 206:
            start = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
            if start is None or int(start[1]) != have:
                self._empty()
                return
        elif response.status != 200:
            raise Failed("failed", f"it answers {response.status}")
        else:
            have = self._empty()
            length = response.headers.get("Content-Length", "")
            if length.isdecimal() and int(length) != self.job.size:
                raise Failed("wrong", f"{int(length):,} bytes")
        while data := response.read1(CHUNK):
            have += len(data)
            if have > self.job.size:
                self._empty()
                raise Failed("wrong", f"more than {self.job.size:,} bytes")
            self.part.write(data)

    def _transient(self, error: Exception) -> str:
        """What happened, when another try may help; else raises Failed."""
        if isinstance(error, urllib.error.HTTPError):
            return self._status(error)
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        target = self.redirects.target[:200]
        self.answered = self.answered or bool(target)
        if isinstance(cause, Failed):
            raise cause
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Failed("no_space", os.strerror(cause.errno)) from None
        if isinstance(cause, TimeoutError):
            return f"nothing came for {self.job.idle_s:g} s" + (f" from {target}, where it redirects" if target else "")
        if isinstance(cause, (ConnectionRefusedError, socket.gaierror)):
            why = cause.strerror or str(cause)
            if target:
                raise Failed("failed", f"it redirects to {target}, which cannot be reached ({why})") from None
            raise Failed("unreachable", why) from None
        if isinstance(cause, http.client.IncompleteRead):
            return "the connection was cut"
        message = " ".join(str(cause).split())[:200] or type(cause).__name__
        if isinstance(cause, (http.client.InvalidURL, ValueError)):
            raise Failed("failed", type(cause).__name__) from None
        return message

    def _status(self, error: urllib.error.HTTPError) -> str:
        error.close()
        self.answered = True
        if _Redirects.inf_msg in str(error.msg):
            raise Failed("failed", f"it redirects more than {MAX_REDIRECTS} times")
        if error.code == 416 and self.part.seek(0, os.SEEK_END):
            self._empty()
            return "it answers 416 to a range"
        if error.code in (401, 403, 407):
            raise Failed("refused", f"it answers {error.code}")
        if error.code in (404, 410):
            raise Failed("absent", f"it answers {error.code}")
        if error.code in RETRIED_STATUS:
            return f"it answers {error.code}"
        raise Failed("failed", f"it answers {error.code}")

    def _empty(self) -> int:
        self.part.seek(0)
        self.part.truncate()
        return 0

    def _digest(self) -> str:
        self.part.seek(0)
        digest = hashlib.file_digest(self.part, "sha256").hexdigest()  # type: ignore[arg-type]
        self.part.seek(0, os.SEEK_END)
        return digest


def download(job: Job) -> dict[str, str]:
    """The outcome as a JSON-able object. A part file that somebody else writes just now is left to him."""
    path = job.part
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            path = f"{job.part}.{os.getpid()}"
            descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as part:
            Download(job, part).run()
    except Failed as failure:
        return {"reason": failure.reason, "message": str(failure)}
    except ValueError as error:  # a host name or a header that the library refuses to send
        return {"reason": "failed", "message": f"the URL cannot be asked ({type(error).__name__})"}
    except OSError as error:
        return {"reason": "host", "message": f"cannot write {path}: {error.strerror}"}
    finally:
        with contextlib.suppress(OSError):
            if os.path.getsize(path) == 0:
                os.unlink(path)
    return {"path": path}


def main() -> int:
    outcome = download(Job(**json.load(sys.stdin)))
    sys.stdout.write(json.dumps(outcome) + "\n")
    return 0 if "path" in outcome else 1


if __name__ == "__main__":
    raise SystemExit(main())
