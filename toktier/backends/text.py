"""What a caller may give as a text. One rule for every engine: native/bind/text.h; others ask `_native.text_of`.

Bytes are UTF-8. Beside `bytes`, any buffer of bytes is taken (item format B, b or c: mmap, array("B"),
a cast memoryview); of other formats none: which bytes would be meant is a guess.
"""

import mmap
from array import array
from typing import TypeAlias

Text: TypeAlias = "str | bytes | bytearray | memoryview | mmap.mmap | array[int]"
