"""Texts over classes that show a pre-tokenizer equal to boundary tables: W-method suites of the tables and of their
one-pass form, contexts that tell all classes apart, all class strings of a length. Generated from the tables alone;
what runs them, and against what, is the caller's: the laws of the tests today, the certification of a tokenizer later.
Not here: coverage of merges and of added tokens.

Class strings are `bytes`, one class a byte. One string checks every position in it.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from toktier.program.equivalence import (
    left_access,
    left_blocks,
    left_rows,
    nonempty_access,
    right_access,
    right_blocks,
    right_rows,
)
from toktier.program.interpret import run_token_automaton, run_two_pass

if TYPE_CHECKING:
    from toktier.program.boundary import BoundaryTables
    from toktier.program.token_automaton import TokenAutomaton


def class_strings(n_class: int, length: int) -> Iterator[bytes]:
    """All n_class ** length class strings of exactly this length, in ascending order."""
    return map(bytes, itertools.product(range(n_class), repeat=length))


def to_text(classes: bytes, representatives: Sequence[int]) -> str:
    """The class string as text: each class by its representative code point."""
    return "".join([chr(representatives[c]) for c in classes])


def characterising_behind(tables: BoundaryTables) -> list[bytes]:
    """Few texts such that any two left states (that some text tells apart) differ in the values inside one of them."""
    rows = right_rows(tables)
    behind = nonempty_access(right_access(tables), rows, backwards=True)
    lefts, blocks = left_rows(tables), left_blocks(tables)

    def values(state: int, text: bytes) -> bytes:
        states = []
        for c in text:
            states.append(state)
            state = lefts[state][c]
        right, result = tables.right_end, bytearray(len(text))
        for j in range(len(text) - 1, -1, -1):
            right = rows[right][text[j]]
            result[j] = tables.matrix[states[j] * tables.n_right + right]
        return bytes(result)

    def longer(text: bytes) -> Iterator[bytes]:
        return (bytes((c,)) + text for c in range(tables.n_class))

    return _characterise(left_access(tables), blocks, behind.values(), values, longer)


def characterising_before(tables: BoundaryTables) -> list[bytes]:
    """The same for right states: texts before them."""
    rows = left_rows(tables)
    before = nonempty_access(left_access(tables), rows, backwards=False)
    rights, blocks = right_rows(tables), right_blocks(tables)

    def values(state: int, text: bytes) -> bytes:
        # Positions 1..len(text): the last of them is where `state` begins.
        states = []
        for c in reversed(text):
            states.append(state)
            state = rights[state][c]
        left, result = tables.left_start, bytearray(len(text))
        for j, c in enumerate(text):
            left = rows[left][c]
            result[j] = tables.matrix[left * tables.n_right + states[len(text) - 1 - j]]
        return bytes(result)

    def longer(text: bytes) -> Iterator[bytes]:
        return (text + bytes((c,)) for c in range(tables.n_class))

    return _characterise(right_access(tables), blocks, before.values(), values, longer)


def _characterise(
    states: Iterable[int],
    blocks: Sequence[int],
    candidates: Iterable[bytes],
    values: Callable[[int, bytes], bytes],
    longer: Callable[[bytes], Iterator[bytes]],
) -> list[bytes]:
    """Greedy: the candidate that separates most, again and again; longer candidates when none separates any more."""
    states = list(states)
    wanted = len({blocks[s] for s in states})
    signatures: dict[int, tuple[bytes, ...]] = dict.fromkeys(states, ())
    pool = sorted(candidates, key=lambda text: (len(text), text))
    table = {text: {s: values(s, text) for s in states} for text in pool}
    chosen: list[bytes] = []
    separated = 1
    while separated < wanted:
        counts = {text: len({(signatures[s], row[s]) for s in states}) for text, row in table.items()}
        best = max(counts, key=lambda text: counts[text], default=None)
        if best is None or counts[best] == separated:
            pool = [text for shorter in pool for text in longer(shorter)]
            table.update((text, {s: values(s, text) for s in states}) for text in pool)
            continue
        chosen.append(best)
        separated = counts[best]
        signatures = {s: (*signatures[s], table[best][s]) for s in states}
    return chosen


def w_suite(tables: BoundaryTables, extra: int = 0) -> list[bytes]:
    """The two-sided W-method suite, shortest first: a pre-tokenizer that agrees with the tables on all of it, and whose
    boundary function over these classes has at most n_left + a left and n_right + b right states, is equal to the
    tables, for all a, b <= extra with a + b <= max(2, extra + 1) (extra = 0: a = b = 0). So extra = 1 allows one more
    state on each side.

    Why: P reaches every left state, Q every right state, W the characterising sets, Σ^j all class strings up to length
    j. P·Σ^(extra+1)·W fixes the left automaton up to states that behave alike, W·Σ^(extra+1)·Q the right one; then the
    two may still disagree in the matrix at states that only the other has, and P·Σ^(a+b)·Q looks at each such entry.
    The empty text is no access where a non-empty one exists: a piece starts at position 0 whatever the matrix says.
    """
    if extra < 0:
        raise ValueError(f"extra states must be 0 or more, not {extra}")
    before_access, behind_access = left_access(tables), right_access(tables)
    before = _both(before_access, nonempty_access(before_access, left_rows(tables), backwards=False))
    behind = _both(behind_access, nonempty_access(behind_access, right_rows(tables), backwards=True))
    middles = [text for length in range(extra + 2) for text in class_strings(tables.n_class, length)]
    left = _product(before, middles, characterising_behind(tables))
    right = _product(characterising_before(tables), middles, behind)
    matrix = _product(before, middles if extra else [b""], behind)
    return _ordered(text for text in itertools.chain(left, right, matrix) if text)


def token_suite(automaton: TokenAutomaton) -> list[bytes]:
    """The W-method suite of the one-pass form, from the empty text on: every transition, followed by texts that tell
    all states apart, and the end of text in every state. For an engine that reads these tables: `w_suite` reaches every
    entry of the boundary tables but not of these.
    """
    n = automaton.n_class
    single = list(class_strings(n, 1))
    targets = struct.unpack(f"<{automaton.n_state * n}H", automaton.next)
    access, queue = {automaton.start: b""}, deque([automaton.start])
    while queue:
        state = queue.popleft()
        for c, target in enumerate(targets[state * n : (state + 1) * n]):
            if target not in access:
                access[target] = access[state] + single[c]
                queue.append(target)

    def values(state: int, text: bytes) -> bytes:
        return run_token_automaton(automaton, text, state)

    def longer(text: bytes) -> Iterator[bytes]:
        return (text + c for c in single)

    behind = [b"", *_characterise(access, range(automaton.n_state), single, values, longer)]
    rows = [targets[state * n : (state + 1) * n] for state in range(automaton.n_state)]
    before = _both(access, nonempty_access(access, rows, backwards=False))
    return _ordered(_product(before, [b"", *single], behind))


def _ordered(texts: Iterable[bytes]) -> list[bytes]:
    return sorted(set(texts), key=lambda text: (len(text), text))


def _both(access: dict[int, bytes], nonempty: dict[int, bytes]) -> list[bytes]:
    return list(dict.fromkeys([*access.values(), *nonempty.values()]))


def _product(befores: Collection[bytes], middles: Collection[bytes], behinds: Collection[bytes]) -> Iterator[bytes]:
    for before in befores:
        for middle in middles:
            head = before + middle
            for behind in behinds:
                yield head + behind


def separating_contexts(tables: BoundaryTables) -> list[tuple[bytes, bytes]]:
    """Few pairs (before, behind) such that the values of before·c·behind, taken over all pairs, differ for any two
    classes c: a code point's class can be read off from outside.
    """
    lefts, rights = left_access(tables), right_access(tables)
    behinds = [*characterising_behind(tables), *rights.values()]
    contexts = dict.fromkeys(itertools.product(lefts.values(), behinds))
    contexts.update(dict.fromkeys(itertools.product(characterising_before(tables), rights.values())))
    table = {
        (before, behind): [run_two_pass(tables, before + bytes((c,)) + behind) for c in range(tables.n_class)]
        for before, behind in sorted(contexts, key=lambda pair: (len(pair[0]) + len(pair[1]), pair))
    }
    chosen: list[tuple[bytes, bytes]] = []
    signatures: list[tuple[bytes, ...]] = [()] * tables.n_class
    separated = 1
    while separated < tables.n_class:
        counts = {pair: len(set(zip(signatures, column, strict=True))) for pair, column in table.items()}
        best = max(counts, key=lambda pair: counts[pair])
        if counts[best] == separated:
            raise ValueError("two classes behave alike in every context: the tables are not canonical")
        chosen.append(best)
        separated = counts[best]
        signatures = [(*s, value) for s, value in zip(signatures, table[best], strict=True)]
    return chosen
