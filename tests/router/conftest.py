"""Fixtures of the router's tests: a small certified tokenizer, a model with its vocabulary, real llama-servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

import toktier
from tests.router.fake_upstream import FakeUpstream, fake_beside
from tests.support import llama_server, workers
from tests.support.llama_server import LlamaServer
from toktier import resources

MINI = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host an upstream that answers must not look like one that does not: time-outs that no setting sets are
    long. A test of what happens behind one sets it to its own."""
    monkeypatch.setattr("toktier.router.router._START_SECONDS", 120.0)
    monkeypatch.setattr("toktier.router.router._LOOK_SECONDS", 120.0)
    monkeypatch.setattr("toktier.router.embedding_server.FIRST_SECONDS", 120.0)


@pytest.fixture(scope="session")
def mini() -> toktier.Tokenizer:
    return toktier.load("toktier_mini")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the vocabulary of toktier_mini."""
    return llama_server.make_model(MINI, workers.directory_of_all(tmp_path_factory, "models") / "mini.gguf")


@pytest.fixture(scope="session")
def shared_llama(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    server = LlamaServer(tiny_model, tmp_path_factory.mktemp("llama")).start()
    yield server
    server.stop()


@pytest.fixture
def llama(shared_llama: LlamaServer) -> LlamaServer:
    """A real llama-server with four empty slots of 2,048 tokens. Not to be killed: other tests use it, too."""
    return _emptied(shared_llama)


def _shared_with(model: Path, factory: pytest.TempPathFactory, slots: int) -> Iterator[LlamaServer]:
    server = LlamaServer(model, factory.mktemp("llama"), ["--parallel", str(slots)]).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def _shared_llama_of_one(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    yield from _shared_with(tiny_model, tmp_path_factory, 1)


@pytest.fixture(scope="session")
def _shared_llama_of_two(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    yield from _shared_with(tiny_model, tmp_path_factory, 2)


@pytest.fixture
def llama_of_one(_shared_llama_of_one: LlamaServer) -> LlamaServer:
    """As `llama`, with one slot of 8,192 tokens."""
    return _emptied(_shared_llama_of_one)


@pytest.fixture
def llama_of_two(_shared_llama_of_two: LlamaServer) -> LlamaServer:
    """As `llama`, with two slots of 4,096 tokens."""
    return _emptied(_shared_llama_of_two)


def _emptied(server: LlamaServer) -> LlamaServer:
    server.until_idle()
    server.erase_slots()
    return server


@pytest.fixture
def start_llama(tiny_model: Path, tmp_path: Path) -> Iterator[Callable[..., LlamaServer]]:
    """Starts llama-servers of this test alone: `start_llama(*flags)`."""
    servers: list[LlamaServer] = []

    def start(*flags: str, model: Path = tiny_model) -> LlamaServer:
        server = LlamaServer(model, tmp_path, flags)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def fake(mini: toktier.Tokenizer) -> Iterator[FakeUpstream]:
    """A stand-in with the vocabulary of `mini`; a test says what it answers to completions."""
    with fake_beside(tokenize=lambda text: mini.encode(text, add_special_tokens=False).ids) as fake:
        yield fake


@pytest.fixture
def unhurried_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """No empty batch comes between what a test reads, and closing ends when it is done, however slow the host is."""
    monkeypatch.setattr("toktier.router.kv_event_feed.HEARTBEAT", 1000.0)
    monkeypatch.setattr("toktier.router.kv_events.CLOSE_SECONDS", 60.0)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """Of sockets that read KV events."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)
