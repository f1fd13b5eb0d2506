"""`toktier gpu compile`, `list` and `clean`: kernels compiled by NVRTC on this host, and what is kept of them.

Not here: how they are compiled and judged (`toktier.gpu`), what they show on a device (`gpu_trial`), what is said of
them (`gpu_text`).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toktier.errors import EnvironmentFault, ExitCode, KernelsUnavailable, ToktierError, UncertifiedKernels, UsageError
from toktier.gpu import delivery, jit
from toktier.gpu.architectures import ARCHITECTURES
from toktier.gpu.cubin_cache import CubinCache
from toktier.gpu.digests import Finding
from toktier.gpu.kernel_sources import KernelSources, read_sources
from toktier.gpu.reproduce import Reproduced, reproduce
from toktier.gpu.toolchain import Toolchain, described, find_toolchain, install_line
from toktier.labels import quoted
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result, exit_code_of
from toktier_cli.progress import Progress
from toktier_cli.verbs.gpu_families import families_text, named_tokenizer
from toktier_cli.verbs.gpu_text import cached_rows, compiled_row, compiled_text, list_text, shipped_rows
from toktier_cli.verbs.gpu_trial import trial, trial_text

OPT_IN = "UNCERTIFIED JIT OPT-IN"


def compile_(
    ctx: typer.Context,
    families: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FAMILY...]",
            help="Say also whether a device can run these, or a tokenizer.json.",
            show_default=False,
        ),
    ] = None,
    arch: Annotated[
        list[str] | None, typer.Option("--arch", metavar="ARCH", help="One architecture; may be repeated.")
    ] = None,
    all_archs: Annotated[
        bool, typer.Option("--all-archs", help="Every architecture that there are kernels for.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept-uncertified-jit", help="Keep kernels that are not listed, this once.")
    ] = False,
) -> Result:
    """Compile the kernels with NVRTC, with or without a device, and keep them for the GPU engine.

    One cubin for each architecture serves every tokenizer. Each is compiled twice, the bytes are compared with each
    other and with the digests that toktier lists. With a device here those of its architecture are loaded, held to the
    budget of local memory, and run the self-test, with the shipped tokenizer and every one that is named. Exit code 1:
    no device can run a tokenizer that was named, or the self-test fails; 4: kernels are not listed; 7: they cannot be
    kept; 8: there is no toolchain here, or it fails, or the device does not take the kernels.
    """
    invocation: Invocation = ctx.obj
    wanted = _architectures(arch, all_archs, invocation)
    settings = options.settings_of(invocation)
    cache = None if settings.cubins_dir is None else CubinCache(settings.cubins_dir)
    toolchain = find_toolchain(memory=None if cache is None else cache.libraries)
    named = [named_tokenizer(name, settings, invocation) for name in dict.fromkeys(families or ())]
    if not isinstance(toolchain, Toolchain):
        raise toolchain.error()
    sources = read_sources()
    cubins, rows, errors, faults = _compiled(invocation, toolchain, sources, wanted, cache, accept)
    if errors and not rows:
        raise errors[0]
    tried = trial(cubins, named, settings, invocation)
    failed = [] if tried is None or tried.error is None else [tried.error]
    for error in (*errors, *faults[:1], *failed):
        invocation.report(error)
    code = exit_code_of(errors, done=len(rows))
    if code is ExitCode.DONE and tried is not None:
        code = tried.exit_code
    if code is ExitCode.DONE and faults:
        code = ExitCode.ENVIRONMENT
    if code is ExitCode.DONE and any(one.reason is not None for one in named):
        code = ExitCode.NO
    return Result(
        "gpu_compile",
        lambda: {
            "toolchain": described(toolchain),
            "sources": sources.digest,
            "accepted_uncertified": accept,
            "cubins": rows,
            "families": [one.to_dict() for one in named],
            "trial": None if tried is None else tried.to_dict(),
            "errors": [error.to_dict() for error in (*errors, *faults, *failed)],
        },
        lambda: compiled_text(described(toolchain), rows) + families_text(named) + trial_text(tried),
        code,
    )


def _architectures(arch: list[str] | None, all_archs: bool, invocation: Invocation) -> list[str]:
    """What is asked for, in the order of the table."""
    if arch and all_archs:
        raise UsageError("expected --arch or --all-archs, not both", remedy="toktier gpu compile --help")
    for name in arch or ():
        if name not in ARCHITECTURES:
            raise UsageError(
                f"there are no kernels for {quoted(name)}: expected one of {', '.join(ARCHITECTURES)}",
                details={"value": name, "expected": list(ARCHITECTURES)},
                remedy="toktier gpu compile --all-archs",
            )
    return [name for name in ARCHITECTURES if not arch or name in arch]


def _compiled(
    invocation: Invocation,
    toolchain: Toolchain,
    sources: KernelSources,
    wanted: list[str],
    cache: CubinCache | None,
    accept: bool,
) -> tuple[dict[str, bytes], list[dict[str, Any]], list[ToktierError], list[EnvironmentFault]]:
    """What was compiled and may be kept, by architecture and as rows, what failed, and why something could not be
    kept."""
    cubins: dict[str, bytes] = {}
    rows: list[dict[str, Any]] = []
    errors: list[ToktierError] = []
    faults: list[EnvironmentFault] = []
    refused: list[tuple[Reproduced, Finding]] = []
    progress = Progress(invocation, len(wanted), "architectures")
    for architecture in wanted:
        try:
            made = reproduce(toolchain, sources, architecture)
        except KernelsUnavailable as error:
            errors.append(error)
            if not rows and not refused and error.details.get("lacks"):
                break  # no other architecture will find what this one did not
            continue
        finally:
            progress.advance()
        finding = made.finding(sources)
        if finding is not Finding.LISTED and not accept:
            refused.append((made, finding))
            continue
        kept = None
        if cache is not None:
            kept = jit.keep(cache, toolchain, jit.inputs_of(toolchain, sources, architecture), made.data)
            faults += [] if kept.fault is None else [kept.fault]
        cubins[architecture] = made.data
        rows.append(compiled_row(made, finding, None if kept is None else kept.path))
    progress.close()
    unlisted = [row for row in rows if not row["listed"]]
    if unlisted:
        invocation.warn(
            f"{OPT_IN}: {_why(unlisted[0]['finding'], unlisted[0]['compiler'])}; kernels for"
            f" {', '.join(row['architecture'] for row in unlisted)} are kept as experimental: they run only"
            " where a caller asks for that"
        )
    if refused:
        errors.append(_refused(refused))
    return cubins, rows, errors, faults


def _refused(refused: list[tuple[Reproduced, Finding]]) -> UncertifiedKernels:
    made, finding = refused[0]
    names = ", ".join(one.architecture for one, _ in refused)
    return UncertifiedKernels(
        f"kernels for {names} are not kept: {_why(finding, made.compiler)}; the CPU engine serves",
        details={
            "finding": finding.value,
            "compiler": made.compiler,
            "build": made.facts.build,
            "cubins": {one.architecture: one.sha256 for one, _ in refused},
        },
        remedy=f"{install_line()}, or try them once: toktier gpu compile --accept-uncertified-jit",
    )


def _why(finding: str, compiler: str) -> str:
    return {
        Finding.OTHER_TOOLCHAIN.value: f"NVRTC {compiler} is no certified toolchain: what it makes is not listed",
        Finding.OTHER_SOURCES.value: "the sources of the kernels are not those that the listed digests are of",
        Finding.DIFFERS.value: f"what NVRTC {compiler} made here is not what this build made where it was listed",
    }[finding]


def list_(ctx: typer.Context) -> Result:
    """Kernels that came with the installation, and those that were compiled here. Each is hashed; nothing is run.

    USED says whether the installed sources and toolchain would take it; a kept one that does not hold is compiled again
    when it is needed.
    """
    invocation: Invocation = ctx.obj
    cubins_dir = options.settings_of(invocation).cubins_dir
    cache = None if cubins_dir is None else CubinCache(cubins_dir)
    toolchain = find_toolchain(memory=None if cache is None else cache.libraries)
    found = toolchain if isinstance(toolchain, Toolchain) else None
    shipped, cached = shipped_rows(), cached_rows(cache, found)
    if not shipped:
        invocation.note("this installation brought no compiled kernels; release wheels bring them")
    if not cached:
        invocation.note("no kernels were compiled here; `toktier gpu compile` compiles them")
    return Result(
        "gpu_list",
        lambda: {
            "cache_dir": None if cache is None else str(cache.root),
            "toolchain": None if found is None else described(found),
            "delivery": delivery.available(),
            "shipped": shipped,
            "cached": cached,
        },
        lambda: list_text(shipped, cached),
    )


def clean(ctx: typer.Context) -> Result:
    """Remove all kernels that were compiled here. They are compiled again when they are needed."""
    invocation: Invocation = ctx.obj
    cubins_dir = options.settings_of(invocation).cubins_dir
    cache = None if cubins_dir is None else CubinCache(cubins_dir)
    removed, freed = (0, 0) if cache is None else cache.clean()
    return Result(
        "gpu_clean",
        lambda: {"cache_dir": None if cache is None else str(cache.root), "removed": removed, "bytes": freed},
        lambda: f"{removed} removed\n",
    )
