"""Entry of the `toktier` command: global options, `--version`, one result or one error out, the exit code.

Global options count anywhere on the line (before `--`). This is the one place where an exception becomes output and an
exit code. The framework is imported after `--version` was answered: that answer takes a few milliseconds.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the typing module alone would double the time of `--version`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from toktier_cli.invocation import Invocation, Result

VERSION_OPTIONS = ("--version", "-V")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and gives its exit code. A closed pipe ends the process as SIGPIPE does other tools."""
    whole_process = argv is None
    try:
        if whole_process:
            sys.unraisablehook = _without_interrupts
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        return _run(list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:
        _end_by_sigpipe()
    except KeyboardInterrupt:  # once more, while the first one was being told: everything was undone on the way here
        return 130
    finally:
        if whole_process:  # the interpreter's own end would answer an interrupt with a trace
            try:
                _ignore_interrupts()
            except KeyboardInterrupt:  # between the call and its first line
                _ignore_interrupts()


def _ignore_interrupts() -> None:
    while True:
        try:
            import signal

            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return
        except KeyboardInterrupt:
            continue


def _without_interrupts(unraisable: Any) -> None:
    """An interrupt that the interpreter swallowed, in a callback of its import system: it counts when nothing else is
    going on, so it is sent again, and not from in here, where one would be swallowed too."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        import _thread

        _thread.start_new_thread(_interrupt_soon, ())
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt_soon() -> None:
    import signal
    import time

    time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)


def _run(arguments: list[str]) -> int:
    wants_json = "--json" in arguments  # enough to report an error among the global options
    home = None
    try:
        if any(option in arguments for option in VERSION_OPTIONS) and set(arguments) <= {*VERSION_OPTIONS, "--json"}:
            return _version(wants_json)  # before anything else is imported
        from toktier_cli.invocation import Work, take_global_options

        invocation, rest = take_global_options(arguments)
        wants_json, home = invocation.json, invocation.home
        if rest and rest[0] in VERSION_OPTIONS:
            return _version(wants_json)
        from toktier_cli.app import run

        outcome = run(rest, invocation)
        if isinstance(outcome, Work):
            outcome = outcome.run(lambda result: _emit(result, invocation))
        return _emit(outcome, invocation)
    except BrokenPipeError:
        raise
    except BaseException as error:
        return _fail(error, wants_json, home)


def _version(wants_json: bool) -> int:
    from toktier.version import VERSION

    if wants_json:
        _write_document("version", {"version": VERSION}, 0)
    else:
        _to_stdout(f"toktier {VERSION}\n".encode("ascii"), flush=True)
    return 0


def _emit(result: Result, invocation: Invocation) -> int:
    if invocation.json:
        _write_document(result.name, result.document(), int(result.exit_code))
    else:
        text = result.text()
        if isinstance(text, str):
            text = text.encode("utf-8", "backslashreplace")
        # What makes the parts may raise, too: only the writing is the fault of stdout.
        for part in (text,) if isinstance(text, (bytes, memoryview)) else text:
            _to_stdout(part)
        _to_stdout(b"", flush=True)
    return int(result.exit_code)


def _write_document(name: str, document: dict[str, Any], exit_code: int) -> None:
    import json

    whole = {"schema": f"toktier.{name}", "schema_version": 1, **document, "exit_code": exit_code}
    _to_stdout((json.dumps(whole, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"), flush=True)


def _to_stdout(data: bytes | memoryview, *, flush: bool = False) -> None:
    """EnvironmentFault says that it was stdout that took no more. A closed pipe is none: BrokenPipeError."""
    try:
        sys.stdout.buffer.write(data)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        from toktier.errors import EnvironmentFault

        raise EnvironmentFault(
            f"cannot write to stdout: {error.strerror}",
            details={"path": "stdout"},
            remedy="free space where stdout leads, or redirect it elsewhere",
        ) from error


def _fail(error: BaseException, wants_json: bool, home: str | None) -> int:
    from toktier.errors import EnvironmentFault
    from toktier_cli.failure import as_toktier_error

    fault = as_toktier_error(error)
    if _stdout_takes_data() and wants_json:
        try:
            _write_document("error", {"error": fault.to_dict()}, int(fault.exit_code))
        except EnvironmentFault:
            _send_nowhere(1)
            wants_json = False
    else:
        wants_json = False
    try:
        if not wants_json:
            hint = f"hint: {fault.remedy}\n" if fault.remedy else ""
            sys.stderr.write(f"error: {fault.message}\n{hint}")
        if _wants_trace(home):
            import traceback

            traceback.print_exception(error)
        sys.stderr.flush()
    except OSError:
        _send_nowhere(2)  # nobody can be told; the exit code still tells
    return int(fault.exit_code)


def _wants_trace(home: str | None) -> bool:
    """Whether the level is debug. The settings may be what failed: then the variable alone decides."""
    try:
        from toktier.config import Config, resolve_settings

        return resolve_settings(Config(home=home)).log_level == "debug"
    except Exception:
        return os.environ.get("TOKTIER_LOG_LEVEL", "").lower() == "debug"


def _stdout_takes_data() -> bool:
    """False when what stdout still holds cannot be written."""
    try:
        sys.stdout.flush()
        return True
    except OSError:
        _send_nowhere(1)
        return False


def _send_nowhere(descriptor: int) -> None:
    """What a stream still holds goes nowhere: the interpreter would try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _open_closed_streams() -> None:
    """Standard streams that the caller closed: an empty input, an output that refuses every write, and silence."""
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
    # They live as long as the process.
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _end_by_sigpipe() -> NoReturn:
    import signal

    _send_nowhere(1)  # what is still buffered has no reader
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(141)


if __name__ == "__main__":
    sys.exit(main())
