"""The work of a session grows with what is new: operation counts of appends, the session's own steps among them, are
the same whether N or 2N of text stand before; of edits near the end they are those of a block and the change; of an
append to text without a cut, those of that text.

Runs in a build with -DTOKTIER_COUNTERS=ON, like test_linear.py. Counts, not times. Histories are 0.4 and 0.8 MB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.material import ROOT, small_tokenizers
from toktier import _native
from toktier.program.compile import compile_tokenizer

if not hasattr(_native, "take_counters"):
    pytest.skip("this build has no operation counters (dev.py test --tier ci makes one)", allow_module_level=True)

SOURCES = {path.stem: path for path in small_tokenizers()} | {
    "toktier_mini": ROOT / "tables" / "artifacts" / "toktier_mini" / "tokenizer.json"
}
UNIT = "It's 12,345 o'clock; the café — naïve, 日本語 and 👩🏽‍💻 — doesn't open: <|im_start|>user\r\n"
TIMES = 4_000  # of UNIT: 0.4 MB
ROUNDS = 40
Change = Callable[[_native.SessionBase, int], object]

CHANGES: dict[str, tuple[Change, int]] = {  # what is done, and how many characters of it are new
    "append of 16": (lambda session, k: session.append(f" and {k % 10}, a word"), 16),
    "append of 256": (lambda session, k: session.append(UNIT * 3), 256),
    "append of 4,096": (lambda session, k: session.append(UNIT * 51), 4_100),
    "replace of the last 1,000": (lambda session, k: session.replace(session.text_length - 1_000, UNIT * 12), 1_000),
    "cut of the last 10": (lambda session, k: session.replace(session.text_length - 10, ""), 10),
}


def counted(encoder: _native.EncoderBase, times: int, change: Change) -> Counter[str]:
    session = _native.SessionBase(encoder)
    session.append(UNIT * times)
    _native.take_counters()
    for k in range(ROUNDS):
        change(session, k)
    return Counter(dict(_native.take_counters()))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("what", CHANGES)
def test_the_work_of_a_change_is_that_of_its_size(name: str, what: str) -> None:
    encoder = _native.EncoderBase(_native.Program(compile_tokenizer(SOURCES[name].read_bytes())))
    change, size = CHANGES[what]
    counted(encoder, TIMES // 100, change)  # its words are known from here on
    once, twice = (counted(encoder, times, change) for times in (TIMES, 2 * TIMES))
    whole = Counter(dict(_native.take_counters()))
    assert whole.total() == 0, "all that was counted was taken"
    assert once["session_steps"] > ROUNDS * size // 2, "the session's counter counts"
    assert once.total() - once["session_steps"] > ROUNDS * size // 8, "the engine's counters count"
    appends = what.startswith("append")
    # An append encodes again what stands behind the last cut; an edit up to one and a half blocks near the end too.
    again = 40 if appends else 800
    for counts in (once, twice):
        assert counts.total() < ROUNDS * 16 * (size + again), counts
    for counter, value in once.items() if appends else ():
        assert twice[counter] <= 1.1 * value + ROUNDS * 16, (counter, value, twice[counter])


def test_text_without_a_cut_is_encoded_again_and_no_more() -> None:
    """An append to it costs what stands behind the last cut: twice as much for twice the text, whatever is before."""
    path = SOURCES["o200k_like"]
    encoder = _native.EncoderBase(_native.Program(compile_tokenizer(path.read_bytes())))

    def change(length: int) -> Change:
        return lambda session, k: session.append("\u0301" * length if k == 0 else "\u0301")

    short, long, behind = (
        counted(encoder, times, change(length)).total() for times, length in ((10, 500), (10, 1_000), (TIMES, 500))
    )
    assert long <= 2.2 * short
    assert abs(behind - short) <= 0.1 * short
