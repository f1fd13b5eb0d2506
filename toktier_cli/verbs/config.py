"""`toktier config show`: the settings of this run, and where each came from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from toktier.config import setting_names, setting_notes, without_credentials
from toktier_cli import options
from toktier_cli.invocation import Invocation, Result
from toktier_cli.table import columns


def show(
    ctx: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Also where each value came from.")] = False,
) -> Result:
    """Settings and directories of this run. Nothing is created."""
    invocation: Invocation = ctx.obj
    settings = options.settings_of(invocation)
    values = {name: getattr(settings, name) for name in setting_names()}
    values["store"] = None if settings.store is None else without_credentials(settings.store)
    origins = {name: settings.origins.get(name, "default") for name in values}
    return Result(
        "config",
        lambda: {"settings": {n: _plain(v) for n, v in values.items()}, "origins": origins, "notes": setting_notes()},
        lambda: _text(values, origins, origin),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _text(values: dict[str, Any], origins: dict[str, str], origin: bool) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, tuple):
            return os.pathsep.join(map(str, value)) or "-"
        return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    notes = setting_notes()
    header = ("SETTING", "VALUE", *(("ORIGIN",) if origin else ()), "NOTE")
    rows = [(n, shown(v), *((origins[n],) if origin else ()), notes.get(n, "")) for n, v in values.items()]
    return columns(header, rows)
