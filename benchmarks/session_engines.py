"""Sessions of the engines that have them, under one protocol: ours, and those of the package that bears our name.

For a worker in whichever environment, so nothing is imported before an engine is made. Each engine's own cheapest form
of an append is what is timed. Not here: clocks, texts.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

CUT_FROM = 100  # characters of a piece of the text that a check appends again


class Refused(Exception):
    """The engine cannot take this file or this task. The message is one line, without paths."""


class Handle(Protocol):
    """One session. `append` and `replace` (start, text) are what is timed; None: the engine has no such call."""

    append: Callable[[str], Any]
    replace: Callable[[int, str], Any] | None

    def cut_back(self, blocks: Callable[[], Iterable[str]], length: int) -> None:
        """Makes the text what it was at first: `length` characters, given by `blocks`."""

    def ids(self) -> bytes: ...


class OurHandle:
    def __init__(self, session: Any) -> None:
        self._session = session
        self.append: Callable[[str], Any] = session.append
        self.replace: Callable[[int, str], Any] | None = session.replace

    def cut_back(self, blocks: Callable[[], Iterable[str]], length: int) -> None:
        self._session.replace(length, "")

    def ids(self) -> bytes:
        return array("I", self._session.ids).tobytes()


class Ours:
    """This package, with its own engine or not at all."""

    def __init__(self, file: Path, store: Path | None, durability: str) -> None:
        import toktier

        keeping: dict[str, Any] = {}
        if store is not None:
            from toktier.config import resolve_settings
            from toktier.sessions.opening import open_store

            self.store: Any = open_store(store, resolve_settings(None), durability=durability)  # type: ignore[arg-type]
            keeping["store"] = self.store
        config = toktier.Config(tokenizer_fallback=False)
        try:
            self.tok = toktier.from_file(file, policy="supported", tokenizer="fast_cpu", config=config, **keeping)
        except toktier.ToktierError as error:
            raise Refused(f"{error.code}: {error.message}") from None
        if self.tok.encode("a").backend != "fast_cpu":
            raise Refused("the reference serves it")

    def warm(self) -> None:
        """What the first session imports."""
        for module in ("open_sessions", "durable", "live", "session"):
            importlib.import_module(f"toktier.sessions.{module}")

    def begin(self, name: str, blocks: Iterable[str]) -> OurHandle:
        session = self.tok.session(name)
        for block in blocks:
            session.append(block)
        return OurHandle(session)

    def encode(self, text: str) -> Any:
        return self.tok.encode(text, lookup="off")

    def present(self, name: str, text: str) -> Any:
        return self.tok.encode(text, session=name)

    def look_up(self, text: str) -> Any:
        return self.tok.encode(text)

    def ids_of(self, result: Any) -> bytes:
        return bytes(memoryview(result))


class NamesakeHandle:
    """Its sessions cannot be cut back: another one is begun."""

    replace: Callable[[int, str], Any] | None = None

    def __init__(self, tok: Any, name: str, blocks: Iterable[str]) -> None:
        self._tok, self._name, self._number = tok, name, 0
        self._open(blocks)

    def _open(self, blocks: Iterable[str]) -> None:
        self._context = self._tok.session(session_id=f"{self._name}.{self._number}", text="".join(blocks))
        self._session = self._context.__enter__()
        self.append: Callable[[str], Any] = self._session.append_patch

    def cut_back(self, blocks: Callable[[], Iterable[str]], length: int) -> None:
        self._context.__exit__(None, None, None)
        self._number += 1
        self._open(blocks())

    def ids(self) -> bytes:
        return array("I", self._session.ids).tobytes()


class NamesakeSessions:
    """A whole text is presented where a session is opened: it knows no other way."""

    def __init__(self, file: Path, store: Path | None, durability: str) -> None:
        from namesake import Namesake
        from namesake import Refused as RefusedThere

        import toktier  # the other one

        self._adapter = Namesake.__new__(Namesake)  # loading takes seconds: once, with the store
        try:
            family = self._adapter._family(file)
        except RefusedThere as reason:
            raise Refused(str(reason)) from None
        self.tok: Any = toktier.load(family, **({} if store is None else {"store": str(store)}))

    def warm(self) -> None:
        """What it puts off until the first call."""
        self.encode("a")

    def begin(self, name: str, blocks: Iterable[str]) -> NamesakeHandle:
        return NamesakeHandle(self.tok, name, blocks)

    def encode(self, text: str) -> Any:
        return self.tok.encode(text, lookup="off")

    def present(self, name: str, text: str) -> Any:
        return self.tok.encode(text, session=name)

    def look_up(self, text: str) -> Any:
        return self.tok.encode(text, lookup="auto")

    def ids_of(self, result: Any) -> bytes:
        return self._adapter.ids_of(result)


class Reference:
    """Encodes whole texts alone."""

    def __init__(self, file: Path, store: Path | None, durability: str) -> None:
        from toktier_cli.bench.engines import engine

        self._engine = engine("tokenizers")(file)

    def encode(self, text: str) -> Any:
        return self._engine.encode(text)

    def ids_of(self, result: Any) -> bytes:
        return bytes(self._engine.ids_of(result))


def engine(name: str, file: Path, store: Path | None, durability: str) -> Any:
    """Raises Refused."""
    kind: Any = {"toktier": Ours, "tokenizers": Reference, "namesake": NamesakeSessions}[name]
    return kind(file, store, durability)
