"""Reads what is needed of a 64-bit little-endian ELF file: sections, symbols, notes; and nothing on trust.

Every offset and size is held to the file before it is used, every count to what the file can hold, so that any bytes
give an answer or NotElf, in time and memory of the order of the file. Not here: what a cubin must hold (`cubin`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MACHINE_CUDA = 190
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")
_SYMTAB, _NOTES, _NOBITS = 2, 7, 8
_FUNC, _GLOBAL = 2, 1
_MAX_NAME = 4096  # bytes; names of ours are short, and each is looked for in the string table


class NotElf(ValueError):
    """Bytes that are no whole ELF file of this kind; the message is a clause."""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    kind: int
    begin: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """`section`: its index; `value`: offset in it."""

    name: str
    is_function: bool
    is_global: bool
    section: int
    value: int
    size: int


class Elf:
    """A file, its sections read. Raises NotElf here and in every method."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if len(data) < _HEADER.size:
            raise NotElf("it is shorter than an ELF header")
        ident, _, self.machine, _, _, _, at, self.flags, _, _, _, entry, count, names = _HEADER.unpack_from(data)
        self.abi_version = ident[8]
        if ident[:6] != b"\x7fELF\x02\x01":
            raise NotElf("it is no 64-bit little-endian ELF file")
        if count and entry != _SECTION.size:
            raise NotElf("its section headers have another size")
        self._within(at, count * _SECTION.size, "section headers")
        raw = [_SECTION.unpack_from(data, at + i * _SECTION.size) for i in range(count)]
        if count and names >= count:
            raise NotElf("it names no section of names")
        strings = b""
        if count:
            _, kind, _, _, begin, size, _, _, _, _ = raw[names]
            strings = self._content(kind, begin, size)
        self.sections = [
            Section(_string(strings, name), kind, begin, size, link)
            for name, kind, _, _, begin, size, link, _, _, _ in raw
        ]

    def _within(self, begin: int, size: int, what: str) -> None:
        if begin + size > len(self.data):
            raise NotElf(f"its {what} lie outside of the file")

    def _content(self, kind: int, begin: int, size: int) -> bytes:
        if kind == _NOBITS:
            return b""
        self._within(begin, size, "sections")
        return self.data[begin : begin + size]

    def content(self, section: Section) -> bytes:
        return self._content(section.kind, section.begin, section.size)

    def symbols(self) -> Iterator[Symbol]:
        """Symbols with a name, of every symbol table."""
        for section in self.sections:
            if section.kind != _SYMTAB:
                continue
            if section.link >= len(self.sections):
                raise NotElf("a symbol table has no names")
            table, strings = self.content(section), self.content(self.sections[section.link])
            for i in range(len(table) // _SYMBOL.size):
                name, info, _, index, value, size = _SYMBOL.unpack_from(table, i * _SYMBOL.size)
                if name:
                    yield Symbol(_string(strings, name), info & 15 == _FUNC, info >> 4 == _GLOBAL, index, value, size)

    def bytes_of(self, symbol: Symbol) -> bytes:
        """What lies at a symbol."""
        if symbol.section >= len(self.sections):
            raise NotElf(f"{symbol.name} lies in no section")
        content = self.content(self.sections[symbol.section])
        if symbol.value + symbol.size > len(content):
            raise NotElf(f"{symbol.name} lies outside of its section")
        return content[symbol.value : symbol.value + symbol.size]

    def notes(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Type and content of each note in the sections of this name."""
        for section in self.sections:
            if section.name != name or section.kind != _NOTES:
                continue
            content, at = self.content(section), 0
            while at + _NOTE.size <= len(content):
                owner, size, kind = _NOTE.unpack_from(content, at)
                begin = at + _NOTE.size + (owner + 3) // 4 * 4
                if begin + size > len(content):
                    raise NotElf(f"a note of {name} is longer than its section")
                yield kind, content[begin : begin + size]
                at = begin + (size + 3) // 4 * 4


def _string(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at, at + _MAX_NAME)
    if end < 0:
        raise NotElf("a name has no end")
    return strings[at:end].decode("utf-8", "backslashreplace")
