"""The steps of the compiler that see of a tokenizer its pre-tokenizer alone, or a few sets of code points: done once in
a process for each of these. Tests compile a handful of pre-tokenizers some thousands of times, half a second each.

What is kept is immutable and depends on the arguments alone. Not here: what the tests of these steps call, which import
them from where they are defined; a refusal, which is found anew each time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from toktier.certify import subject
from toktier.program import compile as compiling
from toktier.program import cut_guards, normalizer, text_cuts

KEPT = 64  # results of each step: the tables of one pre-tokenizer are some hundred kilobytes
STEPS = ("compile_boundaries", "build_token_automaton", "static_cuts", "find_rules", "build_trie")
_kept: dict[str, Any] = {}


def _once(step: Callable[..., Any]) -> Callable[..., Any]:
    kept = functools.lru_cache(maxsize=KEPT)(step)
    _kept[step.__name__] = kept

    def once(first: Any, *others: Any) -> Any:
        return kept(tuple(first) if not hasattr(first, "n_class") else first, *others)

    return once


def install() -> None:
    """In the modules that call the steps for a whole tokenizer."""
    made: dict[str, Callable[..., Any]] = {}
    for module in (compiling, cut_guards, normalizer, subject, text_cuts):
        for name in STEPS:
            if name in vars(module):
                step = made.setdefault(name, _once(getattr(module, name)))
                setattr(module, name, step)


def forget() -> None:
    """The next compilation does all steps."""
    for kept in _kept.values():
        kept.cache_clear()
