"""Runs the command on every attack, each time in a forked child, and prints what came of it as JSON lines.

One process imports everything; its children start with that memory, so that what they add is what an attack cost.
Arguments: a directory to work in. Each child sees a home of its own and a sentinel directory above it.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.attacks.bundles import archives, claims, frames, manifests
from tests.attacks.bundles.craft import ATTACKS, good, pins
from toktier.artifacts import pins as pins_module

assert archives
assert claims
assert frames

TABLE = pins()
pins_module.shipped_pins = lambda: TABLE  # type: ignore[assignment]  # before the verbs import it by name

import toktier_cli.verbs.artifacts_import  # noqa: E402
import toktier_cli.verbs.artifacts_show  # noqa: E402
from toktier.artifacts import bundle_verify, signatures  # noqa: E402
from toktier_cli.main import main  # noqa: E402

assert toktier_cli.verbs.artifacts_import
assert toktier_cli.verbs.artifacts_show
assert bundle_verify
assert signatures


def tree(root: Path) -> dict[str, str]:
    """Everything below `root`: files by digest, the rest by kind."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(directory, name)
            plain = path.is_file() and not path.is_symlink()
            found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest() if plain else "-"
    return found


def run(place: Path, verb: str, bundle: Path) -> dict[str, Any]:
    """One run of the command in a child."""
    home, log = place / "home", place.parent / "log"
    log.mkdir(exist_ok=True)
    before = tree(place)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(log / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        code = main(["artifacts", verb, str(bundle), "--json", "--home", str(home)])
        sys.stdout.flush()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
        os.write(write, json.dumps([code, grown]).encode())
        os._exit(0)
    os.close(write)
    answer = b""
    while data := os.read(read, 4096):
        answer += data
    os.close(read)
    os.waitpid(child, 0)
    code, grown = json.loads(answer or b"[null, 0]")
    after = tree(place)
    return {
        "code": code,
        "grown_kib": grown,
        "stdout": (log / "out").read_text("utf-8"),
        "stderr": (log / "err").read_text("utf-8"),
        "changed": sorted(k for k in {*before, *after} if before.get(k) != after.get(k)),
    }


def attacked(place: Path, name: str, suffix: str, build: Callable[[], bytes]) -> dict[str, Any]:
    bundle = place.parent / f"{name}{suffix}"
    bundle.write_bytes(build())
    result = {"name": name, "import": run(place, "import", bundle), "verify": run(place, "verify", bundle)}
    bundle.unlink()
    return result


def run_all(place: Path) -> None:
    work = place / "work"
    (work / "home").mkdir(parents=True)
    (work / "sentinel").write_text("untouched")
    os.chdir(work)
    for attack in ATTACKS:
        print(json.dumps(attacked(work, attack.name, attack.suffix, attack.build)), flush=True)
    # Last, because they leave something: what the attacks vary is accepted.
    print(json.dumps(attacked(work, "good", ".tar", good)), flush=True)
    print(json.dumps(attacked(work, "good_parts", ".tar", manifests.good_parts)), flush=True)
    print(json.dumps(attacked(work, "good_frame", ".tar.zst", lambda: frames.compressed(good()))), flush=True)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
