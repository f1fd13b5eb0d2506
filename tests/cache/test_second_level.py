"""A second level on a real server: the first of many keys in one round trip, with the ids that were stored for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.sessions.redis_process import RedisProcess, needed
from tests.support.material import ROOT
from tests.support.second_levels import Shared, balanced, ids_of, keys_of, stored, until, written
from toktier.cache import second_level
from toktier.cache.level import MAX_KEYS
from toktier.cache.second_level_values import MAX_IDS, MAX_VALUE_BYTES, packed

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    needed()
    one = RedisProcess(tmp_path_factory.mktemp("second-level"), tcp=True)
    yield one
    one.close()


@pytest.fixture
def shared(process: RedisProcess) -> Iterator[Shared]:
    one = Shared(process)
    yield one
    one.close()


def test_the_first_of_the_keys_that_is_known_is_found_with_its_ids(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("conversation", 20)
    assert level.lookup(keys) is None
    assert level.lookup([]) is None
    stored(level, [keys[7], keys[15]])
    assert level.lookup(keys) == (7, ids_of(keys[7]))
    assert level.lookup(keys[8:]) == (7, ids_of(keys[15]))
    assert level.lookup(keys[16:]) is None
    stats = level.stats()
    assert (stats["lookups"], stats["hits"], stats["misses"]) == (4, 2, 2)
    assert balanced(stats)


@pytest.mark.parametrize("count", [1, 2, 16_000, 16_384, MAX_IDS - 1, MAX_IDS])
def test_ids_of_any_number_come_back_as_they_were(shared: Shared, count: int) -> None:
    level = shared.level()
    key = os.urandom(32)
    ids = os.urandom(4 * count)
    level.store(key, ids)
    written(level)
    assert level.lookup([key]) == (0, ids)


def test_ids_that_no_value_may_have_are_refused_and_counted(shared: Shared) -> None:
    level = shared.level()
    (key,) = keys_of("too large")
    for ids in (b"", bytes(5), bytes(4 * MAX_IDS + 4)):
        level.store(key, ids)
    assert level.stats()["refused_ids"] == 3
    assert level.lookup([key]) is None


def test_of_many_keys_the_deepest_and_the_shallowest_are_asked_for(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("long", MAX_KEYS)
    deepest, shallowest = second_level.DEEPEST, second_level.SHALLOWEST
    stored(level, [keys[-1]])
    assert level.lookup(keys) == (MAX_KEYS - 1, ids_of(keys[-1]))
    stored(level, [keys[-shallowest]])
    assert level.lookup(keys) == (MAX_KEYS - shallowest, ids_of(keys[-shallowest]))
    stored(level, [keys[deepest], keys[-shallowest - 1]])  # between: not asked for
    assert level.lookup(keys) == (MAX_KEYS - shallowest, ids_of(keys[-shallowest]))
    stored(level, [keys[deepest - 1]])
    assert level.lookup(keys) == (deepest - 1, ids_of(keys[deepest - 1]))
    whole = keys[: deepest + shallowest]
    assert level.lookup(whole[deepest:]) == (0, ids_of(keys[deepest]))


def test_a_look_up_is_one_command_and_holds_no_text(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("seen", 1000)
    stored(level, keys[500:501])
    level.lookup(keys[:1])
    with shared.client() as client:
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        commands = client.info("stats")["total_commands_processed"]
        assert level.lookup(keys) == (500, ids_of(keys[500]))
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1
        inside = 501 + 1 + 1  # of the script: a length for each key and one value; this client's INFO
        assert client.info("stats")["total_commands_processed"] <= commands + 1 + 3 + inside
        (name,) = client.keys(b"{" + shared.prefix.encode() + b"}*")
        assert name == shared.key(keys[500])
        assert client.get(name) == packed(keys[500], ids_of(keys[500]))


def test_values_expire(shared: Shared) -> None:
    level = shared.level(ttl=77)
    keys = keys_of("expires")
    stored(level, keys)
    with shared.client() as client:
        assert 0 < client.ttl(shared.key(keys[0])) <= 77
        client.pexpire(shared.key(keys[0]), 1)
        until(lambda: not client.exists(shared.key(keys[0])))
    assert level.lookup(keys) is None


def test_prefixes_share_nothing(process: RedisProcess, shared: Shared) -> None:
    other = Shared(process)
    keys = keys_of("shared")
    stored(shared.level(), keys)
    assert shared.level().lookup(keys) == (0, ids_of(keys[0]))
    assert other.level().lookup(keys) is None
    other.close()


def damage(shared: Shared, key: bytes, what: str) -> None:
    whole = packed(key, ids_of(key, 100))
    values = {
        "changed": whole[:50] + bytes([whole[50] ^ 1]) + whole[51:],
        "version": whole[:3] + b"\x02" + whole[4:],
        "truncated": whole[:-4],
        "cut short": whole[:10],
        "one byte": b"x",
        "of another key": packed(keys_of("another")[0], ids_of(key, 100)),
        "huge": bytes(MAX_VALUE_BYTES + 1),
        "far too huge": bytes(64 << 20),
    }
    with shared.client() as client:
        name = shared.key(key)
        if what == "a list":
            client.rpush(name, "a", "b")
        elif what == "a hash":
            client.hset(name, "a", "b")
        elif what == "a stream":
            client.xadd(name, {"a": "b"})
        else:
            client.set(name, values[what])


@pytest.mark.parametrize("what", [
    "changed", "version", "truncated", "cut short", "one byte", "of another key", "huge", "far too huge",
    "a list", "a hash", "a stream",
])  # fmt: skip
def test_a_value_that_does_not_hold_is_a_miss_is_counted_and_goes(shared: Shared, what: str) -> None:
    level = shared.level()
    longer, shorter = keys_of(what, 2)
    stored(level, [shorter])
    damage(shared, longer, what)
    assert level.lookup([longer, shorter]) is None
    until(lambda: level.stats()["removed"] == 1)
    with shared.client() as client:
        assert not client.exists(shared.key(longer))
    assert level.lookup([longer, shorter]) == (1, ids_of(shorter))
    stats = level.stats()
    assert (stats["damaged"], stats["hits"], stats["paused"], stats["pauses"]) == (1, 1, False, 0)
    assert balanced(stats)


def test_an_empty_value_is_none(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("empty")
    with shared.client() as client:
        client.set(shared.key(keys[0]), b"")
    assert level.lookup(keys) is None
    assert level.stats()["misses"] == 1


def test_removals_are_bounded_as_writes_are(shared: Shared) -> None:
    level = shared.level(max_pending_writes=1)
    keys = keys_of("all damaged", 50)
    for key in keys:
        damage(shared, key, "changed")
        assert level.lookup([key]) is None
        assert level.stats()["pending"] <= 1
    assert level.stats()["damaged"] == 50


def test_a_script_that_the_server_forgot_is_told_again_within_the_look_up(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("forgotten")
    stored(level, keys)
    assert level.lookup(keys) is not None
    for _ in range(3):
        with shared.client() as client:
            client.script_flush()
        assert level.lookup(keys) == (0, ids_of(keys[0]))
    assert (level.stats()["pauses"], level.stats()["errors"]) == (0, 0)


def test_many_threads_get_their_own_answers(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("threads", 32)
    stored(level, keys)
    wrong: list[bytes] = []

    def ask(own: int) -> None:
        for k in range(40):
            key = keys[(own + k) % 32]
            if level.lookup([*keys_of(f"nobody's {own}", 3), key]) != (3, ids_of(key)):
                wrong.append(key)

    threads = [threading.Thread(target=ask, args=(own,)) for own in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = level.stats()
    assert not wrong
    assert (stats["hits"], stats["lookups"]) == (16 * 40, 16 * 40)
    assert 1 <= stats["connections"] <= 8


OTHER_PROCESS = """
import sys
from toktier.cache import second_level, second_level_upkeep
from toktier.cache.second_level import RedisSecondLevel
from tests.support.second_levels import PATIENT, ids_of, keys_of
second_level_upkeep.TIMEOUT_SECONDS = second_level.CLOSE_SECONDS = 60.0
level = RedisSecondLevel(sys.argv[1], prefix=sys.argv[2], timeout=PATIENT)
found, own = keys_of("from the first", 1), keys_of("from the second", 1)
assert level.lookup(found) == (0, ids_of(found[0]))
level.store(own[0], ids_of(own[0]))
level.close()
assert level.stats()["written"] == 1
"""


def test_processes_share_what_they_store(shared: Shared) -> None:
    level = shared.level()
    stored(level, keys_of("from the first"))
    arguments = [sys.executable, "-c", OTHER_PROCESS, shared.process.tcp_url, shared.prefix]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    subprocess.run(arguments, check=True, env=environment)
    (key,) = keys_of("from the second")
    assert level.lookup([key]) == (0, ids_of(key))


def test_closing_writes_what_is_pending_and_calls_after_it_do_nothing(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("closing", 20)
    for key in keys:
        level.store(key, ids_of(key))
    level.close()
    level.close()
    stats = level.stats()
    assert (stats["written"], stats["pending"], stats["connections"], stats["closed"]) == (20, 0, 0, True)
    assert level.lookup(keys) is None
    level.store(keys[0], ids_of(keys[0]))
    assert level.stats()["dropped"] == 1
    assert shared.level().lookup(keys) == (0, ids_of(keys[0]))


def test_a_level_that_nobody_closed_ends_with_its_last_reference(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("forgotten level")
    assert level.lookup(keys) is None
    thread = level._upkeep._thread
    assert thread is not None
    shared.levels.clear()
    del level
    thread.join(120)
    assert not thread.is_alive()


def test_keys_of_another_length_are_a_mistake_of_the_caller(shared: Shared) -> None:
    level = shared.level()
    with pytest.raises(ValueError, match="32"):
        level.lookup([bytes(31)])
    level.store(bytes(31), bytes(4))
    assert level.stats()["refused_ids"] == 1


@pytest.mark.unsanitized
def test_a_forked_child_has_a_thread_and_connections_of_its_own(shared: Shared) -> None:
    level = shared.level()
    keys = keys_of("fork", 2)
    stored(level, keys[:1])
    assert level.lookup(keys) == (0, ids_of(keys[0]))
    parents = level._state
    with parents.lock:  # as another thread would hold it
        child = os.fork()
        if child == 0:
            try:
                fine = level.stats()["lookups"] == 0 and level.lookup(keys) == (0, ids_of(keys[0]))
                level.store(keys[1], ids_of(keys[1]))
                level.close()
                os._exit(0 if fine and level.stats()["written"] == 1 else 1)
            finally:
                os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert level.lookup(keys[1:]) == (0, ids_of(keys[1]))
    assert level._state is parents
    assert (level.stats()["pauses"], level.stats()["errors"], level.stats()["lookups"]) == (0, 0, 2)


@pytest.mark.unsanitized
def test_a_child_of_a_closed_level_finds_it_closed(shared: Shared) -> None:
    level = shared.level()
    level.close()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if level.lookup(keys_of("closed")) is None and level._upkeep._thread is None else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
