"""`toktier serve`: a router in front of llama-servers, until it is told to end.

The one verb that says something before its end: where it listens, once it does. Not here: what the router does
(`toktier.router`), and the table of its options (`toktier.router.options`).
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import MISSING, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from toktier.errors import ExitCode
from toktier.labels import escaped, shown
from toktier.router.distributions import require_distributions
from toktier.router.options import BY_NAME, HEADINGS, OPTIONS, Option
from toktier.router.settings import RECORDS, ServeSettings, default_of, plain, resolve
from toktier.router.vocabulary import UpstreamState
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result, Work
from toktier_cli.table import columns

if TYPE_CHECKING:
    from toktier import Tokenizer
    from toktier.router.server import Ended
    from toktier.router.upstream_check import Found

_SHORT = {"family": ("--family", "-f"), "tokenizer-file": ("--tokenizer-file", "--file")}


def run(ctx: typer.Context, config: str | None, check: bool, show_config: bool, **given: Any) -> Result | Work:
    """Route requests of OpenAI's API to llama-servers, so that each meets the slot that holds most of its prompt.

    It ends at SIGTERM or Ctrl-C, after the requests that run (--drain-seconds), and at once at a second one. Options
    may stand in a TOML file, without their dashes in front; what the line says counts before it.
    """
    invocation: Invocation = ctx.obj
    settings = resolve(
        {name.replace("_", "-"): value for name, value in given.items()},
        None if config is None else options.path_of(config, "--config"),
        lambda: options.settings_of(invocation).require_state().joinpath(*RECORDS),
    )
    if show_config:
        return Result("serve_config", lambda: _config_document(settings), lambda: _config_text(settings))
    require_distributions()  # before anything is read or bound
    if check:
        return _checked(invocation, settings)
    return Work(lambda say: _served(invocation, settings, say))


def _tokenizer(invocation: Invocation, settings: ServeSettings) -> Tokenizer:
    return options.load_tokenizer(
        invocation,
        settings.family,
        None if settings.tokenizer_file is None else str(settings.tokenizer_file),
        policy=settings.policy,
        device=settings.device,
        tokenizer=settings.tokenizer,
        no_fallback=settings.no_tokenizer_fallback,
    )


def _warn(invocation: Invocation, settings: ServeSettings) -> None:
    """Of what is risky in the settings, and of the file of keys, which is read before anything is bound."""
    cautions = settings.cautions()
    if settings.api_key_file is not None:
        from toktier.router.api_keys import read_api_keys

        cautions += read_api_keys(settings.api_key_file)[1]
    for caution in cautions:
        invocation.warn(caution)


def _upstream_key(invocation: Invocation, settings: ServeSettings) -> str | None:
    if settings.upstream_api_key_file is None:
        return None
    from toktier.router.api_keys import read_upstream_key

    key, cautions = read_upstream_key(settings.upstream_api_key_file)
    for caution in cautions:
        invocation.warn(caution)
    return key


def _checked(invocation: Invocation, settings: ServeSettings) -> Result:
    from toktier.router.app import create_app
    from toktier.router.upstream_check import check_embedder, check_upstreams

    _warn(invocation, settings)
    key = _upstream_key(invocation, settings)
    tokenizer = _tokenizer(invocation, settings)
    # What refuses to start is refused here. Without records: they begin to write at once, and stop nothing.
    create_app(replace(settings, records=None), tokenizer)
    found = check_upstreams(settings, tokenizer, key)
    if (note := check_embedder(settings, key)) is not None:
        invocation.warn(note)
    good = all(one.state is UpstreamState.UP for one in found)
    return Result(
        "serve_check",
        lambda: {"upstreams": [_found_document(one) for one in found]},
        lambda: _found_text(found),
        ExitCode.DONE if good else ExitCode.NO,
    )


def _found_document(one: Found) -> dict[str, Any]:
    return {
        "url": one.url,
        "state": one.state.value,
        "slots": one.slots,
        "context": one.context,
        "model": None if one.model is None else shown(one.model),
        "build": None if one.build is None else shown(one.build),
        "notes": list(one.notes),
    }


def _found_text(found: list[Found]) -> str:
    def said(value: Any) -> str:
        return "-" if value is None else f"{value:,}" if isinstance(value, int) else shown(value)

    rows = [(one.url, one.state.value, said(one.slots), said(one.context), said(one.model)) for one in found]
    notes = "".join(
        f"note: {'' if note.startswith(one.url) else f'{one.url}: '}{escaped(note)}\n"
        for one in found
        for note in one.notes
    )
    return columns(("UPSTREAM", "STATE", "SLOTS", "CONTEXT", "MODEL"), rows) + notes


def _served(invocation: Invocation, settings: ServeSettings, say: Callable[[Result], Any]) -> Result:
    from toktier.router.server import bind, serve

    _warn(invocation, settings)
    _upstream_key(invocation, settings)
    with bind(settings.host, settings.port) as sock:
        tokenizer = _tokenizer(invocation, settings)
        from toktier.router.app import create_app

        app = create_app(settings, tokenizer)
        ended = serve(
            app,
            settings,
            sock,
            on_ready=lambda url: say(_ready(settings, url)),
            log=_log,
            log_level="error" if invocation.errors_alone else invocation.level,
            tally=app.connections,
        )
    return Result(
        "serve",
        lambda: {"requests": ended.requests, "cut_off": ended.cut_off},
        lambda: _ended_text(ended),
        ExitCode.INCOMPLETE if ended.cut_off else ExitCode.DONE,
    )


def _ready(settings: ServeSettings, url: str) -> Result:
    """Of which whoever started the router learns that it serves, and where."""
    return Result(
        "serve_ready",
        lambda: {"url": url, "upstreams": list(settings.upstreams), "pid": os.getpid()},
        lambda: f"serving on {url}; upstreams {' '.join(settings.upstreams)}\n",
    )


def _log(text: str) -> None:
    """A line of the log, or the trace of an error, on stderr. What keeps it from being written stops no request."""
    with contextlib.suppress(OSError):
        sys.stderr.write("".join(f"{escaped(line)}\n" for line in text.split("\n")))
        sys.stderr.flush()


def _ended_text(ended: Ended) -> str:
    cut = f", cut off: {ended.cut_off:,}" if ended.cut_off else ""
    return f"ended; requests answered: {ended.requests:,}{cut}\n"


def _config_document(settings: ServeSettings) -> dict[str, Any]:
    return {"settings": plain(settings), "origins": dict(settings.origins)}


def _config_text(settings: ServeSettings) -> str:
    def said(value: Any) -> str:
        if isinstance(value, list):
            return " ".join(value) or "-"
        if isinstance(value, bool):
            return str(value).lower()
        return "-" if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)

    values = plain(settings)
    rows = [(escaped(name), escaped(said(value)), escaped(settings.origins[name])) for name, value in values.items()]
    return columns(("SETTING", "VALUE", "ORIGIN"), rows)


def _parameter(option: Option) -> inspect.Parameter:
    """The option as the framework takes it: not given is None, so that the file and the defaults are asked next."""
    spelled = _SHORT.get(option.name, (f"--{option.name}",))
    if option.negated:
        spelled = (f"--{option.name}/--no-{option.name}",)
    default = default_of(option)
    told = "" if default in (MISSING, None, (), False, "") else f" ({_told_default(default)})"
    help_text = option.help.removesuffix(".") + told + "."
    kind: Any = list[option.kind] | None if option.repeats else option.kind | None  # type: ignore[name-defined]
    annotation = Annotated[kind, typer.Option(*spelled, metavar=option.metavar, help=help_text, show_default=False)]
    name = option.name.replace("-", "_")
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _told_default(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and value > 65535 else str(value)  # a port has no comma


def _signature() -> inspect.Signature:
    own = [
        inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *(_parameter(option) for option in OPTIONS),
        inspect.Parameter(
            "config",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None, typer.Option("--config", metavar="FILE", help="A TOML file with these options.")
            ],
        ),
        *(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False,
                annotation=Annotated[bool, typer.Option(f"--{name.replace('_', '-')}", help=help_text)],
            )
            for name, help_text in (
                ("check", "Try what a start needs and ask the upstreams, say what was found, and end."),
                ("show_config", "Show the options that hold, and who said them, and end."),
            )
        ),
    ]
    return inspect.Signature(own, return_annotation=Result)


class ServeCommand(TyperCommand):
    """The verb, whose help has its many options under headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: list[tuple[str, list[tuple[str, str]]]] = [("Options", [])]
        for parameter in self.get_params(ctx):
            name = str(parameter.name).replace("_", "-")
            if heading := HEADINGS.get(name):
                sections.append((heading, []))
            # Behind the table are those that look at settings, and --help.
            rows = sections[-1 if name in BY_NAME else 0][1]
            if (row := parameter.get_help_record(ctx)) is not None:
                rows.append(row)
        for heading, rows in (*sections[1:], sections[0]):
            with formatter.section(heading):
                formatter.write_dl(rows)


run.command_class = ServeCommand  # type: ignore[attr-defined]
run.__signature__ = _signature()  # type: ignore[attr-defined]
run.__annotations__ = {parameter.name: parameter.annotation for parameter in _signature().parameters.values()}
