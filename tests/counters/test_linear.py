"""Nothing is quadratic: operation counts for N and 2N of hostile text differ by a factor of at most 2.2.

Runs in a build with -DTOKTIER_COUNTERS=ON (`dev.py test --tier ci` makes one); the ordinary build has no counters.
Counts, not times: they are the same on every machine. Texts are 1 MB and 2 MB of UTF-8.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from toktier import _native
from toktier.program.compile import compile_tokenizer

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 2.2
SIZE = 1_000_000  # bytes

if not hasattr(_native, "take_counters"):
    pytest.skip("this build has no operation counters (dev.py test --tier ci makes one)", allow_module_level=True)

UNITS = {
    "one letter": "a",
    "letters": "abcdefghijklmnopqrstuvwxyz",
    "spaces": " ",
    "digits": "7",
    "newlines": "\n",
    "newline and spaces": "\n   ",
    "tabs and newlines": "\t\n",
    "CJK": "灯",
    "kana": "カな",
    "emoji": "😀",
    "family emoji": "👩‍👩‍👧‍👦",
    "combining marks": "\u0301\u0323",
    "letter and many marks": "a" + "\u0301\u0323\u0308" * 20,
    "Hangul jamo": "\u1100\u1161\u11a8",
    "special token openings": "<|im_",
    "special tokens": "<|im_start|>",
    "angle brackets": "<",
    "upper case after CJK": "中BBBB",
    "contractions": "'s'S'll",
    "dashes": "-",
    "random punctuation": "!?/.,;",
}
SOURCES = {
    path.stem if path.stem != "tokenizer" else path.parent.name: path
    for path in [
        ROOT / "tables/artifacts/toktier_mini/tokenizer.json",
        *sorted((ROOT / "tests/data/tokenizers").glob("*.json")),
    ]
}


def counts(encoder: object, text: str) -> dict[str, int]:
    _native.take_counters()
    encoding = encoder.encode(text)  # type: ignore[attr-defined]
    assert encoding.backend == "fast_cpu"
    return dict(_native.take_counters())


@pytest.mark.parametrize("name", SOURCES)
def test_work_grows_with_the_text(name: str) -> None:
    program = _native.Program(compile_tokenizer(SOURCES[name].read_bytes()))
    encoder = _native.EncoderBase(program)
    wrong = []
    for what, unit in UNITS.items():
        n = SIZE // len(unit.encode())
        once, twice = counts(encoder, unit * n), counts(encoder, unit * (2 * n))
        assert sum(once.values()) > n // 8, f"the counters of {what} do not count: {once}"
        for counter, value in once.items():
            # Below one step a kilobyte a counter says nothing about growth.
            if twice[counter] > LIMIT * max(value, SIZE // 1000):
                wrong.append(f"{what}: {counter} {value} → {twice[counter]}")
    assert not wrong
