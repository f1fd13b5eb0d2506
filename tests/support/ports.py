"""Ports of the loopback interface for servers that are told a number, and listen there a while later."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FIRST = 10_000
_OWN = random.SystemRandom()  # two workers whose generators have one seed must not draw the same port


def free_port() -> int:
    """One that is free, and stays so until its server has it, or has it again after a restart: it lies below those that
    the system itself gives to connections, where these leave room."""
    try:
        given_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        given_from = 0
    for _ in range(100 if given_from > _FIRST + 1_000 else 0):
        port = _bound(_OWN.randrange(_FIRST, given_from))
        if port:
            return port
    return _bound(0)


def _bound(port: int) -> int:
    """The port that could be bound; 0: it could not."""
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return 0
        return int(one.getsockname()[1])
