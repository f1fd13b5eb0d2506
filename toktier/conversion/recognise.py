"""Whether a file is one of the vocabularies that can be converted, by its first bytes and whatever it is called.

Every load of a file asks, so it costs one short read and imports no converter. Not here: converting.
"""

from __future__ import annotations

import enum
import os
import re
from pathlib import Path

from toktier.regular_files import open_regular

HEAD = 8192  # bytes: what stands first in a tekken file, its pattern, has about 600
_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]{1,2048}={0,2} [0-9]{1,10}\r?\n")  # its reader refuses \r, and says where it is
_TEKKEN = (b'"config"', b'"default_vocab_size"', b'"default_num_special_tokens"')


class VocabularyFormat(enum.StrEnum):
    RANKS = "ranks"
    TEKKEN = "tekken"


def vocabulary_format(path: str | os.PathLike[str]) -> VocabularyFormat | None:
    """None for every other file, and for what cannot be read: the reader of a tokenizer.json says best why."""
    try:
        with open_regular(Path(path)) as stream:
            head = stream.read(HEAD) or b""
    except OSError:
        return None
    if _RANK_LINE.match(head):
        return VocabularyFormat.RANKS
    if head.lstrip()[:1] == b"{" and all(key in head for key in _TEKKEN):
        return VocabularyFormat.TEKKEN
    return None
