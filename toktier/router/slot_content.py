"""What one slot holds, as far as it is known: token IDs, and how many of them are certain.

The IDs of a prompt that was sent as IDs, and of generated tokens that the upstream named, are *sure*. Those behind are
*guessed*: encoded from generated text, or prefilled only perhaps, because a request was cut short. A guess may be used,
and never proves an upstream wrong. Not here: which slot has which content, and when it changes (`slots`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toktier.router.token_ids import TokenIds, shared_prefix


@dataclass(frozen=True, slots=True)
class Content:
    """`ids[:sure]` are certain. `prompt`: how many are of the request's prompt, the rest was generated. `exact`: the
    slot holds exactly so many tokens; else at least `sure`, and possibly more than `ids` has."""

    ids: TokenIds
    sure: int
    prompt: int
    exact: bool

    def is_continued_by(self, shared: int) -> bool:
        """Whether a prompt that shares so many tokens goes on where this one ended, or is the same again (of which the
        last token is not counted as shared, because an upstream evaluates one in any case)."""
        return shared >= max(self.prompt - 1, 1)

    def doubted(self, other: Content | None) -> Content:
        """The slot holds this, or `other`, or a beginning of this behind what it shares with `other`: what both
        certainly begin with is certain. None: it may hold anything."""
        sure = 0 if other is None else min(self.sure, other.sure, shared_prefix(self.ids, other.ids))
        return Content(self.ids, sure, self.prompt, exact=False)

    def at_most(self, sure: int) -> Content:
        """No more than `sure` tokens are certain."""
        return Content(self.ids, min(self.sure, sure), self.prompt, exact=False)

    def cut(self, length: int) -> Content:
        return Content(self.ids[:length], min(self.sure, length), min(self.prompt, length), self.exact)


def of_prompt(prompt: TokenIds, *, sure: bool, n_ctx: int) -> Content:
    """What a slot holds once a prompt is evaluated; it will hold more."""
    ids = prompt[:n_ctx]
    return Content(ids, len(ids) if sure else 0, len(ids), exact=False)


def after_request(
    prompt: TokenIds, generated: TokenIds, guessed: TokenIds, *, sure: bool, exact: bool, n_ctx: int
) -> Content:
    """What a slot holds behind a request that came to generating: prompt and generated tokens but the last, which was
    sampled and never evaluated. `exact`: these are all that were generated."""
    ids = np.concatenate((prompt, generated, guessed))
    if len(ids) > len(prompt):
        ids = ids[:-1]
    ids = ids[:n_ctx]
    certain = min(len(prompt) + len(generated), len(ids)) if sure else 0
    return Content(ids, certain, min(len(prompt), len(ids)), exact and sure and len(guessed) == 0)
