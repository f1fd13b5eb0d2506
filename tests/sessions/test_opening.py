"""Which store is meant: directories, what the settings say, URLs; and that looking makes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sessions.model import FINGERPRINT, change
from toktier.config import Config, Settings, resolve_settings
from toktier.errors import BackendUnavailable, ConfigInvalid, StoreNotFound
from toktier.sessions.opening import open_store, place_of
from toktier.sessions.store import SessionStore


def settings(tmp_path: Path, store: Path | str | None = None) -> Settings:
    return resolve_settings(Config(home=tmp_path / "home", store=store), environ={})


def test_the_argument_counts_before_the_settings_and_these_before_the_state_directory(tmp_path: Path) -> None:
    said = settings(tmp_path, tmp_path / "said")
    assert place_of(tmp_path / "given", said) == str(tmp_path / "given")
    assert place_of(None, said) == str(tmp_path / "said")
    assert place_of(None, settings(tmp_path)) == str(tmp_path / "home" / "state" / "sessions")
    assert place_of("relative", said) == "relative"
    with pytest.raises(ConfigInvalid, match="no state directory"):
        place_of(None, resolve_settings(environ={}))


def test_a_store_is_made_for_whoever_keeps_sessions_and_found_by_whoever_looks(tmp_path: Path) -> None:
    known = settings(tmp_path, tmp_path / "store")
    with open_store(None, known, durability="full", budget_bytes=1 << 20, timeout=1) as store:
        assert store.budget_bytes == 1 << 20
        store.open("chat", FINGERPRINT).append(change(0, "hello"))
    with open_store(tmp_path / "store", known, create=False) as store:
        assert [info.name for info in store.sessions()] == ["chat"]
        assert isinstance(store, SessionStore)


@pytest.mark.parametrize("kind", ["absent", "empty", "file", "below a file", "folder", "fifo", "dangling link"])
def test_looking_makes_nothing(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "store"
    if kind in ("file", "below a file"):
        place.write_text("")
    elif kind != "absent":
        place.mkdir()
    if kind == "below a file":
        place = place / "x"
    elif kind == "folder":
        (place / "sessions.db").mkdir()
    elif kind == "fifo":
        os.mkfifo(place / "sessions.db")
    elif kind == "dangling link":
        (place / "sessions.db").symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreNotFound) as caught:
        open_store(place, settings(tmp_path), create=False)
    assert caught.value.details == {"path": str(place)}
    assert str(place) in caught.value.message
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("url", ["redis://user:geheim@127.0.0.1:1/0", "rediss://:geheim@127.0.0.1:1"])
def test_a_server_is_connected_on_first_use_and_its_credentials_are_not_told(
    tmp_path: Path, url: str, create: bool
) -> None:
    pytest.importorskip("redis", reason="needs the distribution redis (extra redis)")
    for known, where in ((settings(tmp_path), url), (settings(tmp_path, url), None)):
        with open_store(where, known, create=create, budget_bytes=1 << 20) as store:
            assert store.budget_bytes == 1 << 20
            assert "geheim" not in repr(store)
            with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1:1") as caught:
                store.sessions()
        assert "geheim" not in str(caught.value.to_dict())
    with pytest.raises(ConfigInvalid, match="other options"):
        open_store("redis://host?password=geheim", settings(tmp_path))


@pytest.mark.parametrize("where", ["", "ftp://user:geheim@host/x", "postgres://host", "a\0b"])
def test_what_is_no_place_is_refused(tmp_path: Path, where: str) -> None:
    with pytest.raises(ConfigInvalid, match="no place of a session store") as caught:
        open_store(where, settings(tmp_path))
    assert "geheim" not in str(caught.value.to_dict())
    assert list(tmp_path.iterdir()) == []
