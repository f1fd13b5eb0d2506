"""The file of a store: made whole, refused where it is something else, and the host's refusals as our errors."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, change, filled
from tests.sessions.places import Directory
from tests.support import namespaces
from toktier.errors import EnvironmentFault, LockTimeout, StoreCorrupt, StoreFormatUnsupported
from toktier.sessions.store import SessionStore

ROOT = Path(__file__).resolve().parents[2]


def python(code: str, *arguments: str) -> list[str]:
    head = f"import sys; sys.path.append({str(ROOT)!r})\n"
    return [sys.executable, "-c", head + textwrap.dedent(code), *arguments]


def test_a_file_that_is_no_database_is_damaged_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    file.write_bytes(b"secret text of a user" * 100)
    with pytest.raises(StoreCorrupt) as caught:
        SessionStore(tmp_path)
    assert "secret" not in str(caught.value.to_dict())
    assert file.read_bytes() == b"secret text of a user" * 100


def test_an_empty_file_and_a_foreign_database_are_refused(tmp_path: Path) -> None:
    for name in ("empty", "foreign"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sessions.db").touch()
    connection = sqlite3.connect(tmp_path / "foreign" / "sessions.db")
    connection.execute("CREATE TABLE session (number)")
    connection.close()
    for name in ("empty", "foreign"):
        with pytest.raises(StoreFormatUnsupported) as caught:
            SessionStore(tmp_path / name)
        assert caught.value.remedy


def test_another_format_is_refused_and_not_written_to(tmp_path: Path) -> None:
    filled(Directory(tmp_path), ["abc"])
    connection = sqlite3.connect(tmp_path / "sessions.db")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = (tmp_path / "sessions.db").read_bytes()
    with pytest.raises(StoreFormatUnsupported) as caught:
        SessionStore(tmp_path)
    assert caught.value.details["found"] == 2
    assert (tmp_path / "sessions.db").read_bytes() == before


def test_a_busy_store_is_a_lock_timeout(tmp_path: Path) -> None:
    session = SessionStore(tmp_path, timeout=0.05).open("chat", FINGERPRINT)
    other = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LockTimeout):
        session.append(change(0, "x"))
    assert session.ids() == b""
    other.execute("ROLLBACK")
    assert session.append(change(0, "x")) == 1


@pytest.mark.unsanitized
def test_forks_while_a_thread_writes_lose_nothing(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    session, stop = store.open("thread", FINGERPRINT), threading.Event()

    def write() -> None:
        while not stop.is_set():
            session.append(change(session.state.revision, "x"))

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(300)
                own = store.open("child", FINGERPRINT)
                own.append(change(own.state.revision, "y"))
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    thread.join()
    assert session.ids() == model.ids_of("x" * session.state.revision)
    assert store.open("child", FINGERPRINT).ids() == model.ids_of("y" * 10)
    assert store.verify() == []


def test_a_directory_that_is_a_file_is_an_environment_fault(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(EnvironmentFault):
        SessionStore(tmp_path / "f")


REFUSED = """
    import os
    from toktier.errors import EnvironmentFault
    from toktier.sessions.store import SessionStore
    if sys.argv[2] == "nobody":
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    try:
        SessionStore(sys.argv[1]).open("new", "f" * 64)
        print("opened")
    except EnvironmentFault as error:
        print(error.code, error.details["errno"], "store=" in error.remedy)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="drops privileges to prove the refusal; needs to start as root")
@pytest.mark.parametrize("exists", [False, True])
def test_a_directory_that_the_user_cannot_write_is_refused(exists: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        if exists:
            filled(Directory(Path(directory)), ["abc"])
            os.chmod(Path(directory, "sessions.db"), 0o644)
        os.chmod(directory, 0o755)
        before = sorted(os.listdir(directory))
        done = subprocess.run(python(REFUSED, directory, "nobody"), capture_output=True, text=True, timeout=300)
        assert done.stdout.split() == ["ENVIRONMENT_FAULT", "EACCES", "True"], done.stderr
        assert sorted(os.listdir(directory)) == before


@pytest.mark.skipif(not namespaces.can_unshare("--mount"), reason="needs a private mount namespace")
@pytest.mark.parametrize("exists", [False, True])
def test_a_read_only_file_system_is_refused(tmp_path: Path, exists: bool) -> None:
    if exists:
        filled(Directory(tmp_path), ["abc"])
    command = namespaces.read_only(tmp_path, *python(REFUSED, str(tmp_path), "root"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() in (["ENVIRONMENT_FAULT", "EROFS", "True"], ["ENVIRONMENT_FAULT", "EACCES", "True"]), (
        done.stderr
    )


@pytest.mark.skipif(not namespaces.can_unshare("--mount"), reason="needs a private mount namespace")
def test_a_full_disk_loses_nothing_acknowledged(tmp_path: Path) -> None:
    code = """
        from tests.sessions.model import FINGERPRINT, change, ids_of
        from toktier.errors import EnvironmentFault
        from toktier.sessions.store import SessionStore
        store = SessionStore(sys.argv[1])
        session = store.open("chat", FINGERPRINT)
        text = ""
        filler = open(sys.argv[1] + "/filler", "wb", buffering=0)
        filler.write(b"x" * (1 << 19))
        refused = 0
        for k in range(20000):
            part = f"part {k} " * 10
            try:
                session.append(change(session.state.revision, part))
            except EnvironmentFault as error:
                refused += 1
                assert error.details["errno"] == "ENOSPC", error
                assert "part" not in str(error.to_dict())
                assert session.ids() == ids_of(text)
                assert SessionStore(sys.argv[1]).open("chat", FINGERPRINT).state == session.state
                if refused == 3:
                    break
                continue
            text += part
        filler.truncate(0)
        assert refused == 3 and text
        session.append(change(session.state.revision, "after"))
        assert session.ids() == ids_of(text + "after")
        assert store.verify() == []
        print("kept")
    """
    command = namespaces.small_disk(tmp_path, "2m", *python(code, str(tmp_path)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["kept"], done.stderr


@pytest.mark.unsanitized
def test_a_child_writes_on_while_its_parent_closes(tmp_path: Path) -> None:
    """What SQLite remembers of a parent's locks would let the parent remove the log that the child writes to."""
    session = filled(Directory(tmp_path), ["abc"])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            session.append(change(1, "child"))
            os.write(write, b"x")
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(read, 1) == b"x"
    session.refresh()
    session._database.close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    session = SessionStore(tmp_path).open("chat", FINGERPRINT)
    session.append(change(2, "parent"))
    assert session.ids() == model.ids_of("abcchildparent")
