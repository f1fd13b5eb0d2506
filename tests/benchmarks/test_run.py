"""A tiny run of each part with the engines that are always there; what is wrong is called so, and the run ends with 1.

Nothing here is judged by time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from jsonschema import Draft202012Validator

from tests.benchmarks.scripts import PLACE, script
from tests.support.material import SMALL_DIR

MINI = PLACE.parent / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
OURS, REFERENCE = "toktier", "tokenizers"
TINY = ("--engine", OURS, "--rounds", "1", "--warm", "1", "--calls", "5", "--piece-bytes", "300")


def run(tmp_path: Path, *arguments: str, code: int = 0, env: dict[str, str] | None = None) -> Any:
    """The document of a run, held to the schema."""
    out = tmp_path / "results.json"
    line = [sys.executable, str(PLACE / "run.py"), *arguments, "--out", str(out)]
    home = {"TOKTIER_HOME": str(tmp_path / "home")}
    ran = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **home, **(env or {})}, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    document = json.loads(out.read_text("utf-8"))
    schema = json.loads((PLACE / "results.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)
    return document


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """Corpora of a few documents, in the form of the real ones."""
    place = tmp_path / "corpora"
    place.mkdir()
    for name in script("workloads").LANGUAGES:
        lines = [json.dumps(f"Document {n} of {name}: größer, {n * n} – 港の時計。\n" * 4) for n in range(12)]
        packed = zstandard.ZstdCompressor().compress("\n".join(lines).encode())
        (place / f"{name}.jsonl.zst").write_bytes(packed)
    chat = json.dumps([{"role": "user", "content": "list the files"}, {"role": "assistant", "content": "`ls -la`"}])
    (place / "agent_chats.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(chat.encode()))
    return place


@pytest.mark.ci
def test_every_workload_is_measured_and_right(tmp_path: Path, corpora: Path) -> None:
    document = run(tmp_path, *TINY, "--workload", "all", "--bytes", "2000", "--corpora", str(corpora))
    workloads = script("workloads").WORKLOADS
    cells = {(cell["workload"], cell["engine"]): cell for cell in document["cells"]}
    assert set(cells) == {(name, engine) for name in workloads if name != "sample" for engine in (OURS, REFERENCE)}
    assert document["left_out"] == []
    for (name, engine), cell in cells.items():
        assert cell["status"] == "ok", (name, cell)
        assert len(cell["first"]) == 1
        assert len(cell["warm"]) == (
            1 if engine == OURS or document["workloads"][f"toktier_mini/{name}"]["calls"] else 0
        )
        assert cell["tokens"] or name in script("workloads").GROUPS["short"]


def test_what_is_not_here_is_named_and_left_out(tmp_path: Path) -> None:
    nowhere = ("--corpora", str(tmp_path / "nowhere"))
    document = run(tmp_path, *TINY, "--workload", "zh", "--workload", "hello", *nowhere)
    assert document["left_out"] == [{"artifact": "toktier_mini", "what": "zh", "reason": "the corpus zh is not here"}]
    assert {cell["workload"] for cell in document["cells"]} == {"hello"}


@pytest.mark.ci
def test_loads_are_what_they_are_called(tmp_path: Path) -> None:
    """`loads.measure` itself raises where a warm load was none."""
    document = run(tmp_path, *TINY, "--measure", "loads")
    (row,) = document["loads"]
    assert [len(row[kind]["first_ids_ns"]) for kind in ("cold", "warm", "rehashed")] == [1, 4, 4]


@pytest.mark.ci
def test_threads_and_memory(tmp_path: Path, corpora: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    measures = ("--measure", "threads", "--measure", "resident", "--soak-bytes", "20000")
    document = run(tmp_path, *TINY, *measures, "--bytes", "2000", "--corpora", str(corpora))
    (row,) = document["threads"]
    assert row["status"] == "ok", row
    assert len(row["two_processes_ns"]) == len(row["long_ns"]) == 1
    by_engine = {row["engine"]: row for row in document["resident"]}
    assert set(by_engine) == {OURS, REFERENCE}
    assert by_engine[OURS]["bytes_encoded"] >= 20000
    assert by_engine[OURS]["soaked"]["rss"] > by_engine[OURS]["soaked"]["private"] > 0


def fake_peer(place: Path, body: str) -> Path:
    """A directory with a package `fastokens` whose tokenizer is the reference, but for `body`."""
    if importlib.util.find_spec("fastokens") is not None:
        pytest.skip("the real fastokens is installed, and what is installed comes before --peers")
    package = place / "fastokens"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import tokenizers\n"
        "class Tokenizer:\n"
        "    @staticmethod\n"
        "    def from_file(path):\n"
        "        return Tokenizer(tokenizers.Tokenizer.from_file(path))\n"
        "    def __init__(self, tok):\n"
        "        self.tok, self.calls = tok, 0\n"
        "    def encode(self, text):\n"
        "        encoding = self.tok.encode(text, add_special_tokens=False)\n"
        f"{body}"
        "        return encoding\n"
    )
    info = place / "fastokens-9.9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fastokens\nVersion: 9.9.9\n")
    return place


def with_peer(tmp_path: Path, body: str, code: int) -> Any:
    peers = fake_peer(tmp_path / "peers", body)
    asked = ("--engine", "fastokens", "--rounds", "1", "--warm", "2", "--calls", "5", "--peers", str(peers))
    return run(tmp_path, *asked, "--workload", "sample", "--workload", "hello", code=code)


def cells_of(document: Any, engine: str) -> list[Any]:
    return [cell for cell in document["cells"] if cell["engine"] == engine]


@pytest.mark.ci
def test_a_right_peer_passes(tmp_path: Path) -> None:
    document = with_peer(tmp_path, "", code=0)
    assert document["versions"]["fastokens"] == "9.9.9"
    assert {cell["status"] for cell in cells_of(document, "fastokens")} == {"ok"}


def test_a_wrong_engine_is_called_wrong_and_has_no_figure(tmp_path: Path) -> None:
    lost = "        encoding.truncate(max(1, len(encoding.ids) - 1))\n"
    document = with_peer(tmp_path, lost, code=1)
    for cell in cells_of(document, "fastokens"):
        assert cell["status"] == "wrong"
        assert "differ from the reference's" in cell["reason"]
        facts = document["workloads"][f"{cell['artifact']}/{cell['workload']}"]
        reading = script("reading")
        assert reading.best_rate(cell, "first", facts) is None
        assert reading.cell_text(cell, "first", facts, 1.0) == "WRONG"
    assert {cell["status"] for cell in cells_of(document, OURS)} == {"ok"}


@pytest.mark.ci
def test_one_that_is_wrong_in_a_late_pass_alone_is_caught(tmp_path: Path) -> None:
    """What a cache may do: right at first, wrong once it is warm."""
    late = "        self.calls += 1\n        encoding.truncate(1 if self.calls > 14 else 1 << 20)\n"
    document = with_peer(tmp_path, late, code=1)
    cell = next(cell for cell in cells_of(document, "fastokens") if cell["workload"] == "sample")
    assert cell["status"] == "wrong"


@pytest.mark.ci
def test_an_engine_that_dies_takes_its_own_cells_alone(tmp_path: Path) -> None:
    died = "        import os\n        os._exit(9)\n"
    document = with_peer(tmp_path, died, code=0)
    assert {cell["status"] for cell in cells_of(document, "fastokens")} == {"failed"}
    assert {cell["status"] for cell in cells_of(document, OURS)} == {"ok"}


def test_a_file_that_an_engine_does_not_take_is_refused_and_no_failure(tmp_path: Path) -> None:
    peers = tmp_path / "peers"
    fake_peer(peers, "")
    (peers / "fastokens" / "__init__.py").write_text(
        "class Tokenizer:\n"
        "    @staticmethod\n"
        "    def from_file(path):\n"
        "        raise ValueError(f'{path}: unsupported model')\n"
    )
    asked = ("--engine", "fastokens", "--rounds", "1", "--calls", "5", "--peers", str(peers))
    document = run(tmp_path, *asked, "--workload", "hello")
    (cell,) = cells_of(document, "fastokens")
    assert cell["status"] == "refused"
    assert cell["reason"] == "the file: unsupported model"


def test_nothing_of_the_host_stands_in_the_results(tmp_path: Path) -> None:
    document = run(tmp_path, *TINY, "--workload", "hello", str(SMALL_DIR / "gpt2_like.json"))
    told = json.dumps(document)
    assert os.uname().nodename not in told.replace(document["machine"]["processor"], "")
    for part in (str(tmp_path), str(PLACE.parent), os.sep + "usr"):
        assert part not in told
