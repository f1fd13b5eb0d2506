"""The tree of verbs: names and one-line summaries here, each verb's module imported only when it is run.

`run` hands the line to the framework and gives the verb's result. Not here: what a verb does (`toktier_cli.verbs`).
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import warnings
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from toktier.errors import UsageError
from toktier.labels import quoted
from toktier_cli.invocation import GLOBAL_HELP, Invocation, Result, Work

# name: (module, function or group, summary)
VERBS: dict[str, tuple[str, str, str]] = {
    "encode": ("toktier_cli.verbs.encode", "encode", "Token IDs of a text"),
    "decode": ("toktier_cli.verbs.decode", "decode", "Text of token IDs"),
    "count": ("toktier_cli.verbs.count", "count", "Tokens of many files"),
    "artifacts": ("toktier_cli.app", "ARTIFACTS", "Bring, check and remove pinned tokenizers"),
    "certify": ("toktier_cli.app", "CERTIFY", "Compare a backend with the reference and write evidence"),
    "inspect": ("toktier_cli.verbs.inspect", "inspect", "What is pinned, or what a tokenizer.json is"),
    "gpu": ("toktier_cli.app", "GPU", "Kernels for GPUs: compile them here, see what there is"),
    "session": ("toktier_cli.app", "SESSION", "Sessions that programs keep in a store"),
    "serve": ("toktier_cli.app", "SERVE", "The router in front of llama-servers, and what its reuse changes"),
    "bench": ("toktier_cli.verbs.bench", "bench", "Speed on this machine, beside the reference"),
    "doctor": ("toktier_cli.verbs.doctor", "doctor", "What will run here, and why not faster"),
    "config": ("toktier_cli.app", "CONFIG", "Settings and where they come from"),
    "schema": ("toktier_cli.verbs.schema", "schema", "JSON Schemas of the documents that --json prints"),
    "completion": ("toktier_cli.verbs.completion", "completion", "Completion script for bash, zsh or fish"),
    "help": ("toktier_cli.verbs.help", "help_", "The verbs, or the tables of exit codes and error codes"),
}
ARTIFACTS: dict[str, tuple[str, str, str]] = {
    "list": ("toktier_cli.verbs.artifacts_show", "list_", "What is in the cache, or what is pinned"),
    "fetch": ("toktier_cli.verbs.artifacts_bring", "fetch", "Bring pinned files into the cache"),
    "import": (
        "toktier_cli.verbs.artifacts_import",
        "import_",
        "Take pinned files out of bundles, packages and directories",
    ),
    "export": ("toktier_cli.verbs.artifacts_export", "export", "Write families as a bundle, one file to carry"),
    "kit": ("toktier_cli.verbs.artifacts_kit", "kit", "Make a folder for a host without a network"),
    "mirror": ("toktier_cli.verbs.artifacts_mirror", "mirror", "Write a static tree that --from URL reads"),
    "verify": ("toktier_cli.verbs.artifacts_show", "verify", "Hash again what is there"),
    "remove": ("toktier_cli.verbs.artifacts_show", "remove", "Take families out of the cache"),
    "check-conversion": (
        "toktier_cli.verbs.artifacts_conversion",
        "check_conversion",
        "Derive a tokenizer.json again and compare it with its pin",
    ),
}
CERTIFY: dict[str, tuple[str, str, str]] = {
    "run": ("toktier_cli.verbs.certify", "run", "Certify FAMILY or FILE; the word run may be left out"),
    "merge": ("toktier_cli.verbs.certify_evidence", "merge", "Put the shards of one plan together"),
    "verify": ("toktier_cli.verbs.certify_evidence", "verify", "Hold evidence against its rules and this installation"),
    "show": ("toktier_cli.verbs.certify_evidence", "show", "The runs on this host, and what it believes"),
    "forget": ("toktier_cli.verbs.certify_forget", "forget", "Take back what this host certified"),
    "replay": ("toktier_cli.verbs.certify_evidence", "replay", "Run one failure again"),
    "diff": ("toktier_cli.verbs.certify_evidence", "diff", "What differs between two evidence files"),
}
SESSION: dict[str, tuple[str, str, str]] = {
    "list": ("toktier_cli.verbs.session", "list_", "The sessions of a store"),
    "show": ("toktier_cli.verbs.session", "show", "What a store knows of one session"),
    "remove": ("toktier_cli.verbs.session", "remove", "Remove sessions, also damaged ones"),
    "verify": ("toktier_cli.verbs.session", "verify", "Prove what a store holds"),
    "compact": ("toktier_cli.verbs.session", "compact", "Merge small rows and give space back"),
}
SERVE: dict[str, tuple[str, str, str]] = {
    "run": ("toktier_cli.verbs.serve", "run", "Route requests to llama-servers; the word run may be left out"),
    "report": ("toktier_cli.verbs.serve_report", "report", "How outputs with and without reuse differ"),
}
GPU: dict[str, tuple[str, str, str]] = {
    "compile": ("toktier_cli.verbs.gpu", "compile_", "Compile kernels with NVRTC and keep them"),
    "list": ("toktier_cli.verbs.gpu", "list_", "Kernels of the installation, and those compiled here"),
    "clean": ("toktier_cli.verbs.gpu", "clean", "Remove what was compiled here"),
}
CONFIG: dict[str, tuple[str, str, str]] = {
    "show": ("toktier_cli.verbs.config", "show", "Settings of this run"),
}
# Groups whose argument may also be what the named verb takes: `certify FAMILY` is `certify run FAMILY`. A path that is
# called like a verb is given as ./merge.
DEFAULT_VERBS = {"certify": "run", "serve": "run"}
# Those of them whose named verb takes options alone: the help of the group has them, and a word is meant as a verb.
WORDLESS = {"serve"}
EPILOG = f"Global options, anywhere on the line: {', '.join(option for option, _ in GLOBAL_HELP[:-1])}"
# BadParameter is public; its base, which all errors about the line share, is not.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]


class _WithExamples:
    """Put before the class of a verb's command: its help ends with examples, each on a line that can be copied."""

    verb: str

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc]
        except USAGE_ERROR as error:
            if error.ctx is None:  # the parser of options leaves it out, and the hint would name no verb
                error.ctx = ctx
            raise

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from toktier_cli.examples import EXAMPLES

        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for line, purpose in EXAMPLES.get(self.verb, ()):
                formatter.write(f"{indent}# {purpose}\n{indent}{line}\n")
        super().format_epilog(ctx, formatter)  # type: ignore[misc]


class VerbGroup(TyperGroup):
    """A group that knows its verbs by name and builds one only when it is asked for."""

    verbs: dict[str, tuple[str, str, str]]
    default: str | None = None

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.verbs:
            raise self._unknown(ctx, cmd_name)
        module, attribute, summary = self.verbs[cmd_name]
        target = globals()[attribute] if module == __name__ else getattr(importlib.import_module(module), attribute)
        if isinstance(target, dict):
            return _group(cmd_name, target, summary)
        app = _typer()
        base = getattr(target, "command_class", TyperCommand)
        verb = cmd_name if self.verbs is VERBS else f"{self.name} {cmd_name}"
        app.command(cmd_name, cls=type(base.__name__, (_WithExamples, base), {"verb": verb}))(target)
        command = typer.main.get_command(app)
        command.epilog = EPILOG
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if not args:
            raise UsageError(
                f"{ctx.command_path} needs a command: {' or '.join(self.verbs)}",
                details={"command": ctx.command_path, "commands": list(self.verbs)},
                remedy=f"{ctx.command_path} --help",
            )
        is_word = self.name in WORDLESS and not args[0].startswith("-")
        if self.default is not None and args[0] not in self.verbs and args[0] != "--help" and not is_word:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _unknown(self, ctx: Any, name: str) -> UsageError:
        near = difflib.get_close_matches(name, self.verbs, n=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return UsageError(
            f"{ctx.command_path} has no command {quoted(name)}{hint}",
            details={"command": ctx.command_path, "near": near},
            remedy=f"{ctx.command_path} --help",
        )

    def format_options(self, ctx: Any, formatter: Any) -> None:
        if self.name not in WORDLESS:
            return super().format_options(ctx, formatter)
        assert self.default is not None
        self.get_command(ctx, self.default).format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
        return None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in self.verbs.items()])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if ctx.parent is None:
            with formatter.section("Global options, anywhere on the line"):
                formatter.write_dl(GLOBAL_HELP)
            return
        formatter.write_paragraph()
        if self.default is not None:
            formatter.write_text(f"{ctx.command_path} WHAT is short for {ctx.command_path} {self.default} WHAT.")
        formatter.write_text(f"{ctx.command_path} COMMAND --help says more, with examples.")
        formatter.write_paragraph()
        formatter.write_text(EPILOG)


def _record(error: BaseException, invocation: Invocation) -> None:
    """The code of the error, where diagnostics are on. What keeps it from being recorded is no second error."""
    from toktier.config import Config, resolve_settings
    from toktier.diagnostics_ring import record_error
    from toktier_cli.failure import as_toktier_error

    with contextlib.suppress(Exception):
        record_error(resolve_settings(Config(home=invocation.home)), as_toktier_error(error))


def _typer() -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _group(name: str, verbs: dict[str, tuple[str, str, str]], summary: str) -> VerbGroup:
    group = VerbGroup(name=name, help=summary, rich_markup_mode=None)
    group.verbs = verbs
    group.default = DEFAULT_VERBS.get(name)
    return group


def root() -> VerbGroup:
    """The whole tree."""
    return _group("toktier", VERBS, "The token IDs of Hugging Face tokenizers, from a compiled tokenizer.json.")


def run(arguments: list[str], invocation: Invocation) -> Result | Work:
    """The result of the verb on the line, or its work, or what a request for help gives. Raises what the verb or the
    framework raises."""
    if not arguments:
        raise UsageError("no command given", remedy="toktier --help")
    warnings.showwarning = lambda message, *_, **__: invocation.warn(str(message))
    tree = root()
    printed = io.StringIO()
    # Not tree.main(): it would print errors and end the process in its own way. Help it prints itself, and exits.
    with contextlib.redirect_stdout(printed):
        try:
            with tree.make_context("toktier", arguments, obj=invocation) as context:
                result = tree.invoke(context)
        except BaseException as error:
            if not isinstance(error, typer.Exit):
                if arguments[0] != "doctor":  # which writes nothing, whatever it is asked
                    _record(error, invocation)
                raise
            return Result("help", lambda: {"text": printed.getvalue()}, printed.getvalue)
    if printed.getvalue():
        invocation.note(printed.getvalue().rstrip("\n"))
    assert isinstance(result, Result | Work)
    return result
