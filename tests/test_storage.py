"""Atomic writes and locks: whole or absent, under kills, races, full disks and refusing directories."""

from __future__ import annotations

import calendar
import errno
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.support.namespaces import can_unshare, small_disk
from toktier import storage
from toktier.errors import EnvironmentFault, ExitCode, LockTimeout


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_written_file_has_the_bytes_and_the_mode_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o000)
    try:
        storage.atomic_write(tmp_path / "a", b"one")
        storage.atomic_write(tmp_path / "b", b"two", mode=0o644)
        os.umask(0o777)
        storage.atomic_write(tmp_path / "c", memoryview(b"three"))
        made = storage.make_directory(tmp_path / "d" / "e")
    finally:
        os.umask(old)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert (tmp_path / "c").read_bytes() == b"three"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o600
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c", "d"]


def test_a_file_of_the_users_own_has_what_his_umask_leaves(tmp_path: Path) -> None:
    for umask in (0o000, 0o022, 0o027, 0o077):
        before = os.umask(umask)
        try:
            storage.atomic_write(tmp_path / "file", b"x", mode=None)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR]
)
def test_the_remedy_names_what_the_user_gave_for_the_place(number: int) -> None:
    cache, out = (
        storage.environment_fault(OSError(number, ""), "write", "x", place).remedy or ""
        for place in (storage.HOME, storage.OUT)
    )
    assert "TOKTIER_HOME" in cache
    assert cache.replace("TOKTIER_HOME", "--out") == out
    assert storage.environment_fault(OSError(errno.EIO, ""), "write", "x").remedy is None


def test_a_block_that_raises_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file"
    storage.atomic_write(target, b"old")

    def write_half() -> None:
        with storage.atomic_writer(target) as file:
            file.write(b"half")
            raise KeyError("interrupted")

    with pytest.raises(KeyError):
        write_half()
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_link_under_the_final_name_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "file").symlink_to(victim)
    storage.atomic_write(tmp_path / "file", b"new")
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()


def test_who_may_not_read_is_not_told_to_make_something_writable(tmp_path: Path) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied")
    assert storage.environment_fault(refused, "read", tmp_path).remedy == "make the file readable for this user"
    assert "writable" in (storage.environment_fault(refused, "write", tmp_path).remedy or "")
    directory = IsADirectoryError(errno.EISDIR, "Is a directory")
    assert storage.environment_fault(directory, "read", tmp_path).remedy == "name a file"


def test_a_missing_directory_is_an_environment_fault_naming_it(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        storage.atomic_write(tmp_path / "none" / "file", b"x")
    assert str(tmp_path / "none") in caught.value.message
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert caught.value.details["errno"] == "ENOENT"


def test_a_full_disk_is_an_environment_fault_and_leaves_nothing(tmp_path: Path) -> None:
    # A file-size limit of the process refuses the write just as a full file system does, without needing one.
    done = run_python(
        """
        import resource, signal, sys
        from toktier import storage
        from toktier.errors import EnvironmentFault
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            storage.atomic_write(sys.argv[1] + "/big", b"x" * 1_000_000)
        except EnvironmentFault as error:
            print(error.details["errno"])
        """,
        str(tmp_path),
    )
    assert done.stdout.strip() == "EFBIG", done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs the right to mount a small file system")
def test_a_disk_that_fills_names_what_was_needed_and_what_was_free(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from toktier import storage
        from toktier.errors import EnvironmentFault
        target = Path(sys.argv[1], "data")
        storage.atomic_write(target, b"old")
        try:
            storage.atomic_write(target, b"x" * 3_000_000)
        except EnvironmentFault as error:
            print(error.details["errno"], error.details["needed_bytes"], error.details["available_bytes"] < 3_000_000)
        assert target.read_bytes() == b"old"
        assert [p.name for p in target.parent.iterdir()] == ["data"]
        """
    command = small_disk(tmp_path, "1m", sys.executable, "-c", textwrap.dedent(code), str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["ENOSPC", "3000000", "True"], done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="drops privileges to prove the refusal; needs to start as root")
def test_a_directory_of_another_user_is_an_environment_fault() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        done = run_python(
            """
            import os, sys
            from toktier import storage
            from toktier.errors import EnvironmentFault
            os.setgid(65534); os.setuid(65534)
            for action in (lambda: storage.atomic_write(sys.argv[1] + "/f", b"x"),
                           lambda: storage.FileLock(sys.argv[1] + "/l", 0).acquire(),
                           lambda: storage.make_directory(sys.argv[1] + "/d")):
                try:
                    action()
                except EnvironmentFault as error:
                    print(error.details["errno"], error.remedy is not None)
            """,
            directory,
        )
        assert done.stdout.splitlines() == ["EACCES True"] * 3, done.stderr
        assert os.listdir(directory) == []


def test_a_writer_killed_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    storage.atomic_write(target, b"old")
    code = """
        import sys
        from toktier import storage
        with storage.atomic_writer(sys.argv[1]) as file:
            file.write(b"n" * 100_000)
            file.flush()
            print("half", flush=True)
            sys.stdin.read()
        """
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(target)], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"half\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert target.read_bytes() == b"old"
    left = [p for p in tmp_path.iterdir() if p.name != "file"]
    assert len(left) == 1
    assert storage.remove_stale_temporaries(tmp_path) == 0, "a young temporary may belong to a live writer"
    os.utime(left[0], (time.time() - 7200, time.time() - 7200))
    assert storage.remove_stale_temporaries(tmp_path) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_sweeping_touches_only_temporaries(tmp_path: Path) -> None:
    for name in ("data", ".tmp-1-00"):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".tmp-dir").mkdir()
    assert storage.remove_stale_temporaries(tmp_path) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [".tmp-dir", "data"]
    assert storage.remove_stale_temporaries(tmp_path / "absent") == 0


def test_lock_excludes_threads(tmp_path: Path) -> None:
    inside = 0
    worst = 0

    def work() -> None:
        nonlocal inside, worst
        for _ in range(20):
            with storage.FileLock(tmp_path / "lock", 300):
                inside += 1
                worst = max(worst, inside)
                time.sleep(0.0005)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worst == 1
    assert list(tmp_path.iterdir()) == [], "no lock file remains"


def _count_under_lock(directory: str) -> None:
    counter = Path(directory) / "counter"
    for _ in range(25):
        with storage.FileLock(Path(directory) / "lock", 300):
            value = int(counter.read_text())
            time.sleep(0.0002)
            counter.write_text(str(value + 1))


def test_lock_excludes_processes(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_count_under_lock, args=(str(tmp_path),)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
        assert worker.exitcode == 0
    assert (tmp_path / "counter").read_text() == "100"
    assert [p.name for p in tmp_path.iterdir()] == ["counter"]


def test_time_out_names_the_holder(tmp_path: Path) -> None:
    with storage.FileLock(tmp_path / "lock"):
        with pytest.raises(LockTimeout) as caught:
            storage.FileLock(tmp_path / "lock", timeout=0.05).acquire()
        holder = caught.value.details["holder"]
        assert (holder["pid"], holder["host"]) == (str(os.getpid()), os.uname().nodename)
        assert abs(time.time() - calendar.timegm(time.strptime(holder["since"], "%Y-%m-%dT%H:%M:%SZ"))) < 60
        assert f"process {os.getpid()} on {os.uname().nodename} since 20" in caught.value.message
        assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_a_killed_holder_lets_the_next_one_in(tmp_path: Path) -> None:
    code = """
        import sys
        from toktier import storage
        storage.FileLock(sys.argv[1]).acquire()
        print("held", flush=True)
        sys.stdin.read()
        """
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "lock")],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(LockTimeout):
        storage.FileLock(tmp_path / "lock", timeout=0).acquire()
    holder.kill()
    holder.communicate()
    with storage.FileLock(tmp_path / "lock", timeout=120):
        assert storage.read_holder(tmp_path / "lock")["pid"] == str(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_lock_is_not_reentrant_and_release_is_idempotent(tmp_path: Path) -> None:
    lock = storage.FileLock(tmp_path / "lock", timeout=0)
    with lock, pytest.raises(RuntimeError):
        lock.acquire()
    lock.release()
    with lock:
        pass


def test_a_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(EnvironmentFault):
        storage.FileLock(tmp_path / "lock", timeout=0).acquire()
    assert victim.read_bytes() == b"precious"


def test_what_a_lock_file_says_is_shown_only_if_it_is_a_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    for content in (b"", b"12\n", b"1 2 3 4\n", b"x" * 100_000):
        lock.write_bytes(content)
        assert storage.read_holder(lock) == {}
    lock.write_bytes(b"1 \x1b[31mhost\xff now\n")
    assert all(word.isprintable() for word in storage.read_holder(lock).values())
    assert storage.read_holder(tmp_path / "absent") == {}


def test_a_lock_of_a_group_has_its_bits_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with storage.FileLock(tmp_path / "lock", mode=storage.GROUP.lock):
            assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o664
    finally:
        os.umask(before)


def test_directories_of_a_group_hand_their_group_down(tmp_path: Path) -> None:
    made = storage.make_directory(tmp_path / "a" / "b", storage.GROUP.directory)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (made, made.parent)] == [0o2770] * 2


def test_room_is_asked_for_where_the_directory_will_be(tmp_path: Path) -> None:
    storage.require_space(tmp_path / "not" / "yet" / "there", 1)
    with pytest.raises(EnvironmentFault, match="not enough space") as caught:
        storage.require_space(tmp_path / "not" / "yet", 1 << 60)
    details = caught.value.details
    assert (details["needed_bytes"], details["errno"]) == (1 << 60, "ENOSPC")
    assert 0 < details["available_bytes"] < 1 << 60
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
