"""What the boundary step must say of a document: added tokens found by a regular expression, and between them the
pieces that the CPU engine's two passes find. Not here: documents that a kernel leaves to the CPU.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

from tests.support import emulated_pipeline
from tests.support.emulated_pipeline import BOUNDARIES, Document
from toktier import _native
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program
from toktier.program.meta import read_meta


class Pieces(NamedTuple):
    begins: list[int]
    dropped: list[int]
    covered: list[int]
    tokens: list[tuple[int, int]]


class Tokenizer:
    """A tokenizer.json as a program, its device image, and its added tokens."""

    def __init__(self, data: bytes) -> None:
        file = compile_tokenizer(data)
        self.program = _native.Program(file)
        self.image = _native.device_tables(self.program)
        self._meta = read_meta(read_program(file).section("META"))
        added: list[dict[str, Any]] = json.loads(data)["added_tokens"]
        self.ids = {t["content"].encode(): self.program.token_to_id(t["content"]) for t in added if t["content"]}
        self.special = {token["content"].encode() for token in added if token["special"]}

    @cached_property
    def characters(self) -> list[str]:
        """One of each class of the pre-tokenizer."""
        return [chr(code_point) for code_point in self._meta["boundary"]["representatives"]]

    @cached_property
    def matcher(self) -> re.Pattern[bytes]:
        """Leftmost and longest."""
        longest_first = sorted(self.ids, key=len, reverse=True)
        return re.compile(b"|".join(map(re.escape, longest_first)) or b"(?!)")

    def pieces(self, document: bytes, plain: bool = False) -> Pieces:
        """Of text in which no two added tokens overlap."""
        out = Pieces([], [], [], [])
        end = 0
        for match in itertools.chain(self.matcher.finditer(document), [None]):
            if match is not None and plain and match[0] in self.special:
                continue
            begin = len(document) if match is None else match.start()
            self._segment(document[end:begin], end, out)
            if match is not None:
                end = match.end()
                out.begins.append(begin)
                out.covered.extend(range(begin, end))
                out.tokens.append((begin, self.ids[match[0]]))
        return out

    def _segment(self, segment: bytes, at: int, out: Pieces) -> None:
        if not segment:
            return
        boundaries, dropped = self.program.split(segment, two_pass=True)
        begins = [at, *(at + boundary for boundary in boundaries)]
        out.begins.extend(begins)
        out.dropped.extend(begin for begin, drops in zip(begins, dropped, strict=True) if drops)

    def run(self, documents: Iterable[bytes], **options: Any) -> list[Document]:
        return emulated_pipeline.run(self.image, list(documents), last=BOUNDARIES, **options)

    def check(self, documents: list[bytes], **options: Any) -> None:
        """The kernels flag nothing, and find what is expected."""
        for document, found in zip(documents, self.run(documents, **options), strict=True):
            assert found.flags == 0, document
            expected = self.pieces(document, options.get("plain", False))
            assert (found.pieces, found.dropped, found.covered, found.tokens) == expected, document
