"""What happens to the file of records while the whole router runs costs no request: case D27.

Requests are served and counted, the fault is told, and rows are written again once it is mended. Each way in which the
file can be lost is tested by itself in `test_records`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import toktier
from tests.router.record_files import PATIENCE
from tests.router.served_router import Served
from tests.router.upstream_calls import tokens
from tests.support import namespaces
from tests.support.llama_server import LlamaServer
from tests.support.material import ROOT
from toktier.router.records_file import reading
from toktier.router.vocabulary import Outcome

pytestmark = pytest.mark.unsanitized
A = tokens(1, 100)


@contextmanager
def deleted(path: Path) -> Iterator[None]:
    path.unlink()
    yield


@contextmanager
def overwritten(path: Path) -> Iterator[None]:
    path.write_bytes(b"no database at all " * 500)
    yield


@contextmanager
def a_directory(path: Path) -> Iterator[None]:
    for part in path.parent.glob(f"{path.name}*"):
        part.unlink()
    path.mkdir()
    yield
    path.rmdir()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN EXCLUSIVE'); print(); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    yield
    holder.communicate("\n", timeout=PATIENCE)


@contextmanager
def without_its_directory(path: Path) -> Iterator[None]:
    moved = path.parent.rename(path.parent.with_name("moved"))
    path.parent.write_bytes(b"a file")
    yield
    path.parent.unlink()
    moved.rename(path.parent)


@pytest.mark.parametrize("happens", [deleted, overwritten, a_directory, locked, without_its_directory])
def test_d27_what_happens_to_the_file_costs_no_request(
    llama: LlamaServer, mini: toktier.Tokenizer, tmp_path: Path, happens: Callable[[Path], Iterator[None]]
) -> None:
    path = tmp_path / "kept" / "requests.db"
    path.parent.mkdir()
    with Served(llama.url, tokenizer=mini, records=path) as served:
        records = served.router.records
        assert records is not None
        served.complete(A)
        assert records.flush(PATIENCE)
        with happens(path):
            answers = [served.complete([*A[:50], number]) for number in range(10)]
            assert all(one.facts.outcome is Outcome.DONE for one in answers)
            records.flush(PATIENCE)
            stats = served.stats()
            assert (stats["requests"], stats["outcome"]["done"]) == (11, 11)
            assert sum(stats["records"]["faults"].values()) >= 1
            assert served.client.get("/metrics").status_code == 200
            assert served.client.get("/toktier").status_code == 200
        assert records.flush(PATIENCE)
        served.complete(A)
        assert records.flush(PATIENCE)
        state = served.stats()["records"]
        assert (state["state"], state["fault"], state["dropped"], state["written"]) == ("writing", None, 0, 12)
    with reading(path) as database:
        (newest,) = database.execute("SELECT prompt_tokens FROM requests ORDER BY number DESC LIMIT 1").fetchone()
        assert newest == 100


@pytest.mark.skipif(not namespaces.can_unshare("--mount"), reason="needs a private mount namespace")
def test_d27_a_full_disk_costs_no_request(llama: LlamaServer, tmp_path: Path) -> None:
    code = """
        import toktier
        from tests.router.served_router import Served
        disk, url = sys.argv[1:]
        with Served(url, tokenizer=toktier.load("toktier_mini"), records=disk + "/requests.db") as served:
            served.complete(list(range(100, 160)))
            assert served.router.records.flush(180)
            with open(disk + "/filler", "wb", buffering=0) as filler:
                try:
                    while filler.write(b"x" * 4096):
                        pass
                except OSError:
                    pass
                for number in range(20):
                    assert served.complete([number, *range(100, 160)]).status == 200
                served.router.records.flush(180)
                print(served.stats()["records"]["fault"], served.stats()["requests"])
                filler.truncate(0)
            assert served.router.records.flush(180)
            print(served.stats()["records"]["state"], served.stats()["records"]["written"])
    """
    head = f"import sys; sys.path.append({str(ROOT)!r})\n"
    command = namespaces.small_disk(tmp_path, "1m", sys.executable, "-c", head + textwrap.dedent(code))
    done = subprocess.run([*command, str(tmp_path), llama.url], capture_output=True, text=True, timeout=900)
    assert done.stdout.split() == ["full", "21", "writing", "21"], done.stderr


@pytest.mark.parametrize("named", ["a file of somebody", "a pipe", "."])
def test_d27_a_file_that_cannot_be_had_from_the_start(
    llama: LlamaServer, mini: toktier.Tokenizer, tmp_path: Path, named: str
) -> None:
    path = tmp_path / named
    if named == "a file of somebody":
        path.write_bytes(b"a letter")
    if named == "a pipe":
        os.mkfifo(path)
    with Served(llama.url, tokenizer=mini, records=path) as served:
        assert served.complete(A).facts.outcome is Outcome.DONE
        assert served.router.records is not None
        served.router.records.flush(PATIENCE)
        assert served.stats()["requests"] == 1
        assert sum(served.stats()["records"]["faults"].values()) >= 1
