"""The identity of the engine in this checkout: printed, compared with the one that evidence was last made for, or
written as the header that the native module is built with.

Needs no native module and no installed package, because the build calls it. `--record` writes the document
evidence/engine_identity.json ({path: SHA-256} and digest); `--check` compares (exit 1 where it differs), `--show-diff`
names the files that differ. Not here: what the identity covers (`toktier.program.engine_identity`).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from toktier.gpu import host_identity  # noqa: E402
from toktier.program.engine_identity import digest_of, identity_document, native_digest  # noqa: E402

RECORD = REPOSITORY / "evidence" / "engine_identity.json"


def header(document: dict[str, str]) -> str:
    """What `native/bind/build_facts.cpp` includes."""
    return (
        "// Written by tools/compute_identity.py when the module is built.\n"
        "#pragma once\n"
        f'#define TOKTIER_ENGINE_IDENTITY "{digest_of(document)}"\n'
        f'#define TOKTIER_NATIVE_DIGEST "{native_digest(document)}"\n'
        f'#define TOKTIER_GPU_HOST_DIGEST "{host_identity.native_digest(REPOSITORY)}"\n'
    )


def record_of(document: dict[str, str]) -> dict[str, Any]:
    return {
        "schema": "toktier.engine_identity",
        "schema_version": 1,
        "identity": digest_of(document),
        "files": document,
    }


def recorded(path: Path = RECORD) -> dict[str, Any] | None:
    """The document that `--record` wrote; None where there is none."""
    return dict(json.loads(path.read_bytes())) if path.is_file() else None


def differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """One line for each file that differs."""
    lines = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            what = "added" if name not in old else "removed" if name not in new else "changed"
            lines.append(f"{what:<8} {name}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--document", action="store_true", help="print the document instead of the digest alone")
    parser.add_argument("--check", action="store_true", help="exit 1 unless it is the recorded identity")
    parser.add_argument("--show-diff", action="store_true", help="name the files that differ from the recorded ones")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(REPOSITORY)}")
    parser.add_argument("--header", type=Path, metavar="FILE", help="write the header of the build")
    options = parser.parse_args()
    document = identity_document(REPOSITORY)
    identity = digest_of(document)
    if options.header is not None:
        options.header.write_text(header(document))
        return 0
    if options.record:
        RECORD.write_text(json.dumps(record_of(document), indent=1) + "\n")
    old = recorded()
    if options.show_diff:
        for line in differences({} if old is None else old["files"], document):
            print(line)
    print(json.dumps(record_of(document), indent=1) if options.document else identity)
    if options.check and (old is None or old["identity"] != identity):
        was = "none is recorded" if old is None else f"recorded is {old['identity']}"
        print(f"error: {was}; tools/dev.py recertify makes evidence for this one", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
