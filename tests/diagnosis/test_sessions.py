"""The check of the session store: what it says of stores that are not as they should be, and that it only looks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.sessions.model import FINGERPRINT, change
from tests.support import namespaces
from tests.support.material import ROOT
from toktier.config import Config
from toktier.diagnosis import sessions
from toktier.diagnosis.checks import CHECKS
from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Code, Finding, Status
from toktier.sessions.store import SessionStore

CHECK = next(check for check in CHECKS if check.id == "sessions.store")


def look(tmp_path: Path, store: Path | str | None) -> Finding:
    """What the check says; every fact is one that it declares."""
    found = CHECK.look(Context(config=Config(home=tmp_path / "home", store=store), environ={}))
    assert set(found.facts) <= set(CHECK.facts)
    assert (found.status in (Status.OK, Status.SKIP)) == (not found.reasons)
    assert (found.remedy is None) == (not found.reasons)
    return found


def filled(place: Path) -> Path:
    with SessionStore(place) as store:
        store.open("chat", FINGERPRINT).append(change(0, "secret"))
    return place


def listing(root: Path) -> list[tuple[str, int, int, int]]:
    return sorted(
        (str(p), p.lstat().st_mtime_ns, p.lstat().st_size, p.lstat().st_mode) for p in [root, *root.rglob("*")]
    )


def codes(found: Finding) -> list[Code]:
    return [reason.code for reason in found.reasons]


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wherever the tests run, this is an ordinary disk."""
    (tmp_path / "mountinfo").write_text("21 1 254:0 / / rw - ext4 /dev/vda rw\n")
    monkeypatch.setattr("toktier.sessions.file_systems._MOUNTS", tmp_path / "mountinfo")


def test_a_good_store(tmp_path: Path) -> None:
    place = filled(tmp_path / "store")
    before = listing(tmp_path)
    found = look(tmp_path, place)
    assert found.status is Status.OK, found
    assert listing(tmp_path) == before
    size = (place / "sessions.db").stat().st_size
    assert found.facts == {
        "store": str(place), "store_origin": "argument", "exists": True, "format_version": 1, "bytes": size,
        "directory_mode": "0700", "file_mode": "0600", "file_system": "ext4", "network_file_system": False,
    }  # fmt: skip


def test_a_store_that_is_open_is_looked_at_without_a_lock(tmp_path: Path) -> None:
    """By a process of its own, as the command is: nothing that the writer has locked is waited for."""
    with SessionStore(tmp_path / "store") as store:
        session = store.open("chat", FINGERPRINT)
        other = sqlite3.connect(tmp_path / "store" / "sessions.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        before = listing(tmp_path)
        command = [sys.executable, "-m", "toktier_cli.main", "doctor", "--only", "sessions", "--timeout", "600"]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env={"TOKTIER_STORE": str(tmp_path / "store")}
        )
        assert "[OK] sessions.store: " in done.stdout, done
        assert listing(tmp_path) == before
        other.execute("ROLLBACK")
        other.close()
        assert session.append(change(0, "x")) == 1


def test_no_store(tmp_path: Path) -> None:
    before = listing(tmp_path)
    assert look(tmp_path, None).status is Status.SKIP
    named = look(tmp_path, tmp_path / "store")
    assert (named.status, named.facts["exists"]) == (Status.OK, False)
    assert "no store yet" in named.summary
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        assert codes(look(tmp_path, place)) == [Code.DIRECTORY_NOT_A_DIRECTORY]
    found = CHECK.look(Context(environ={}))
    assert (found.status, found.facts["store"]) == (Status.SKIP, None)
    (tmp_path / "file").unlink()
    assert listing(tmp_path)[1:] == before[1:]


def test_the_state_directory_has_the_store_that_nobody_named(tmp_path: Path) -> None:
    place = filled(tmp_path / "home" / "state" / "sessions")
    found = look(tmp_path, None)
    assert (found.status, found.facts["store"], found.facts["store_origin"]) == (Status.OK, str(place), "default")


def test_a_server_is_not_asked_and_its_credentials_are_not_told(tmp_path: Path) -> None:
    found = look(tmp_path, "redis://user:geheim@host/0?password=geheim")
    assert found.status is Status.SKIP
    assert found.facts["store"] == "redis://host/0"
    assert "geheim" not in str(found)


@pytest.mark.parametrize(
    ("directory", "file", "told"),
    [
        (0o755, 0o600, "chmod 700 {}"), (0o700, 0o640, "chmod 600 {}/sessions.db"),
        (0o701, 0o604, "chmod 700 {} && chmod"), (0o1770, 0o600, "chmod 700 {}"),
    ],
)  # fmt: skip
def test_a_store_that_others_may_use(tmp_path: Path, directory: int, file: int, told: str) -> None:
    place = filled(tmp_path / "store")
    (place / "sessions.db").chmod(file)
    place.chmod(directory)
    found = look(tmp_path, place)
    assert (found.status, codes(found)) == (Status.WARN, [Code.STORE_OPEN_TO_OTHERS])
    assert found.facts["directory_mode"] == f"{directory:04o}"
    assert found.facts["file_mode"] == f"{file:04o}"
    assert found.remedy is not None
    assert str(found.remedy.command).startswith(told.format(place))
    subprocess.run(["sh", "-c", str(found.remedy.command)], check=True)
    assert look(tmp_path, place).status is Status.OK


def test_a_log_that_others_may_use(tmp_path: Path) -> None:
    place = filled(tmp_path / "store")
    (place / "sessions.db-wal").write_bytes(bytes(100))
    (place / "sessions.db-wal").chmod(0o644)
    found = look(tmp_path, place)
    assert codes(found) == [Code.STORE_OPEN_TO_OTHERS]
    assert found.facts["bytes"] == (place / "sessions.db").stat().st_size + 100


@pytest.mark.parametrize("version", [0, 2, 2**31 - 1])
def test_another_format(tmp_path: Path, version: int) -> None:
    place = filled(tmp_path / "store")
    connection = sqlite3.connect(place / "sessions.db")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    found = look(tmp_path, place)
    assert (found.status, codes(found)) == (Status.FAIL, [Code.STORE_FORMAT_UNSUPPORTED])
    assert found.facts["format_version"] == version


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", Code.STORE_DAMAGED),
        (b"secret text of a user" * 100, Code.STORE_DAMAGED),
        (sessions.MAGIC, Code.STORE_DAMAGED),
        (sessions.MAGIC + bytes(200), Code.STORE_FORMAT_UNSUPPORTED),
    ],
)
def test_a_file_that_is_no_store(tmp_path: Path, content: bytes, code: Code) -> None:
    place = tmp_path / "store"
    place.mkdir(0o700)
    (place / "sessions.db").write_bytes(content)
    (place / "sessions.db").chmod(0o600)
    found = look(tmp_path, place)
    assert (found.status, codes(found)) == (Status.FAIL, [code])
    assert "secret" not in str(found)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.mkdir(0o700)
    os.mkfifo(place / "sessions.db", 0o600)
    assert codes(look(tmp_path, place)) == [Code.STORE_UNREADABLE]


@pytest.mark.parametrize("there", [False, True])
def test_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    place = tmp_path / "mounted" / "store"
    place.parent.mkdir()
    if there:
        filled(place)
    (tmp_path / "mountinfo").write_text(
        f"21 1 254:0 / / rw - ext4 /dev/vda rw\n22 1 0:30 / {tmp_path}/mounted rw - nfs4 host:/x rw\n"
    )
    found = look(tmp_path, place)
    assert (found.status, codes(found)) == (Status.FAIL, [Code.STORE_ON_NETWORK])
    assert (found.facts["file_system"], found.facts["network_file_system"]) == ("nfs4", True)


def test_several_faults_are_all_told_and_the_worst_counts(tmp_path: Path) -> None:
    place = filled(tmp_path / "store")
    place.chmod(0o777)
    (place / "sessions.db").write_bytes(b"")
    found = look(tmp_path, place)
    assert found.status is Status.FAIL
    assert codes(found) == [Code.STORE_DAMAGED, Code.STORE_OPEN_TO_OTHERS]
    assert found.remedy is not None
    assert "restore it" in found.remedy.text


AS_NOBODY = """
import os, sys
import toktier.labels, toktier.sessions.database, toktier_cli.verbs.doctor
from toktier_cli.main import main
sys.stdout, kept = open(os.devnull, "w"), sys.stdout
main(["doctor", "--only", "sessions"])
sys.stdout = kept
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main())
"""


@pytest.mark.unsanitized
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to drop it")
@pytest.mark.parametrize(
    ("directory", "file", "told"),
    [
        (0o700, 0o600, "[UNKNOWN] sessions.store: {} may not be searched"),
        (0o755, 0o600, "[UNKNOWN] sessions.store: {}/sessions.db cannot be read"),
        (0o755, 0o644, "[WARN] sessions.store: others may use"),
    ],
)
def test_a_store_of_somebody_else(directory: int, file: int, told: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as top:
        os.chmod(top, 0o755)
        place = filled(Path(top, "store"))
        (place / "sessions.db").chmod(file)
        place.chmod(directory)
        before = listing(Path(top))
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, "doctor", "--only", "sessions", "--timeout", "600"],
            capture_output=True, text=True, cwd=ROOT, env={"TOKTIER_STORE": str(place), "COLUMNS": "200"},
        )  # fmt: skip
        assert done.stdout.startswith(told.format(place)), done
        assert file != 0o644 or "cannot be written" in done.stdout.splitlines()[0]
        assert listing(Path(top)) == before


@pytest.mark.unsanitized
@pytest.mark.skipif(not namespaces.can_unshare("--mount"), reason="needs a private mount namespace")
def test_a_read_only_file_system(tmp_path: Path) -> None:
    place = filled(tmp_path / "store")
    command = [sys.executable, "-m", "toktier_cli.main", "doctor", "--only", "sessions", "--timeout", "600"]
    done = subprocess.run(
        namespaces.read_only(place, *command),
        capture_output=True, text=True, cwd=ROOT, env={"TOKTIER_STORE": str(place), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.stdout.startswith("[WARN] sessions.store: "), done
    assert "cannot be written" in done.stdout.splitlines()[0]


def test_sqlite_is_not_loaded_where_there_is_no_store(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom toktier_cli.main import main\nmain(['doctor', '--only', 'sessions', '--timeout', '600'])\n"
        "print('sqlite3' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, cwd=ROOT, env={"TOKTIER_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False", done
