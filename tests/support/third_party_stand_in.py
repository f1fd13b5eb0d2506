"""Stand-ins for the engines of others: modules of their names and calls, over the reference, that fail on demand.

What the real ones answer is tested beside them (tests/backends/test_third_party_engines.py); what is done with their
answers and faults needs none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy
import pytest
import tokenizers

VERSION = "9.8.7"


class PanicException(BaseException):
    """As pyo3 makes one in each of its modules: no Exception."""


class StandIn:
    """What was asked of an engine, what it is to throw, and what it is to get wrong: ids (`wrong`), the rows of a call
    (`answers`), where rows end in one buffer (`ends`), decoded text (`text`)."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.load_fails: BaseException | None = None
        self.fails: BaseException | None = None
        self.wrong: Callable[[str, list[int]], list[int]] = lambda text, ids: ids
        self.answers: Callable[[list[Any]], list[Any]] = lambda rows: rows
        self.ends: Callable[[list[int]], list[int]] = lambda ends: ends
        self.text: Callable[[str], Any] = lambda text: text

    def asked(self, call: str) -> None:
        self.calls.append(call)
        if self.fails is not None:
            raise self.fails


class _Result:
    def __init__(self, ids: Any) -> None:
        self.ids = ids

    def into_numpy(self, ids: bool = True) -> dict[str, Any]:
        return {"ids": self.ids}


class _Engine:
    def __init__(self, told: StandIn, text: str) -> None:
        if told.load_fails is not None:
            raise told.load_fails
        self._told = told
        self._plain, self._reference = (tokenizers.Tokenizer.from_str(text) for _ in range(2))
        self._plain.encode_special_tokens = True

    def _row(self, text: str, add: bool, plain: bool) -> list[int]:
        ids = (self._plain if plain else self._reference).encode(text, add_special_tokens=add).ids
        return self._told.wrong(text, ids)

    def _rows(self, texts: list[str], add: bool, plain: bool) -> list[Any]:
        return self._told.answers([numpy.array(self._row(text, add, plain), dtype=numpy.uint32) for text in texts])


class _Rust(_Engine):
    """The calls that fastokens and basetenkenizer share."""

    def encode(self, text: str, add: bool = False, plain: bool = False) -> _Result:
        self._told.asked("encode")
        return _Result(self._rows([text], add, plain)[0])

    def encode_batch(self, texts: list[str], add: bool = False, plain: bool = False) -> list[_Result]:
        self._told.asked("encode_batch")
        return [_Result(row) for row in self._rows(texts, add, plain)]

    def encode_batch_flat(self, texts: list[str], add: bool = False, plain: bool = False) -> tuple[bytes, bytes]:
        self._told.asked("encode_batch_flat")
        rows = self._rows(texts, add, plain)
        ends = self._told.ends(numpy.cumsum([0, *map(len, rows)]).tolist())
        return numpy.concatenate([*rows, []]).astype(numpy.uint32).tobytes(), numpy.array(ends, numpy.uint64).tobytes()

    def encode_segments(self, segments: list[tuple[str, bool]], tiktoken_safe: bool = True) -> _Result:
        self._told.asked("encode_segments")
        return _Result([i for text, allow in segments for i in self._row(text, False, not allow)])

    def decode(self, ids: list[int], skip: bool = False) -> Any:
        self._told.asked("decode")
        return self._told.text(self._reference.decode(ids, skip_special_tokens=skip))


class _Giga(_Engine):
    def encode(self, text: str) -> Any:
        self._told.asked("encode")
        return self._rows([text], False, False)[0]


def install(monkeypatch: pytest.MonkeyPatch, name: str) -> StandIn:
    """The engine `name` is installed, in version VERSION."""
    told = StandIn()
    module = ModuleType(name)
    made = _Giga if name == "gigatoken" else _Rust
    loads = {"from_json": lambda text: made(told, text), "from_json_str": lambda text: made(told, text)}
    module.__dict__.update({"__version__": VERSION, "Tokenizer": type("Tokenizer", (), {
        key: staticmethod(load) for key, load in loads.items()
    })})  # fmt: skip
    monkeypatch.setitem(sys.modules, name, module)
    return told


def uninstall(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No engine `name` is installed, whatever is on this host."""
    monkeypatch.setattr("toktier.routing.probe.installed_version", _without(name))


def _without(name: str) -> Any:
    from toktier.routing.probe import installed_version

    return lambda asked: None if asked == name else installed_version(asked)
