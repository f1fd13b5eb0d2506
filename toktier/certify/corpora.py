"""Corpora: files and directories of documents, read as streams, known by digests and sizes, never by their text.

A path is a text file (one document), JSONL (a line a document: a string, an object with "text" or "content", or chat
messages), either inside zstd, or a directory of these, hidden files aside. Reading a corpus once gives its digest and
the places where blocks of documents begin; a block is then read from its place. A compressed file has no places to jump
to: whoever asks for blocks in ascending order unpacks it once, without keeping it.

Names and places decide nothing: the files of a directory are taken in the order of the digests of their documents, so
that the same files in another directory, under other names, are the same corpus with the same blocks. Only the ending
of a name says how a file is read.

A document that is no text, or longer than MAX_DOCUMENT_BYTES, is skipped, counted by reason and named by file and byte.
Documents are never cut. Not here: what is compared (`suites/corpus`).
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from toktier.canonical import canonical_json
from toktier.certify.conversations import Messages
from toktier.errors import EvidenceIncomplete
from toktier.labels import shown, shown_path
from toktier.regular_files import open_regular

MAX_DOCUMENT_BYTES = 16 << 20
MAX_LINE_BYTES = 6 * MAX_DOCUMENT_BYTES + 4096  # of JSONL: every byte of a document may be written as \u00XX
MAX_ZSTD_WINDOW = 1 << 27
BLOCK_BYTES = 256 << 10  # of documents: a tenth of a second of the reference
MAX_PLACES = 20  # of skipped documents named; all are counted
JSONL = (".jsonl", ".ndjson")
ZSTD = ".zst"
_CHUNK = 1 << 20
_PACKED_CHUNK = 1 << 12  # unpacks to 128 MiB at most


class Skipped(StrEnum):
    """Why a document is none that can be compared."""

    NOT_UTF8 = "not UTF-8"
    NOT_JSON = "not JSON"
    NO_TEXT = "no text"
    TOO_LONG = "longer than 16 MiB"


Document = str | Messages


@dataclass(frozen=True, slots=True)
class Stretch:
    """`documents` documents from byte `offset` (unpacked) of a file on. `sha256` (hex) is over their digests, `size`
    what they fill of a block."""

    offset: int
    documents: int
    sha256: str
    size: int


Block = tuple[tuple[int, Stretch], ...]
"""Stretches, each with the number of its file: what is read together."""


@dataclass(frozen=True)
class Corpus:
    """`sha256` (hex) is over the digests of its files in ascending order, and that of a file is over the digests of its
    documents: of the UTF-8 of a text, of the canonical JSON of messages. `files` are in that order. `utf8_bytes`: of
    texts and of contents of messages. `skipped_places`: the first ones, by digest of the file (12 digits) and byte.
    `name` is for people, and in nothing that has a digest."""

    name: str
    sha256: str
    documents: int
    utf8_bytes: int
    files: tuple[Path, ...] = field(repr=False)
    blocks: tuple[Block, ...] = field(repr=False)
    skipped: Mapping[str, int] = field(default_factory=dict)
    skipped_places: tuple[str, ...] = ()


def read_corpus(path: Path, name: str | None = None) -> Corpus:
    """Reads all of it once. Raises EvidenceIncomplete where it is missing or cannot be read to its end."""
    files = sorted(map(_read_file, _files(path)), key=lambda file: (file.sha256, file.places))
    skipped: Counter[str] = Counter()
    for file in files:
        skipped.update(file.skipped)
    places = [f"{file.sha256[:12]}:{place}" for file in files for place in file.places]
    return Corpus(
        name or shown(path.resolve().name),
        hashlib.sha256(b"".join(bytes.fromhex(file.sha256) for file in files)).hexdigest(),
        sum(stretch.documents for file in files for stretch in file.stretches),
        sum(file.utf8_bytes for file in files),
        tuple(file.path for file in files),
        tuple(_blocks(files)),
        dict(sorted(skipped.items())),
        tuple(places[:MAX_PLACES]),
    )


@dataclass(frozen=True, slots=True)
class _File:
    """What one pass over a file gives. `places`: bytes of the first skipped documents."""

    path: Path
    sha256: str
    utf8_bytes: int
    stretches: tuple[Stretch, ...]
    skipped: Counter[str]
    places: tuple[int, ...]


def _read_file(source: Path) -> _File:
    whole, part = hashlib.sha256(), hashlib.sha256()
    stretches: list[Stretch] = []
    skipped: Counter[str] = Counter()
    places: list[int] = []
    utf8_bytes = begin = held = held_bytes = 0
    for offset, item in _items(source, 0, None):
        if isinstance(item, _Skip):
            skipped[item.reason.value] += 1
            if len(places) < MAX_PLACES:
                places.append(item.offset)
            continue
        if not held:
            begin = offset
        digest, size = _measured(item)
        whole.update(digest)
        part.update(digest)
        utf8_bytes += size
        held, held_bytes = held + 1, held_bytes + size + 64  # empty documents fill a block too
        if held_bytes >= BLOCK_BYTES:
            stretches.append(Stretch(begin, held, part.hexdigest(), held_bytes))
            part, held, held_bytes = hashlib.sha256(), 0, 0
    if held:
        stretches.append(Stretch(begin, held, part.hexdigest(), held_bytes))
    return _File(source, whole.hexdigest(), utf8_bytes, tuple(stretches), skipped, tuple(places))


def _blocks(files: Sequence[_File]) -> Iterator[Block]:
    """Stretches in order, so many that they fill a block: small files go together."""
    held, size = list[tuple[int, Stretch]](), 0
    stretches = [(number, stretch) for number, file in enumerate(files) for stretch in file.stretches]
    for number, stretch in stretches:
        held.append((number, stretch))
        size += stretch.size
        if size >= BLOCK_BYTES:
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)


def read_corpora(paths: Sequence[Path]) -> tuple[Corpus, ...]:
    """Each path once, in order; equal names are told apart by a number."""
    seen: Counter[str] = Counter()
    corpora = []
    for path in paths:
        name = shown(path.resolve().name)
        seen[name] += 1
        corpora.append(read_corpus(path, name if seen[name] == 1 else f"{name}#{seen[name]}"))
    return tuple(corpora)


class BlockReader:
    """Reads blocks of one corpus; asked in ascending order it unpacks each compressed file once. For one process: a
    fork begins anew."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._pid = 0
        self._open: dict[int, _Stream] = {}

    def documents(self, number: int) -> list[Document]:
        """Documents of block `number`. Raises EvidenceIncomplete when they are not those of the plan."""
        if self._pid != os.getpid():
            self._pid, self._open = os.getpid(), {}
        found: list[Document] = []
        for file, stretch in self._corpus.blocks[number]:
            documents = self._stretch(file, stretch)
            digests = b"".join(_measured(document)[0] for document in documents)
            if hashlib.sha256(digests).hexdigest() != stretch.sha256:
                raise EvidenceIncomplete(
                    f"corpus {shown(self._corpus.name)} is not what it was when the run was planned",
                    details={"corpus": self._corpus.name, "block": number},
                    remedy="leave the files as they are while a run goes on, and plan anew",
                )
            found += documents
        return found

    def _stretch(self, file: int, stretch: Stretch) -> list[Document]:
        source = self._corpus.files[file]
        stream = self._open.get(file)
        if stream is None or not stream.reaches(stretch.offset):
            stream = _Stream(source)
        self._open = {file: stream}
        documents = (item for _, item in _items(source, stretch.offset, stream) if not isinstance(item, _Skip))
        return list(itertools.islice(documents, stretch.documents))


@dataclass(frozen=True, slots=True)
class _Skip:
    reason: Skipped
    offset: int  # byte of the file, unpacked


class _Unpacked(io.RawIOBase):
    """The content of a zstd file of one frame or more; one that ends inside a frame, or has none, is an OSError."""

    def __init__(self, raw: io.RawIOBase) -> None:
        import zstandard

        self._raw, self._ready, self._rest = raw, b"", b""
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
        self._frame: Any = None
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._rest or self._raw.read(_PACKED_CHUNK) or b""
            if self._frame is None and data:
                self._frame, self._begun = self._decompressor.decompressobj(), True
            elif not data:
                if self._frame is not None or not self._begun:
                    raise OSError("the compressed data end early")
                return 0
            self._ready, self._rest = self._frame.decompress(data), self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


class _Stream:
    """The unpacked bytes of a file, and where reading stands."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes]
        self._seekable = path.suffix != ZSTD
        self.offset = 0
        try:
            raw = open_regular(path)
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from None
        if self._seekable:
            self._file = io.BufferedReader(raw, _CHUNK)
        else:
            self._file = io.BufferedReader(_Unpacked(raw), _CHUNK)

    def reaches(self, offset: int) -> bool:
        """Whether `offset` can be had without opening the file again."""
        return self._seekable or offset >= self.offset

    def go_to(self, offset: int) -> None:
        if self._seekable:
            self._file.seek(offset)
            self.offset = offset
        while self.offset < offset:
            if not self.read(min(_CHUNK, offset - self.offset)):
                break

    def read(self, size: int) -> bytes:
        return self._take(lambda: self._file.read(size))

    def line(self) -> bytes:
        """The next line with its end, or its first MAX_LINE_BYTES."""
        return self._take(lambda: self._file.readline(MAX_LINE_BYTES))

    def _take(self, read: Any) -> bytes:
        import zstandard

        try:
            data: bytes = read()
        except (OSError, zstandard.ZstdError) as error:
            raise _unreadable(self._path, str(error)) from None
        self.offset += len(data)
        return data


def _unreadable(path: Path, reason: str) -> EvidenceIncomplete:
    return EvidenceIncomplete(
        f"corpus file {shown_path(path)} cannot be read to its end: {shown(reason, 200)}",
        details={"path": str(path)},
        remedy="bring the file again, or leave it out",
    )


def _files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise EvidenceIncomplete(
            f"corpus {shown_path(path)} does not exist", details={"path": str(path)}, remedy="check the path"
        )
    if not path.is_dir():
        yield path
        return

    def fail(error: OSError) -> None:
        raise _unreadable(Path(str(error.filename)), error.strerror or str(error))

    for directory, names, files in os.walk(path, onerror=fail):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(directory, name)


def _items(source: Path, offset: int, stream: _Stream | None) -> Iterator[tuple[int, Document | _Skip]]:
    """Documents of a file from `offset` on, each with the byte where it begins."""
    stream = stream or _Stream(source)
    stream.go_to(offset)
    plain = source.with_suffix("") if source.suffix == ZSTD else source
    if plain.suffix.lower() in JSONL:
        yield from _lines(stream)
        return
    data = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        yield offset, _Skip(Skipped.TOO_LONG, offset)
        return
    yield offset, _decoded(data, offset)


def _lines(stream: _Stream) -> Iterator[tuple[int, Document | _Skip]]:
    while True:
        begin = stream.offset
        line = stream.line()
        if not line:
            return
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := stream.line()) and not rest.endswith(b"\n"):
                pass
            yield begin, _Skip(Skipped.TOO_LONG, begin)
        elif line.strip():
            yield begin, _of_line(line, begin)


def _of_line(line: bytes, begin: int) -> Document | _Skip:
    text = _decoded(line, begin)
    if isinstance(text, _Skip):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _Skip(Skipped.NOT_JSON, begin)
    document = _document(value)
    if document is None:
        return _Skip(Skipped.NO_TEXT, begin)
    try:
        size = _measured(document)[1]
    except UnicodeEncodeError:  # a lone surrogate, written as an escape
        return _Skip(Skipped.NOT_UTF8, begin)
    return document if size <= MAX_DOCUMENT_BYTES else _Skip(Skipped.TOO_LONG, begin)


def _decoded(data: bytes, begin: int) -> str | _Skip:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return _Skip(Skipped.NOT_UTF8, begin + error.start)


def _document(value: Any) -> Document | None:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for name in ("text", "content"):
            if isinstance(value.get(name), str):
                return str(value[name])
        value = value.get("messages")
    if not isinstance(value, list) or not value:
        return None
    messages: list[tuple[str, str]] = []
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role", ""), str):
            return None
        content = message.get("content")
        if isinstance(content, list):  # parts, of which some are texts
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            content = "".join(text for text in texts if isinstance(text, str))
        if content is not None and not isinstance(content, str):
            return None
        messages.append((message.get("role", ""), content or ""))
    return tuple(messages)


def _measured(document: Document) -> tuple[bytes, int]:
    """Digest and size of a document. Raises UnicodeEncodeError for lone surrogates."""
    if isinstance(document, str):
        data = document.encode()
        return hashlib.sha256(data).digest(), len(data)
    data = canonical_json([list(message) for message in document])
    return hashlib.sha256(data).digest(), sum(len(content.encode()) for _, content in document)
