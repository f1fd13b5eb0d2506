"""Runs one converter in a process of its own and writes the tokenizer.json to stdout.

Run as `python -m toktier.conversion.run_alone CONVERTER FILE...`, the files in the order of the converter's inputs.
`run` starts that with a hash seed of the caller's choice: output that depends on the order of a set differs between
seeds. Errors are for the caller, who converts again in his own process to raise them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from toktier.errors import EnvironmentFault

TIMEOUT = 600.0  # seconds; the largest known vocabulary takes 2


def run(converter: str, paths: Sequence[Path], hash_seed: int) -> bytes:
    """The tokenizer.json that a new process makes. Raises EnvironmentFault when the process fails."""
    command = [sys.executable, "-P", "-m", "toktier.conversion.run_alone", converter, *map(str, paths)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        problem = f"it took longer than {TIMEOUT:g} s"
    except OSError as error:
        problem = f"it cannot be started: {error.strerror}"
    else:
        if done.returncode == 0 and done.stdout:
            return done.stdout
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        problem = f"it ended with {done.returncode}" + (f" ({said[-1][:300]})" if said else "")
    raise EnvironmentFault(
        f"the process that was to convert with {converter} failed: {problem}",
        details={"converter": converter},
        remedy="try again; memory of about 500 MB is needed",
    )


def main(arguments: Sequence[str]) -> int:
    from toktier.conversion.pinned import converter_named

    converter = converter_named(arguments[0])
    contents = {name: Path(path).read_bytes() for name, path in zip(converter.inputs, arguments[1:], strict=True)}
    sys.stdout.buffer.write(converter.run(contents))
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
