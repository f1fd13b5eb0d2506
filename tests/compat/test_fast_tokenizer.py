"""What a FastTokenizer refuses, what its attributes say, and that its calls do not disturb each other."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.compat.calls import assert_same
from tests.support.material import ROOT, SMALL_DIR, changed_tokenizer
from tests.support.native_tokenizers import FORCED, native_file
from toktier.compat import refused
from toktier.compat.call_options import InvalidCall
from toktier.compat.transformers import FastTokenizer
from toktier.errors import ArtifactNotFound, BackendUnavailable, InvalidText, ToktierWarning, UnsupportedConfig

LLAMA = SMALL_DIR / "llama_like.json"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home-compat")


@pytest.fixture
def llama(home: Path) -> FastTokenizer:
    return FastTokenizer(native_file(LLAMA, home), unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("call", sorted(refused.REFUSED))
def test_what_is_refused_says_what_to_do(llama: FastTokenizer, call: str) -> None:
    with pytest.raises(UnsupportedConfig) as caught:
        getattr(llama, call)([{"role": "user", "content": "x"}])
    assert caught.value.details == {"call": call}
    assert caught.value.remedy == refused.REFUSED[call]


@pytest.mark.parametrize(
    "options",
    [
        {"padding": True},  # no padding token
        {"padding": "wide"},
        {"truncation": "some"},
        {"truncation": True, "max_length": -1},
        {"truncation": True, "max_length": 3, "stride": 5},
        {"pad_to_multiple_of": 0},
        {"padding_side": "up"},
        {"text_pair": ["a", "b"]},
        {"padding": None},
        {"padding": 0},
        {"truncation": 0},
        {"truncation": ""},
        {"add_special_tokens": None},
        {"add_special_tokens": 1},
        {"split_special_tokens": 1},
        {"is_split_into_words": 1},
        {"max_length": 5.0},
        {"max_length": True},
        {"truncation": True, "max_length": 5, "stride": None},
        {"text_target": "a b", "truncation": True, "max_target_length": "2"},
    ],
    ids=str,
)
def test_calls_that_nobody_can_follow_are_value_errors(llama: FastTokenizer, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall) as caught:
        llama(["some words to be cut"], **options)
    assert isinstance(caught.value, ValueError)
    assert caught.value.code == "CONFIG_INVALID"


def test_integers_and_flags_of_numpy_are_those_of_python(llama: FastTokenizer) -> None:
    llama.pad_token = "</s>"
    texts = ["one two three four", "a"]
    named = {"padding": True, "truncation": True, "return_overflowing_tokens": True}
    plain = llama(texts, max_length=4, stride=1, pad_to_multiple_of=2, add_special_tokens=False, **named)
    llama.model_max_length = np.int64(4)
    numpy = {"stride": np.int32(1), "pad_to_multiple_of": np.uint8(2), "add_special_tokens": np.bool_(False)}
    assert llama(texts, **numpy, **named).data == plain.data
    assert llama(texts, max_length=np.int64(4), **numpy, **named).data == plain.data


@pytest.mark.parametrize("limit", ["5", None, -1, 5.5])
def test_a_limit_that_is_none_is_refused_where_it_is_needed(llama: FastTokenizer, limit: Any) -> None:
    llama.model_max_length = limit
    with pytest.raises(InvalidCall, match="_length is"):
        llama("one two", truncation=True)


@pytest.mark.parametrize("text", [None, 7, b"bytes", [], [3]], ids=repr)
def test_what_is_no_text_is_refused(llama: FastTokenizer, text: Any) -> None:
    with pytest.raises(InvalidCall):
        llama(text)


@pytest.mark.parametrize("texts", [["a", None], ["a", 5], ["a", ("b", "c", "d")], ["a", ["b", ["c"]]]], ids=repr)
def test_an_input_that_is_none_is_named(llama: FastTokenizer, texts: list[Any]) -> None:
    with pytest.raises(InvalidCall, match="input 1 is or holds a"):
        llama(texts)


def test_lone_surrogates_are_refused_wherever_they_stand(llama: FastTokenizer) -> None:
    for arguments in (("a\ud800",), (["a", "b\udc00"],), ("a", "b\ud800")):
        with pytest.raises(InvalidText) as caught:
            llama(*arguments)
        assert caught.value.details["position"] == 1


def test_other_tensors_are_refused(llama: FastTokenizer) -> None:
    for kind in ("mlx", "tf", True):
        with pytest.raises(InvalidCall, match="expected one of np, pt"):
            llama("a", return_tensors=kind)
    with pytest.raises(BackendUnavailable, match="torch cannot be imported"):
        llama("a", return_tensors="pt")


def test_tensors_of_torch_are_made_of_the_arrays(llama: FastTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=lambda array: ("tensor", array)))
    llama.pad_token = llama.eos_token
    kind, array = llama(["a b", "c"], padding=True, return_tensors="pt")["input_ids"]
    assert kind == "tensor"
    assert array.dtype == np.int64
    with pytest.raises(InvalidCall, match="different lengths"):
        llama(["a b c d e f", "c"], return_tensors="pt")


def test_tokens_that_the_tokenizer_lacks_are_refused(home: Path) -> None:
    tokenizer = native_file(LLAMA, home)
    with pytest.raises(UnsupportedConfig, match="no added token"):
        FastTokenizer(tokenizer, pad_token="[PAD]")
    declared = {"7": {"content": "<s>", "lstrip": True, "rstrip": False, "single_word": False, "special": True}}
    with pytest.raises(UnsupportedConfig, match="other flags"):
        FastTokenizer(tokenizer, {"added_tokens_decoder": declared})
    with pytest.raises(UnsupportedConfig, match="changes ids"):
        FastTokenizer(tokenizer, vocab={"a": 1})
    with pytest.raises(ArtifactNotFound):
        FastTokenizer(tokenizer, home / "absent.json")


def test_special_tokens_by_name_and_id(llama: FastTokenizer) -> None:
    assert (llama.bos_token, llama.eos_token, llama.pad_token) == ("<s>", "</s>", None)
    assert llama.pad_token_id is None
    llama.pad_token = llama.eos_token
    assert llama.pad_token_id == llama.eos_token_id == llama.tokenizer.token_to_id("</s>")
    llama.mask_token_id = llama.bos_token_id
    assert llama.mask_token == "<s>"
    assert llama.all_special_tokens == ["<s>", "</s>", "<unk>"]
    assert list(llama.special_tokens_map) == ["bos_token", "eos_token", "unk_token", "pad_token", "mask_token"]
    assert llama.convert_tokens_to_ids(["nowhere at all", "<s>"]) == [llama.unk_token_id, llama.bos_token_id]
    with pytest.raises(InvalidCall):
        llama.pad_token = 7


def test_flags_that_change_ids_are_given_and_not_set(home: Path) -> None:
    tokenizer = native_file(LLAMA, home)
    made = FastTokenizer(tokenizer, bos_token="<s>", eos_token="</s>", add_bos_token=True, add_eos_token=True)
    assert (made.add_bos_token, made.add_eos_token) == (True, True)
    assert (made("a").input_ids[0], made("a").input_ids[-1]) == (made.bos_token_id, made.eos_token_id)
    assert FastTokenizer(tokenizer, add_eos_token=True).add_eos_token is False  # of no token
    for name in ("add_bos_token", "add_eos_token"):
        with pytest.raises(UnsupportedConfig, match="changes ids"):
            setattr(made, name, False)


def test_extra_tokens_can_be_named_later(llama: FastTokenizer) -> None:
    llama.extra_special_tokens = ["<s>", "</s>"]
    assert llama.additional_special_tokens == llama.extra_special_tokens == ["<s>", "</s>"]
    assert llama.extra_special_tokens_ids == [llama.bos_token_id, llama.eos_token_id]
    llama.additional_special_tokens = None
    assert llama.extra_special_tokens_ids == []
    for wrong in ("<s>", [7], [None]):
        with pytest.raises(InvalidCall, match="expected a list of tokens"):
            llama.extra_special_tokens = wrong


def test_a_row_that_is_too_long_warns_once(home: Path) -> None:
    ours = FastTokenizer(native_file(LLAMA, home), model_max_length=2)
    with pytest.warns(ToktierWarning, match="more than the 2"):
        ours("one two three four")
    ours("one two three four")  # warnings are errors below
    with pytest.warns(ToktierWarning, match="max_length is ignored"):
        FastTokenizer(native_file(LLAMA, home), pad_token="</s>")(["a"], padding=True, max_length=5)


def test_stored_truncation_and_padding_are_defaults_and_nothing_else(home: Path, tmp_path: Path) -> None:
    padding = {
        "strategy": {"Fixed": 9},
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": 2,
        "pad_type_id": 0,
        "pad_token": "</s>",
    }
    truncation = {"direction": "Left", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    path = changed_tokenizer(LLAMA, tmp_path / "stored.json", padding=padding, truncation=truncation)
    stored, plain = FastTokenizer(native_file(path, home)), FastTokenizer(native_file(LLAMA, home), pad_token="</s>")
    assert (stored.padding_side, stored.truncation_side, stored.pad_token) == ("left", "left", "</s>")
    found, expected = stored("one two three four"), plain("one two three four")
    assert (found.backend, expected.backend) == ("hf", "fast_cpu")
    assert found.data == expected.data
    plain.padding_side = "left"
    assert stored(["one two", "a"], padding=True).data == plain(["one two", "a"], padding=True).data


def test_a_tokenizer_that_the_reference_serves_gives_the_same(home: Path) -> None:
    import toktier

    reference = FastTokenizer(toktier.from_file(LLAMA, policy="reference"), pad_token="</s>")
    engine = FastTokenizer(native_file(LLAMA, home), pad_token="</s>")
    options: dict[str, Any] = {"padding": True, "return_offsets_mapping": True}
    texts = ["one two", "three"]
    assert (reference(texts, **options).backend, engine(texts, **options).backend) == ("hf", "fast_cpu")
    assert reference(texts, **options).data == engine(texts, **options).data


def test_calls_in_threads_do_not_see_each_others_settings(llama: FastTokenizer) -> None:
    llama.pad_token = "</s>"
    calls: list[dict[str, Any]] = [
        {
            "text": "one two three",
            "text_pair": "four",
            "truncation": True,
            "max_length": length,
            "padding": "max_length",
        }
        for length in range(4, 12)
    ]
    expected = [llama(**call).data for call in calls]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda call: llama(**call).data, calls * 8))
    assert found == expected * 8


@pytest.mark.ci
@pytest.mark.unsanitized
def test_a_fork_during_a_call_of_the_reference_leaves_a_child_that_can_call(llama: FastTokenizer) -> None:
    options: dict[str, Any] = {"truncation": True, "max_length": 6}
    expected = llama("one two", "three", **options).data
    with ThreadPoolExecutor(1) as pool:
        while True:  # until the fork comes while the thread is at the reference
            long = pool.submit(llama, "one two three " * 20_000, "four", split_special_tokens=True)
            while llama._reference._asked_in is None and not long.done():
                time.sleep(0.001)
            if llama._reference._asked_in is not None:
                break
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(300)  # a child that waits for a lock ends by it
            os.write(writer, b"same" if llama("one two", "three", **options).data == expected else b"other")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"same"
        os.waitpid(child, 0)


def test_copies_and_pickles_answer_alike(llama: FastTokenizer) -> None:
    again = pickle.loads(pickle.dumps(llama))
    assert again("one two", "three").data == llama("one two", "three").data
    result = pickle.loads(pickle.dumps(llama(["one two"])))
    assert (result.data, result.backend) == (llama(["one two"]).data, "fast_cpu")
    with pytest.raises(AttributeError):
        _ = result.absent
    with pytest.raises(ValueError, match="no encodings"):
        result.word_ids()


def test_a_deep_copy_of_a_result_answers_alike(llama: FastTokenizer) -> None:
    result = llama(["one two", "three"])
    again = copy.deepcopy(result)
    again["input_ids"][0].append(7)
    assert again.tokens(1) == result.tokens(1)
    assert result.input_ids[0][-1] != 7


def test_results_become_tensors_in_place(llama: FastTokenizer) -> None:
    result = llama("one two")
    assert result.convert_to_tensors("np", prepend_batch_axis=True) is result
    assert_same(result, llama(["one two"], return_tensors="np"))
    assert llama("one").convert_to_tensors(None).data == llama("one").data


def test_words_and_spans_come_from_the_reference_and_are_held_to_the_ids(llama: FastTokenizer) -> None:
    result = llama("one two")
    assert result.backend == "fast_cpu"
    assert result.encodings[0].ids == result.input_ids
    token = result.char_to_token(4)
    assert token is not None
    span = result.token_to_chars(token)
    assert span is not None
    assert span.start <= 4 < span.end
    assert result.token_to_chars(0) is None  # the template's
    assert result.word_ids() == result[0].word_ids


def test_a_directory_with_side_files(home: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(LLAMA.read_bytes())
    config = {"pad_token": "<pad>", "eos_token": {"content": "</s>"}, "padding_side": "left", "model_max_length": 6}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<s>"}))
    ours = FastTokenizer.from_directory(tmp_path, load=FORCED)
    assert (ours.bos_token, ours.eos_token, ours.pad_token) == ("<s>", "</s>", "<pad>")
    assert ours.pad_token_id == ours.tokenizer.vocab_size - 1  # merged, behind all others
    row = ours("one", padding="max_length", truncation=True)
    assert row.backend == "fast_cpu"
    assert len(row.input_ids) == 6
    assert row.input_ids[0] == ours.pad_token_id


def test_the_examples_of_the_docs_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "transformers.md").read_text(encoding="utf-8")
    example = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    ran = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "fast_cpu" in ran.stdout
    assert " [1 1 1 0 0" in ran.stdout  # the shorter row, padded


def test_the_library_is_not_imported() -> None:
    line = "import sys, toktier.compat.transformers; print('transformers' in sys.modules, 'numpy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert ran.stdout == "False False\n"
