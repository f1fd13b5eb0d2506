"""The table of checks. Ids are frozen: one may be added, none is renamed, reused or removed. Facts likewise.

The order is that of asking: cheap and fundamental ones first, so that a report cut short by time has them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import partial

from toktier.diagnosis import artifacts, family, gpu_hardware, host, sessions, settings
from toktier.diagnosis.model import Check
from toktier.errors import UsageError
from toktier.labels import quoted
from toktier.routing.vocabulary import THIRD_PARTY

CHECKS: tuple[Check, ...] = (
    Check("python.version", "the interpreter", host.python, facts=("python_version", "implementation")),
    Check("python.platform", "system and C library", host.platform, facts=("system", "machine", "kernel", "libc")),
    Check(
        "build.native", "whether the engine can be imported, and how it was built", host.native,
        facts=("compiler", "flags", "build_type", "dispatch_levels"),
    ),
    Check(
        "build.identity", "whether engine and compiler are of one build", host.identity,
        facts=("engine_identity", "engine_bound"),
    ),
    Check(
        "dependencies.reference", "the reference and its certified versions", host.reference,
        facts=("tokenizers_version", "certified_reference_versions"),
    ),
    Check("dependencies.packages", "the distributions that are needed", host.packages, facts=("distributions",)),
    Check(
        "dependencies.pynvml", "a deprecated distribution", host.pynvml,
        facts=("pynvml_version", "nvidia_ml_py_version"),
    ),
    Check(
        "config.settings", "config.toml and the environment", settings.settings,
        facts=("config_file", "origins", "policy_tokenizer", "gpu_disabled"),
    ),
    Check("config.variables", "TOKTIER_ variables that nothing reads", settings.variables, facts=("environment",)),
    Check(
        "directories.cache", "where artifacts and programs are kept", settings.cache_directory,
        facts=("artifact_cache_dir", "exists", "writable", "mode", "usable"),
    ),
    Check(
        "directories.state", "where evidence and records are kept", settings.state_directory,
        facts=("state_dir", "exists", "writable", "mode", "usable"),
    ),
    Check("artifacts.pins", "the table of pinned files", artifacts.pins, facts=("pins_root_digest", "families")),
    Check(
        "artifacts.cache", "whether the files on this host are those that are pinned", artifacts.cache,
        facts=("cached", "compared_by_size"),
    ),
    Check("artifacts.shared", "caches of others", artifacts.shared, required=False, facts=("shared_caches",)),
    Check(
        "artifacts.programs", "compiled tokenizers", artifacts.programs, required=False,
        facts=("programs_dir", "programs", "program_bytes"),
    ),
    Check(
        "evidence.registry", "the evidence that came with toktier", artifacts.registry,
        facts=("registry_root_digest", "rows", "registry_engine"),
    ),
    Check(
        "evidence.local", "the evidence of this host", artifacts.own_evidence, required=False,
        facts=("local_evidence", "of_another_engine"),
    ),
    Check(
        "sessions.store", "durable sessions: place, format, modes, file system", sessions.store, required=False,
        facts=(
            "store", "store_origin", "exists", "format_version", "bytes", "directory_mode", "file_mode", "file_system",
            "network_file_system",
        ),
    ),
    Check(
        "network.policy", "whether the network may be used; nothing is connected to", settings.network,
        facts=("configured_offline", "offline_origin", "hub_endpoint", "proxies", "signature_keys"),
    ),
    Check(
        "diagnostics.ring", "fallbacks and errors that were recorded", settings.ring, required=False,
        facts=("diagnostics", "recorded", "codes"),
    ),
    Check(
        "gpu.hardware", "an NVIDIA device", gpu_hardware.hardware, required=False, facts=("cuda_hardware_present",)
    ),
    Check(
        "gpu.driver", "its driver, asked in a process of its own", gpu_hardware.driver, required=False,
        facts=("driver_version", "cuda_driver_version"),
    ),
    Check("gpu.devices", "devices and architectures", gpu_hardware.devices, required=False, facts=("devices",)),
    Check(
        "gpu.binding", "the CUDA binding", gpu_hardware.binding, required=False,
        facts=("cuda_available", "cuda_binding"),
    ),
    Check(
        "gpu.nvrtc", "the compiler of kernels", gpu_hardware.nvrtc, required=False,
        facts=(
            "jit_toolchain_observed", "jit_toolchain_constraint", "jit_toolchain_satisfied", "automatic_gpu_delivery"
        ),
    ),
    Check(
        "gpu.cubins", "compiled kernels", gpu_hardware.cubins, required=False,
        facts=("cubins_shipped", "cubins_cached"),
    ),
    Check(
        "gpu.certification", "what evidence says of each architecture", gpu_hardware.certification, required=False,
        facts=("automatic_gpu_delivery_certification",),
    ),
    Check(
        "gpu.route", "whether the GPU is taken by itself, and the first closed gate", gpu_hardware.route,
        required=False,
        facts=(
            "automatic_gpu_candidate", "automatic_gpu_eligible", "automatic_effective_backend", "gpu_min_bytes",
            "first_closed_gate",
        ),
    ),
    *(
        Check(
            f"backends.{name}", f"the optional engine {name}", partial(host.third_party, name), required=False,
            facts=(f"{name}_version",),
        )
        for name in map(str, THIRD_PARTY)
    ),
    Check(
        "family.artifact", "whether the named tokenizer is here, and right", family.artifact, with_family=True,
        facts=("family", "artifact_sha256", "cached", "verified"),
    ),
    Check(
        "family.route", "what runs for it, and why nothing faster", family.route, with_family=True, facts=("block",)
    ),
)  # fmt: skip


def selected(only: Iterable[str], without: Iterable[str], *, with_family: bool) -> Sequence[Check]:
    """The checks of the ids or areas in `only` (none: all) that are not in `without`. UsageError for unknown names."""
    chosen, left_out = _ids(only), _ids(without)
    applicable = [check for check in CHECKS if with_family or not check.with_family]
    return [check for check in applicable if (not chosen or check.id in chosen) and check.id not in left_out]


def _ids(given: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for name in [part.strip() for entry in given for part in entry.split(",") if part.strip()]:
        ids = {check.id for check in CHECKS if name in (check.id, check.area)}
        if not ids:
            names = sorted({check.id for check in CHECKS} | {check.area for check in CHECKS})
            near = difflib.get_close_matches(name, names, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(
                f"no check is named {quoted(name)}{hint}", details={"near": near}, remedy="toktier doctor --list"
            )
        found |= ids
    return found
