"""Sources that need no network: installed Python packages, the hub's own cache, and paths the caller names.

Nothing of a package is imported; its RECORD says which files it has. Each source gives `Found` files, verified by
digest, for a set of wanted digests.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from toktier.artifacts.containers import Candidate, bounded_read, candidates
from toktier.artifacts.pins import Family, Pins
from toktier.artifacts.recognise import Found, Tally, recognise

MAX_RECORD_BYTES = 64 << 20


def installed_packages(pins: Pins, wanted: set[str]) -> Iterator[Found]:
    """Wanted files in the Python packages of this environment, by the digests or sizes of their RECORDs."""
    from importlib import metadata  # 40 ms: only when something is missing

    for distribution in metadata.distributions():
        record = distribution.read_text("RECORD")
        if record is None or len(record) > MAX_RECORD_BYTES:
            continue
        for path in _record_paths(record, wanted, {f.size for d in wanted for f in pins.of_digest(d)}):
            file = Path(str(distribution.locate_file(path)))
            where = f"{distribution.metadata['Name']} {distribution.version}, {path}"
            yield from recognise(_single(file, where), pins, wanted=wanted)


def _record_paths(record: str, wanted: set[str], sizes: set[int]) -> Iterator[str]:
    """Paths in a RECORD whose digest is wanted. Where a RECORD states no digest, its size or the name has to do."""
    import csv

    encoded = {_record_digest(digest) for digest in wanted}
    if not any(digest in record for digest in encoded) and ",," not in record:
        return
    for row in csv.reader(record.splitlines()):
        if len(row) < 3 or not row[0]:
            continue
        algorithm, _, digest = row[1].partition("=")
        if algorithm == "sha256":
            if digest in encoded:
                yield row[0]
        elif int(row[2]) in sizes if row[2].isdigit() else row[0].endswith(".json"):
            yield row[0]


def _record_digest(sha256: str) -> str:
    return base64.urlsafe_b64encode(binascii.unhexlify(sha256)).rstrip(b"=").decode("ascii")


def _single(path: Path, where: str) -> Iterator[Candidate]:
    """One plain file, if it is there; what cannot be read is no candidate."""

    def read(limit: int) -> bytes | None:
        try:
            with open(path, "rb") as stream:
                return bounded_read(stream, limit)
        except OSError:
            return None

    try:
        if path.is_file():
            yield Candidate(where, path.stat().st_size, read, path)
    except OSError:
        return


def hub_cache(
    family: Family, pins: Pins, wanted: set[str], environ: Mapping[str, str] | None = None
) -> Iterator[Found]:
    """Wanted files of a family's pinned revision in the hub client's cache on this host."""
    environ = os.environ if environ is None else environ
    root = _hub_cache_root(environ)
    if root is None or family.repo_id is None or family.revision is None:
        return
    folder = "models--" + family.repo_id.replace("/", "--")
    for file in family.files.values():
        if file.sha256 in wanted:
            path = root / folder / "snapshots" / family.revision / file.name
            yield from recognise(_single(path, f"hub cache, {path}"), pins, wanted=wanted)


def _hub_cache_root(environ: Mapping[str, str]) -> Path | None:
    """Where the hub client keeps its files, by its own documented variables."""
    if direct := environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expandvars(direct))
    if home := environ.get("HF_HOME"):
        return Path(os.path.expandvars(home)) / "hub"
    if xdg := environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "huggingface" / "hub"
    home = environ.get("HOME")
    return Path(home) / ".cache" / "huggingface" / "hub" if home else None


def path_source(path: Path, pins: Pins, wanted: set[str] | None, tally: Tally) -> Iterator[Found]:
    """Pinned files in a directory, wheel, tarball or bare file."""
    return recognise(candidates(path, tally.passed_over), pins, tally=tally, wanted=wanted)
