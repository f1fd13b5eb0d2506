"""`toktier help`: the tables of exit codes and error codes, as the errors themselves state them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toktier.errors import EXIT_CODE_MEANINGS, UsageError, error_codes
from toktier_cli.invocation import Result
from toktier_cli.table import columns

TOPICS = ("exit-codes", "error-codes")


def help_(
    topic: Annotated[str | None, typer.Argument(help=" or ".join(TOPICS), show_default=False)] = None,
) -> Result:
    """Help on exit-codes or error-codes."""
    if topic is None:
        text = "toktier --help, toktier VERB --help, " + ", ".join(f"toktier help {t}" for t in TOPICS) + "\n"
        return Result("help", lambda: {"text": text}, lambda: text)
    if topic not in TOPICS:
        raise UsageError(f"no help on {topic!r}: expected {' or '.join(TOPICS)}", remedy="toktier --help")
    document: dict[str, Any] = {
        "exit_codes": [{"exit_code": int(c), "meaning": m} for c, m in EXIT_CODE_MEANINGS.items()],
        "error_codes": [{"code": c, "exit_code": int(e)} for c, e in error_codes().items()],
    }
    return Result("help_codes", lambda: document, lambda: _text(topic, document))


def _text(topic: str, document: dict[str, Any]) -> str:
    if topic == "exit-codes":
        rows = [(str(e["exit_code"]), e["meaning"]) for e in document["exit_codes"]]
        return columns(("EXIT", "MEANING"), rows, right=(0,))
    rows = [(e["code"], str(e["exit_code"])) for e in document["error_codes"]]
    return columns(("ERROR", "EXIT"), rows, right=(1,))
