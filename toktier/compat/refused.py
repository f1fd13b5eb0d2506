"""What a fast tokenizer of `transformers` does and this one refuses, with what to do instead. One table.

Not here: calls that are refused for their arguments (`call_options`).
"""

from __future__ import annotations

from typing import Any, NoReturn

from toktier.errors import UnsupportedConfig

# Flags that put another template in place of the file's: they are given when a tokenizer is made.
TEMPLATE_FLAGS = ("add_bos_token", "add_eos_token")

_OTHER_TOKENIZER = "it makes another tokenizer; add the tokens to tokenizer.json and open it again"
REFUSED = {
    "apply_chat_template": "render it apart, as transformers does with tokenize=False, then add no special tokens here",
    "encode_message_with_chat_template": "render the template apart, then add no special tokens here",
    "add_tokens": _OTHER_TOKENIZER,
    "add_special_tokens": _OTHER_TOKENIZER,
    "train_new_from_iterator": "train with tokenizers, and open the file that it saves",
    "save_pretrained": "copy the files that this tokenizer was opened from",
    "push_to_hub": "copy the files that this tokenizer was opened from",
    "set_truncation_and_padding": "give padding and truncation to the call",
}


class Refusals:
    """A method for every line of the table, and a property for every flag that cannot be set: each raises
    UnsupportedConfig."""

    _flags: dict[str, bool]


def _refusing(name: str, remedy: str) -> Any:
    def refuse(self: Refusals, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedConfig(f"{name} is not served here", details={"call": name}, remedy=remedy)

    refuse.__name__, refuse.__doc__ = name, f"Refused: {remedy}."
    return refuse


def _fixed(name: str) -> property:
    def get(self: Refusals) -> bool:
        return self._flags[name]

    def put(self: Refusals, _: object) -> NoReturn:
        raise UnsupportedConfig(
            f"{name} cannot be set on a tokenizer that exists: it changes ids",
            details={"argument": name},
            remedy=f"make another, with {name} as a keyword",
        )

    return property(get, put, doc=f"Whether {name} was given as a keyword, with its token; it cannot be set.")


for _call, _remedy in REFUSED.items():
    setattr(Refusals, _call, _refusing(_call, _remedy))
for _flag in TEMPLATE_FLAGS:
    setattr(Refusals, _flag, _fixed(_flag))
