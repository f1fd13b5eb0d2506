"""A program's META for people: one line a part, in the order in which a text passes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toktier.labels import escaped

SHOWN = 60
DIGEST_SHOWN = 12


def program_lines(meta: dict[str, Any]) -> Iterator[str]:
    """Lines of twelve columns of label and one fact each."""
    for label, text in _facts(meta):
        yield f"{label:<13}{text}\n"


def _facts(meta: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "normalizer", ", ".join(_named(step) for step in meta["normalizer"]) or "none"
    yield "splitting", _stages(meta["pre_tokenizer"])
    boundary = meta["boundary"]
    if boundary is not None:
        states = boundary["token_states"]
        forward = "no one-pass form" if states is None else f"{states} states in one pass"
        sides = f"{boundary['left_states']} left and {boundary['right_states']} right states"
        yield "automata", f"{boundary['classes']} classes, {sides}, {forward}"
        yield "boundaries", f"{boundary['digest'][:DIGEST_SHOWN]}, the same for every pattern that splits alike"
        if boundary["pair_cuts"] is not None:
            yield "cuts", f"{boundary['pair_cuts']} pairs and {boundary['triple_cuts']} triples of classes always part"
    model = meta["model"]
    yield (
        "model",
        f"{model['type']} over {model['alphabet']}, {model['vocabulary']} tokens, {model['ids']} ids" + _flags(model),
    )
    yield (
        "merges",
        f"{model['merges_live']} of {model['merges_written']} can fire, {model['merges_dead']} proved dead"
        + (f", {model['merges_kept_unproved']} kept unproved" if model["merges_kept_unproved"] else "")
        + ("" if model["monotone"] else ", ranks not monotone: some rules precede one that makes a side of theirs"),
    )
    added = meta["added_tokens"]
    counts = [f"{added[flag]} {flag}" for flag in sorted(added) if flag != "count" and added[flag]]
    yield "added tokens", f"{added['count']}" + (f" ({', '.join(counts)})" if counts else "")
    yield "template", _template(meta["post_processor"])
    yield "decoder", _decoder(meta)
    if meta["truncation"] is not None:
        yield "truncation", _named(meta["truncation"])
    if meta["padding"] is not None:
        yield "padding", _named(meta["padding"])


def _flags(model: dict[str, Any]) -> str:
    named = [flag for flag in ("byte_fallback", "fuse_unk", "ignore_merges") if model[flag]]
    return f", {', '.join(named)}" if named else ""


def _decoder(meta: dict[str, Any]) -> str:
    text = _named(meta["decoder"])
    if meta["decode"] == "reference":
        reason = meta["decode_reason"]
        return f"{text}; the reference decodes ({reason['path']} = {reason['component']})"
    return text


def _stages(pre_tokenizer: dict[str, Any]) -> str:
    stages = [
        f"{stage['behavior']} {_short(stage['pattern'])}" + (" inverted" if stage.get("invert") else "")
        if "pattern" in stage
        else _named(stage)
        for stage in pre_tokenizer["stages"]
    ]
    return "; then ".join(stages) or "none: the text between added tokens is one piece"


def _template(post_processor: dict[str, Any]) -> str:
    before, after = ([f"{content} ({i})" for i, content in post_processor[side]] for side in ("before", "after"))
    parts = [
        f"{', '.join(tokens)} {where} the text" for tokens, where in ((before, "before"), (after, "after")) if tokens
    ]
    return "; ".join(parts) or "adds nothing"


def _named(part: Any) -> str:
    """A part of the pipeline, its type first, its settings after it, cut to a line."""
    if part is None:
        return "none"
    if isinstance(part, list):
        return ", ".join(_named(item) for item in part) or "none"
    if not isinstance(part, dict):
        return str(part)
    name = str(part.get("type") or part.get("kind") or "")
    settings = ", ".join(
        f"{k} {_short(v)}" for k, v in part.items() if k not in ("type", "kind") and v not in (None, False, [])
    )
    return f"{name} ({settings})" if name and settings else name or settings or "none"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    text = "yes" if value is True else str(value)
    shown = escaped(text[: SHOWN + 1])
    if shown != shown.strip() or not shown:
        shown = f"'{shown}'"
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."
