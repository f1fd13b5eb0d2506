"""Hostile program files: every damaged table is refused with its section's name, or harmless. The fuzz target
(native/fuzz) goes further under sanitizers; this suite names the faults one by one.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from tests.support.engine_pair import Pair
from tests.support.tokenizer_maker import encoded, small
from toktier import _native
from toktier.program import layout
from toktier.program.compile import compile_tokenizer

Sections = dict[str, bytearray]
NONE = layout.NONE
TEXT = "It's 1234 — a test: é e\u0301 中文 한국 <s> <|endoftext|>\n\n  x'LL \u1100\u1161"


def read_sections(image: bytes) -> Sections:
    (count,) = struct.unpack_from("<I", image, 12)
    out: Sections = {}
    for i in range(count):
        tag, _, offset, length, _ = struct.unpack_from("<4sIQQQ", image, layout.HEADER_SIZE + i * layout.ENTRY_SIZE)
        out[tag.decode()] = bytearray(image[offset : offset + length])
    return out


def write_sections(sections: Sections, **header: int) -> bytes:
    """A program file of the sections; the digest stays zero, which the engine does not look at."""
    body, table = bytearray(), bytearray()
    start = layout.HEADER_SIZE + len(sections) * layout.ENTRY_SIZE
    for tag, data in sections.items():
        body += bytes(-(start + len(body)) % layout.ALIGNMENT)
        table += struct.pack("<4sIQQQ", tag.encode(), layout.SECTIONS.get(tag, 1), start + len(body), len(data), 0)
        body += data
    size = start + len(body)
    head = layout.MAGIC + struct.pack(
        "<IIQ",
        header.get("version", layout.FORMAT_VERSION),
        header.get("count", len(sections)),
        header.get("size", size),
    )
    return head + bytes(layout.HEADER_SIZE - len(head)) + bytes(table) + bytes(body)


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    names = ("cl100k_like", "gpt2_like", "llama_like")
    return {name: Pair(small(name)).image for name in names}


@pytest.fixture(scope="module")
def sections(images: dict[str, bytes]) -> dict[str, Sections]:
    return {name: read_sections(image) for name, image in images.items()}


def test_rewritten_file_opens(images: dict[str, bytes], sections: dict[str, Sections]) -> None:
    for name, image in images.items():
        again = _native.EncoderBase(_native.Program(write_sections(sections[name])))
        assert again.encode(TEXT).ids == _native.EncoderBase(_native.Program(image)).encode(TEXT).ids


def put(data: bytearray, index: int, value: int) -> None:
    struct.pack_into("<I", data, index * 4, value)


def conf(field: layout.Conf, value: int) -> Callable[[Sections], None]:
    return lambda s: put(s["CONF"], field, value)


def word(tag: str, index: int, value: int) -> Callable[[Sections], None]:
    return lambda s: put(s[tag], index, value)


def byte(tag: str, index: int, value: int) -> Callable[[Sections], None]:
    return lambda s: s[tag].__setitem__(index, value)


def cut(tag: str, count: int) -> Callable[[Sections], None]:
    return lambda s: s.__setitem__(tag, s[tag][:-count])


def fill(tag: str, value: int) -> Callable[[Sections], None]:
    return lambda s: s.__setitem__(tag, bytearray([value]) * len(s[tag]))


def drop(tag: str) -> Callable[[Sections], None]:
    return lambda s: s.__setitem__(tag, bytearray())


COMPACT = {"PAIR": ("MDIS", "MENT"), "PHSH": ("PLIN", "PKEY"), "VHSH": ("VLIN",)}


def wide(tag: str, values: list[int]) -> Callable[[Sections], None]:
    """The wide form with these words in place of the compact one."""

    def change(s: Sections) -> None:
        s.update(dict.fromkeys(COMPACT[tag], bytearray()))
        s[tag] = bytearray(struct.pack(f"<{len(values)}I", *values))

    return change


def entry(left: int, right: int, order: int) -> bytes:
    return struct.pack("<Q", left << 44 | right << 24 | order)


FAULTS: dict[str, tuple[str, str, Callable[[Sections], None]]] = {
    "no CONF": ("cl100k_like", "CONF", drop("CONF")),
    "unknown model": ("cl100k_like", "CONF", conf(layout.Conf.MODEL, 2)),
    "unknown flag": ("cl100k_like", "CONF", conf(layout.Conf.FLAGS, 1 << 9)),
    "unk_id beyond": ("cl100k_like", "CONF", conf(layout.Conf.UNK_ID, 1 << 30)),
    "n_ids too large": ("cl100k_like", "STRO", conf(layout.Conf.N_IDS, 1 << 30)),
    "more classes": ("cl100k_like", "LEFT", conf(layout.Conf.N_CLASS, 200)),
    "fewer classes": ("cl100k_like", "CLS2", conf(layout.Conf.N_CLASS, 3)),
    "left start beyond": ("cl100k_like", "CONF", conf(layout.Conf.LEFT_START, 99)),
    "right end beyond": ("cl100k_like", "CONF", conf(layout.Conf.RIGHT_END, 99)),
    "token start beyond": ("cl100k_like", "CONF", conf(layout.Conf.TOKEN_START, 9999)),
    "unknown join": ("cl100k_like", "CONF", conf(layout.Conf.JOIN_KIND, 3)),
    "join of the other model": ("cl100k_like", "CONF", conf(layout.Conf.JOIN_KIND, 2)),
    "block beyond": ("cl100k_like", "CLS1", lambda s: s["CLS1"].__setitem__(slice(0, 2), b"\xff\xff")),
    "half a block": ("cl100k_like", "CLS1", cut("CLS2", 1)),
    "class beyond": ("cl100k_like", "CLS2", byte("CLS2", 70, 250)),
    "left state beyond": ("cl100k_like", "LEFT", byte("LEFT", 0, 250)),
    "right state beyond": ("cl100k_like", "RGHT", byte("RGHT", 0, 250)),
    "matrix value": ("cl100k_like", "BMAT", byte("BMAT", 0, 3)),
    "next state beyond": ("cl100k_like", "TRAN", lambda s: s["TRAN"].__setitem__(slice(0, 2), b"\xff\xff")),
    "action on nothing pending": ("cl100k_like", "TACT", fill("TACT", 0x54)),
    "everything becomes pending": ("cl100k_like", "TRAN", fill("TACT", 3)),
    "end of nothing pending": ("cl100k_like", "TEOF", fill("TEOF", 0x55)),
    "cut tables": ("cl100k_like", "CUT2", cut("CUT2", 1)),
    "inner cut tables": ("cl100k_like", "CUTI", cut("CUTI", 1)),
    "inner cut value": ("cl100k_like", "CUTI", byte("CUTI", 0, 2)),
    "added tokens without pairs": ("cl100k_like", "GPAR", drop("GPAR")),
    "pairs missing": ("cl100k_like", "GPAR", cut("GPAR", 1)),
    "added tokens without edges": ("cl100k_like", "GBYT", drop("GBYT")),
    "edge unknown": ("cl100k_like", "GBYT", byte("GBYT", 0, 0x40)),
    "normalizer without guards": ("llama_like", "GCP1", lambda s: s.update(GCP1=bytearray(), GCP2=bytearray())),
    "guard unknown": ("llama_like", "GCP2", byte("GCP2", 0, 0x20)),
    "guard block beyond": ("llama_like", "GCP1", lambda s: s["GCP1"].__setitem__(slice(0, 2), b"\xff\xff")),
    "image no scalar": ("llama_like", "GIMG", word("GIMG", 1, 0xD800)),
    "half an image": ("llama_like", "GIMG", cut("GIMG", 4)),
    "strings descend": ("cl100k_like", "STRO", word("STRO", 1, 1 << 30)),
    "raw bytes beyond": ("cl100k_like", "RAWO", lambda s: put(s["RAWO"], len(s["RAWO"]) // 4 - 1, 1 << 30)),
    "string no UTF-8": ("cl100k_like", "STRB", byte("STRB", 0, 0xFF)),
    "string inside a character": ("cl100k_like", "STRO", lambda s: s["STRB"].__setitem__(slice(0, 2), "é".encode())),
    "flag unknown": ("cl100k_like", "TFLG", byte("TFLG", 0, 0x80)),
    "piece id beyond": ("cl100k_like", "PLIN", word("PLIN", 0, 0xFFFFE)),
    "piece lines full": ("cl100k_like", "PLIN", fill("PLIN", 0)),
    "half a line of pieces": ("cl100k_like", "PLIN", cut("PLIN", 4)),
    "piece records missing": ("cl100k_like", "PKEY", drop("PKEY")),
    "half a piece record": ("cl100k_like", "PKEY", cut("PKEY", 8)),
    "records of no pieces": ("cl100k_like", "PKEY", drop("PLIN")),
    "both forms of pieces": ("cl100k_like", "PHSH", lambda s: s.update(PHSH=s["PLIN"])),
    "string id beyond": ("cl100k_like", "VLIN", word("VLIN", 0, 0xFFFFE)),
    "string lines full": ("cl100k_like", "VLIN", fill("VLIN", 0)),
    "both forms of strings": ("cl100k_like", "VHSH", lambda s: s.update(VHSH=s["VLIN"])),
    "wide piece id beyond": ("cl100k_like", "PHSH", wide("PHSH", [1 << 30, NONE])),
    "wide piece table full": ("cl100k_like", "PHSH", wide("PHSH", [0, 0])),
    "wide piece table of odd size": ("cl100k_like", "PHSH", wide("PHSH", [NONE] * 3)),
    "wide string id beyond": ("cl100k_like", "VHSH", wide("VHSH", [1 << 30, NONE])),
    "wide string table full": ("cl100k_like", "VHSH", wide("VHSH", [0])),
    "pair left beyond": ("cl100k_like", "MENT", lambda s: s["MENT"].__setitem__(slice(0, 8), entry(0xFFFFE, 0, 300))),
    "pair right beyond": ("cl100k_like", "MENT", lambda s: s["MENT"].__setitem__(slice(0, 8), entry(0, 0xFFFFE, 300))),
    "pair order beyond": ("cl100k_like", "MENT", lambda s: s["MENT"].__setitem__(slice(0, 8), entry(0, 0, 0xFFFFE))),
    "pair order beyond products": ("cl100k_like", "MENT", lambda s: s.update(MPRD=bytearray(4))),
    "product beyond": ("cl100k_like", "MPRD", lambda s: s.update(MPRD=bytearray(b"\xff\xff\xff\xff"))),
    "pairs without displacement": ("cl100k_like", "MDIS", drop("MDIS")),
    "displacement of odd size": ("cl100k_like", "MDIS", cut("MDIS", 1)),
    "displacement without pairs": ("cl100k_like", "MENT", drop("MENT")),
    "both forms of pairs": ("cl100k_like", "PAIR", lambda s: s.update(PAIR=bytearray(b"\xff" * 24))),
    "wide pair id beyond": ("cl100k_like", "PAIR", wide("PAIR", [1 << 30, 0, 0, NONE, NONE, NONE])),
    "wide pair order beyond": ("cl100k_like", "PAIR", wide("PAIR", [0, 0, 1 << 30, NONE, NONE, NONE])),
    "wide pair table full": ("cl100k_like", "PAIR", wide("PAIR", [0, 0, 0, 0, 0, 0])),
    "wide pair table of odd size": ("cl100k_like", "PAIR", wide("PAIR", [NONE] * 9)),
    "filter of odd size": ("cl100k_like", "JCHR", cut("JCHR", 4)),
    "filter of fragments of odd size": ("cl100k_like", "JFRG", lambda s: s.update(JFRG=bytearray(12))),
    "filter of fragments alone": ("cl100k_like", "JFRG", lambda s: s.update(JFRG=bytearray(8), JCHR=bytearray())),
    "byte symbol beyond": ("cl100k_like", "BSYM", word("BSYM", 65, 1 << 30)),
    "byte symbols missing": ("cl100k_like", "BSYM", cut("BSYM", 4)),
    "join bits missing": ("cl100k_like", "JBYT", cut("JBYT", 1)),
    "added token beyond": ("cl100k_like", "ATOK", word("ATOK", 0, 1 << 30)),
    "added content beyond": ("cl100k_like", "ASTR", word("ATOK", 3, 1 << 30)),
    "trie child before its parent": ("cl100k_like", "A0NF", word("A0EC", 0, 0)),
    "trie child beyond": ("cl100k_like", "A0NF", word("A0EC", 0, 1 << 30)),
    "trie token beyond": ("cl100k_like", "A0NF", word("A0NT", 1, 1 << 20)),
    "trie begins inside a character": ("cl100k_like", "A0NF", byte("A0EB", 0, 0x80)),
    "trie edges descend": ("cl100k_like", "A0NF", word("A0NF", 1, 1 << 30)),
    "unknown normalizer": ("llama_like", "NOPS", word("NOPS", 0, 9)),
    "normalizer string beyond": ("llama_like", "NSTR", word("NOPS", 2, 1 << 30)),
    "normalizer string empty": ("llama_like", "NOPS", word("NOPS", 2, 0)),
    "char symbol beyond": ("llama_like", "CSY2", word("CSY2", 70, 1 << 30)),
    "fallback of a few": ("llama_like", "BFBK", cut("BFBK", 4)),
    "join symbols full": ("llama_like", "JSYM", fill("JSYM", 0)),
    "template longer than it is": ("llama_like", "POST", word("POST", 0, 1 << 30)),
    "unknown decoder": ("llama_like", "DOPS", word("DOPS", 0, 9)),
    "decoder string beyond": ("llama_like", "DSTR", word("DOPS", 2, 1 << 30)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_refused_by_name(name: str, sections: dict[str, Sections]) -> None:
    base, where, damage = FAULTS[name]
    damaged = {tag: bytearray(data) for tag, data in sections[base].items()}
    before = write_sections(damaged)
    damage(damaged)
    image = write_sections(damaged)
    assert image != before, "the damage did nothing"
    with pytest.raises(_native.ProgramError) as caught:
        _native.Program(image)
    assert caught.value.where == where
    assert caught.value.what


def test_normalization_tables_are_checked(images: dict[str, bytes]) -> None:
    document = small("gpt2_like")
    document["normalizer"] = {"type": "NFKC"}
    whole = read_sections(Pair(document).image)
    faults: list[tuple[str, Callable[[Sections], None]]] = [
        ("NQC1", drop("NQC1")),
        ("NCCC", word("NCCC", 0, 0x10FFFF)),
        ("NCCC", word("NCCC", 1, 999)),
        ("NDEC", word("NDEC", 0, 0x10FFFF)),
        ("NDEC", word("NDEC", 2, 0)),
        ("NDEC", word("NDEC", 1, 1 << 30)),
        ("NDCP", word("NDCP", 0, 0xD800)),
        ("NCMP", word("NCMP", 2, 0xD800)),
        ("NCMP", word("NCMP", 0, 0x10FFFF)),
    ]
    for where, damage in faults:
        damaged = {tag: bytearray(data) for tag, data in whole.items()}
        damage(damaged)
        with pytest.raises(_native.ProgramError) as caught:
            _native.Program(write_sections(damaged))
        assert caught.value.where == where
    two_forms = {tag: bytearray(data) for tag, data in whole.items()}
    two_forms["NOPS"] += struct.pack("<5I", layout.NormalizerOp.NFC, 0, 0, 0, 0)
    with pytest.raises(_native.ProgramError, match="two normalization forms"):
        _native.Program(write_sections(two_forms))


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"TTPROGRM",
        bytes(200),
        write_sections({}, version=layout.FORMAT_VERSION + 1),
        write_sections({}, size=1),
        write_sections({}, count=129),
        write_sections({}, count=3),
        write_sections({"XXXX": bytearray(4)}),
        write_sections({"META": bytearray(1)}),
    ],
    ids=["nothing", "magic alone", "zeros", "newer", "size", "many sections", "cut table", "unknown tag", "no CONF"],
)
def test_no_program_file(image: bytes) -> None:
    with pytest.raises(_native.ProgramError):
        _native.Program(image)


def test_overlapping_and_repeated_sections(images: dict[str, bytes]) -> None:
    image = bytearray(images["cl100k_like"])
    first, second = layout.HEADER_SIZE, layout.HEADER_SIZE + layout.ENTRY_SIZE
    for change in (
        lambda b: b.__setitem__(slice(second + 8, second + 16), b[first + 8 : first + 16]),  # same place
        lambda b: b.__setitem__(slice(second, second + 4), b[first : first + 4]),  # same tag
        lambda b: struct.pack_into("<Q", b, first + 8, 65),  # not aligned
        lambda b: struct.pack_into("<Q", b, first + 16, 1 << 62),  # beyond the file
        lambda b: struct.pack_into("<I", b, first + 4, 3),  # element size
        lambda b: struct.pack_into("<Q", b, first + 24, 1),  # reserved
    ):
        damaged = bytearray(image)
        change(damaged)
        with pytest.raises(_native.ProgramError):
            _native.Program(bytes(damaged))


def test_every_truncation_is_refused(images: dict[str, bytes]) -> None:
    image = images["cl100k_like"]
    for size in (*range(0, 2048, 61), *range(2048, len(image), len(image) // 50)):
        with pytest.raises(_native.ProgramError):
            _native.Program(image[:size])


def test_law_damage_is_refused_or_harmless(sections: dict[str, Sections]) -> None:
    """Random damage in every section: the call ends in an error or in ids below n_ids and valid text."""
    rng = random.Random(5)
    opened = refused = 0
    for name, whole in sections.items():
        for tag in whole:
            if tag == "META":
                continue
            for _ in range(6):
                damaged = {t: bytearray(data) for t, data in whole.items()}
                for _ in range(rng.randrange(1, 4)):
                    at = rng.randrange(len(damaged[tag]))
                    damaged[tag][at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, damaged[tag][at] ^ 1 << rng.randrange(8)))
                if tag == "CONF":
                    put(damaged[tag], layout.Conf.PAD_MODE, 0)  # gigabytes of padding are not what is looked for
                try:
                    program = _native.Program(write_sections(damaged))
                except _native.ProgramError:
                    refused += 1
                    continue
                opened += 1
                encoding = _native.EncoderBase(program).encode(TEXT, offsets=True)
                assert all(i < program.n_ids for i in encoding.ids), (name, tag)
                assert len(encoding.offsets) == len(encoding.ids)
                assert isinstance(program.decode(encoding.ids), str)
    assert opened > 100
    assert refused > 100


def test_program_without_token_automaton_runs_in_two_passes(sections: dict[str, Sections]) -> None:
    for name in ("cl100k_like", "gpt2_like"):
        two_pass = {tag: data for tag, data in sections[name].items() if tag not in ("TRAN", "TACT", "TEOF")}
        two_pass["CONF"] = bytearray(two_pass["CONF"])
        put(two_pass["CONF"], layout.Conf.N_TOKEN, 0)
        one, two = (_native.EncoderBase(_native.Program(write_sections(s))) for s in (sections[name], two_pass))
        rng = random.Random(6)
        for _ in range(300):
            text = "".join(
                rng.choices(["a", "B", "'s", " ", "\n", "1", "é", "中", ".", "\u0301", "😀"], k=rng.randrange(40))
            )
            assert one.encode(text).ids == two.encode(text).ids
        long = "It's a  test\n\n 123 " * 4000  # more boundaries than one lot holds
        assert one.encode(long).ids == two.encode(long).ids


def test_compiled_files_are_not_the_readers_only_source() -> None:
    """The image that these tests rewrite is byte for byte what the compiler makes."""
    document = small("cl100k_like")
    assert Pair(document).image == compile_tokenizer(encoded(document))
