"""Writes tables/unicode: what the installed reference takes each character for, probed over all scalar values.

    python tools/generate_unicode_tables.py           write the tables, record the version of the reference
    python tools/generate_unicode_tables.py --check   probe again and compare; 1 and a sentence when anything differs

manifest.json has the digest of each table and `probed_with`, the versions of `tokenizers` that gave exactly these
tables: run it once under each version. A version that gives other tables starts the list anew. Needs only the standard
library, `tokenizers` and toktier. About a minute on one core. The probes are in
toktier/certify/unicode_probes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from toktier.canonical import TAG_TABLE, tagged_digest  # noqa: E402
from toktier.certify.unicode_probes import characters, folds, normalization, properties  # noqa: E402
from toktier.certify.unicode_probes.sweep import ProbeError, Ranges, to_ranges  # noqa: E402

FORMAT_VERSION = 1
OUTPUT = ROOT / "tables" / "unicode"
MANIFEST = "manifest.json"


def ranges_text(ranges: Ranges) -> str:
    """`41-5A AA`."""
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in ranges)


def sequence_text(code_points: Iterable[int]) -> str:
    """`41.300`."""
    return ".".join(f"{c:X}" for c in code_points)


def map_text(entries: dict[int, tuple[int, ...]]) -> str:
    """`C0=41.300 C1=41.301`."""
    return " ".join(f"{c:X}={sequence_text(v)}" for c, v in sorted(entries.items()))


def properties_table() -> dict[str, Any]:
    found = properties.probe()
    return {
        key: {k: v if isinstance(v, str) else ranges_text(v) for k, v in table.items()}
        for key, table in asdict(found).items()
    }


def folds_table() -> dict[str, Any]:
    partners, literals = folds.probe()
    groups = sorted(set(partners.values()))
    return {
        "partners": " ".join(map(sequence_text, groups)),
        "literals": {
            sequence_text(map(ord, literal)): sequence_text(characters) for literal, characters in literals.items()
        },
    }


def characters_table() -> dict[str, Any]:
    return {
        "numeric": ranges_text(characters.numeric()),
        "punctuation": ranges_text(characters.punctuation()),
        "word": ranges_text(characters.word()),
        "white_space": ranges_text(characters.white_space()),
        "lowercase": map_text(characters.lowercase()),
        "byte_alphabet": characters.byte_alphabet(),
    }


def normalization_table() -> dict[str, Any]:
    found = normalization.probe()
    by_class: dict[int, list[int]] = {}
    for c, number in found.combining_classes.items():
        by_class.setdefault(number, []).append(c)
    return {
        "combining_classes": {str(number): ranges_text(to_ranges(cs)) for number, cs in sorted(by_class.items())},
        "canonical": map_text({c: tuple(map(ord, v)) for c, v in found.canonical.items()}),
        "compatibility": map_text({c: tuple(map(ord, v)) for c, v in found.compatibility.items()}),
        "compositions": map_text(dict(found.compositions)),
        "not_inert": {form: ranges_text(r) for form, r in found.not_inert.items()},
        "no_boundary_before": {form: ranges_text(r) for form, r in found.no_boundary_before.items()},
    }


TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "properties.json": properties_table,
    "folds.json": folds_table,
    "characters.json": characters_table,
    "normalization.json": normalization_table,
}


def render(document: dict[str, Any]) -> bytes:
    """ASCII JSON with one entry a line, so that a changed property is a changed line."""
    return (json.dumps({"format_version": FORMAT_VERSION, **document}, indent=1) + "\n").encode("ascii")


def read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError:
        return b""


def manifest_for(tables: dict[str, bytes], version: str, former: bytes) -> bytes:
    """The manifest of these tables: `version` joins the versions of a former manifest of the same tables."""
    digests = {name: tagged_digest(TAG_TABLE, data) for name, data in tables.items()}
    versions = {version}
    if former:
        document = json.loads(former)
        if document["tables"] == digests:
            versions |= set(document["probed_with"])
    ordered = sorted(versions, key=lambda v: [int(n) if n.isdigit() else -1 for n in v.split(".")])
    return render({"probed_with": ordered, "tables": digests})


def differences(folder: Path, tables: dict[str, bytes], version: str) -> list[str]:
    """One sentence for each file of `folder` that generating anew would change."""
    out = []
    for name, data in tables.items():
        if read(folder, name) != data:
            out.append(f"{folder.name}/{name} differs from what tokenizers {version} does")
    if not out and read(folder, MANIFEST) != manifest_for(tables, version, read(folder, MANIFEST)):
        out.append(f"{folder.name}/{MANIFEST} does not list tokenizers {version} with these tables")
    known = {*tables, MANIFEST}
    out += [f"{folder.name}/{path.name} is no table" for path in sorted(folder.glob("*")) if path.name not in known]
    return out


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Probe the installed tokenizers and write tables/unicode.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing; 1 when anything differs")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="another folder than tables/unicode")
    options = parser.parse_args(arguments)
    folder: Path = options.output
    version = tokenizers.__version__
    try:
        tables = {name: render(make()) for name, make in TABLES.items()}
    except ProbeError as fault:
        print(f"tokenizers {version} answers in a way that the probes do not know: {fault}.", file=sys.stderr)
        return 1
    if options.check:
        found = differences(folder, tables, version)
        for sentence in found:
            print(f"{sentence}; run tools/generate_unicode_tables.py under that version.", file=sys.stderr)
        return 1 if found else 0
    folder.mkdir(parents=True, exist_ok=True)
    manifest = manifest_for(tables, version, read(folder, MANIFEST))
    for name, data in {**tables, MANIFEST: manifest}.items():
        (folder / name).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
