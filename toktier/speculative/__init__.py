"""Tokens to copy, for speculative decoding by prompt lookup: from other requests of the same scope, and from the
own history of a request. docs/shared-lookup.md says how, what it costs, and which tenant can learn what.

It proposes only: a model verifies every token. Native code (native/speculative), without an object per token.
"""

from toktier._native import CopyWindow, MissBackoff, PromptLookup, SharedTokenCache
from toktier.speculative.proposer import Proposer
from toktier.speculative.scope import Scope

__all__ = ["CopyWindow", "MissBackoff", "PromptLookup", "Proposer", "Scope", "SharedTokenCache"]
