"""Types of the native module (native/bind). Private to the package: users meet these objects through `toktier`.

Buffers of 32-bit integers are little-endian and contiguous; `bytes`, `array('I')` and memoryviews will do.
"""

from typing import Any

_Buffer = Any  # anything with the buffer protocol

def build_bpe(
    raw: list[bytes],
    strings: list[bytes],
    flags: _Buffer,
    merges: _Buffer,
    byte_level: bool,
    initial: _Buffer,
    byte_fallback: _Buffer,
    ignore_merges: bool,
    unk_id: int | None,
) -> tuple[dict[str, bytes], bytes, dict[str, int | bool | str | None]]:
    """BPE sections of a program, the rules that can fire, and what was proved.

    raw, strings: by id; `raw[i]` is what a piece must read to be token i (b"": none), `strings[i]` its string (b"" and clear
    flags: no such id). flags: TFLG with EXISTS, MODEL, ADDED, SPECIAL. merges: u32 rows (left, right, product) in rank order,
    every pair once, its last place. initial: byte-level u32[256], symbol of each byte or 0xFFFFFFFF; else u32 rows (code point,
    id). byte_fallback: u32[256] or empty. unk_id: the unknown token.

    Returns the sections PAIR PHSH VHSH TFLG RAWO RAWB STRO STRB and JBYT or JSYM (neither where nothing proves a cut); the rules
    that can fire, as rows of `merges` in rank order; and statistics: merges, live, dead, kept_unproved (of live: rules that a
    fallback or unknown symbol may reach), tokens (of the model), reachable, unreachable (by merges alone), monotone, max_piece
    (bytes, for CONF), join ("JBYT", "JSYM" or None). ValueError, one sentence, for tables that no tokenizer.json can mean.
    """
