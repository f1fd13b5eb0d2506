"""The manifest of a bundle and the index of several: form, bounds, names, root digest (docs/bundle-format.md).

What is parsed here is another's word: bounded before it is parsed, no repeated and no unknown key, names that are safe
on every file system. Not here: the archive around it, and whether the content is pinned.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toktier.artifacts.bundle_faults import FaultMaker, Reason
from toktier.canonical import TAG_BUNDLE, TAG_BUNDLE_INDEX, document_digest
from toktier.labels import shown

MANIFEST_NAME, INDEX_NAME = "bundle_manifest.json", "bundle_index.json"
MAX_MANIFEST_BYTES = 1 << 20
MAX_NESTING = 8
MAX_FILES = 4096
MAX_FILE_BYTES = 256 << 20
MAX_TOTAL_BYTES = 2 << 30
MAX_PATH_BYTES, MAX_ALIAS_BYTES = 100, 96

_SEGMENT = re.compile(r"[A-Za-z0-9_+=@~]([A-Za-z0-9._+=@~-]*[A-Za-z0-9_+=@~])?", re.ASCII)
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE | re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One declared file. `size` in bytes, `sha256` in hex."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """What one plain bundle declares: files in ascending order of path."""

    alias: str
    files: tuple[BundleFile, ...]

    @property
    def root_digest(self) -> str:
        return "sha256:" + document_digest(TAG_BUNDLE, self._content())

    def encode(self) -> bytes:
        """The manifest as it is written: as TokTier 0.3.0 writes it."""
        return _written({**self._content(), "root_digest": self.root_digest})

    def _content(self) -> dict[str, Any]:
        files = [{"path": f.path, "sha256": f.sha256, "size": f.size} for f in self.files]
        return {"alias": self.alias, "files": files}


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One part of a bundle of several. `size` of its archive in bytes."""

    alias: str
    root_digest: str
    size: int

    @property
    def path(self) -> str:
        return f"{self.alias}.tar"


def encode_index(entries: Iterable[IndexEntry]) -> bytes:
    """The index of these parts, which must be in ascending order of alias."""
    content = {
        "bundles": [{"alias": e.alias, "path": e.path, "root_digest": e.root_digest, "size": e.size} for e in entries]
    }
    return _written({**content, "root_digest": _index_digest(content)})


def _index_digest(content: dict[str, Any]) -> str:
    return "sha256:" + document_digest(TAG_BUNDLE_INDEX, content)


def _written(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("ascii")


def parse_manifest(data: bytes, fault: FaultMaker) -> BundleManifest:
    """Raises BundleInvalid for anything that is not exactly a manifest within the bounds."""
    reader = _Reader(MANIFEST_NAME, fault)
    document = reader.document(data, ("alias", "files", "root_digest"))
    alias = reader.name(document["alias"], MAX_ALIAS_BYTES, slashes=False)
    files = []
    for entry in reader.entries(document["files"], ("path", "sha256", "size"), "files"):
        path = reader.name(entry["path"], MAX_PATH_BYTES, slashes=True)
        if not isinstance(entry["sha256"], str) or not _HEX.fullmatch(entry["sha256"]):
            raise reader.form(f"the sha256 of {path} is not 64 hex digits")
        files.append(BundleFile(path, entry["sha256"], reader.size(entry["size"], path, MAX_FILE_BYTES)))
    reader.ascending([f.path for f in files])
    reader.no_clash([MANIFEST_NAME, *(f.path for f in files)])
    if (total := sum(f.size for f in files)) > MAX_TOTAL_BYTES:
        raise fault(Reason.DECLARED_SIZE, observed=total, name="all files", limit=MAX_TOTAL_BYTES)
    manifest = BundleManifest(alias, tuple(files))
    reader.root_digest(document["root_digest"], manifest.root_digest)
    return manifest


def parse_index(data: bytes, fault: FaultMaker) -> tuple[IndexEntry, ...]:
    """As `parse_manifest`, for an index."""
    reader = _Reader(INDEX_NAME, fault)
    document = reader.document(data, ("bundles", "root_digest"))
    entries = []
    for entry in reader.entries(document["bundles"], ("alias", "path", "root_digest", "size"), "bundles"):
        alias = reader.name(entry["alias"], MAX_ALIAS_BYTES, slashes=False)
        digest = entry["root_digest"]
        if not isinstance(digest, str) or not _HEX.fullmatch(digest.removeprefix("sha256:")) or len(digest) != 71:
            raise reader.form(f"the root_digest of {alias} is not sha256: and 64 hex digits")
        part = IndexEntry(alias, digest, reader.size(entry["size"], alias, MAX_TOTAL_BYTES))
        if entry["path"] != part.path:
            raise reader.form(f"the path of {alias} is not {part.path}")
        entries.append(part)
    reader.ascending([e.alias for e in entries])
    reader.no_clash([INDEX_NAME, *(e.path for e in entries)])
    if (total := sum(e.size for e in entries)) > MAX_TOTAL_BYTES:
        raise fault(Reason.DECLARED_SIZE, observed=total, name="all parts", limit=MAX_TOTAL_BYTES)
    reader.root_digest(
        document["root_digest"], _index_digest({k: v for k, v in document.items() if k != "root_digest"})
    )
    return tuple(entries)


class _RepeatedKey(ValueError):
    pass


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RepeatedKey("a key stands twice in one object")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{shown(text, 20)} is no integer")


def _integer(text: str) -> int:
    if len(text) > 16:
        raise ValueError("an integer has more than 16 digits")
    return int(text)


class _Reader:
    """The checks that manifest and index share."""

    def __init__(self, member: str, fault: FaultMaker) -> None:
        self._member, self._fault = member, fault

    def form(self, problem: str) -> Exception:
        return self._fault(Reason.MANIFEST_FORM, member=self._member, problem=problem)

    def document(self, data: bytes, keys: tuple[str, ...]) -> dict[str, Any]:
        if len(data) > MAX_MANIFEST_BYTES:
            raise self._fault(Reason.MANIFEST_SIZE, member=self._member, observed=len(data), limit=MAX_MANIFEST_BYTES)
        problem = "it is nested too deeply" if _deep(data) else None
        if problem is None:
            try:
                document = json.loads(
                    data.decode("utf-8"),
                    object_pairs_hook=_no_repeats,
                    parse_float=_no_number,
                    parse_constant=_no_number,
                    parse_int=_integer,
                )
            except (ValueError, RecursionError) as error:
                problem = shown(str(error))
        if problem is not None:
            raise self._fault(Reason.MANIFEST_JSON, member=self._member, problem=problem)
        return self._object(document, keys, "it")

    def _object(self, value: Any, keys: tuple[str, ...], what: str) -> dict[str, Any]:
        if not isinstance(value, dict) or set(value) != set(keys):
            raise self.form(f"{what} is not an object with exactly {', '.join(keys)}")
        return value

    def entries(self, value: Any, keys: tuple[str, ...], what: str) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not 0 < len(value) <= MAX_FILES:
            raise self.form(f"{what} is not a list of 1 to {MAX_FILES:,} entries")
        return [self._object(entry, keys, f"an entry of {what}") for entry in value]

    def size(self, value: Any, name: str, limit: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.form(f"the size of {name} is no natural number")
        if value > limit:
            raise self._fault(Reason.DECLARED_SIZE, observed=value, name=name, limit=limit)
        return value

    def name(self, value: Any, limit: int, *, slashes: bool) -> str:
        problem = name_problem(value, limit, slashes=slashes)
        if problem is not None:
            raise self._fault(Reason.NAME, name=shown(str(value)), problem=problem)
        assert isinstance(value, str)
        return value

    def ascending(self, names: list[str]) -> None:
        if any(a > b for a, b in itertools.pairwise(names)):
            raise self._fault(Reason.MANIFEST_ORDER, member=self._member)

    def no_clash(self, names: list[str]) -> None:
        """No two names that are one file on some file system, and none that is a file here and a directory there."""
        files: dict[str, str] = {}
        directories: dict[str, str] = {}
        for name in names:
            folded = name.casefold()
            if (other := files.get(folded) or directories.get(folded)) is not None:
                raise self._fault(Reason.NAME_CLASH, name=other, other=name)
            files[folded] = name
            parts = folded.split("/")
            for depth in range(1, len(parts)):
                parent = "/".join(parts[:depth])
                if parent in files:
                    raise self._fault(Reason.NAME_CLASH, name=files[parent], other=name)
                directories.setdefault(parent, name)

    def root_digest(self, claimed: Any, observed: str) -> None:
        if claimed != observed:
            raise self._fault(
                Reason.ROOT_DIGEST, member=self._member, observed=shown(str(claimed), 80), expected=observed
            )


def _deep(data: bytes) -> bool:
    """Whether brackets could nest beyond the bound. Brackets inside strings count too: names may not hold them."""
    depth = 0
    for bracket in re.finditer(rb"[\[{\]}]", data):
        depth += 1 if bracket.group() in b"[{" else -1
        if depth > MAX_NESTING:
            return True
    return False


def name_problem(value: Any, limit: int, *, slashes: bool) -> str | None:
    """Why a name is not accepted, or None."""
    if not isinstance(value, str) or not value:
        return "a name is text"
    if not value.isascii():
        return "names are ASCII"
    if len(value) > limit:
        return f"it has more than {limit} bytes"
    segments = value.split("/") if slashes else [value]
    for segment in segments:
        if not _SEGMENT.fullmatch(segment):
            return "letters, digits and ._-+=@~ are accepted, no dot or - at either end, no empty or parent directory"
        if _DEVICES.fullmatch(segment):
            return "it is a device on Windows"
    return None
