"""Values of a Redis store altered by hand: every answer is right, or a refusal, or a miss that is counted."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, OTHER, TEXT, change, ids_of, remembered
from tests.sessions.redis_process import RedisProcess, needed
from toktier.errors import (
    SessionNeedsText,
    SessionRevisionConflict,
    SessionStateMismatch,
    StoreCorrupt,
    StoreFormatUnsupported,
    ToktierError,
)
from toktier.sessions import chains, redis_lookup, redis_values
from toktier.sessions.redis_store import RedisStore

PARTS = ["first words " * 100, "second " * 900, "third\n", "fourth é " * 300]
WHOLE = "".join(PARTS)
KINDS = ["bit", "cut", "longer", "gone", "zeros", "type"]


@pytest.fixture(autouse=True)
def _needs_server() -> None:
    needed()


@pytest.fixture
def store(redis_process: RedisProcess) -> RedisStore:
    return RedisStore(redis_process.url, namespace=f"attacks-{os.urandom(4).hex()}", timeout=60)


def client_of(store: RedisStore) -> Any:
    return store._sessions.server._connected()


def keys_of(store: RedisStore, part: str) -> list[bytes]:
    return sorted(client_of(store).keys(f"{store._sessions.keys.prefix}*:{part}"))


def fill(store: RedisStore, name: str = "chat", fingerprint: str = FINGERPRINT) -> None:
    session = store.open(name, fingerprint, keep_text=True)
    for part in PARTS:
        session.append(change(session.state.revision, part, "tail words"))


def altered(value: bytes, kind: str, choose: random.Random) -> bytes:
    if kind == "bit":
        at = choose.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1 << choose.randrange(8)]) + value[at + 1 :]
    if kind == "cut":
        return value[: choose.randrange(len(value))]
    if kind == "zeros":
        return bytes(len(value))
    return value + b"\0\0\0\0"


def alter(store: RedisStore, part: str, kind: str, choose: random.Random) -> None:
    client = client_of(store)
    key = choose.choice(keys_of(store, part))
    if kind == "type":
        client.delete(key)
        client.hset(key, "a", "b")
    elif part == "state":
        if kind == "gone":
            client.delete(key)
        else:
            client.set(key, altered(client.get(key), kind, choose))
    elif part == "entries":
        member = choose.choice(client.zrange(key, 0, -1))
        client.zrem(key, member)
        if kind != "gone":
            client.zadd(key, {altered(member, kind, choose): 0})
    else:
        at = choose.randrange(client.llen(key))
        if kind == "gone":
            value = client.lindex(key, at)
            client.lrem(key, 1, value)
        else:
            client.lset(key, at, altered(client.lindex(key, at), kind, choose))


def answers_of(store: RedisStore) -> str | None:
    """The code of what refused; "miss" where a look-up missed; None where every answer was there, and right."""
    refused: str | None = None
    found = store.longest_prefix(WHOLE + "more", FINGERPRINT)
    if found is None:
        refused = "miss"
    else:
        assert found.ids == ids_of(WHOLE.encode()[: found.text_bytes])
    try:
        session = store.open("chat", FINGERPRINT, keep_text=True)
    except ToktierError as error:
        return code_of(error)
    if session.state.revision == 0:
        return "new"
    assert (session.state.tail_text, session.state.tail_ids) == (b"tail words", ids_of("tail words"))
    asked: list[Any] = [session.ids, session.text, lambda: edited(store), lambda: appended(store)]
    for ask in asked:
        try:
            assert ask() in (ids_of(WHOLE), WHOLE.encode(), b"")
        except (StoreCorrupt, SessionStateMismatch, SessionNeedsText, SessionRevisionConflict) as error:
            refused = code_of(error)
    return refused


def code_of(error: ToktierError) -> str:
    """It quotes no text of the store."""
    assert "words" not in str(error.to_dict())
    return error.code


def edited(store: RedisStore) -> bytes:
    """After an edit, what is read is the text that was kept and what was put there; b"" then."""
    session = store.open("chat", FINGERPRINT)
    point = session.last_point("code_points", 5000)
    session.replace(point, change(session.state.revision, "edited"))
    assert session.ids() == ids_of(WHOLE[: point.code_points] + "edited")
    return b""


def appended(store: RedisStore) -> bytes:
    session = store.open("chat", FINGERPRINT)
    before = session.ids()
    session.append(change(session.state.revision, "z" * 9000))
    assert session.ids() == before + ids_of("z" * 9000)
    return b""


def test_untouched_every_answer_is_there(store: RedisStore) -> None:
    fill(store)
    assert store.verify() == store.verify("chat") == []
    assert answers_of(store) is None
    assert store.verify() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", ["state", "steps", "marks", "entries"])
def test_an_altered_value_never_gives_a_wrong_id(redis_process: RedisProcess, part: str, kind: str) -> None:
    choose = random.Random(f"{part} {kind}")
    for attempt in range(12):
        store = RedisStore(redis_process.url, namespace=f"altered-{part}-{kind}-{attempt}", timeout=60)
        fill(store)
        # What no answer depends on is in no seal: who wrote last, and when it was last used.
        before = client_of(store).get(keys_of(store, "state")[0])
        alter(store, part, kind, choose)
        after = client_of(store).get(keys_of(store, "state")[0]) if part == "state" and kind == "bit" else before
        unsealed = part == "state" and kind == "bit" and before[:24] + before[40:] == after[:24] + after[40:]
        assert unsealed or store.verify() != []
        assert not any("words" in finding.sentence for finding in store.verify())
        store.sessions()
        store.show("chat")
        code = answers_of(store)
        assert code in (None, "miss", "new", "STORE_CORRUPT", "STORE_FORMAT_UNSUPPORTED", "SESSION_STATE_MISMATCH")
        if part == "state" and kind not in ("bit",):
            assert code in ("STORE_CORRUPT", "STORE_FORMAT_UNSUPPORTED")
        if part == "steps" and kind != "bit":
            assert code == "STORE_CORRUPT"
        store.remove("chat")
        assert store.sessions() == []
        assert store.open("chat", FINGERPRINT).state.revision == 0
        store.remove("chat")


@pytest.mark.parametrize(("part", "kind"), [
    ("state", "bit"), ("state", "gone"), ("state", "type"), ("steps", "zeros"), ("steps", "cut"), ("steps", "gone"),
    ("steps", "type"),
])  # fmt: skip
def test_a_failed_check_is_a_counted_miss_and_the_entry_goes(store: RedisStore, part: str, kind: str) -> None:
    remembered(store, TEXT, 40_000)
    choose = random.Random(3)  # not the unsealed bytes
    if kind == "bit":
        client, (key,) = client_of(store), keys_of(store, "state")
        client.setrange(key, 60, bytes([client.getrange(key, 60, 60)[0] ^ 1]))
    else:
        alter(store, part, kind, choose)
    assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert (store.counters.failed_checks, store.counters.misses) == (1, 1)
    assert store.sessions() == []
    assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert store.counters.failed_checks == 1
    assert keys_of(store, "entries") == keys_of(store, "state") == keys_of(store, "steps") == []
    assert store.verify() == []


def test_a_damaged_named_session_stays_for_its_owner(store: RedisStore) -> None:
    fill(store)
    (key,) = keys_of(store, "steps")
    client_of(store).lset(key, 1, bytes(len(client_of(store).lindex(key, 1))))
    for count in (1, 2):
        assert store.longest_prefix(WHOLE, FINGERPRINT) is None
        assert store.counters.failed_checks == count
    assert [info.name for info in store.sessions()] == ["chat"]
    with pytest.raises(StoreCorrupt) as caught:
        store.open("chat", FINGERPRINT).ids()
    assert caught.value.details["session"] == store.sessions()[0].number
    assert caught.value.remedy


def test_a_damaged_session_is_listed_under_its_name(store: RedisStore) -> None:
    fill(store, "a name of words")
    (key,) = keys_of(store, "state")
    for value in (b"", b"tkse", client_of(store).get(key)[:100], b"something else"):
        client_of(store).set(key, value)
        assert [info.name for info in store.sessions()] == ["a name of words"]
        assert store.show("a name of words") == store.sessions()[0]
        assert len(store.verify()) >= 1
    assert store.remove("a name of words")
    assert store.verify() == store.sessions() == []
    assert keys_of(store, "*") == []


@pytest.mark.parametrize("fingerprint", [FINGERPRINT, OTHER])
def test_a_session_under_the_keys_of_another_is_not_believed(store: RedisStore, fingerprint: str) -> None:
    fill(store, "a")
    other = store.open("b", fingerprint)
    other.append(change(0, "ten "))
    keys, client = store._sessions.keys, client_of(store)
    first, second = redis_values.named("a"), redis_values.named("b")
    for place in (keys.state, keys.steps):
        client.copy(place(second), place(first), replace=True)
    with pytest.raises(StoreCorrupt, match="another name"):
        store.open("a", FINGERPRINT)
    assert store.verify("a") != []
    assert store.longest_prefix(WHOLE, FINGERPRINT) is None
    assert store.counters.failed_checks == 1


def test_entries_of_another_tokenizer_or_text_make_no_hit(store: RedisStore) -> None:
    """Whoever can write entries can send a look-up to any session; it is not believed there."""
    remembered(store, TEXT, 4096)
    number = store.remember(OTHER, [change(0, "q" * 20_000)])
    assert number is not None
    keys, client = store._sessions.keys, client_of(store)
    session = redis_values.anonymous(number)
    text = redis_lookup.Presented(TEXT.encode(), FINGERPRINT)
    for mark in range(1, 5):
        entry = redis_values.entry(mark, redis_values.mark_key(text.mark(mark)), session)
        client.zadd(keys.entries(redis_values.mark_key(text.mark(1))), {entry: 0})
    found = store.longest_prefix(TEXT[:20_000], FINGERPRINT)
    assert found is not None
    assert found.ids == model.ids_of(TEXT[: found.text_bytes])
    assert found.session != number
    assert store.longest_prefix("q" * 20_000, OTHER) is not None


def test_stale_entries_cost_a_miss_and_go(store: RedisStore) -> None:
    """As a client leaves them behind that ends between a session and its entries."""
    session = store.open("chat", FINGERPRINT)
    session.append(change(0, TEXT[:9000]), change(0, TEXT[9000:20_000]))
    (key,) = keys_of(store, "entries")
    entries = client_of(store).zrange(key, 0, -1)
    session.replace(session.points()[0], change(1, "other"), before=TEXT[:9000].encode())
    client_of(store).zadd(key, dict.fromkeys(entries, 0))
    assert len(store.verify()) == 1
    found = store.longest_prefix(TEXT, FINGERPRINT)
    assert found is not None
    assert found.text_bytes == 9000
    assert store.counters.failed_checks == 0
    while store.verify():
        assert store.longest_prefix(TEXT, FINGERPRINT) is not None
    store.remove("chat")
    client_of(store).zadd(key, dict.fromkeys(entries, 0))
    for _ in range(5):
        assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert store.verify() == []
    assert store.counters.failed_checks == 0


def test_what_nobody_lists_is_found_and_listed_again(store: RedisStore) -> None:
    fill(store)
    client_of(store).hdel(store._sessions.keys.names, chains.name_key(b"chat"))
    assert "not listed" in store.verify()[0].sentence
    assert store.sessions() == []
    assert store.show("chat") is not None
    assert store.open("chat", FINGERPRINT).ids() == ids_of(WHOLE)
    assert len(store.sessions()) == 1
    assert store.verify() == []


def test_a_version_to_come_is_listed(store: RedisStore) -> None:
    fill(store)
    client_of(store).setrange(keys_of(store, "state")[0], 4, b"\x02")
    assert [info.name for info in store.sessions()] == ["chat"]
    with pytest.raises(StoreFormatUnsupported):
        store.open("chat", FINGERPRINT)
