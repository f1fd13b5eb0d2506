"""Checks of GPU, driver, CUDA binding, NVRTC and cubins. The driver is asked in a child process, never here.

Where neither the kernel nor the bus shows an NVIDIA device, nothing is asked at all. Not here: what the GPU backend
would do with it (`toktier.routing`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Code, Finding, Reason, Remedy, Status, ok, skip
from toktier.gpu.cubin_cache import CubinCache
from toktier.gpu.delivery import available, prebuilt_architectures
from toktier.gpu.digests import shipped_digests
from toktier.gpu.toolchain import Missing, Places, Toolchain, find_toolchain
from toktier.labels import shown
from toktier.routing.plan import Gate, ProgramFacts, Request, plan
from toktier.routing.probe import probe
from toktier.routing.vocabulary import BackendId
from toktier.routing.vocabulary import Status as Known

PROBE = str(Path(__file__).with_name("gpu_probe.py"))  # run, never imported: it would load ctypes
DRIVER_SECONDS = 1.5  # under the deadline of a check, so that the row can say which part did not answer
MAX_ANSWER = 1 << 20
GPU_MIN_BYTES = 65536  # the crossover that a load assumes when nobody measured another
NVIDIA = "0x10de"
BINDINGS = ("cuda-python", "cuda-bindings")
NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
_NONE = "no NVIDIA device is here"


def present(context: Context) -> bool:
    """Whether kernel, bus or a paravirtual device shows a GPU. A few file names are looked at."""
    return context.once("gpu.present", lambda: _seen(context.system))


def _seen(system: Path) -> bool:
    if any((system / place).exists() for place in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")):
        return True
    try:
        devices = list((system / "sys/bus/pci/devices").iterdir())
    except OSError:
        return False
    return any(_word(device / "vendor") == NVIDIA and _word(device / "class")[:4] == "0x03" for device in devices)


def _word(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def answer(context: Context) -> dict[str, Any]:
    """What NVML says: `driver_version`, `cuda_driver_version`, `devices`; or `problem` and perhaps `late`."""
    return context.once("gpu.answer", lambda: _ask(context))


def _ask(context: Context) -> dict[str, Any]:
    if not sys.executable:
        return {"problem": "there is no interpreter to ask with"}
    command = [sys.executable, "-I", "-S", PROBE]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(context.environ)
    )
    try:
        output, _ = child.communicate(timeout=DRIVER_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()  # not waited for: a process in the kernel's hands may never end
        return {"problem": f"the driver gave no answer within {DRIVER_SECONDS:g} s", "late": True}
    try:
        told = json.loads(output[:MAX_ANSWER])
    except ValueError:
        return {"problem": f"the process that asks the driver ended with {child.returncode}"}
    return told if isinstance(told, dict) else {"problem": "no answer"}


def hardware(context: Context) -> Finding:
    seen = present(context)
    facts = {"cuda_hardware_present": seen}
    return ok("an NVIDIA device is here", **facts) if seen else skip(_NONE, **facts)


def driver(context: Context) -> Finding:
    if not present(context):
        return skip(_NONE, driver_version=None)
    told = answer(context)
    problem = told.get("problem")
    if problem is not None:
        late = bool(told.get("late"))
        code = Code.DRIVER_TIMED_OUT if late else Code.DRIVER_NOT_USABLE
        return Finding(
            Status.UNKNOWN if late else Status.WARN,
            shown(str(problem)),
            {"driver_version": None},
            (Reason(code, shown(str(problem)), "an answer of NVML"),),
            Remedy("see whether the driver itself answers; the kernel log tells of one that hangs", "nvidia-smi"),
        )
    facts = {"driver_version": told["driver_version"], "cuda_driver_version": told["cuda_driver_version"]}
    return ok(f"driver {told['driver_version']}, CUDA {told['cuda_driver_version']}", **facts)


def devices(context: Context) -> Finding:
    if not present(context):
        return skip(_NONE, devices=[])
    found = answer(context).get("devices")
    if found is None:
        return Finding(
            Status.UNKNOWN,
            "the driver did not tell",
            {},
            (Reason(Code.DRIVER_NOT_USABLE, "no answer", "a list"),),
            Remedy("see gpu.driver"),
        )
    if not found:
        reason = Reason(Code.DRIVER_NOT_USABLE, 0, "a device that this process may use")
        return Finding(Status.WARN, "the driver shows no device", {"devices": []}, (reason,))
    return ok(", ".join(f"{one['name']} ({one['architecture']})" for one in found), devices=found)


def binding(context: Context) -> Finding:
    seen = {name: version for name in BINDINGS if (version := context.version(name)) is not None}
    facts = {"cuda_available": bool(seen), "cuda_binding": seen}
    if not seen:
        return skip("no CUDA binding is installed (cuda-python)", **facts)
    return ok(", ".join(f"{name} {version}" for name, version in seen.items()), **facts)


def nvrtc(context: Context) -> Finding:
    """As a distribution or a library under the usual directories; nothing is loaded. A version is satisfied when the
    kernels that it makes are listed: which of two libraries would compile is told by the names of files alone."""
    toolchain = context.once("gpu.toolchain", lambda: find_toolchain(_places(context)))
    lacks_nvrtc = isinstance(toolchain, Missing) and "nvrtc" in toolchain.lacks
    seen = None
    if not lacks_nvrtc:
        seen = next(((name, version) for name in NVRTC if (version := context.version(name)) is not None), None)
    listed = [(build.distribution, build.version) for build in shipped_digests().builds]
    facts = {
        "jit_toolchain_observed": None if lacks_nvrtc else _observed(toolchain, seen),
        "jit_toolchain_constraint": " or ".join(f"{name}=={version}" for name, version in listed),
        "jit_toolchain_satisfied": isinstance(toolchain, Toolchain) and seen in listed,
        "automatic_gpu_delivery": available(places=_places(context)),
    }
    observed = facts["jit_toolchain_observed"]
    return skip("NVRTC is not installed", **facts) if observed is None else ok(str(observed), **facts)


def _observed(toolchain: Toolchain | Missing, seen: tuple[str, str] | None) -> str:
    if seen is not None:
        return " ".join(seen)
    return f"NVRTC {toolchain.version} ({toolchain.found_via})" if isinstance(toolchain, Toolchain) else "NVRTC"


def _places(context: Context) -> Places:
    return Places(context.import_path, context.environ, context.system)


def cubins(context: Context) -> Finding:
    shipped, directory = len(prebuilt_architectures()), context.settings.cubins_dir
    own = 0 if directory is None else sum(1 for _ in CubinCache(directory).entries())
    facts = {"cubins_shipped": shipped, "cubins_cached": own}
    return ok(f"{shipped} shipped, {own} compiled here", **facts) if shipped + own else skip("there are none", **facts)


def certification(context: Context) -> Finding:
    if not present(context):
        return skip(_NONE, automatic_gpu_delivery_certification={})
    found = answer(context).get("devices") or []
    told = {one["architecture"]: Known.UNTESTED.value for one in found}
    return skip(
        "no evidence speaks about any architecture yet", automatic_gpu_delivery_certification=dict(sorted(told.items()))
    )


def route(context: Context) -> Finding:
    """Whether a GPU would be taken by itself, and the first closed gate."""
    facts: dict[str, Any] = {"automatic_gpu_candidate": False, "automatic_gpu_eligible": False}
    facts |= {"gpu_min_bytes": GPU_MIN_BYTES, "automatic_effective_backend": _serving(context)}
    if not present(context):
        return skip(_NONE, **facts)
    disabled = context.settings.disable_gpu
    facts["automatic_gpu_candidate"] = not disabled and bool(answer(context).get("devices"))
    gate = first_closed(context)
    if gate is None:
        return ok("every gate is open", **(facts | {"automatic_gpu_eligible": True}))
    reason = None if gate.reason is None else gate.reason.value
    return Finding(
        Status.SKIP if disabled else Status.WARN,
        f"the GPU is not used: {gate.summary} ({reason})",
        facts | {"first_closed_gate": gate.to_dict()},
        (Reason(Code.GPU_GATE_CLOSED, reason, "an open gate"),),
        Remedy(*_OPENS.get(gate.name, ("ask about a tokenizer", "toktier doctor --family NAME"))),
    )


# What opens a gate of the GPU.
_OPENS: dict[str, tuple[str, str | None]] = {
    "enabled": ("allow the GPU in the settings", "toktier config show --origin"),
    "installed": ("nothing on this host: this version of toktier has no GPU backend; the CPU engine serves", None),
    "device": ("make a device visible to this process (driver, container, CUDA_VISIBLE_DEVICES)", "nvidia-smi"),
    "reference_version": ("install a certified reference", "toktier doctor --only dependencies.reference"),
}


def first_closed(context: Context) -> Gate | None:
    """Of a tokenizer that compiles and about which nothing is known."""
    request = Request(gpu_disabled=context.settings.disable_gpu)
    decided = plan(probe(), request, ProgramFacts("0" * 64))
    return next((gate for gate in decided.gates if gate.backend is BackendId.GPU and not gate.is_open), None)


def _serving(context: Context) -> str | None:
    """Who would serve a tokenizer that compiles and is admitted."""
    decided = plan(probe(), Request(gpu_disabled=context.settings.disable_gpu), ProgramFacts("0" * 64))
    return None if decided.serves is None else decided.serves.value
