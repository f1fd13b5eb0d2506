"""The one driver of generators that write files of the repository: write them, or with `--check` compare them.

`--check` writes nothing. Exit 0: what lies there is what would be generated; 1: it is not; 3: the input is not at hand,
so that only the output itself was checked, and a line `declined:` says what was not compared. Without `--check`, an
input that is not at hand is exit 2. Not here: what is generated, and from what.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from toktier.errors import ToktierError


class Declined(Exception):
    """The input is not at hand; the message says which comparison cannot be made."""


def run(
    description: str,
    generate: Callable[[argparse.Namespace], Mapping[Path, bytes]],
    check_alone: Callable[[], list[str]],
    *,
    source: Path | None = None,
) -> int:
    """Exit code of the generator that is this program.

    `generate` gives each file with its bytes, or raises Declined; `check_alone` gives the problems that can be seen
    without the input. `source`: default of the option `--source`; None: there is no such option.
    """
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if source is not None:
        parser.add_argument("--source", type=Path, default=source, help="the published input")
    arguments = parser.parse_args()
    try:
        wanted = generate(arguments)
    except Declined as declined:
        if not arguments.check:
            return _problems([f"{declined}; nothing was written"], 2)
        try:
            problems = check_alone()
        except (ToktierError, OSError) as error:
            problems = [str(error)]
        print(f"declined: {declined}", file=sys.stderr)
        return _problems(problems, 1) if problems else 3
    if not arguments.check:
        for path, data in wanted.items():
            path.write_bytes(data)
        return 0
    stale = [path for path, data in wanted.items() if not path.is_file() or path.read_bytes() != data]
    script = Path(sys.argv[0]).name
    return _problems([f"{path.name} differs from what is generated; run tools/{script}" for path in stale], 1)


def _problems(problems: list[str], code: int) -> int:
    """Prints each problem; `code` where there is one, else 0."""
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return code if problems else 0
