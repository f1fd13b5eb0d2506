"""KV events fed to a real Dynamo indexer: one scenario per function, run by `test_dynamo_indexer.py` in a network
namespace as `indexer_scenarios.py DIRECTORY NAME`. Each starts an indexer of its own and prints nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import zmq

from tests.support.dynamo_site import Indexer, enter_namespace
from toktier.router.block_hashes import Identity
from toktier.router.kv_events import KvEvents

ENDPOINT, REPLAY = "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5657"
IDS = [(n * 7919 + 13) % 150_000 for n in range(96)]
FIRST = {"7": {"0": 48}}


def e4(log: Path, form: str, scheme: str, replay: str | None) -> None:
    """The numbers of case E4: 48, 16 for a prompt that leaves in the second block, 64, 32, nothing."""
    with Indexer(log) as indexer, KvEvents(ENDPOINT, replay, form=form, scheme=scheme) as events:
        indexer.register(7, ENDPOINT, replay)
        events.slot_now(0, 0, IDS[:50])
        indexer.scores_become(IDS, FIRST)
        other = [*IDS]
        other[20] += 1
        assert indexer.scores(other) == {"7": {"0": 16}}
        events.slot_now(0, 0, IDS[:64])
        indexer.scores_become(IDS, {"7": {"0": 64}})
        events.slot_now(0, 0, IDS[:32])
        indexer.scores_become(IDS, {"7": {"0": 32}})
        events.clear(0)
        indexer.scores_become(IDS, {})


def arrays(log: Path) -> None:
    e4(log, "array", "dynamo", REPLAY)


def maps(log: Path) -> None:
    e4(log, "map", "dynamo", REPLAY)


def vllm_hashes(log: Path) -> None:
    """The indexer takes hashes of any scheme: it computes its own of the token IDs."""
    e4(log, "array", "vllm-sha256-cbor", REPLAY)


def without_replay(log: Path) -> None:
    e4(log, "array", "dynamo", None)


def two_upstreams(log: Path) -> None:
    """Each is an instance of its own; slots of one upstream are counted together."""
    with Indexer(log) as indexer, KvEvents(ENDPOINT, REPLAY, upstreams=2) as events:
        for number, (endpoint, replay) in enumerate(events.endpoints):
            indexer.register(number + 1, endpoint, replay)
        events.slot_now(0, 0, IDS[:32])
        events.slot_now(1, 0, IDS[:64])
        events.slot_now(1, 1, IDS)
        indexer.scores_become(IDS, {"1": {"0": 32}, "2": {"0": 96}})
        events.slot_now(1, 1, None)
        indexer.scores_become(IDS, {"1": {"0": 32}, "2": {"0": 64}})
        events.clear(0)
        indexer.scores_become(IDS, {"2": {"0": 64}})


def registered_late(log: Path) -> None:
    """With and without replays, an indexer that comes late is told everything."""
    for replay in (REPLAY, None):
        with Indexer(log) as indexer, KvEvents(ENDPOINT, replay) as events:
            for length in range(0, 80, 8):
                events.slot_now(0, 0, IDS[:length])
            events.slot_now(0, 1, IDS[::-1])
            indexer.register(7, ENDPOINT, replay)
            indexer.scores_become(IDS, {"7": {"0": 64}})
            indexer.scores_become(IDS[::-1], {"7": {"0": 96}})


def publisher_restarts(log: Path) -> None:
    """An indexer that outlives the publisher forgets what it held, and hears the next one, at once and without being
    told to register again."""
    for replay in (REPLAY, None):
        with Indexer(log) as indexer:
            with KvEvents(ENDPOINT, replay) as events:
                indexer.register(7, ENDPOINT, replay)
                events.slot_now(0, 0, IDS)
                indexer.scores_become(IDS, {"7": {"0": 96}})
            indexer.scores_become(IDS, {})
            with KvEvents(ENDPOINT, replay) as events:
                events.slot_now(0, 0, IDS[:50])
                indexer.scores_become(IDS, FIRST)


def adapter_and_salt(log: Path) -> None:
    """Blocks of an adapter or a namespace are found only by queries that name it."""
    identity = Identity(lora_name="adapter", cache_salt="tenant")
    with Indexer(log) as indexer, KvEvents(ENDPOINT, form="map", identity=identity) as events:
        indexer.register(7, ENDPOINT)
        events.slot_now(0, 0, IDS[:50])
        indexer.scores_become(IDS, FIRST, lora_name="adapter", cache_salt="tenant")
        assert indexer.scores(IDS) == {}
        assert indexer.scores(IDS, lora_name="adapter") == {}
        assert indexer.scores(IDS, cache_salt="tenant") == {}
        assert indexer.scores(IDS, lora_name="adapter", cache_salt="other") == {}


def long_contents(log: Path) -> None:
    """Contents that are told in several events."""
    ids = [(n * 31 + 7) % 150_000 for n in range(40_000)]
    with Indexer(log) as indexer, KvEvents(ENDPOINT, REPLAY) as events:
        indexer.register(7, ENDPOINT, REPLAY)
        events.slot_now(0, 0, ids)
        indexer.scores_become(ids, {"7": {"0": 40_000}})
        events.slot_now(0, 0, ids[:100])
        indexer.scores_become(ids, {"7": {"0": 96}})


def hashes_alone(log: Path) -> None:
    """Why events carry token IDs: of hashes without them the indexer keeps nothing."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = context.socket(zmq.XPUB)
    publisher.bind(ENDPOINT)
    with Indexer(log) as indexer:
        indexer.register(7, ENDPOINT)
        publisher.recv()
        whole = ["BlockStored", [1], None, IDS[:16], 16, None, "GPU", None]
        bare = ["BlockStored", [2, 3], None, [], 16, None, "GPU", None]
        for number, event in enumerate([bare, whole]):
            batch = msgpack.packb([0.0, [event], 0])
            publisher.send_multipart([b"", number.to_bytes(8, "big"), batch])
        indexer.scores_become(IDS, {"7": {"0": 16}})
        assert "token_ids too short" in log.read_text(errors="replace")
    context.destroy(linger=0)


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        arrays, maps, vllm_hashes, without_replay, two_upstreams, registered_late, publisher_restarts,
        adapter_and_salt, long_contents, hashes_alone,
    )
}  # fmt: skip

if __name__ == "__main__":
    enter_namespace()
    SCENARIOS[sys.argv[2]](Path(sys.argv[1]) / "indexer.log")
