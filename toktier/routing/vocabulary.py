"""The vocabularies of routing, one table each: policies, statuses, backends, devices, deliveries, reason codes.

Schemas, help, documents and the command derive from these. The module imports nothing of toktier but the errors, so any
layer may use it. Not here: what decides with them (`toktier.routing.plan`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from toktier.errors import ConfigInvalid

CERTIFIED_REFERENCE_VERSIONS = ("0.22.2", "0.23.3")
"""Versions of `tokenizers` that the equality of IDs is shown against. Another one serves itself (R_ORACLE_MISMATCH)."""


class RoutingPolicy(enum.StrEnum):
    CERTIFIED = "certified"
    SUPPORTED = "supported"
    REFERENCE = "reference"
    REQUIRE_ACCELERATED = "require_accelerated"
    EXPERIMENTAL = "experimental"


class Status(enum.StrEnum):
    """What is known about one tokenizer on one backend."""

    CERTIFIED = "certified"
    LOCALLY_CERTIFIED = "locally_certified"
    COMPILED_UNJUDGED = "compiled_unjudged"
    UNTESTED = "untested"
    REFERENCE_ONLY = "reference_only"
    EXPERIMENTAL = "experimental"
    UNSUPPORTED = "unsupported"


class BackendId(enum.StrEnum):
    """Backends in the order of the chain: a request only ever moves down it."""

    GPU = "gpu"
    FAST_CPU = "fast_cpu"
    FASTOKENS = "fastokens"
    BASETENKENIZER = "basetenkenizer"
    GIGATOKEN = "gigatoken"
    HF = "hf"


@dataclass(frozen=True)
class ThirdPartyRule:
    """What an engine of others can do. The name of a backend is that of its distribution and of its module. `decodes`:
    by itself, else the reference does. `plain`: special added tokens can be ordinary text. `segments`: so in a part."""

    decodes: bool
    plain: bool
    segments: bool


THIRD_PARTY: dict[BackendId, ThirdPartyRule] = {
    BackendId.FASTOKENS: ThirdPartyRule(decodes=False, plain=True, segments=True),
    BackendId.BASETENKENIZER: ThirdPartyRule(decodes=True, plain=True, segments=True),
    BackendId.GIGATOKEN: ThirdPartyRule(decodes=False, plain=False, segments=False),
}
"""Engines of others. None is ever chosen by auto or admitted by evidence: each runs where a caller names it and says
policy experimental (docs/backends.md)."""


class Device(enum.StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class GpuDelivery(enum.StrEnum):
    """Where compiled kernels come from: auto takes jit where NVRTC is installed, else prebuilt."""

    AUTO = "auto"
    PREBUILT = "prebuilt"
    JIT = "jit"


class Sidecar(enum.StrEnum):
    """What becomes of a tokenizer_config.json beside the tokenizer.json: reported, or merged into it."""

    REPORT = "report"
    MERGE = "merge"


GPU_MIN_BYTES = 65536
"""Bytes of a text, or of all texts of a batch, from which on a GPU is worth its launches. Of a str its storage counts,
which is about its UTF-8."""


class Compared(enum.StrEnum):
    """What a certification compares with the reference. `emulator`: the kernels of the GPU under the SIMT emulator,
    which is no backend: it serves nobody, and evidence of it admits nothing; no more does that of a third party."""

    FAST_CPU = BackendId.FAST_CPU.value
    GPU = BackendId.GPU.value
    FASTOKENS = BackendId.FASTOKENS.value
    BASETENKENIZER = BackendId.BASETENKENIZER.value
    GIGATOKEN = BackendId.GIGATOKEN.value
    EMULATOR = "emulator"


AUTO = "auto"
"""The value of `tokenizer=` that leaves the choice of the backend to the plan."""
BACKEND_NAMES = (AUTO, *(backend.value for backend in BackendId))
"""What `tokenizer=`, --tokenizer and TOKTIER_TOKENIZER take."""


class Reason(enum.StrEnum):
    """Why a backend higher in the chain did not serve. Append-only: a code is never renamed, reused or removed."""

    PROGRAM_UNSUPPORTED = "R_PROGRAM_UNSUPPORTED"
    POLICY_REFERENCE = "R_POLICY_REFERENCE"
    UNCERTIFIED_ARTIFACT = "R_UNCERTIFIED_ARTIFACT"
    ORACLE_MISMATCH = "R_ORACLE_MISMATCH"
    BACKEND_UNAVAILABLE = "R_BACKEND_UNAVAILABLE"
    BACKEND_NOT_SELECTED = "R_BACKEND_NOT_SELECTED"
    GPU_DISABLED = "R_GPU_DISABLED"
    NO_GPU_DETECTED = "R_NO_GPU_DETECTED"
    DECODE_REFERENCE = "R_DECODE_REFERENCE"
    ENGINE_BINDING_MISMATCH = "R_ENGINE_BINDING_MISMATCH"
    REGISTRY_INVALID = "R_REGISTRY_INVALID"
    SESSION_NO_SAFE_CUT = "R_SESSION_NO_SAFE_CUT"
    KERNEL_BUILD_FAILED = "R_KERNEL_BUILD_FAILED"
    KERNEL_DIGEST_MISMATCH = "R_KERNEL_DIGEST_MISMATCH"
    DRIVER_TOO_OLD = "R_DRIVER_TOO_OLD"
    SM_UNCERTIFIED = "R_SM_UNCERTIFIED"
    GPU_PROGRAM_UNSUITABLE = "R_GPU_PROGRAM_UNSUITABLE"
    GPU_SELF_TEST_FAILED = "R_GPU_SELF_TEST_FAILED"
    INPUT_BELOW_GPU_THRESHOLD = "R_INPUT_BELOW_GPU_THRESHOLD"
    EXEC_FAULT = "R_EXEC_FAULT"
    INPUT_NORMALIZED = "R_INPUT_NORMALIZED"
    GPU_MALFORMED = "R_GPU_MALFORMED"
    GPU_ADDED_OVERLAP = "R_GPU_ADDED_OVERLAP"
    GPU_ADDED_FLAGS = "R_GPU_ADDED_FLAGS"
    GPU_GIANT_PIECE = "R_GPU_GIANT_PIECE"
    GPU_FORKED = "R_GPU_FORKED"
    BACKEND_REFUSED_FILE = "R_BACKEND_REFUSED_FILE"
    BACKEND_FORKED = "R_BACKEND_FORKED"
    GPU_SESSION = "R_GPU_SESSION"


REASON_MEANINGS: dict[Reason, str] = {
    Reason.PROGRAM_UNSUPPORTED: "the tokenizer.json holds a component that the compiler does not know",
    Reason.POLICY_REFERENCE: "the policy asks for the reference",
    Reason.UNCERTIFIED_ARTIFACT: "the policy does not admit the status that this tokenizer has on this backend",
    Reason.ORACLE_MISMATCH: "the installed reference is not a version that equality was shown against",
    Reason.BACKEND_UNAVAILABLE: "this installation does not have the backend",
    Reason.BACKEND_NOT_SELECTED: "the caller named another backend",
    Reason.GPU_DISABLED: "the GPU is switched off by configuration or by device=cpu",
    Reason.NO_GPU_DETECTED: "no usable GPU was found",
    Reason.DECODE_REFERENCE: "decoding is left to the installed reference: the file has normalized added tokens, which "
    "versions of the reference decode differently, or a decoder that the engine has not, or a third-party engine "
    "serves that does not decode as the reference does",
    Reason.ENGINE_BINDING_MISMATCH: "the evidence about this tokenizer is of another engine than the installed one",
    Reason.REGISTRY_INVALID: "the shipped support registry is damaged, so that it speaks for no tokenizer",
    Reason.SESSION_NO_SAFE_CUT: "no fallback: 4 KiB and more at the end of a session have no place to cut, so that "
    "every change encodes them again",
    Reason.DRIVER_TOO_OLD: "the driver of the GPU is older than the kernels need",
    Reason.SM_UNCERTIFIED: "no evidence speaks about these kernels on the compute capability of this device",
    Reason.KERNEL_DIGEST_MISMATCH: "the kernels are none of those whose digests are listed",
    Reason.KERNEL_BUILD_FAILED: "the kernels could not be compiled for this device, or not loaded",
    Reason.GPU_PROGRAM_UNSUITABLE: "this tokenizer has a part that the kernels have not",
    Reason.GPU_SELF_TEST_FAILED: "the kernels gave other ids on this device than the CPU engine",
    Reason.INPUT_BELOW_GPU_THRESHOLD: "no fallback: the text is too short for a GPU to be worth its launches",
    Reason.EXEC_FAULT: "the GPU, or a third-party engine, failed while it ran; what it was given was encoded again by "
    "the backend below",
    Reason.INPUT_NORMALIZED: "the CPU engine redid a text, which a normalizer may change",
    Reason.GPU_MALFORMED: "the CPU engine redid a text, which is not UTF-8",
    Reason.GPU_ADDED_OVERLAP: "the CPU engine redid a text in which added tokens overlap",
    Reason.GPU_ADDED_FLAGS: "the CPU engine redid a text with an added token that looks at its surroundings",
    Reason.GPU_GIANT_PIECE: "the CPU engine redid a text with more than 4,096 bytes that nothing cuts",
    Reason.GPU_FORKED: "this process is the fork of one that had opened the GPU, which no device survives",
    Reason.BACKEND_REFUSED_FILE: "the third-party engine cannot load this tokenizer.json",
    Reason.BACKEND_FORKED: "this process is the fork of one in which the third-party engine had run, whose threads no "
    "fork has",
    Reason.GPU_SESSION: "no fallback: sessions and look-ups in a store are the CPU engine's, which alone tells where a "
    "text may be cut among its ids",
}


@dataclass(frozen=True)
class PolicyRule:
    """What a policy admits: `statuses` of accelerated backends, whether the reference may serve in their place, and
    the gates that it leaves open although their premise fails (every one is reported as a waiver)."""

    meaning: str
    statuses: frozenset[Status]
    reference_may_serve: bool = True
    waives: frozenset[str] = frozenset()


CERTIFYING = frozenset({Status.CERTIFIED, Status.LOCALLY_CERTIFIED})
"""Statuses that evidence of the engine at hand stands behind."""
_SUPPORTED = CERTIFYING | {Status.UNTESTED, Status.COMPILED_UNJUDGED}

POLICIES: dict[RoutingPolicy, PolicyRule] = {
    RoutingPolicy.CERTIFIED: PolicyRule("the accelerated backends where evidence covers them (default)", CERTIFYING),
    RoutingPolicy.SUPPORTED: PolicyRule("also what has no evidence but passes its own checks", _SUPPORTED),
    RoutingPolicy.REFERENCE: PolicyRule("always the reference", frozenset()),
    RoutingPolicy.REQUIRE_ACCELERATED: PolicyRule(
        "as certified, and an error instead of the reference", CERTIFYING, reference_may_serve=False
    ),
    RoutingPolicy.EXPERIMENTAL: PolicyRule(
        "whatever can run; every premise that fails is listed as a waiver",
        _SUPPORTED | {Status.EXPERIMENTAL},
        waives=frozenset({"reference_version", "registry"}),
    ),
}

_E = TypeVar("_E", bound=enum.StrEnum)


def expected_one(value: object, names: Sequence[str]) -> str:
    """A clause that names what should have stood in the place of `value`, and the nearest of it."""
    import difflib

    near = difflib.get_close_matches(str(value).lower(), names, n=1)
    return f"expected one of {', '.join(names)}" + (f"; did you mean {near[0]!r}?" if near else "")


def _choice(kind: type[_E], what: str, value: object, also: tuple[str, ...] = ()) -> _E:
    try:
        return kind(value)  # type: ignore[arg-type]
    except ValueError:
        names = [*also, *(member.value for member in kind)]
        raise ConfigInvalid(
            f"{value!r} is no {what}: {expected_one(value, names)}",
            details={"value": str(value), "expected": names},
            remedy=f"use one of {', '.join(names)}",
        ) from None


def parse_policy(value: object) -> RoutingPolicy:
    """The policy of this name (a member passes through). Raises ConfigInvalid."""
    return _choice(RoutingPolicy, "routing policy", value)


def parse_backend(value: object) -> BackendId | None:
    """The backend of this name, None for "auto". Raises ConfigInvalid."""
    return None if value == AUTO else _choice(BackendId, "tokenizer backend", value, (AUTO,))


def parse_sidecar(value: object) -> Sidecar:
    """The treatment of a side file of this name (a member passes through). Raises ConfigInvalid."""
    return _choice(Sidecar, "sidecar", value)


def parse_delivery(value: object) -> GpuDelivery:
    """The delivery of kernels of this name (a member passes through). Raises ConfigInvalid."""
    return _choice(GpuDelivery, "delivery of kernels", value)


def parse_device(value: object) -> Device:
    """The device of this name. Raises ConfigInvalid."""
    return _choice(Device, "device", value)
