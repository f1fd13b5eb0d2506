"""A hub on loopback: the resolve endpoints that the hub's client calls, with faults on request."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Hub:
    """`files`: path below the host → bytes. `fault`: none, 404, 401, cut, slow or wrong."""

    files: dict[str, bytes]
    fault: str = "none"
    requests: list[str] = field(default_factory=list)
    url: str = ""


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
            data = hub.files.get(self.path.split("?")[0])
            if hub.fault == "slow":
                time.sleep(30)
            if hub.fault == "401":
                self.plain(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "accept the licence first"})
            elif data is None or hub.fault == "404":
                self.plain(404, {"X-Error-Code": "EntryNotFound"})
            else:
                if hub.fault == "wrong":
                    data = bytes(len(data))
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
                self.send_header("X-Repo-Commit", self.path.split("/resolve/")[1].split("/")[0])
                self.end_headers()
                if body:
                    self.wfile.write(data[: len(data) // 2] if hub.fault == "cut" else data)
                if hub.fault == "cut":
                    self.close_connection = True

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
