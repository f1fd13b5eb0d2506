"""`toktier artifacts check-conversion`: makes a derived family's tokenizer.json again and compares it with its pin."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.derive import input_paths
from toktier.artifacts.fetch import FetchReport, fetch_inputs
from toktier.artifacts.network_sources import DEFAULT_TIMEOUT
from toktier.artifacts.pins import Family, Pins, shipped_pins
from toktier.errors import ExitCode, UnsupportedConfig
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result

DIGEST_SHOWN = 12


def check_conversion(
    ctx: typer.Context,
    family: Annotated[str, typer.Argument(metavar="FAMILY", show_default=False)],
    repeats: Annotated[int, typer.Option(metavar="N", help="Processes that convert.", min=2, max=100)] = 2,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Seconds for each network source.", min=1, callback=options.finite),
    ] = DEFAULT_TIMEOUT,
) -> Result:
    """Derive tokenizer.json again from the pinned upstream files and compare digests.

    The files come from where `artifacts fetch` would take them, and stay in the cache. Each process converts with
    another hash seed. Nothing is stored of the result.
    """
    from toktier.conversion.check import check  # the converters need the compiler's tables
    from toktier.conversion.pinned import converter_of

    invocation: Invocation = ctx.obj
    pins = shipped_pins()
    pinned = pins.family(family)
    if not pinned.derived:
        raise _not_derived(pinned, pins)
    converter = converter_of(pinned.inputs)
    settings = options.settings_of(invocation)
    report = fetch_inputs(family, settings, timeout=timeout, pins=pins, notify=invocation.note)
    paths = input_paths(pinned, ArtifactCache.of(settings))
    done = check(converter, [paths[name] for name in converter.inputs], repeats)
    matches = done.digests == (pinned.tokenizer.sha256,)
    added = done.added_tokens

    def document() -> dict[str, Any]:
        return {
            "family": pinned.name,
            "converter": converter.name,
            "repo_id": pinned.repo_id,
            "revision": pinned.revision,
            "inputs": [
                {"name": n, "sha256": f.sha256, "size": f.size, "source": report.files[n].source}
                for n, f in pinned.inputs.items()
            ],
            "runs": done.runs,
            "deterministic": done.deterministic,
            "observed_sha256": done.digests[0],
            "observed_size": done.size,
            "expected_sha256": pinned.tokenizer.sha256,
            "expected_size": pinned.tokenizer.size,
            "identity_matches": matches,
            "added_tokens": added.count,
            "added_tokens_special": added.special,
            "added_tokens_first_id": added.first_id,
            "added_tokens_contiguous": added.contiguous,
            "added_tokens_fully_described": added.described,
        }

    return Result(
        "artifacts_check_conversion",
        document,
        lambda: _text(pinned, report, document()),
        ExitCode.DONE if matches else ExitCode.NO,
    )


def _not_derived(family: Family, pins: Pins) -> UnsupportedConfig:
    derived = sorted(f.name for f in pins.families.values() if f.derived)
    return UnsupportedConfig(
        f"{family.name} is not derived: its tokenizer.json is pinned as published (derived: {', '.join(derived)})",
        details={"family": family.name, "derived": derived},
        remedy=f"toktier artifacts verify {family.name}",
    )


def _text(family: Family, report: FetchReport, document: dict[str, Any]) -> str:
    lines = [f"{family.name}: converted {document['runs']} times with {document['converter']} from"]
    width = max(map(len, family.inputs))
    for name, file in family.inputs.items():
        lines.append(f"  {name.ljust(width)}  {file.sha256[:DIGEST_SHOWN]}  {report.files[name].source}")
    same = "the same bytes each time" if document["deterministic"] else "DIFFERENT BYTES, the conversion is at fault"
    lines.append(f"result: {document['observed_size']:,} bytes, {same}")
    first = document["added_tokens_first_id"]
    gap = "without a gap" if document["added_tokens_contiguous"] else "with gaps"
    where = "" if first is None else f", ids from {first} on {gap}"
    lines.append(f"added tokens: {document['added_tokens']}, {document['added_tokens_special']} special{where}")
    if document["identity_matches"]:
        lines.append(f"SHA-256 as pinned: {document['observed_sha256']}")
    else:
        lines.append(f"SHA-256 is NOT the pinned one: {document['observed_sha256']}")
        lines.append(f"pinned:                        {document['expected_sha256']}")
    return "\n".join(lines) + "\n"
