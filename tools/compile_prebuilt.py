"""Compiles the kernels that a release wheel carries: DIRECTORY/sm_90.cubin and its like, by the pinned NVRTC.

Each is compiled twice and must be listed in tables/kernel_digests.json; otherwise nothing is left in DIRECTORY and the
exit code is 1. `dev.py wheel` calls it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import nvrtc_builds  # noqa: E402
from generate_kernel_digests import toolchain_of  # noqa: E402

from toktier.errors import ToktierError  # noqa: E402
from toktier.gpu.architectures import ARCHITECTURES  # noqa: E402
from toktier.gpu.digests import Finding  # noqa: E402
from toktier.gpu.kernel_sources import read_sources  # noqa: E402
from toktier.gpu.reproduce import reproduce  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("directory", type=Path, help="made when needed; holds nothing else")
    directory: Path = parser.parse_args().directory
    distribution, version = nvrtc_builds.pinned()
    toolchain = toolchain_of(distribution, version)
    if toolchain is None:
        sys.exit(f"{distribution} {version} is not at hand: tools/dev.py kernels brings it")
    sources = read_sources()
    try:
        made = [reproduce(toolchain, sources, architecture) for architecture in ARCHITECTURES]
    except ToktierError as error:
        sys.exit(f"error: {error}")
    unlisted = [one.architecture for one in made if one.finding(sources) is not Finding.LISTED]
    if unlisted:
        sys.exit(f"error: kernels for {', '.join(unlisted)} are not as listed; run tools/dev.py kernels")
    directory.mkdir(parents=True, exist_ok=True)
    for one in made:
        (directory / f"{one.architecture}.cubin").write_bytes(one.data)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
