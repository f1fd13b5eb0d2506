"""Which compiler and which engine are installed, known at a load without hashing some sixty files (3 of its 6 ms).

A note beside the cached programs holds both digests for the stat data of every file that they cover: any change of one,
a file more or less included, is another state, and is hashed. The rules are those of `trust`: files and note are
writable by their owner alone, and nothing is noted of what changed in the last two seconds. The build facts of the
native module are part of the state, since they hold the digest of all the sources that it was built with: images that
fix times and inodes cannot pass one release for another. Loads alone ask here; what makes evidence, `explain` and
`doctor` hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from toktier import storage
from toktier.errors import EnvironmentFault
from toktier.program import compiler_identity, engine_identity, trust

_OF_BUILD = ("identity", "native_digest", "compiler", "flags", "build_type")  # and not what this host's CPU can do


class Identities(NamedTuple):
    """Digests, hex: `compiler_identity.compiler_digest` and `engine_identity.engine_identity`."""

    compiler: str
    engine: str


@cache
def identities(hints: Path) -> Identities:
    """Of this installation, asked once in a process. `hints`: directory of the note."""
    places = engine_identity.python_places()
    native = compiler_identity.native_module()
    if native is not None:
        places["_native"] = native
    statuses = {name: os.stat(path) for name, path in sorted(places.items())}  # before anything is read
    facts = engine_identity.build_facts()
    state = _state(statuses, facts)
    # An installation has one note; a virtual environment that is gone leaves a small file, which the store bounds.
    hint = hints / f"{hashlib.sha256(os.fsencode(f'{__file__}:{native}')).hexdigest()}.json"
    believable = all(map(trust.only_owner_writes, statuses.values()))
    if believable:
        known = trust.read_hint(hint, state, Identities._fields)
        if known is not None:
            return Identities(*known)
    python = engine_identity.hash_python()
    found = Identities(compiler_identity.digest_with(python), engine_identity.combined(facts["native_digest"], python))
    if believable and all(map(trust.is_settled, statuses.values())):
        with contextlib.suppress(EnvironmentFault):
            storage.make_directory(hints)
            trust.write_hint(hint, state, found._asdict())
    return found


def _state(statuses: dict[str, os.stat_result], facts: dict[str, object]) -> str:
    files = [(name, trust.identity(status)) for name, status in statuses.items()]
    build = [facts[name] for name in _OF_BUILD]
    return hashlib.sha256(repr((files, build)).encode()).hexdigest()
