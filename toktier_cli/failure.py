"""Any exception as a ToktierError: the one mapping from what can be raised to what a user reads.

Usage errors of the framework become USAGE, an interrupt INTERRUPTED, the host's refusals ENVIRONMENT_FAULT, and what
nobody foresaw INTERNAL with the way to get the trace.
"""

from __future__ import annotations

import errno
import sys

from toktier.errors import EnvironmentFault, InternalError, Interrupted, ToktierError, UsageError
from toktier.labels import shown, shown_path

_HOST_ERRNOS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO,
        errno.EBADF, errno.ENAMETOOLONG, errno.ELOOP,
    }
)  # fmt: skip


def as_toktier_error(error: BaseException) -> ToktierError:
    """The error to show. ToktierErrors pass through."""
    if isinstance(error, ToktierError):
        return error
    if _by_interrupt(error):
        return Interrupted("interrupted")
    usage = _usage_error(error)
    if usage is not None:
        return usage
    if isinstance(error, MemoryError):
        return EnvironmentFault("out of memory", remedy="give the process more memory, or encode in smaller parts")
    if isinstance(error, OSError) and error.errno in _HOST_ERRNOS:
        where = f" {shown_path(str(error.filename))}" if error.filename else ""
        return EnvironmentFault(
            f"the host refused{where}: {error.strerror}",
            details={"path": str(error.filename or "")},
            remedy=f"check {'the path, its' if error.filename else 'where input and output lead, the'} permissions and "
            "the file system",
        )
    return InternalError(
        f"unexpected {type(error).__name__}: {_one_line(error)}",
        details={"exception": type(error).__name__},
        remedy="run again with TOKTIER_LOG_LEVEL=debug for the trace, and report it",
    )


def _by_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt is what began it: the interpreter wraps one that arrives in a class body, for example."""
    for _ in range(100):  # chains may be rings
        if error is None or isinstance(error, KeyboardInterrupt):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def _usage_error(error: BaseException) -> UsageError | None:
    """The framework's usage errors and aborts. Only if it was imported: nothing else could have raised one."""
    if "typer" not in sys.modules:
        return None
    import typer

    if isinstance(error, typer.Abort):
        return UsageError("aborted")
    from toktier_cli.app import USAGE_ERROR

    if not isinstance(error, USAGE_ERROR):
        return None
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "toktier"
    return UsageError(
        error.format_message().rstrip("."),
        details={"command": path},
        remedy=f"{path} --help",
    )


def _one_line(error: BaseException) -> str:
    return shown(" ".join(str(error)[:4096].split()), 300) or "no message"
