"""The special tokens of a loaded tokenizer by name: `pad_token`, `pad_token_id` and their like, as in `transformers`.

Naming a token is no change of the tokenizer: it has to be there. Not here: where names come from (`loader_config`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toktier.compat.call_options import InvalidCall
from toktier.compat.loader_config import NAMED


class SpecialTokens:
    """Names and contents. The ids are asked for each time: another unknown token changes them."""

    _named: dict[str, str]
    _extra: list[str]

    if TYPE_CHECKING:  # properties, made below for every name
        bos_token: str | None
        eos_token: str | None
        unk_token: str | None
        sep_token: str | None
        pad_token: str | None
        cls_token: str | None
        mask_token: str | None
        bos_token_id: int | None
        eos_token_id: int | None
        unk_token_id: int | None
        sep_token_id: int | None
        pad_token_id: int | None
        cls_token_id: int | None
        mask_token_id: int | None

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """For the subclass."""
        raise NotImplementedError

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """For the subclass."""
        raise NotImplementedError

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """Contents by name, in the usual order; names of the model's own behind them."""
        order = [*(name for name in NAMED if name in self._named), *(n for n in self._named if n not in NAMED)]
        return {name: self._named[name] for name in order}

    @property
    def extra_special_tokens(self) -> list[str]:
        """Special tokens without a name. Raises InvalidCall where it is set to what is no list of tokens."""
        return list(self._extra)

    @extra_special_tokens.setter
    def extra_special_tokens(self, tokens: Sequence[Any] | None) -> None:
        contents = [getattr(token, "content", token) for token in tokens or ()]
        if isinstance(tokens, str) or not all(isinstance(content, str) for content in contents):
            raise InvalidCall(
                f"extra_special_tokens is {tokens!r}: expected a list of tokens or None",
                details={"argument": "extra_special_tokens"},
                remedy="give a list of tokens that the tokenizer has",
            )
        self._extra = contents

    @property
    def extra_special_tokens_ids(self) -> list[int]:
        """Their ids."""
        ids: list[int] = self.convert_tokens_to_ids(self.extra_special_tokens)
        return ids

    @property
    def additional_special_tokens(self) -> list[str]:
        """The name of `extra_special_tokens` in transformers 4."""
        return self.extra_special_tokens

    @additional_special_tokens.setter
    def additional_special_tokens(self, tokens: Sequence[Any] | None) -> None:
        self.extra_special_tokens = tokens

    @property
    def all_special_tokens(self) -> list[str]:
        """Every named and extra token once."""
        return list(dict.fromkeys([*self.special_tokens_map.values(), *self._extra]))

    @property
    def all_special_ids(self) -> list[int]:
        """Their ids."""
        ids: list[int] = self.convert_tokens_to_ids(self.all_special_tokens)
        return ids

    def _name(self, name: str, content: str | None) -> None:
        content = getattr(content, "content", content)
        if content is not None and not isinstance(content, str):
            raise InvalidCall(f"{name} is {content!r}: expected a token or None", details={"argument": name})
        if content is None:
            self._named.pop(name, None)
        else:
            self._named[name] = content


def _token(name: str) -> property:
    def get(self: SpecialTokens) -> str | None:
        return self._named.get(name)

    def put(self: SpecialTokens, content: str | None) -> None:
        self._name(name, content)

    return property(get, put, doc=f"Content of the {name.replace('_', ' ')}, or None.")


def _token_id(name: str) -> property:
    def get(self: SpecialTokens) -> int | None:
        content = self._named.get(name)
        return None if content is None else self.convert_tokens_to_ids(content)

    def put(self: SpecialTokens, token_id: int | None) -> None:
        self._name(name, None if token_id is None else self.convert_ids_to_tokens(token_id))

    return property(get, put, doc=f"Id of the {name.replace('_', ' ')}, or None.")


_MAKERS: tuple[tuple[str, Callable[[str], property]], ...] = (("", _token), ("_id", _token_id))
for _name in NAMED:
    for _suffix, _make in _MAKERS:
        setattr(SpecialTokens, _name + _suffix, _make(_name))
