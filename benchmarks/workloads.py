"""What is encoded: one function for each workload, made anew from the same material, the same in every run.

Texts come from the corpora beside the repository (`../shared/corpus`), or from the small texts of the tests where those
are missing (`sample`). A workload whose material is missing is left out of a run and named. Not here: how it is timed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from toktier.certify.conversations import render

ROOT = Path(__file__).resolve().parent.parent
CORPORA = ROOT.parent / "shared" / "corpus"
SAMPLES = ROOT / "tests" / "data" / "text"
LANGUAGES = ("english", "code", "zh", "ja", "ru", "de", "fr", "handbook")
DOCUMENT_BYTES = 4_000_000  # of documents in one pass: several times the second-level cache of a processor
PIECE_BYTES = 300_000
CALLS = 2_000  # of a short text in one timed section: its str objects fit into the second-level cache


class Missing(Exception):
    """The material of a workload is not on this machine."""


@dataclass(frozen=True)
class Workload:
    """`kind`: passes over `texts`, or calls on them in turn (`calls` a section)."""

    name: str
    kind: str
    texts: tuple[str, ...]
    calls: int = 0

    @property
    def utf8_bytes(self) -> int:
        return sum(len(text.encode()) for text in self.texts)


@dataclass(frozen=True)
class Material:
    """What a workload is made of: where corpora lie, how many bytes of each, and the added tokens at hand."""

    corpora: Path = CORPORA
    document_bytes: int = DOCUMENT_BYTES
    piece_bytes: int = PIECE_BYTES
    calls: int = CALLS
    added: Sequence[str] = ()

    def lines(self, name: str) -> Iterator[object]:
        """The items of a corpus in order, each read when it is asked for."""
        import zstandard

        path = self.corpora / f"{name}.jsonl.zst"
        if not path.is_file():
            raise Missing(f"the corpus {name}")
        with path.open("rb") as packed:
            held = b""
            reader = zstandard.ZstdDecompressor().stream_reader(packed)
            while block := reader.read(1 << 20):
                *whole, held = (held + block).split(b"\n")
                yield from map(json.loads, filter(None, whole))
            if held:
                yield json.loads(held)


def up_to(texts: Iterator[str], limit: int) -> tuple[str, ...]:
    """Texts from the front until `limit` bytes of UTF-8 are reached; the last one is whole."""
    found: list[str] = []
    size = 0
    for text in texts:
        if size >= limit:
            break
        found.append(text)
        size += len(text.encode())
    return tuple(found)


def documents(name: str, material: Material) -> Workload:
    """Distinct documents of a corpus."""
    texts = up_to((text for text in material.lines(name) if isinstance(text, str)), material.document_bytes)
    return Workload(name, "passes", texts)


def sample(material: Material) -> Workload:
    """The small texts of the repository: there on every machine, and too small for anything but a trial."""
    texts = tuple(path.read_text(encoding="utf-8") for path in sorted(SAMPLES.glob("*.txt")))
    return Workload("sample", "passes", texts)


def hello(material: Material) -> Workload:
    """The shortest text that anyone measures."""
    return Workload("hello", "calls", ("hello world",), material.calls)


def ascii_256(material: Material) -> Workload:
    """256 ASCII characters of prose."""
    text = (SAMPLES / "english.txt").read_text(encoding="utf-8")
    return Workload("ascii_256", "calls", ("".join(c for c in text if c.isascii())[:256],), material.calls)


def non_ascii_256(material: Material) -> Workload:
    """256 characters of several scripts, white space between the words and no other ASCII."""
    text = (SAMPLES / "languages.txt").read_text(encoding="utf-8")
    kept = "".join(c for c in text if not c.isascii() or c == " ")
    return Workload("non_ascii_256", "calls", (" ".join(kept.split())[:256],), material.calls)


def distinct_256(material: Material) -> Workload:
    """Many different texts of 256 characters: what short requests are like, each one met once a section."""
    whole = "".join(text for text in up_to((str(t) for t in material.lines("english")), 300 * material.calls))
    texts = tuple(whole[at : at + 256] for at in range(0, len(whole) - 255, 256))[: material.calls]
    return Workload("distinct_256", "calls", texts, len(texts))


def long_text(megabytes: int, material: Material) -> Workload:
    """One text of so many megabytes: documents of every corpus in turn, joined by blank lines."""
    sources = [iter(documents(name, material).texts) for name in LANGUAGES]
    limit = megabytes * min(1_000_000, material.document_bytes)

    def in_turn() -> Iterator[str]:
        while sources:
            for source in list(sources):
                text = next(source, None)
                if text is None:
                    sources.remove(source)
                else:
                    yield text + "\n\n"

    return Workload(f"long_{megabytes}mb", "passes", ("".join(up_to(in_turn(), limit)),))


def agent_chats(material: Material) -> Workload:
    """Transcripts of agents, rendered with the special tokens of the tokenizer at hand."""

    def rendered() -> Iterator[str]:
        for chat in material.lines("agent_chats"):
            assert isinstance(chat, list)
            yield render(tuple((str(m["role"]), str(m["content"])) for m in chat), material.added)

    return Workload("agent_chats", "passes", up_to(rendered(), material.document_bytes))


def hostile_letter(material: Material) -> Workload:
    """One letter over and over."""
    return Workload("hostile_letter", "passes", ("a" * material.piece_bytes,))


def hostile_spaces(material: Material) -> Workload:
    """Spaces alone."""
    return Workload("hostile_spaces", "passes", (" " * material.piece_bytes,))


def hostile_dashes(material: Material) -> Workload:
    """Dashes alone."""
    return Workload("hostile_dashes", "passes", ("-" * material.piece_bytes,))


def hostile_random(material: Material) -> Workload:
    """Random letters without a blank."""
    chosen = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=material.piece_bytes)
    return Workload("hostile_random", "passes", ("".join(chosen),))


def hostile_emoji(material: Material) -> Workload:
    """Random emoji: four bytes each, and no blank."""
    chosen = random.Random(2).choices([chr(c) for c in range(0x1F600, 0x1F650)], k=material.piece_bytes // 4)
    return Workload("hostile_emoji", "passes", ("".join(chosen),))


def hostile_zalgo(material: Material) -> Workload:
    """Letters under heaps of combining marks in random order: a normalizer has to sort them."""
    chance = random.Random(3)
    marks = [chr(c) for c in range(0x300, 0x370)]
    text, size = [], 0
    while size < material.piece_bytes:
        heap = chance.choice("abcdefghijklmnopqrstuvwxyz") + "".join(chance.choices(marks, k=chance.randint(1, 12)))
        text.append(heap)
        size += 2 * len(heap) - 1
    return Workload("hostile_zalgo", "passes", ("".join(text),))


WORKLOADS: dict[str, Callable[[Material], Workload]] = {
    **{name: (lambda material, name=name: documents(name, material)) for name in LANGUAGES},
    "agent_chats": agent_chats,
    "hello": hello,
    "ascii_256": ascii_256,
    "non_ascii_256": non_ascii_256,
    "distinct_256": distinct_256,
    **{f"long_{n}mb": (lambda material, n=n: long_text(n, material)) for n in (1, 2, 5)},
    "hostile_letter": hostile_letter,
    "hostile_spaces": hostile_spaces,
    "hostile_dashes": hostile_dashes,
    "hostile_random": hostile_random,
    "hostile_emoji": hostile_emoji,
    "hostile_zalgo": hostile_zalgo,
    "sample": sample,
}
GROUPS: dict[str, tuple[str, ...]] = {
    "documents": LANGUAGES,
    "short": ("hello", "ascii_256", "non_ascii_256", "distinct_256"),
    "long": ("long_1mb", "long_2mb", "long_5mb"),
    "hostile": tuple(name for name in WORKLOADS if name.startswith("hostile_")),
}
