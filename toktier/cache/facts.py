"""What a backend says of itself that decides whether its ids may be put together from parts: added tokens with their
flags, and what of the tokenizer looks at a whole text.

A `toktier.Tokenizer` answers for the engine that serves it (`prefix_cache_facts`); an object of the reference is read
here. Of others nothing is known, and they are probed (`toktier.cache.probe`); so is an object that hands on to another
what it has not itself, for what its own `encode` does to a text is not in what that other one says. Not here: the
rules (`boundaries`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

_OF_REFERENCE = ("get_added_tokens_decoder", "truncation", "pre_tokenizer")
"""What an object of the reference has, which is known by that, and not by an import of its library."""


@dataclass(frozen=True, slots=True)
class Added:
    """An added token of a tokenizer.json."""

    id: int
    content: str
    special: bool = True
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """`normalizer`: types of its steps, in order. `whole`: what looks at the whole text, in words; None: nothing does.
    `namespace`: names all that can change ids; None: unknown. `is_as_loaded`: False while an object that others may
    change is set to truncate, to pad or to read special tokens as text; None: it cannot change. `of_another`: they are
    what a wrapper hands on, whose own `encode` is unknown. `served_by`: what `Encoding.backend` is of ids of this
    namespace, where another engine may stand in; None: none does."""

    added: tuple[Added, ...]
    normalizer: tuple[str, ...] = ()
    whole: str | None = None
    namespace: str | None = None
    is_as_loaded: Callable[[], bool] | None = None
    of_another: bool = False
    served_by: str | None = None


def facts_of(inner: Any) -> Facts | None:
    """Those of a backend; None: nothing is known of it."""
    if callable(own := getattr(inner, "prefix_cache_facts", None)):
        facts, its_own = own(), hasattr(type(inner), "prefix_cache_facts")
        if not isinstance(facts, Facts):
            return None
    elif all(hasattr(inner, name) for name in _OF_REFERENCE):
        facts, its_own = facts_of_reference(inner), all(hasattr(type(inner), name) for name in _OF_REFERENCE)
    else:
        return None
    return facts if its_own else replace(facts, namespace=None, of_another=True)


def facts_of_reference(reference: Any, namespace: str | None = None) -> Facts:
    """Of a `tokenizers.Tokenizer`. What its holder changes later is not seen, but for truncation, padding and
    `encode_special_tokens`, which are looked at before every call."""

    def is_as_loaded() -> bool:
        return reference.truncation is None and reference.padding is None and not reference.encode_special_tokens

    added = reference.get_added_tokens_decoder()
    return Facts(
        tuple(
            Added(i, t.content, t.special, t.single_word, t.lstrip, t.rstrip, t.normalized) for i, t in added.items()
        ),
        tuple(str(step.get("type")) for step in _steps(reference.normalizer, "normalizers")),
        whole_of(reference.truncation, reference.padding, _steps(reference.pre_tokenizer, "pretokenizers"))
        or ("the model leaves out merges at random (dropout)" if getattr(reference.model, "dropout", None) else None),
        namespace,
        is_as_loaded,
    )


def whole_of(truncation: object, padding: object, pre_tokenizer: Iterable[dict[str, Any]]) -> str | None:
    """`pre_tokenizer`: its steps, as in a tokenizer.json."""
    if truncation is not None:
        return "the tokenizer truncates"
    if padding is not None:
        return "the tokenizer pads"
    if any(step.get("prepend_scheme") == "first" for step in pre_tokenizer):
        return "prepend_scheme is first: what stands first in a text is encoded in another way"
    return None


def _steps(component: Any, children: str) -> list[dict[str, Any]]:
    """Steps of a normalizer or pre-tokenizer of the reference, which gives its JSON as its state."""
    return [] if component is None else list(_flat(json.loads(component.__getstate__()), children))


def _flat(step: dict[str, Any], children: str) -> Iterator[dict[str, Any]]:
    if step.get("type") == "Sequence":
        for child in step[children]:
            yield from _flat(child, children)
    else:
        yield step
