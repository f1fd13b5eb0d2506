"""The token IDs of a request, and the body that takes it to an upstream.

The IDs of a completion are toktier's own, and go up as IDs. Those of a chat are toktier's of what the upstream renders,
and it goes up as messages (`agreement`). Not here: which slot is written into the body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toktier.router.agreement import Agreed
from toktier.router.bodies import ChatRequest, CompletionRequest, Encode
from toktier.router.token_ids import TokenIds
from toktier.router.vocabulary import Ids

if TYPE_CHECKING:
    from toktier.router.upstream import Upstream


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prepared:
    """`ids`: of the prompt; `kind`: whose. `body`: of the request to a slot. `text`: of the prompt, where it is text
    alone or rendered. `rendered_by`: the upstream that was asked about a chat, and `agreed`: what came of it."""

    ids: TokenIds
    kind: Ids
    body: Callable[[int | None], bytes]
    text: str | None
    rendered_by: Upstream | None = None
    agreed: Agreed | None = None


def of_completion(request: CompletionRequest, encode: Encode) -> Prepared:
    ids = request.ids(encode)
    # An empty text and a list of an empty list are answered with nothing, an empty list with an error: each goes up as
    # it came.
    sent = ids if len(ids) else None
    text = request.prompt[0] if len(request.prompt) == 1 else None
    return Prepared(
        ids=ids,
        kind=Ids.SENT,
        body=lambda slot: request.upstream_body(sent, slot),
        text=text if isinstance(text, str) else None,
    )


def of_chat(agreed: Agreed, upstream: Upstream) -> Prepared:
    return Prepared(
        ids=agreed.ids,
        kind=agreed.kind,
        body=agreed.request.upstream_body,
        text=agreed.text,
        rendered_by=upstream,
        agreed=agreed,
    )


def unpinned_body(request: CompletionRequest | ChatRequest) -> bytes:
    """Of a request that the upstream places itself, with its prompt as it came."""
    return request.upstream_body(None) if isinstance(request, ChatRequest) else request.upstream_body(None, None)
