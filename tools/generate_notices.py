"""Writes THIRD-PARTY-NOTICES.txt and legal/toktier.cdx.json: what a wheel is made of, what it needs, under which terms.

Inputs: pyproject.toml, the metadata of the installed distributions, the Unicode licence in legal/, the pins. The SBOM
is CycloneDX without time or serial number, so that equal inputs give equal bytes. The project bears a name that the
public index gives to another project: it has no package URL. Not here: licences of tokenizers that are fetched
(`tables/family_licences.json`), shared libraries that auditwheel may add to a wheel (it writes an SBOM of its own).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import nvrtc_builds  # noqa: E402
from checked_output import Declined, run  # noqa: E402

from toktier.artifacts.licences import parse_licences  # noqa: E402
from toktier.artifacts.pins import parse_pins  # noqa: E402
from toktier.version import VERSION  # noqa: E402

NOTICES = REPOSITORY / "THIRD-PARTY-NOTICES.txt"
SBOM = REPOSITORY / "legal" / "toktier.cdx.json"
UNICODE_LICENCE = REPOSITORY / "legal" / "unicode-3.0.txt"
# Where dev.py puts what extras bring and `.venv` has not: backends, minilm.
SITES = [nvrtc_builds.SITE, REPOSITORY / "build" / "backends", REPOSITORY / "build" / "minilm"]
SPEC_VERSION = "1.6"
LINKED = "nanobind"  # compiled into the native module, with the hash map that it carries
ROBIN_MAP_HEADER = "nanobind/ext/robin_map/include/tsl/robin_map.h"
# Extras that no user of a wheel installs.
DEVELOPMENT = ("dev", "conversion-test", "transformers-test", "serve-test", "dynamo-test", "schemathesis-test", "bench")
RULE = "-" * 100

# Classifiers that name one SPDX licence; "BSD License" names two, told apart by their text.
_OF_CLASSIFIER = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
}
# Words that the text of a licence begins with.
_OF_TITLE = {("Apache", "License", "Version", "2.0,"): "Apache-2.0", ("MIT", "License"): "MIT"}
_SPDX = frozenset({"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "MPL-2.0"})  # as the older field spells them


@dataclass(frozen=True)
class Part:
    """One thing that a wheel holds or needs. `how`: linked, data, required or extra; `note` is for people."""

    name: str
    licence: str
    how: str
    note: str
    version: str | None = None
    purl: str | None = None
    requirement: str | None = None
    sha256: str | None = None
    text: str | None = None

    def component(self) -> dict[str, Any]:
        """As CycloneDX has it."""
        told = {"name": "toktier:inclusion", "value": self.how}
        asked = [] if self.requirement is None else [{"name": "toktier:requirement", "value": self.requirement}]
        # What is no id of the SPDX list is an expression, a reference of somebody's own too.
        is_listed = " " not in self.licence and not self.licence.startswith("LicenseRef-")
        licence = {"license": {"id": self.licence}} if is_listed else {"expression": self.licence}
        document: dict[str, Any] = {
            "type": "data" if self.how == "data" else "library",
            "bom-ref": self.purl or self.name,
            "name": self.name,
            "description": self.note,
            "licenses": [licence],
            "properties": [told, *asked],
        }
        if self.version is not None:
            document["version"] = self.version
        if self.purl is not None:
            document["purl"] = self.purl
        if self.how == "extra":
            document["scope"] = "optional"
        if self.sha256 is not None:
            document["hashes"] = [{"alg": "SHA-256", "content": self.sha256}]
        return document


def generate(arguments: argparse.Namespace) -> dict[Path, bytes]:
    linked = _distribution(LINKED)
    recorded = _recorded_version()
    if arguments.check and recorded is not None and recorded != linked.version:
        raise Declined(f"the notices are of {LINKED} {recorded}, and {linked.version} is installed")
    parts = [*_linked(linked), *_data(), *_needed()]
    return {NOTICES: _notices(parts).encode("utf-8"), SBOM: _sbom(parts)}


def check_alone() -> list[str]:
    """What can be said without the installed distributions: both files speak of the version and the requirements."""
    document = json.loads(SBOM.read_bytes())
    problems = []
    if document["metadata"]["component"]["version"] != VERSION:
        problems.append(f"{SBOM.name} is of another version than {VERSION}")
    listed = {p["value"] for c in document["components"] for p in c["properties"] if p["name"] == "toktier:requirement"}
    if listed != {requirement for _, requirement in _requirements()}:
        problems.append(f"{SBOM.name} lists other requirements than pyproject.toml")
    text = NOTICES.read_text("utf-8")
    problems += [f"{NOTICES.name} lacks {c['name']}" for c in document["components"] if c["name"] not in text]
    return problems


def _distribution(name: str) -> metadata.Distribution:
    for path in (sys.path, *([str(site)] for site in SITES)):
        for found in metadata.distributions(name=name, path=path):
            return found
    raise Declined(f"{name} is not installed here, its licence cannot be read")


def _recorded_version() -> str | None:
    try:
        components = json.loads(SBOM.read_bytes())["components"]
        return next((str(c["version"]) for c in components if c["name"] == LINKED), None)
    except (OSError, ValueError, KeyError):
        return None


def _linked(distribution: metadata.Distribution) -> list[Part]:
    header = Path(str(distribution.locate_file(ROBIN_MAP_HEADER)))
    comment = header.read_text("utf-8").split("*/", 1)[0]
    terms = "\n".join(re.sub(r"^\s*/?\*+ ?", "", line) for line in comment.splitlines()).strip()
    if not terms.startswith("MIT License"):
        raise SystemExit(f"{header} begins with other terms than expected")
    return [
        Part(
            LINKED, licence_of(distribution), "linked", "compiled into toktier._native",
            version=distribution.version, purl=f"pkg:pypi/{LINKED}@{distribution.version}",
            text=_licence_text(distribution),
        ),
        Part("robin-map", "MIT", "linked", "carried by nanobind and compiled in with it", text=terms),
    ]  # fmt: skip


def _data() -> list[Part]:
    tables = REPOSITORY / "tables"
    probed = ", ".join(json.loads((tables / "unicode" / "manifest.json").read_bytes())["probed_with"])
    parts = [
        Part(
            "Unicode Character Database", "Unicode-3.0", "data",
            f"tables/unicode: properties, folds and normal forms, probed from tokenizers {probed}, which carries them",
            text=UNICODE_LICENCE.read_text("utf-8").strip(),
        )
    ]  # fmt: skip
    licences = parse_licences((tables / "family_licences.json").read_bytes())
    for family in parse_pins((tables / "artifact_pins.json").read_bytes()).families.values():
        if family.shipped:
            note = f"a tokenizer that comes with the package; licence read in: {licences[family.name].read_in}"
            identifier, digest = licences[family.name].identifier, family.tokenizer.sha256
            parts.append(Part(family.name, identifier, "data", note, sha256=digest))
    return parts


def _requirements() -> list[tuple[str | None, str]]:
    """(extra or None, requirement) of pyproject.toml, without what only development needs."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    wanted = [(None, requirement) for requirement in project["dependencies"]]
    return wanted + [(extra, r) for extra, found in sorted(extras.items()) if extra not in DEVELOPMENT for r in found]


def _needed() -> list[Part]:
    wanted: dict[str, list[str | None]] = {}  # by requirement: what several extras name is one component
    for extra, requirement in _requirements():
        wanted.setdefault(requirement, []).append(extra)
    parts = []
    for requirement, extras in wanted.items():
        found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
        if found is None:
            raise SystemExit(f"pyproject.toml names no distribution in {requirement!r}")
        name = re.sub(r"[-_.]+", "-", found[0]).lower()
        named = [extra for extra in extras if extra is not None]
        note = "installed beside the package, not part of it"
        if named:
            note += f"; extra{'s' if len(named) > 1 else ''} {', '.join(named)}"
        how = "extra" if len(named) == len(extras) else "required"
        licence = licence_of(_distribution(name))
        parts.append(Part(name, licence, how, note, purl=f"pkg:pypi/{name}", requirement=requirement))
    return parts


def licence_of(distribution: metadata.Distribution) -> str:
    """SPDX expression of an installed distribution, from its own metadata. Declined where that names none."""
    told = distribution.metadata
    for stated in told.get_all("License-Expression") or []:  # SPDX by its definition
        return str(stated)
    for stated in told.get_all("License") or []:
        if stated in _SPDX:
            return str(stated)
    classifiers = told.get_all("Classifier") or []
    for classifier in classifiers:
        if classifier in _OF_CLASSIFIER:
            return _OF_CLASSIFIER[classifier]
    if "License :: OSI Approved :: BSD License" in classifiers:
        return "BSD-3-Clause" if "Neither the name" in _licence_text(distribution) else "BSD-2-Clause"
    text = _licence_text(distribution).split(maxsplit=8)
    for title, licence in _OF_TITLE.items():
        if text[: len(title)] == list(title):
            return licence
    raise Declined(f"neither the metadata of {told['Name']} nor its licence names one that is known here")


def _licence_text(distribution: metadata.Distribution) -> str:
    for path in distribution.files or ():
        if ".dist-info" in str(path) and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            return Path(str(path.locate())).read_text("utf-8").strip()
    raise Declined(f"{distribution.metadata['Name']} is installed without its licence")


def _sbom(parts: list[Part]) -> bytes:
    product = {
        "type": "library",
        "bom-ref": "toktier",
        "name": "toktier",
        "version": VERSION,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    components = sorted((part.component() for part in parts), key=lambda c: str(c["bom-ref"]))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": product},
        "components": components,
        "dependencies": [
            {"ref": "toktier", "dependsOn": [c["bom-ref"] for c in components]},
            *({"ref": c["bom-ref"]} for c in components),
        ],
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


_HEADINGS = {
    "linked": "Compiled into the native module",
    "data": "Data in the package",
    "required": "Needed at run time: installed beside the package, under their own terms",
    "extra": "Needed by extras: installed beside the package, under their own terms",
}


def _notices(parts: list[Part]) -> str:
    lines = [
        f"Third-party notices of toktier {VERSION}",
        "",
        "toktier itself is under the Apache License 2.0 (LICENSE). Made by tools/generate_notices.py.",
        "Shared libraries in a wheel: none of ours. Tokenizers that are fetched are under the terms of their",
        "repositories: `toktier inspect FAMILY` shows them.",
    ]
    for how, heading in _HEADINGS.items():
        chosen = [part for part in parts if part.how == how]
        if chosen:
            lines += ["", heading, "=" * len(heading)]
        for part in chosen:
            named = part.requirement or " ".join(filter(None, (part.name, part.version)))
            lines += ["", f"{named}: {part.licence}", f"    {part.note}"]
    for part in parts:
        if part.text is not None:
            lines += ["", RULE, f"{part.name}: {part.licence}", RULE, "", part.text]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


if __name__ == "__main__":
    raise SystemExit(run(__doc__, generate, check_alone))
