"""toktier: the same token IDs as Hugging Face `tokenizers`, from a compiled tokenizer.json.

`import toktier` loads nothing but this file; the names below are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module

from toktier.version import VERSION as __version__

TYPE_CHECKING = False  # the typing module alone would multiply the time of this import
if TYPE_CHECKING:
    from typing import Any

    from toktier import errors
    from toktier._native import Encoding, EncodingBatch, TokenPatch
    from toktier.api import from_file, from_pretrained, load
    from toktier.config import Config
    from toktier.decode_stream import DecodeStream
    from toktier.errors import ToktierError, ToktierWarning
    from toktier.routing.vocabulary import RoutingPolicy
    from toktier.sessions.session import Session
    from toktier.tokenizer import Tokenizer

_HOMES = {
    "Config": "toktier.config",
    "DecodeStream": "toktier.decode_stream",
    "Encoding": "toktier._native",
    "EncodingBatch": "toktier._native",
    "RoutingPolicy": "toktier.routing.vocabulary",
    "Session": "toktier.sessions.session",
    "TokenPatch": "toktier._native",
    "Tokenizer": "toktier.tokenizer",
    "ToktierError": "toktier.errors",
    "ToktierWarning": "toktier.errors",
    "errors": "toktier.errors",
    "from_file": "toktier.api",
    "from_pretrained": "toktier.api",
    "load": "toktier.api",
}

__all__ = [
    "Config",
    "DecodeStream",
    "Encoding",
    "EncodingBatch",
    "RoutingPolicy",
    "Session",
    "TokenPatch",
    "Tokenizer",
    "ToktierError",
    "ToktierWarning",
    "__version__",
    "errors",
    "from_file",
    "from_pretrained",
    "load",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toktier' has no attribute {name!r}")
    module = import_module(home)
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
