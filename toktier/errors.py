"""Error codes, exit codes and the exception hierarchy: the one table of each.

Every error a user can meet is a `ToktierError` with a stable `code`, `details` (JSON-able facts) and `remedy` (the
command or step that mends it). The exit code of the command belongs to the class. Not here: reason codes of routing
(`toktier.routing.vocabulary`).
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from toktier import labels


class ExitCode(enum.IntEnum):
    """Exit codes of the `toktier` command."""

    DONE = 0
    NO = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    INTEGRITY = 5
    INCOMPLETE = 6
    ENVIRONMENT = 7
    UNAVAILABLE = 8
    INTERNAL = 70
    INTERRUPTED = 130
    TERMINATED = 143


EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.DONE: "done",
    ExitCode.NO: "ran, and the answer is no (mismatch, failed check, finding)",
    ExitCode.USAGE: "usage or configuration",
    ExitCode.NOT_FOUND: "not found, or not reachable offline",
    ExitCode.REFUSED: "refused by policy, or uncertified",
    ExitCode.INTEGRITY: "integrity (hash, digest, signature, malformed bundle)",
    ExitCode.INCOMPLETE: "incomplete or partial",
    ExitCode.ENVIRONMENT: "environment (disk full, permission, lock timeout, read-only)",
    ExitCode.UNAVAILABLE: "backend, GPU or toolchain unavailable",
    ExitCode.INTERNAL: "internal error",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "ended by SIGTERM, with what was done kept",
}


class ToktierError(Exception):
    """Base of all errors. `str(error)` is one sentence: what happened and what was expected.

    `message` and `remedy` are printable and bounded, whatever names of others they hold (`toktier.labels`).
    `usual_remedy` is that of a class, for whoever raises without knowing a better one.
    """

    code: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    usual_remedy: ClassVar[str | None] = None

    def __init__(self, message: str, *, details: dict[str, Any] | None = None, remedy: str | None = None) -> None:
        self.message = message
        super().__init__(self.message)
        self.details: dict[str, Any] = details or {}
        self.remedy = self.usual_remedy if remedy is None else labels.message(remedy)

    @property
    def remedy(self) -> str | None:
        return self._remedy

    @remedy.setter
    def remedy(self, text: str | None) -> None:
        self._remedy = text
        # The trace of an uncaught error, which is all that many programs show, ends with it.
        self.__notes__ = [] if text is None else [f"hint: {text}"]

    @property
    def message(self) -> str:
        return self._message

    @message.setter
    def message(self, text: str) -> None:
        self._message = labels.message(text)

    def __str__(self) -> str:
        return self._message

    def to_dict(self) -> dict[str, Any]:
        """The `error` member of a `--json` document."""
        return {"code": self.code, "message": self.message, "details": self.details, "remedy": self.remedy}


class ToktierWarning(UserWarning):
    """Something works, but not as fast as it could: another backend serves, or a program could not be kept."""


class InternalError(ToktierError):
    """A fault of toktier itself."""


class ArtifactNotFound(ToktierError):
    code = "ARTIFACT_NOT_FOUND"
    exit_code = ExitCode.NOT_FOUND
    usual_remedy = "check the path"


class UnknownFamily(ArtifactNotFound):
    """No pinned family has this name; `details["near"]` lists the nearest ones."""

    code = "UNKNOWN_FAMILY"


class ArtifactHashMismatch(ToktierError):
    code = "ARTIFACT_HASH_MISMATCH"
    exit_code = ExitCode.INTEGRITY


class ArtifactDamaged(ToktierError):
    """Truncated, empty or unparsable: bytes that can be no tokenizer.json."""

    code = "ARTIFACT_DAMAGED"
    exit_code = ExitCode.INTEGRITY


class AliasConflict(ToktierError):
    code = "ALIAS_CONFLICT"
    exit_code = ExitCode.USAGE


class BundleInvalid(ToktierError):
    code = "BUNDLE_INVALID"
    exit_code = ExitCode.INTEGRITY


class SignatureMissing(ToktierError):
    """A signature is required, and the bundle has none."""

    code = "SIGNATURE_MISSING"
    exit_code = ExitCode.INTEGRITY


class SignatureInvalid(ToktierError):
    """A signature that is not of a required key, or not of this content."""

    code = "SIGNATURE_INVALID"
    exit_code = ExitCode.INTEGRITY


class NotATokenizer(ToktierError):
    """Valid JSON, but not a tokenizer.json."""

    code = "NOT_A_TOKENIZER"
    exit_code = ExitCode.USAGE
    usual_remedy = "give the tokenizer.json itself, as Hugging Face tokenizers writes it"


class UnsupportedConfig(ToktierError):
    """Undefined in the reference itself, or asked of a tokenizer that cannot do it."""

    code = "UNSUPPORTED_CONFIG"
    exit_code = ExitCode.USAGE


class ProgramUnsupported(ToktierError):
    """Beyond the compiler: the reference serves. `details` holds `path` (JSON path) and `component`."""

    code = "PROGRAM_UNSUPPORTED"
    exit_code = ExitCode.REFUSED

    def __init__(self, path: str, component: str, message: str | None = None) -> None:
        self.path, self.component = path, component
        super().__init__(
            message or f"{path} = {component} is beyond the compiler",
            details={"path": path, "component": component},
            remedy="allow the reference to serve (policy certified, without --no-tokenizer-fallback)",
        )


class ProgramCorrupt(ToktierError):
    """A program file whose digest or tables do not hold. Cached ones are rebuilt, never believed."""

    code = "PROGRAM_CORRUPT"
    exit_code = ExitCode.INTEGRITY


class UncertifiedTokenizer(ToktierError):
    code = "UNCERTIFIED_TOKENIZER"
    exit_code = ExitCode.REFUSED


class OracleVersionUnsupported(ToktierError):
    code = "ORACLE_VERSION_UNSUPPORTED"
    exit_code = ExitCode.UNAVAILABLE


class BackendUnavailable(ToktierError):
    code = "BACKEND_UNAVAILABLE"
    exit_code = ExitCode.UNAVAILABLE


class CudaDriverTooOld(BackendUnavailable):
    """The driver of the GPU is older than the kernels need."""

    code = "CUDA_DRIVER_TOO_OLD"


class BackendExecutionFault(ToktierError):
    code = "BACKEND_EXECUTION_FAULT"
    exit_code = ExitCode.UNAVAILABLE


class KernelsUnavailable(BackendUnavailable):
    """There are no kernels for a device: neither a toolchain nor a cubin. `reason`: the reason code of routing."""

    code = "KERNELS_UNAVAILABLE"
    reason: ClassVar[str] = "R_BACKEND_UNAVAILABLE"


class KernelBuildFailed(KernelsUnavailable):
    """NVRTC refused, crashed, hung, or made something that is no cubin of these kernels."""

    code = "KERNEL_BUILD_FAILED"
    reason = "R_KERNEL_BUILD_FAILED"


class KernelDigestMismatch(KernelsUnavailable):
    """A cubin that came with the installation is none of those that are listed: it is not run."""

    code = "KERNEL_DIGEST_MISMATCH"
    exit_code = ExitCode.INTEGRITY
    reason = "R_KERNEL_DIGEST_MISMATCH"


class UncertifiedKernels(ToktierError):
    """What a toolchain makes of the kernels is not listed, and nobody said that it may be tried."""

    code = "UNCERTIFIED_KERNELS"
    exit_code = ExitCode.REFUSED


class UsageError(ToktierError):
    """The command line cannot be understood."""

    code = "USAGE"
    exit_code = ExitCode.USAGE


class Interrupted(ToktierError):
    """Ended by the user (Ctrl-C)."""

    code = "INTERRUPTED"
    exit_code = ExitCode.INTERRUPTED


class Terminated(Interrupted):
    """Ended by SIGTERM; what was done is kept."""

    code = "TERMINATED"
    exit_code = ExitCode.TERMINATED


class ConfigInvalid(ToktierError):
    code = "CONFIG_INVALID"
    exit_code = ExitCode.USAGE


class RegistryInvalid(ToktierError):
    code = "REGISTRY_INVALID"
    exit_code = ExitCode.INTEGRITY


class EvidenceInvalid(ToktierError):
    """Evidence, a plan, a failure or a run directory that is edited, damaged, or of something else."""

    code = "EVIDENCE_INVALID"
    exit_code = ExitCode.INTEGRITY


class EvidenceStale(ToktierError):
    """Made with another engine, reference or suite than is installed; `details["differs"]` lists what."""

    code = "EVIDENCE_STALE"
    exit_code = ExitCode.REFUSED


class EvidenceIncomplete(ToktierError):
    """Blocks of the plan are missing."""

    code = "EVIDENCE_INCOMPLETE"
    exit_code = ExitCode.INCOMPLETE


class QueueFull(ToktierError):
    """A batcher has as many unanswered texts as it may; `details` holds how many, their bytes, and the bounds."""

    code = "QUEUE_FULL"
    exit_code = ExitCode.UNAVAILABLE
    usual_remedy = "try again when some are answered, or give the batcher larger queue_texts and queue_bytes"


class BatcherClosed(ToktierError):
    """Asked of a batcher after its end, or abandoned by it."""

    code = "BATCHER_CLOSED"
    exit_code = ExitCode.UNAVAILABLE
    usual_remedy = "make another Batcher of the tokenizer"


class InvalidText(ToktierError, ValueError):
    """Lone surrogates or malformed UTF-8; `details["position"]` is the code point (str) or byte (bytes) index."""

    code = "INVALID_TEXT"
    exit_code = ExitCode.USAGE
    usual_remedy = "pass UTF-8 without surrogates"


class InvalidToken(ToktierError, ValueError):
    """An id that is no integer from 0 to 2**32 - 1."""

    code = "INVALID_TOKEN"
    exit_code = ExitCode.USAGE
    usual_remedy = "give IDs as integers from 0 to 4294967295"


class EnvironmentFault(ToktierError):
    """The host refuses: disk full, permission, read-only file system."""

    code = "ENVIRONMENT_FAULT"
    exit_code = ExitCode.ENVIRONMENT


class LockTimeout(EnvironmentFault):
    code = "LOCK_TIMEOUT"


class SourceUnreachable(ToktierError):
    """A source of artifacts that cannot be reached, or offline mode forbids it."""

    code = "SOURCE_UNREACHABLE"
    exit_code = ExitCode.NOT_FOUND


class StoreCorrupt(ToktierError):
    """A store whose rows, digests or pages do not hold. A look-up counts a miss instead."""

    code = "STORE_CORRUPT"
    exit_code = ExitCode.INTEGRITY


class StoreFormatUnsupported(ToktierError):
    """A store of another format version, or a database that is no store."""

    code = "STORE_FORMAT_UNSUPPORTED"
    exit_code = ExitCode.REFUSED


class StoreNotFound(ToktierError):
    """There is no store in that place. Whoever only looks makes none."""

    code = "STORE_NOT_FOUND"
    exit_code = ExitCode.NOT_FOUND


class OutputsInvalid(ToktierError):
    """Outputs to be compared that are none; `details` holds `path`, and `line` or `position` where it is of one."""

    code = "OUTPUTS_INVALID"
    exit_code = ExitCode.INTEGRITY


class SessionNotFound(ToktierError):
    """The store has no session of this name."""

    code = "SESSION_NOT_FOUND"
    exit_code = ExitCode.NOT_FOUND


class SessionStateMismatch(ToktierError):
    """The stored session is of another tokenizer, or holds another text than the caller says."""

    code = "SESSION_STATE_MISMATCH"
    exit_code = ExitCode.REFUSED


class SessionRevisionConflict(ToktierError):
    """Somebody else wrote first; `details` holds `expected` and `found` (null: the session is gone)."""

    code = "SESSION_REVISION_CONFLICT"
    exit_code = ExitCode.REFUSED


class SessionNeedsText(ToktierError):
    """What was asked needs text that the session does not keep."""

    code = "SESSION_NEEDS_TEXT"
    exit_code = ExitCode.USAGE


class RequestInvalid(ToktierError):
    """A client of the router sent what is no request, or one that the router does not serve. It may be sent on to
    nobody."""

    code = "REQUEST_INVALID"
    exit_code = ExitCode.USAGE


class UpstreamLost(ToktierError):
    """The connection to a llama-server was refused, was reset, or ended before the answer did.

    `was_asked`: it may have read the request, which may be what ended it.
    """

    was_asked = False
    code = "UPSTREAM_LOST"
    exit_code = ExitCode.UNAVAILABLE
    usual_remedy = "start the llama-server, or correct its URL; the router asks it again by itself"


class UpstreamBroken(ToktierError):
    """A llama-server answered with what is no answer, or beyond the bounds."""

    code = "UPSTREAM_BROKEN"
    exit_code = ExitCode.UNAVAILABLE
    usual_remedy = "check that the URL is that of a llama-server, of the version that docs/router.md names"


class UpstreamSilent(ToktierError):
    """A llama-server did not answer in time."""

    code = "UPSTREAM_SILENT"
    exit_code = ExitCode.UNAVAILABLE
    usual_remedy = "give the time-out more seconds, or the llama-server less to do"


class UpstreamRefused(ToktierError):
    """A llama-server answered a question of the router with an error: `status` and `body` are its own."""

    code = "UPSTREAM_REFUSED"
    exit_code = ExitCode.UNAVAILABLE
    status: int = 502
    body: bytes = b""


def _all_classes(cls: type[ToktierError] = ToktierError) -> list[type[ToktierError]]:
    return [cls] + [c for sub in cls.__subclasses__() for c in _all_classes(sub)]


def error_codes() -> dict[str, ExitCode]:
    """Every error code with its exit code, in code order: what docs and help print."""
    return dict(sorted({c.code: c.exit_code for c in _all_classes()}.items()))
