"""What a device is given of a program, the transition monoids and the image of tables; which programs are refused."""

from __future__ import annotations

import itertools
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.test_engine_reader import read_sections, write_sections
from tests.native.test_wide_tables import widened
from tests.support import emulated_pipeline
from tests.support.engine_pair import BYTE_LEVEL, byte_alphabet
from tests.support.material import ROOT, SMALL_DIR
from tests.support.tokenizer_maker import added, changed, minimal
from toktier import _native
from toktier.gpu import suitability
from toktier.program.compile import compile_tokenizer

Function = tuple[int, ...]
MOST = 255  # elements of a monoid: one byte each


class Automaton(NamedTuple):
    n_class: int
    n_states: int
    table: bytes  # next state by state and class
    start: int

    def step(self, state: int, symbol: int) -> int:
        return self.table[state * self.n_class + symbol]

    def of_class(self, symbol: int) -> Function:
        return tuple(self.step(state, symbol) for state in range(self.n_states))

    def of_first(self, symbol: int) -> Function:
        return (self.step(self.start, symbol),) * self.n_states


@st.composite
def automata(draw: st.DrawFn) -> Automaton:
    n_class, n_states = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    states = st.integers(0, n_states - 1)
    table = bytes(draw(st.lists(states, min_size=n_class * n_states, max_size=n_class * n_states)))
    return Automaton(n_class, n_states, table, draw(states))


def closure(automaton: Automaton) -> set[Function]:
    """All functions that texts make, or more than MOST of them."""
    generators = [f(symbol) for symbol in range(automaton.n_class) for f in (automaton.of_class, automaton.of_first)]
    known = {tuple(range(automaton.n_states))}
    new = list(known)
    while new and len(known) <= MOST:
        function = new.pop()
        for generator in generators:
            made = tuple(generator[state] for state in function)
            if made not in known:
                known.add(made)
                new.append(made)
    return known


@settings(deadline=None, max_examples=100)
@given(automata())
def test_law_the_monoid_is_the_closure_and_composes_functions(automaton: Automaton) -> None:
    expected = closure(automaton)
    monoid = _native.transition_monoid(automaton.table, *automaton[:2], automaton.start)
    assert (monoid is None) == (len(expected) > MOST)
    if monoid is None:
        return
    n, size = monoid["n_elements"], automaton.n_states
    functions = [tuple(monoid["functions"][at * size : (at + 1) * size]) for at in range(n)]
    assert set(functions) == expected
    assert len(functions) == len(expected)
    assert functions[0] == tuple(range(size))
    assert [functions[e] for e in monoid["of_class"]] == [automaton.of_class(s) for s in range(automaton.n_class)]
    assert [functions[e] for e in monoid["of_first"]] == [automaton.of_first(s) for s in range(automaton.n_class)]
    assert list(monoid["state"]) == [function[automaton.start] for function in functions]
    for a, b in itertools.product(range(n), repeat=2):
        assert functions[monoid["compose"][a * n + b]] == tuple(functions[b][state] for state in functions[a])


@settings(deadline=None, max_examples=60)
@given(automata(), st.data())
def test_law_texts_cut_anywhere_compose_to_the_same_state(automaton: Automaton, data: st.DataObject) -> None:
    monoid = _native.transition_monoid(automaton.table, *automaton[:2], automaton.start)
    if monoid is None:
        return
    n, compose = monoid["n_elements"], monoid["compose"]
    symbols = st.tuples(st.integers(0, automaton.n_class - 1), st.booleans())
    text = data.draw(st.lists(symbols, max_size=12))
    elements = [monoid["of_first" if first else "of_class"][symbol] for symbol, first in text]
    state = automaton.start
    for symbol, first in text:
        state = automaton.step(automaton.start if first else state, symbol)
    while len(elements) > 1:  # neighbours in any order
        at = data.draw(st.integers(0, len(elements) - 2))
        elements[at : at + 2] = [compose[elements[at] * n + elements[at + 1]]]
    assert state == monoid["state"][elements[0] if elements else 0]


def test_a_table_that_does_not_fit_is_refused() -> None:
    for table, sizes in ((b"\0\0", (1, 1, 0)), (b"\1", (1, 1, 0)), (b"\0", (1, 1, 1)), (b"", (0, 0, 0))):
        with pytest.raises(ValueError, match="does not fit"):
            _native.transition_monoid(table, *sizes)


def test_monoids_are_refused_by_their_size_alone() -> None:
    """A counter of n states is a monoid of n rotations and n constants."""

    def counter(n: int) -> dict[str, Any] | None:
        return _native.transition_monoid(bytes((s + 1) % n for s in range(n)), 1, n, 0)

    largest = counter(127)
    assert largest is not None
    assert largest["n_elements"] == 254
    assert counter(128) is None
    assert counter(256) is None


def byte_level(**changes: Any) -> dict[str, Any]:
    """A tokenizer that a device can run, changed."""
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    base = changed(minimal(), pre_tokenizer=BYTE_LEVEL, model__vocab=vocab, model__merges=[])
    return changed(base, **changes)


def program(document: dict[str, Any]) -> _native.Program:
    return _native.Program(compile_tokenizer(json.dumps(document, ensure_ascii=False).encode()))


def digits(longest: int) -> dict[str, Any]:
    """A pre-tokenizer that counts up to `longest`, from the left."""
    pattern = {"Regex": rf"\p{{N}}{{1,{longest}}}"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**BYTE_LEVEL, "use_regex": False}]}


TRUNCATION = {"max_length": 5, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
PADDING = {
    "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None,
    "pad_id": 33, "pad_type_id": 0, "pad_token": "!",
}  # fmt: skip
REFUSED: dict[str, dict[str, Any]] = {
    "model": minimal(),
    "byte_symbols": byte_level(model__vocab={c: n for n, c in enumerate(byte_alphabet()[:-1])}),
    "prefix_space": byte_level(pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True}),
    "pre_tokenizer": byte_level(pre_tokenizer={**BYTE_LEVEL, "use_regex": False}),
    "normalizer": byte_level(normalizer={"type": "Lowercase"}),
    "truncation": byte_level(truncation=TRUNCATION),
    "padding": byte_level(padding=PADDING),
    "left_monoid": byte_level(pre_tokenizer=digits(150)),
}


@pytest.mark.parametrize("code", REFUSED)
def test_a_premise_that_fails_is_named(code: str) -> None:
    refused = program(REFUSED[code])
    with pytest.raises(_native.UnsuitableProgram) as caught:
        _native.device_tables(refused)
    assert caught.value.code == code
    with pytest.raises(_native.UnsuitableProgram):
        _native.device_facts(refused)
    assert _native.unsuitable(refused) == (code, str(caught.value))
    assert suitability.unsuitable(refused) == str(caught.value)


def test_forms_and_tokens_are_no_obstacle() -> None:
    tokens = [added("<t>", special=True), added("two", normalized=True, lstrip=True)]
    for document in (byte_level(), byte_level(normalizer={"type": "NFC"}, added_tokens=tokens)):
        assert suitability.unsuitable(program(document)) is None


def test_the_image_is_of_what_kernels_read() -> None:
    """The same tables give the same bytes, from another file and with another decoder; another table does not."""
    document = byte_level(added_tokens=[added("<t>")])
    image = _native.device_tables(program(document))
    assert _native.device_tables(program(document)) == image
    assert _native.device_tables(program(changed(document, post_processor=BYTE_LEVEL, decoder=BYTE_LEVEL))) == image
    images = {image}
    images.add(_native.device_tables(program(changed(document, added_tokens=[added("<t>", special=True)]))))
    images.add(_native.device_tables(program(changed(document, added_tokens=[added("<u>")]))))
    images.add(_native.device_tables(program(changed(document, normalizer={"type": "NFC"}))))
    images.add(_native.device_tables(program(changed(document, pre_tokenizer=digits(3)))))
    assert len(images) == 5


def test_small_tokenizers() -> None:
    """Elements of both monoids, or why there is none: the sizes are those of the automata, which are canonical."""
    said: dict[str, Any] = {}
    for path in sorted(SMALL_DIR.glob("*.json")):
        opened = _native.Program(compile_tokenizer(path.read_bytes()))
        refused = _native.unsuitable(opened)
        facts = {} if refused else _native.device_facts(opened)
        said[path.stem] = refused[0] if refused else (facts["left_elements"], facts["right_elements"])
    assert said == {
        "cl100k_like": (27, 10),
        "deepseek_like": (23, 18),
        "gemma_like": "model",
        "gpt2_like": "prefix_space",
        "llama_like": "model",
        "o200k_like": (203, 39),
    }


@pytest.mark.parametrize("name", ["cl100k_like", "deepseek_like"])
def test_both_forms_of_look_ups_are_in_the_image(name: str) -> None:
    """Every kernel on the compact tables and on the wide ones: the ids of the CPU engine."""
    compact = compile_tokenizer((SMALL_DIR / f"{name}.json").read_bytes())
    texts = [(ROOT / "tests/data/text" / f"{file}.txt").read_bytes() for file in ("code", "languages", "chat")]
    images = set()
    for file in (compact, write_sections(widened(read_sections(compact)))):
        opened = _native.Program(file)
        images.add(_native.device_tables(opened))
        found = emulated_pipeline.run(_native.device_tables(opened), texts)
        assert [document.flags for document in found] == [0] * len(texts)
        encoder = _native.EncoderBase(opened)
        assert [document.ids for document in found] == [list(encoder.encode(text).ids) for text in texts]
    assert len(images) == 2
