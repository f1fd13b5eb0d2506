"""What engines written in Rust throw, as one of our errors: bare exceptions, and panics, which are no Exception.

Not here: what becomes of a text that an engine failed on (`toktier.routing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from toktier.errors import BackendExecutionFault, ToktierError

_PANIC = "PanicException"  # of pyo3, made anew in every module that uses it: it has a name and no type to import
_LONGEST = 300


@contextmanager
def foreign_errors(backend: str, called: str, what: str, remedy: str, key: str = "engine") -> Iterator[None]:
    """Around a call of an engine. `called`: by the message; `what`: what it was to do.

    Raises BackendExecutionFault for whatever it throws: `details[key]` is what it said, `details["exception"]` the name
    of the type. Errors of ours, KeyboardInterrupt and the like pass.
    """
    try:
        yield
    except ToktierError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        said = one_line(error)
        raise BackendExecutionFault(
            f"{called} failed to {what}: {said}",
            details={"backend": backend, key: said, "exception": type(error).__name__},
            remedy=remedy,
        ) from None


def one_line(error: BaseException) -> str:
    """What an error says, on one line of bounded length."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
