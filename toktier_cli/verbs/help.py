"""`toktier help`: the verbs, and the tables of exit codes and error codes as the errors themselves state them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toktier.errors import EXIT_CODE_MEANINGS, UsageError, error_codes
from toktier_cli.invocation import Result
from toktier_cli.table import columns

TOPICS = {
    "exit-codes": "exit codes of the command",
    "error-codes": "codes of errors, and the exit code of each",
}


def help_(
    topic: Annotated[str | None, typer.Argument(help=" or ".join(TOPICS), show_default=False)] = None,
) -> Result:
    """The verbs, or help on exit-codes or error-codes."""
    if topic is None:
        text = _overview()
        return Result("help", lambda: {"text": text}, lambda: text)
    if topic not in TOPICS:
        from toktier_cli.app import VERBS

        raise UsageError(
            f"no help on {topic!r}: expected {' or '.join(TOPICS)}",
            remedy=f"toktier {topic} --help" if topic in VERBS else "toktier help",
        )
    document: dict[str, Any] = {
        "exit_codes": [{"exit_code": int(c), "meaning": m} for c, m in EXIT_CODE_MEANINGS.items()],
        "error_codes": [{"code": c, "exit_code": int(e)} for c, e in error_codes().items()],
    }
    return Result("help_codes", lambda: document, lambda: _text(topic, document))


def _overview() -> str:
    from toktier_cli.app import ARTIFACTS, CERTIFY, CONFIG, SERVE, SESSION, VERBS  # here: it imports this by name

    groups = {"artifacts": ARTIFACTS, "certify": CERTIFY, "session": SESSION, "serve": SERVE, "config": CONFIG}
    rows = []
    for verb, (_, _, summary) in VERBS.items():
        below = groups.get(verb)
        rows += (
            [(verb, summary)] if below is None else [(f"{verb} {name}", said) for name, (_, _, said) in below.items()]
        )
    verbs = columns(("VERB", "WHAT IT DOES"), rows)
    topics = columns(("TOPIC", "WHAT IT LISTS"), list(TOPICS.items()))
    return f"{verbs}\ntoktier VERB --help says more.\n\n{topics}\ntoktier help TOPIC lists it.\n"


def _text(topic: str, document: dict[str, Any]) -> str:
    if topic == "exit-codes":
        rows = [(str(e["exit_code"]), e["meaning"]) for e in document["exit_codes"]]
        return columns(("EXIT", "MEANING"), rows, right=(0,))
    rows = [(e["code"], str(e["exit_code"])) for e in document["error_codes"]]
    return columns(("ERROR", "EXIT"), rows, right=(1,))
