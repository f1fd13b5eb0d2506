"""What every verb gets (the global options) and what every verb gives (one result). Light: `--version` imports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from toktier.errors import ExitCode, ToktierError, UsageError
from toktier.labels import escaped

FLAGS = {"--json": "json", "--quiet": "quiet", "-q": "quiet", "--offline": "offline", "--no-color": "no_color"}

GLOBAL_HELP = (
    ("--json", "One JSON document on stdout, for failures too"),
    ("-q, --quiet", "Nothing on stderr but errors"),
    ("--offline", "Never use the network"),
    ("--home DIR", "Directory for cache, state and config.toml (TOKTIER_HOME)"),
    ("--no-color", "Accepted; all output is plain text"),
    ("-V, --version", "Print the version"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The global options of one run. `tty`: stdout is a terminal. `no_color` changes nothing: nothing is coloured."""

    json: bool = False
    quiet: bool = False
    offline: bool = False
    no_color: bool = False
    home: str | None = None
    tty: bool = False

    @property
    def level(self) -> str:
        """What `log_level` says. Settings without a level are an error of the verb that needs them, not of a note."""
        from toktier.config import Config, resolve_settings

        try:
            return resolve_settings(Config(home=self.home)).log_level
        except (ToktierError, OSError):
            return "warning"

    @property
    def errors_alone(self) -> bool:
        """Whether nothing but errors goes to stderr: no warning, no note, no progress."""
        return self.quiet or self.level == "error"

    def note(self, message: str) -> None:
        """A line for people, or several, on stderr."""
        if not self.errors_alone:
            try:
                sys.stderr.write("".join(escaped(line) + "\n" for line in message.split("\n")))
                sys.stderr.flush()
            except BrokenPipeError:
                raise
            except OSError:  # nobody can be told, which keeps no result back; nor is it tried again at the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def report(self, error: ToktierError, *, hint: bool = True) -> None:
        """The error of one item of many; the run goes on. Shown with --quiet too."""
        sys.stderr.write(f"error: {error.message}\n")
        if hint and error.remedy:
            self.hint(error.remedy)

    def hint(self, remedy: str) -> None:
        """What mends an error that was shown before."""
        sys.stderr.write(f"hint: {remedy}\n")

    def warn(self, message: str) -> None:
        self.note(f"warning: {message}")

    def inform(self, message: Callable[[], str]) -> None:
        """What only those want to read who ask for it: level info or debug."""
        if not self.quiet and self.level in ("info", "debug"):
            self.note(f"info: {message()}")

    @property
    def interactive(self) -> bool:
        """Whether a person reads the data as it comes."""
        return self.tty and not self.json


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a verb. `name` is that of its schema; only one of `document` and `text` is called.
    A text of unknown length comes in parts, written as they come."""

    name: str
    document: Callable[[], dict[str, Any]]
    text: Callable[[], str | bytes | memoryview | Iterator[bytes | memoryview]]
    exit_code: ExitCode = ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Work:
    """The outcome of a verb that says something before its end. `run` gets what writes a result to stdout, as often as
    it is called, and gives the last one."""

    run: Callable[[Callable[[Result], Any]], Result]


def exit_code_of(errors: list[ToktierError], done: int) -> ExitCode:
    """Of a run over many items: done, partly done, or, where nothing was done, the code of the first error."""
    if not errors:
        return ExitCode.DONE
    return ExitCode.INCOMPLETE if done else errors[0].exit_code


def take_global_options(arguments: list[str]) -> tuple[Invocation, list[str]]:
    """Splits the line into global options, wherever they stand before `--`, and the rest. Raises UsageError."""
    values: dict[str, Any] = {}
    rest: list[str] = []
    line = iter(arguments)
    for argument in line:
        if argument == "--":
            rest += [argument, *line]
        elif argument in FLAGS:
            values[FLAGS[argument]] = True
        elif argument == "--home":
            values["home"] = next(line, None)
        elif argument.startswith("--home="):
            values["home"] = argument.removeprefix("--home=")
        else:
            rest.append(argument)
    if "home" in values and (not values["home"] or values["home"].startswith("-")):
        raise UsageError("option --home needs a directory", remedy="toktier --help")
    return Invocation(**values, tty=sys.stdout.isatty()), rest
