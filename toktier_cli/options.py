"""Options that several verbs share, and the tokenizer that they describe."""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.config import Config, Settings, resolve_settings
from toktier.errors import UsageError
from toktier.labels import shown_path
from toktier.routing.vocabulary import AUTO, BackendId, Device, RoutingPolicy
from toktier_cli.invocation import Invocation, Result

if TYPE_CHECKING:
    from toktier import Tokenizer


def one_of(*names: str) -> str:
    """The help of an option that takes one of these."""
    return f"{', '.join(names[:-1])} or {names[-1]}."


Family = Annotated[
    str | None,
    typer.Option("--family", "-f", metavar="FAMILY", help="A pinned family, or a path as for --file."),
]
File = Annotated[
    str | None, typer.Option("--file", metavar="PATH", help="A tokenizer.json, tekken file or tiktoken ranks.")
]
Policy = Annotated[str, typer.Option(metavar="POLICY", help=one_of(*RoutingPolicy))]
DeviceOption = Annotated[str, typer.Option("--device", metavar="DEVICE", help=one_of(*Device))]
Backend = Annotated[str | None, typer.Option("--tokenizer", metavar="BACKEND", help=one_of(AUTO, *BackendId))]
NoFallback = Annotated[
    bool, typer.Option("--no-tokenizer-fallback", help="An error where the reference would have to serve.")
]


# The options that describe a tokenizer and who serves it, with their defaults: those of every verb that encodes.
_TOKENIZER: tuple[tuple[str, Any, Any], ...] = (
    ("family", Family, None),
    ("file", File, None),
    ("policy", Policy, "certified"),
    ("device", DeviceOption, "auto"),
    ("tokenizer", Backend, None),
    ("no_tokenizer_fallback", NoFallback, False),
)
Load = Callable[[], "Tokenizer"]


def encodes(verb: Callable[..., Result], *, family: str | None = None) -> Callable[..., Result]:
    """Adds these options to a verb, which gets them as its argument `load`: a call that gives the tokenizer. `family`:
    the one that is meant where none and no file is named."""
    own = inspect.signature(verb, eval_str=True)

    @functools.wraps(verb)
    def whole(**given: Any) -> Result:
        chosen = {name: given.pop(name) for name, _, _ in _TOKENIZER}
        no_fallback = chosen.pop("no_tokenizer_fallback")
        if chosen["family"] is None and chosen["file"] is None:
            chosen["family"] = family
        return verb(load=lambda: load_tokenizer(given["ctx"].obj, no_fallback=no_fallback, **chosen), **given)

    kept = [parameter for parameter in own.parameters.values() if parameter.name != "load"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in _TOKENIZER
    ]
    del whole.__dict__["__wrapped__"]  # the framework would read the annotations of the verb alone
    whole.__signature__ = own.replace(parameters=kept + added)  # type: ignore[attr-defined]
    whole.__annotations__ = {parameter.name: parameter.annotation for parameter in kept + added}
    return whole


def settings_of(invocation: Invocation, **more: Any) -> Settings:
    """Settings of this run: global options before config.toml and the environment."""
    return resolve_settings(config_of(invocation, **more))


def config_of(invocation: Invocation, **more: Any) -> Config:
    """What the command line says, as a Config."""
    return Config(home=invocation.home, offline=True if invocation.offline else None, **more)


def finite(seconds: float | None) -> float | None:
    """Callback of options that take a number of seconds: neither infinity nor what is no number (a deadline that never
    comes), which the bounds of the framework let through."""
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"expected a number of seconds, not {seconds}")
    return seconds


def path_of(given: str, what: str) -> Path:
    """A path as given. UsageError for an empty one, as an unset variable leaves it: it would mean this directory."""
    if not given:
        raise UsageError(f"{what} is empty", details={"argument": what}, remedy="give a path; . is this directory")
    return Path(given)


def looks_like_path(name: str) -> bool:
    """FAMILY arguments also take a path: anything with a separator, a suffix of files, or the name of a file here.
    `local/NAME` is a local artifact; `./local/NAME` is a path."""
    from toktier.artifacts.local_artifacts import is_local_name

    if is_local_name(name):
        return False
    return (
        os.sep in name or name.endswith((".json", ".tar", ".zst")) or (not name.isidentifier() and Path(name).is_file())
    )


def tokenizer_json(path: Path, settings: Settings) -> Path:
    """The file itself, or the tokenizer.json that a vocabulary of another format is converted to. Raises as
    `converted_file`."""
    from toktier.conversion.recognise import vocabulary_format

    form = vocabulary_format(path)
    if form is None:
        return path
    from toktier.conversion.vocabulary_files import converted_file

    return converted_file(path, form, settings, shown_path(path)).path


def load_tokenizer(
    invocation: Invocation,
    family: str | None,
    file: str | None,
    *,
    policy: str,
    device: str,
    tokenizer: str | None,
    no_fallback: bool,
) -> Tokenizer:
    """The tokenizer that the options describe. Raises UsageError unless exactly one of family and file is given."""
    if (family is None) == (file is None):
        raise UsageError(
            "expected one of --family FAMILY and --file tokenizer.json" + ("" if family is None else ", not both"),
            remedy="toktier artifacts list --available",
        )
    if family is not None and looks_like_path(family):
        family, file = None, family
    import toktier
    from toktier.artifacts.resolve import obtain

    config = config_of(invocation, tokenizer_fallback=False if no_fallback else None)
    # Not given is not "auto": the environment and config.toml are asked next.
    chosen: dict[str, Any] = {} if tokenizer is None else {"tokenizer": tokenizer}
    if file is not None:
        tok = toktier.from_file(file, policy=policy, device=device, config=config, **chosen)
    else:
        assert family is not None
        # Brought before it is loaded, so that a download is announced; from the cache: a fraction of a millisecond.
        obtain(family, resolve_settings(config), notify=invocation.note)
        tok = toktier.load(family, policy=policy, device=device, config=config, **chosen)
    invocation.inform(lambda: _loaded(tok, family or file))
    return tok


def _loaded(tok: Tokenizer, name: str | None) -> str:
    """What serves, why, and whether it had to be compiled."""
    report = tok.explain(summary=True)
    program = report["program"]
    origin = "" if program is None else f"; program {'from the cache' if program['from_cache'] else 'compiled now'}"
    return f"{shown_path(name or '')}: {report['verdict']}{origin}"
