"""A hub, or any static server, on loopback: the endpoints that clients call, with faults on request.

As a hub it answers resolve, raw and the revision of a repository with the headers that its client reads; with
`static` it is a plain file server. Not here: what a client has to make of it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = frozenset(
    {"none", "404", "401", "403", "418", "500", "416", "cut", "cut-once", "chunked", "chunked-cut", "slow", "trickle",
     "wrong", "longer", "shorter", "no-range", "bad-range", "page", "redirect", "redirect-away", "redirect-forever"}
)  # fmt: skip


@dataclass
class Hub:
    """`files`: path below the host → bytes. `requests`: method and path; `headers`: those of each request.

    `static`: no header but the body's. `password`: `user:password` that each request has to give. `elsewhere`: where
    `redirect-away` leads.
    """

    files: dict[str, bytes]
    fault: str = "none"
    static: bool = False
    password: str | None = None
    elsewhere: str = ""
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    cut: bool = False

    def cuts(self) -> bool:
        """Whether this is the one body to be cut."""
        before, self.cut = self.cut, True
        return not before

    def __post_init__(self) -> None:
        assert self.fault in FAULTS, self.fault

    def sent(self, header: str) -> list[str]:
        """Values of a header over all requests that had it."""
        return [value for sent in self.headers for name, value in sent.items() if name.lower() == header.lower()]


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            hub.headers.append(dict(self.headers.items()))
            fault = hub.fault
            path = re.sub(r"^http://[^/]+", "", self.path).split("?")[0]  # a proxy is asked for the whole URL
            data = hub.files.get(path.removeprefix("/moved").replace("/raw/", "/resolve/"))
            if fault == "slow":
                time.sleep(30)
            if hub.password is not None:
                expected = "Basic " + base64.b64encode(hub.password.encode()).decode()
                if self.headers.get("Authorization") != expected:
                    return self.plain(401, {"WWW-Authenticate": "Basic"})
            if fault == "401":
                return self.plain(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "accept the licence first"})
            if fault in ("403", "418", "500"):
                return self.plain(int(fault), {})
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
                return self.revision(match[1], match[2])
            if data is None or fault == "404":
                return self.plain(404, {"X-Error-Code": "EntryNotFound"})
            if fault in ("redirect", "redirect-away", "redirect-forever") and (
                fault == "redirect-forever" or not path.startswith("/moved")
            ):
                target = "/moved" + path if fault == "redirect" else hub.elsewhere + path
                return self.plain(302, {"Location": path if fault == "redirect-forever" else target} | self.facts(data))
            self.file(data, body)
            return None

        def facts(self, data: bytes) -> dict[str, str]:
            """What the hub says of a file, on the redirect too."""
            if hub.static or "/resolve/" not in self.path:
                return {}
            digest = hashlib.sha256(data).hexdigest()
            commit = self.path.split("/resolve/")[1].split("/")[0]
            return {"X-Repo-Commit": commit, "X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(data))}

        def file(self, data: bytes, body: bool) -> None:
            fault = hub.fault
            data = {"wrong": bytes(len(data)), "longer": data + b"x", "shorter": data[:-1],
                    "page": b"<html>please log in</html>"}.get(fault, data)  # fmt: skip
            start, status = 0, 200
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if wanted and fault not in ("no-range", "chunked-cut"):
                if fault == "416" or int(wanted[1]) >= len(data):
                    return self.plain(416, {"Content-Range": f"bytes */{len(data)}"})
                start, status = int(wanted[1]), 206
            self.send_response(status)
            said = start + 1 if fault == "bad-range" and status == 206 else start
            if status == 206:
                self.send_header("Content-Range", f"bytes {said}-{len(data) - 1}/{len(data)}")
            for name, value in self.facts(data).items():
                self.send_header(name, value)
            if not hub.static:
                self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            chunked = fault.startswith("chunked")
            if chunked:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if body:
                self.body(data[start:], start, chunked)
            return None

        def body(self, data: bytes, start: int, chunked: bool) -> None:
            fault = hub.fault
            half = len(data) // 2
            if chunked:
                parts = [data[:half], data[half:]]
                for part in parts[: 1 if fault == "chunked-cut" else 2]:
                    self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                if fault == "chunked":
                    self.wfile.write(b"0\r\n\r\n")
                self.close_connection = True
            elif fault == "trickle":
                for index in range(0, len(data), 1000):
                    self.wfile.write(data[index : index + 1000])
                    self.wfile.flush()
                    time.sleep(0.5)
            elif fault == "cut" or (
                fault in ("cut-once", "416", "bad-range", "no-range") and start == 0 and hub.cuts()
            ):
                self.wfile.write(data[:half])
                self.close_connection = True
            else:
                self.wfile.write(data)

        def revision(self, repo_id: str, revision: str | None) -> None:
            found = [re.fullmatch(rf"/{repo_id}/resolve/([^/]+)/(.+)", p) for p in hub.files]
            named = [m for m in found if m and revision in (None, "main", m[1])]
            if not named:
                return self.plain(404, {"X-Error-Code": "RepoNotFound" if not any(found) else "RevisionNotFound"})
            document = {"id": repo_id, "sha": named[0][1], "siblings": [{"rfilename": m[2]} for m in named]}
            data = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return None

        def plain(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
