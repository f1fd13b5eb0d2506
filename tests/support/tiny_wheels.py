"""Wheels of a few bytes, made on the spot: packages that hold nothing but what they say they need."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1",
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    members: Mapping[str, bytes] | None = None,
    headers: Sequence[str] = (),
) -> Path:
    """A wheel that pip installs, with `members` beside its metadata and `headers` (whole lines) in it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *headers]
    metadata = [*lines, *(f"Requires-Dist: {requirement}" for requirement in requires)]
    python, abi, platforms = tag.split("-")
    wheel = ["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: true"]
    wheel += [f"Tag: {python}-{abi}-{platform}" for platform in platforms.split(".")]
    contents = {
        **(members or {}),
        f"{info}/METADATA": "\n".join([*metadata, ""]).encode(),
        f"{info}/WHEEL": "\n".join([*wheel, ""]).encode(),
    }
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in contents.items():
            archive.writestr(member, data)
        record = "".join(f"{member},,\n" for member in [*contents, f"{info}/RECORD"])
        archive.writestr(f"{info}/RECORD", record)
    return path
