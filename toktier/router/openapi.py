"""What the OpenAPI document of the router says of its routes: bodies, answers, errors.

Bodies are those of llama-server and of the OpenAPI of OpenAI, of which only the members that the router reads are
described; all others pass. Not here: reading them (`bodies`), the routes (`app`), the words of errors (`refusals`).
"""

from __future__ import annotations

from typing import Any, Final

from toktier.router.refusals import REFUSALS

_IDS: Final = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}}
_PROMPT: Final = {
    "description": "A text, its token IDs, or both mixed; a list of such is several prompts.",
    "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "integer", "array"]}}],
}
_MESSAGE: Final = {
    "type": "object",
    "required": ["role"],
    "properties": {"role": {"type": "string"}, "content": {"type": ["string", "array", "null"]}},
}
_FLAG: Final = {"type": ["boolean", "null"]}
_STREAM: Final = {"type": ["boolean", "null"], "description": "The answer as server-sent events."}

COMPLETION: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["prompt"],
    "properties": {"prompt": _PROMPT, "stream": _STREAM},
}
CHAT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["messages"],
    "properties": {"messages": {"type": "array", "items": _MESSAGE}, "stream": _STREAM},
}
TOKENIZE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "content": {"type": ["string", "array"]},
        "add_special": _FLAG,
        "parse_special": _FLAG,
        "with_pieces": _FLAG,
    },
}
TOKENS: Final[dict[str, Any]] = {"type": "object", "required": ["tokens"], "properties": {"tokens": {"type": "array"}}}
EMBEDDINGS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["input"],
    "properties": {"input": {"type": ["string", "array"]}},
}
OBJECT: Final[dict[str, Any]] = {"type": "object"}
ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer"]},
                "remedy": {"type": "string"},
            },
        }
    },
}


def responses(
    schema: dict[str, Any], *, stream: bool = False, refusals: tuple[int, ...] = ()
) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route. `stream`: it may also answer with server-sent events."""
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if stream:
        content["text/event-stream"] = {}  # of events a schema would say what each is
    found: dict[int | str, dict[str, Any]] = {200: {"description": "The answer.", "content": content}}
    for status in refusals:
        found[status] = {"description": _description(status), "content": {"application/json": {"schema": ERROR}}}
    return found


def _description(status: int) -> str:
    """What the router means by a status: the meanings of all refusals that have it."""
    said = "; or ".join(meaning for of_code, _, meaning in REFUSALS.values() if of_code == status)
    return f"{said[0].upper()}{said[1:]}."


def body(schema: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads its body itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
