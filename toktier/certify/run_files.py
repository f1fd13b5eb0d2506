"""Reading the files of runs: regular ones, up to a bound, or an error that names the path.

Not here: what the bytes must say (`checkpoint`, `evidence`, `failures`), and how files are written (`toktier.storage`).
"""

from __future__ import annotations

from pathlib import Path

from toktier.errors import ArtifactNotFound
from toktier.labels import shown_path
from toktier.regular_files import open_regular
from toktier.storage import environment_fault


def read_at_most(path: Path, limit: int, *, expected: str = "", remedy: str = "check the path") -> bytes | None:
    """All bytes of a file, None where they are more than `limit`. `expected`: what the message says should be there.

    Raises ArtifactNotFound, EnvironmentFault (also for what is no regular file).
    """
    try:
        with open_regular(path) as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        wanted = f": expected {expected}" if expected else ""
        raise ArtifactNotFound(
            f"{shown_path(path)} does not exist{wanted}", details={"path": str(path)}, remedy=remedy
        ) from None
    except OSError as error:
        raise environment_fault(error, "read", path) from None
    return data if len(data) <= limit else None
