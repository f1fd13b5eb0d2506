"""A text that comes in blocks of bytes, given on in parts whose ids, one after the other, are the ids of the whole.

Parts end where the program says that any text may be cut (`_native.Program.cuts`), so memory is bounded by the longest
stretch without a cut instead of by the text. Not here: encoding, and what a template puts around the whole.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator

from toktier._native import Program
from toktier.errors import InvalidText, UsageError

PART_BYTES = 1 << 20  # long enough for full speed, short enough for the text of its ids to be small
TAIL_BYTES = 4096  # where the last cut is looked for first
CONTEXT_BYTES = 5 * 4  # what decides a cut: two characters before it, three after it
HELD_BYTES = 1 << 24  # from here on the caller is told that the text is being held
MAX_TEXT_BYTES = (1 << 32) - 1  # of the engine

Told = Callable[[str], None]


def text_parts(blocks: Iterable[bytes], program: Program | None, held_because: str, told: Told) -> Iterator[bytes]:
    """Parts of the text, in order; at least one, all of valid UTF-8. `program` None: the whole as one part.

    `told` is called once, when more than HELD_BYTES are held, with the reason: `held_because`, or that there is no cut.
    Raises InvalidText with the byte of the whole text, UsageError for a part of 4 GiB or more.
    """
    held = bytearray()
    given, searched, announced = 0, 0, False  # bytes given on; bytes of `held` known to be without a cut
    reason = held_because if program is None else "no place so far where this text may be cut"
    for valid in _whole_characters(blocks):
        held += valid
        if len(held) < PART_BYTES:
            continue
        cut = 0 if program is None else _last_cut(held, searched, program)
        if cut:
            given += cut
            yield bytes(memoryview(held)[:cut])
            del held[:cut]
            searched = 0
        else:
            searched = len(held)
        if len(held) > HELD_BYTES and not announced:
            announced = True
            told(reason)
        if len(held) > MAX_TEXT_BYTES:
            raise UsageError(
                f"more than {MAX_TEXT_BYTES:,} bytes from byte {given:,} on would have to be held ({reason}),"
                " and no text may have more",
                details={"limit": MAX_TEXT_BYTES, "position": given},
                remedy="give it in parts",
            )
    yield bytes(held)


def _whole_characters(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks again, each moved to end between two characters. Raises InvalidText."""
    rest, place = b"", 0
    for block in blocks:
        data = rest + block if rest else block
        used = _checked(data, place, final=False)
        rest = bytes(data[used:])
        place += used
        if used:
            yield data[:used]
    _checked(rest, place, final=True)


def _checked(data: bytes, place: int, *, final: bool) -> int:
    """How many bytes are whole characters."""
    try:
        return codecs.utf_8_decode(data, "strict", final)[1]
    except UnicodeDecodeError as error:
        position = place + error.start
    raise InvalidText(
        f"malformed UTF-8 at byte {position}",
        details={"position": position},
        remedy="pass UTF-8, or decode the bytes first",
    )


def _last_cut(held: bytearray, searched: int, program: Program) -> int:
    """Bytes before the last cut in `held`, none of which lies before `searched`; 0 where there is none.

    A window of a text has no cut that the text has not.
    """
    first = max(0, searched - CONTEXT_BYTES)
    for start in (max(first, len(held) - TAIL_BYTES), first):
        while start and held[start] & 0xC0 == 0x80:  # not inside a character
            start -= 1
        at, _ = program.cuts(bytes(memoryview(held)[start:]))
        if at:
            return start + at[-1]
    return 0
