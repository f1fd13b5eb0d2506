"""`toktier schema`: the JSON Schemas (2020-12) of the documents, as shipped."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from toktier import resources
from toktier.errors import InternalError, UsageError
from toktier_cli.invocation import Result

SUFFIX = ".schema.json"


def names() -> list[str]:
    """Names of the shipped schemas."""
    return sorted(p.name.removesuffix(SUFFIX) for p in (resources.tables_dir() / "schemas").glob(f"*{SUFFIX}"))


def schema(
    name: Annotated[str | None, typer.Argument(help="Without a name: list them.", show_default=False)] = None,
) -> Result:
    """Print the JSON Schema of the documents of one kind, such as encode or error."""
    known = names()
    if name is None:
        return Result("schema_list", lambda: {"names": known}, lambda: "".join(f"{n}\n" for n in known))
    plain = name.removeprefix("toktier.")
    if plain not in known:
        import difflib

        near = difflib.get_close_matches(plain, known, n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UsageError(f"no schema is named {name!r}{hint}", details={"near": near}, remedy="toktier schema")
    path = resources.tables_dir() / "schemas" / f"{plain}{SUFFIX}"
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise InternalError(f"{path} cannot be read: {error.strerror}", remedy="install toktier again") from None
    return Result("schema", lambda: {"name": plain, "json_schema": json.loads(text)}, lambda: text)
