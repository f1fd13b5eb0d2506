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
from toktier.labels import shown, shown_path
from toktier.regular_files import open_regular

MAX_RECORD_BYTES = 64 << 20
MAX_METADATA_BYTES = 4 << 20  # it ends with the package's README


def installed_packages(pins: Pins, wanted: set[str]) -> Iterator[Found]:
    """Wanted files in the Python packages of this environment, by the digests or sizes of their RECORDs."""
    from importlib import metadata  # 40 ms: only when something is missing

    sizes = {f.size for d in wanted for f in pins.of_digest(d)}
    for distribution in metadata.distributions():
        # The standard way to the directory would read files of the package without a limit, and wait for a FIFO.
        directory = getattr(distribution, "_path", None)
        if not isinstance(directory, Path):
            continue
        record = _text(directory / "RECORD", MAX_RECORD_BYTES)
        if record is None:
            continue
        for path in _record_paths(record, wanted, sizes):
            file = Path(str(distribution.locate_file(path)))
            yield from recognise(_single(file, f"{_label(directory)}, {shown(path)}"), pins, wanted=wanted)


def _text(path: Path, limit: int) -> str | None:
    """A file of UTF-8 text, or None: what is missing, no text or too long describes no package."""
    try:
        with open_regular(path) as stream:
            data = bounded_read(stream, limit)
        return None if data is None else data.decode("utf-8")
    except (OSError, ValueError):
        return None


def _label(directory: Path) -> str:
    """Name and version of a package, from its METADATA where that can be read, else from its directory."""
    name, _, version = directory.name.removesuffix(".dist-info").partition("-")
    for line in (_text(directory / "METADATA", MAX_METADATA_BYTES) or "").splitlines():
        if not line:
            break
        key, _, value = line.partition(":")
        if key == "Name":
            name = value.strip()
        elif key == "Version":
            version = value.strip()
    return f"{shown(name)} {shown(version)}"


def _record_paths(record: str, wanted: set[str], sizes: set[int]) -> Iterator[str]:
    """Paths in a RECORD whose digest is wanted. Where a RECORD states no digest, its size or the name has to do.

    A RECORD that is no CSV ends there; a size that is no number is the size of nothing wanted."""
    import csv

    encoded = {_record_digest(digest) for digest in wanted}
    decimal_sizes = {str(size) for size in sizes}  # compared as text: int() takes other digits, and raises on many
    if not any(digest in record for digest in encoded) and ",," not in record:
        return
    rows = csv.reader(record.splitlines())
    while True:
        try:
            row = next(rows)
        except (StopIteration, csv.Error):
            return
        if len(row) < 3 or not row[0]:
            continue
        algorithm, _, digest = row[1].partition("=")
        if algorithm == "sha256":
            if digest in encoded:
                yield row[0]
        elif row[2] in decimal_sizes if row[2] else row[0].endswith(".json"):
            yield row[0]


def _record_digest(sha256: str) -> str:
    return base64.urlsafe_b64encode(binascii.unhexlify(sha256)).rstrip(b"=").decode("ascii")


def _single(path: Path, where: str) -> Iterator[Candidate]:
    """One plain file, if it is there; what cannot be read is no candidate."""

    def read(limit: int) -> bytes | None:
        try:
            with open_regular(path) as stream:
                return bounded_read(stream, limit)
        except OSError:
            return None

    try:
        if path.is_file():
            yield Candidate(where, path.stat().st_size, read, path)
    except (OSError, ValueError):  # a name with a zero character is a ValueError
        return


def hub_cache(
    family: Family, pins: Pins, wanted: set[str], environ: Mapping[str, str] | None = None
) -> Iterator[Found]:
    """Wanted files of a family's pinned revision in the hub client's cache on this host."""
    environ = os.environ if environ is None else environ
    root = hub_cache_root(environ)
    if root is None or family.repo_id is None or family.revision is None:
        return
    folder = "models--" + family.repo_id.replace("/", "--")
    for file in {**family.inputs, **family.files}.values():
        if file.sha256 in wanted:
            path = root / folder / "snapshots" / family.revision / file.name
            yield from recognise(_single(path, f"hub cache, {shown_path(path)}"), pins, wanted=wanted)


def hub_cache_root(environ: Mapping[str, str]) -> Path | None:
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
