"""A derived family's tokenizer.json from its pinned inputs in the cache.

No repository holds such a file: it is made here, the same bytes on every host, and held to its pin like any other.
Not here: how the inputs come into the cache (`fetch`), how they are converted (`toktier.conversion`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.pins import TOKENIZER_FILE, Family
from toktier.errors import ArtifactHashMismatch, ArtifactNotFound


def input_paths(family: Family, cache: ArtifactCache) -> dict[str, Path]:
    """Name → blob of every input, each hashed now. ArtifactNotFound for the first that is missing; the errors of
    `ArtifactCache.damage` for a damaged one."""
    paths: dict[str, Path] = {}
    for name, file in family.inputs.items():
        state = cache.inspect(file)
        if state.status == "missing":
            raise ArtifactNotFound(
                f"{name} of {family.name} is not in the cache",
                details={"family": family.name, "missing": [{"name": name, "sha256": file.sha256}]},
                remedy=f"toktier artifacts fetch {family.name}",
            )
        if state.status != "ok":
            raise cache.damage(file, state)
        paths[name] = state.path
    return paths


def derived_tokenizer(family: Family, cache: ArtifactCache) -> bytes:
    """The tokenizer.json, as pinned. Raises ArtifactHashMismatch when the conversion gives anything else, and what
    `input_paths` and the converter raise."""
    from toktier.conversion.pinned import converter_of  # the compiler's tables and pattern reader, for this alone

    converter = converter_of(family.inputs)
    data = converter.run({name: path.read_bytes() for name, path in input_paths(family, cache).items()})
    observed = hashlib.sha256(data).hexdigest()
    if observed != family.tokenizer.sha256:
        raise ArtifactHashMismatch(
            f"{TOKENIZER_FILE} of {family.name}, derived with {converter.name}, has the SHA-256 {observed}; "
            f"{family.tokenizer.sha256} is pinned",
            details={
                "family": family.name,
                "converter": converter.name,
                "expected_sha256": family.tokenizer.sha256,
                "observed_sha256": observed,
                "size": len(data),
            },
            remedy=f"toktier artifacts check-conversion {family.name}",
        )
    return data
