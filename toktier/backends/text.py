"""What a caller may give as a text. One rule for every engine: native/bind/text.h; others ask `_native.text_of`.

Bytes are UTF-8. Beside `bytes`, any buffer of bytes is taken (item format B, b or c: mmap, array("B"),
a cast memoryview); of other formats none: which bytes would be meant is a guess.
"""

import mmap
from array import array
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Text: TypeAlias = "str | bytes | bytearray | memoryview | mmap.mmap | array[int]"


def segment_pairs(segments: Iterable[tuple[Text, bool]]) -> Iterator[tuple[Text, bool]]:
    """(text, allow_special) pairs as given. TypeError for what is none: a word that is true where a bool is meant would
    let through what a user wrote as control tokens."""
    for item, segment in enumerate(segments):
        if not isinstance(segment, (tuple, list)) or len(segment) != 2 or not isinstance(segment[1], bool):
            raise TypeError(f"segment {item} is no pair of a text and a bool, whether special tokens count in it")
        yield segment[0], segment[1]
