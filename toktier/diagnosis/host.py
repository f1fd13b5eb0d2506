"""Checks of the host and of the installation: Python, platform, native module, distributions."""

from __future__ import annotations

import os
import sys

from toktier.diagnosis.context import Context, normalized
from toktier.diagnosis.model import Code, Finding, Reason, Remedy, Status, ok
from toktier.routing.vocabulary import CERTIFIED_REFERENCE_VERSIONS

PYTHON_FROM = (3, 11)
# Distributions that the package needs beside the reference (pyproject.toml), as they are called on the index.
NEEDED = ("typer", "rich", "huggingface-hub", "zstandard", "packaging", "jsonschema")
_AGAIN = "install toktier again from the checkout or wheel at hand, for this Python"


def python(context: Context) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    facts = {"python_version": version, "implementation": sys.implementation.name}
    if sys.version_info < PYTHON_FROM or sys.implementation.name != "cpython":
        wanted = f"CPython {'.'.join(map(str, PYTHON_FROM))} or newer"
        return Finding(
            Status.FAIL,
            f"{sys.implementation.name} {version}",
            facts,
            (Reason(Code.PYTHON_UNSUPPORTED, f"{sys.implementation.name} {version}", wanted),),
            Remedy(f"run toktier with {wanted}"),
        )
    return ok(f"CPython {version}", **facts)


def platform(context: Context) -> Finding:
    uname = os.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        libc = None  # another C library
    facts = {"system": uname.sysname, "machine": uname.machine, "kernel": uname.release, "libc": libc}
    if uname.sysname != "Linux":
        return Finding(
            Status.WARN,
            f"{uname.sysname} {uname.machine}: no test runs on it",
            facts,
            (Reason(Code.PLATFORM_UNSUPPORTED, uname.sysname, "Linux"),),
        )
    return ok(f"Linux {uname.machine}, {libc or 'C library unknown'}", **facts)


def native(context: Context) -> Finding:
    try:
        from toktier.program.engine_identity import build_facts

        built = build_facts()
    except ImportError as error:
        name = type(error).__name__
        return Finding(
            Status.FAIL,
            "the native module cannot be imported",
            {},
            (Reason(Code.NATIVE_MISSING, name, "an importable toktier._native"),),
            Remedy(_AGAIN),
        )
    levels = list(built["dispatch_levels"])
    facts = {name: built[name] for name in ("compiler", "flags", "build_type")} | {"dispatch_levels": levels}
    return ok(f"{built['compiler']}, {built['build_type']}, dispatch {', '.join(levels)}", **facts)


def identity(context: Context) -> Finding:
    from toktier.program.engine_identity import engine_identity, is_bound

    mine = engine_identity()
    facts = {"engine_identity": mine, "engine_bound": is_bound()}
    if not is_bound():
        return Finding(
            Status.WARN,
            "the compiler's sources are not those that the native module was built with: no evidence counts",
            facts,
            (Reason(Code.ENGINE_NOT_BOUND, mine, "the identity that the native module was built with"),),
            Remedy(_AGAIN),
        )
    return ok(f"engine {mine[:12]}, module and sources of one build", **facts)


def reference(context: Context) -> Finding:
    from toktier.routing.probe import probe

    seen = probe().reference_version
    certified = list(CERTIFIED_REFERENCE_VERSIONS)
    facts = {"tokenizers_version": seen, "certified_reference_versions": certified}
    wanted, newest = " or ".join(certified), certified[-1]
    remedy = Remedy("install a certified version", f"pip install tokenizers=={newest}")
    if seen is None:
        return Finding(
            Status.FAIL,
            "tokenizers is not installed: nothing can stand in where the engine may not serve",
            facts,
            (Reason(Code.REFERENCE_MISSING, "not installed", wanted),),
            remedy,
        )
    if seen not in certified:
        return Finding(
            Status.FAIL,
            f"tokenizers {seen} is not certified: under the default policy it serves itself, slowly",
            facts,
            (Reason(Code.REFERENCE_UNCERTIFIED, seen, wanted),),
            remedy,
        )
    several = [one.version for one in context.distributions.get("tokenizers", [])]
    if len(several) > 1:
        return Finding(
            Status.WARN,
            f"tokenizers {seen} serves; {len(several)} installations of it are on the import path",
            facts,
            (Reason(Code.DISTRIBUTION_TWICE, ", ".join(several), "one"),),
            Remedy("remove the others, so that an upgrade cannot bring another to the front"),
        )
    return ok(f"tokenizers {seen}, certified", **facts)


def packages(context: Context) -> Finding:
    versions = {name: context.version(name) for name in NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return Finding(
            Status.WARN,
            f"not found on the import path: {', '.join(missing)}",
            {"distributions": versions},
            tuple(Reason(Code.DISTRIBUTION_MISSING, "not found", name) for name in missing),
            Remedy("install what is missing", f"pip install {' '.join(missing)}"),
        )
    return ok(f"{len(versions)} needed distributions are there", distributions=versions)


def pynvml(context: Context) -> Finding:
    """The distribution, not the module: nvidia-ml-py brings a module of that name too."""
    seen = context.version("pynvml")
    facts = {"pynvml_version": seen, "nvidia_ml_py_version": context.version("nvidia-ml-py")}
    if seen is None:
        return ok("no deprecated distribution is installed", **facts)
    return Finding(
        Status.WARN,
        f"the deprecated distribution pynvml {seen} is installed; it may shadow nvidia-ml-py",
        facts,
        (Reason(Code.DISTRIBUTION_DEPRECATED, f"pynvml {seen}", "nvidia-ml-py"),),
        Remedy("replace it", "pip uninstall pynvml && pip install nvidia-ml-py"),
    )


def third_party(name: str, context: Context) -> Finding:
    """An optional engine, as a distribution: it is not imported."""
    seen = context.version(name)
    fact = {f"{normalized(name)}_version": seen}
    if seen is None:
        return Finding(Status.SKIP, "not installed", fact)
    return ok(f"{name} {seen} is installed; it serves where --tokenizer {name} --policy experimental is said", **fact)
