"""Checks of GPU, driver, CUDA binding, NVRTC and cubins. The driver is asked in a child process, never here.

Where neither the kernel nor the bus shows an NVIDIA device, nothing is asked at all. Not here: what the GPU backend
would do with it (`toktier.routing`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Code, Finding, Reason, Remedy, Status, ok, skip
from toktier.errors import RegistryInvalid
from toktier.evidence.local import everything
from toktier.evidence.registry import shipped_registry
from toktier.gpu.cubin_cache import CubinCache
from toktier.gpu.delivery import available, prebuilt_architectures
from toktier.gpu.digests import shipped_digests
from toktier.gpu.toolchain import Missing, Places, Toolchain, find_toolchain
from toktier.labels import shown
from toktier.routing.gates import ProgramFacts, Request
from toktier.routing.gpu_route import closed_gate
from toktier.routing.plan import plan, remedy_of
from toktier.routing.probe import ProbeFacts, probe
from toktier.routing.vocabulary import CERTIFYING, BackendId
from toktier.routing.vocabulary import Status as Known

PROBE = str(Path(__file__).with_name("gpu_probe.py"))  # run, never imported: it would load ctypes
DRIVER_SECONDS = 1.5  # under the deadline of a check, so that the row can say which part did not answer
MAX_ANSWER = 1 << 20
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
    """What is known of the kernels on each architecture that is here, of whatever tokenizer there is evidence."""
    if not present(context):
        return skip(_NONE, automatic_gpu_delivery_certification={})
    found = answer(context).get("devices") or []
    told = {one["architecture"]: _known(context, one["architecture"]).value for one in found}
    facts = {"automatic_gpu_delivery_certification": dict(sorted(told.items()))}
    if not set(told.values()) & set(CERTIFYING):
        return skip("no evidence speaks about any architecture that is here", **facts)
    return ok(", ".join(f"{name} {status}" for name, status in sorted(told.items())), **facts)


def _known(context: Context, architecture: str) -> Known:
    """The best status that any tokenizer can have there. Whether the kernels at hand are those of the evidence is known
    when they are chosen."""
    registered = local = False
    try:
        rows = [row for row in shipped_registry().rows if row["backend"] == BackendId.GPU]
        registered = any(
            key.endswith(f"+{architecture}") and entry["status"] == Known.CERTIFIED
            for row in rows
            for key, entry in row["references"].items()
        )
        listed = any(architecture in build.cubins for build in shipped_digests().builds)
    except RegistryInvalid:
        listed = False
    if context.settings.state_dir is not None:
        evidence = (one.evidence for one in everything(context.settings.state_dir))
        local = any(e is not None and e.kernels is not None and e.kernels.place == architecture for e in evidence)
    if registered:
        return Known.CERTIFIED
    return Known.LOCALLY_CERTIFIED if local else Known.COMPILED_UNJUDGED if listed else Known.EXPERIMENTAL


def gpu_facts(context: Context) -> ProbeFacts:
    """What a load would see, of the GPU as the driver told it here."""
    found = answer(context).get("devices") if present(context) else None
    seen = probe(look_for_gpu=False)
    delivery = available(places=_places(context)) if found else None
    return replace(seen, gpu_count=len(found) if found else 0, gpu_delivery=delivery)


def route(context: Context) -> Finding:
    """Whether a GPU would be taken by itself, and the first closed gate, of a tokenizer that compiles and about which
    nothing is known."""
    facts: dict[str, Any] = {"automatic_gpu_candidate": False, "automatic_gpu_eligible": False}
    request = Request(gpu_disabled=context.settings.disable_gpu)
    decided = plan(gpu_facts(context), request, ProgramFacts("0" * 64))
    facts["automatic_effective_backend"] = None if decided.serves is None else decided.serves.value
    facts["gpu_min_bytes"] = context.settings.gpu_min_bytes
    if not present(context):
        return skip(_NONE, **facts)
    disabled = context.settings.disable_gpu
    facts["automatic_gpu_candidate"] = not disabled and bool(answer(context).get("devices"))
    gate = closed_gate(decided)
    if gate is None:
        return ok("every gate is open", **(facts | {"automatic_gpu_eligible": True}))
    reason = None if gate.reason is None else gate.reason.value
    told = "ask about a tokenizer" if gate.name == "registry" else remedy_of(gate) or "nothing on this host"
    return Finding(
        Status.SKIP if disabled else Status.WARN,
        f"the GPU is not used: {gate.summary} ({reason})",
        facts | {"first_closed_gate": gate.to_dict()},
        (Reason(Code.GPU_GATE_CLOSED, reason, "an open gate"),),
        Remedy(told, _COMMANDS.get(gate.name)),
    )


# What to type about a closed gate.
_COMMANDS = {
    "enabled": "toktier config show --origin",
    "device": "nvidia-smi",
    "kernels": "toktier gpu compile",
    "reference_version": "toktier doctor --only dependencies.reference",
    "registry": "toktier doctor --family NAME",
}
