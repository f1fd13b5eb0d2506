"""Attacks on the zstd frame around the archive."""

from __future__ import annotations

import zstandard

from tests.attacks.bundles.craft import FORGED, attack, declared, entry, good, header, member, plain
from toktier.artifacts.zstd_frame import MAGIC

ZST = ".tar.zst"


def compressed(data: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=True, **options).compress(data)


def blocks(*parts: bytes, descriptor: int = 0, window: int = 0x58, rest: bytes = b"") -> bytes:
    """A frame made by hand; window 0x58 is 2 MiB."""
    return MAGIC + bytes([descriptor, window]) + rest + b"".join(parts)


def block(data: bytes, *, last: bool = False, kind: int = 0, size: int | None = None) -> bytes:
    return (int(last) | kind << 1 | (len(data) if size is None else size) << 3).to_bytes(3, "little") + data


def zeros(count: int, *, last: bool = False) -> bytes:
    """`count` zeros in RLE blocks of 128 KiB: four bytes each."""
    whole = block(b"\0", kind=1, size=128 << 10)
    return whole * (count >> 17) + (block(b"", last=True) if last else b"")


@attack("not_a_bundle", suffix=ZST)
def bomb() -> bytes:
    """64 GiB of zeros in 2 MB."""
    return blocks(zeros(64 << 30, last=True))


@attack("trailing_data", suffix=ZST)
def bomb_behind_a_bundle() -> bytes:
    """A right bundle, then 16 GiB of zeros in the same frame."""
    data = good()
    stored = [block(data[i : i + (64 << 10)]) for i in range(0, len(data), 64 << 10)]
    return blocks(*stored, zeros(16 << 30, last=True))


@attack("manifest_size", suffix=ZST)
def bomb_in_the_manifest() -> bytes:
    """A manifest of 4 GiB."""
    return blocks(block(header("bundle_manifest.json", 4 << 30)), zeros(4 << 30, last=True))


@attack("pin_mismatch", code=FORGED, suffix=ZST)
def bomb_in_a_declared_file() -> bytes:
    """A declared file of 256 MiB under a pinned alias: refused before it is read."""
    document = declared(files=[{**entry("tokenizer.json", b""), "size": 256 << 20}])
    start = plain(document).rstrip(b"\0")
    start += bytes(-len(start) % 512) + header("tokenizer.json", 256 << 20)
    return blocks(block(start), zeros(256 << 20, last=True))


@attack("member_order", suffix=ZST)
def a_million_members() -> bytes:
    """A million undeclared members of no bytes: half a gigabyte of headers in 100 kB."""
    start = plain(declared()).rstrip(b"\0")
    start += bytes(-len(start) % 512)
    frame = zstandard.ZstdCompressor(level=3).compressobj()
    thousand = header("x", 0) * 1000
    return b"".join([frame.compress(start), *(frame.compress(thousand) for _ in range(1000)), frame.flush()])


@attack("zstd_window", suffix=ZST)
def window_of_two_gigabytes() -> bytes:
    """A frame for which a decoder must allocate 2 GiB."""
    return blocks(block(good()[:1000], last=True), window=0xA8)


@attack("zstd_window", suffix=ZST)
def window_by_content_size() -> bytes:
    """A single segment of 3 GiB, whose window is its content."""
    return MAGIC + bytes([0b1010_0000]) + (3 << 30).to_bytes(4, "little") + block(good()[:1000], last=True)


@attack("zstd_skippable", suffix=ZST)
def skippable_frame_first() -> bytes:
    """A skippable frame in front, of which others would make 4 GiB."""
    return b"\x50\x2a\x4d\x18" + b"\xff\xff\xff\xff" + compressed(good())


@attack("zstd_skippable", suffix=ZST)
def small_skippable_frame_first() -> bytes:
    """A skippable frame with a payload."""
    return b"\x5f\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"evil" + compressed(good())


@attack("trailing_data", suffix=ZST)
def skippable_frame_behind() -> bytes:
    """A skippable frame after the bundle, with what no digest covers."""
    return compressed(good()) + b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"evil"


@attack("trailing_data", suffix=ZST)
def two_frames() -> bytes:
    """The bundle in one frame and another one after it."""
    return compressed(good()) + compressed(good())


@attack("trailing_data", suffix=ZST)
def bundle_across_two_frames() -> bytes:
    """The bundle cut in two frames, which some decoders join: the first ends where the bundle does not."""
    return compressed(good()[:51_200]) + compressed(good()[51_200:])


@attack("trailing_data", suffix=ZST)
def bytes_behind_the_frame() -> bytes:
    """A byte after the frame."""
    return compressed(good()) + b"\0"


@attack("truncated", suffix=ZST)
def frame_without_its_end() -> bytes:
    """The last bytes of the frame are missing: a stream reader gives every file and says nothing."""
    return compressed(good())[:-3]


@attack("truncated", suffix=ZST)
def frame_without_its_last_block() -> bytes:
    """A frame that ends after a block that is not the last."""
    data = good()
    return blocks(*(block(data[i : i + (64 << 10)]) for i in range(0, len(data), 64 << 10)))


@attack("truncated", suffix=ZST)
def half_a_frame() -> bytes:
    """Half of the compressed bytes."""
    whole = compressed(good())
    return whole[: len(whole) // 2]


@attack("truncated", suffix=ZST)
def frame_header_alone() -> bytes:
    """Five bytes."""
    return compressed(good())[:5]


@attack("zstd_damaged", suffix=ZST)
def wrong_frame_checksum() -> bytes:
    """A checksum of other content."""
    return compressed(good())[:-4] + b"\0\0\0\0"


@attack("zstd_damaged", suffix=ZST)
def flipped_bytes_in_a_frame() -> bytes:
    """Damage in the middle of a block."""
    data = bytearray(compressed(good()))
    data[2000:2100] = b"\xff" * 100
    return bytes(data)


@attack("zstd_dictionary", suffix=ZST)
def frame_with_a_dictionary() -> bytes:
    """A frame that needs a dictionary from elsewhere."""
    return blocks(block(good()[:1000], last=True), descriptor=0b01, rest=b"\x07")


@attack("zstd_header", suffix=ZST)
def reserved_bit() -> bytes:
    """A bit that the format reserves."""
    return blocks(block(good()[:1000], last=True), descriptor=0b1000)


@attack("zstd_block", suffix=ZST)
def reserved_block() -> bytes:
    """A block type that the format reserves."""
    return blocks(block(b"x" * 10, kind=3, last=True))


@attack("zstd_block", suffix=ZST)
def block_beyond_the_bound() -> bytes:
    """A raw block of 2 MiB less one byte, sixteen times what the format allows."""
    return blocks(block(good().ljust((2 << 20) - 1, b"\0"), last=True))


@attack("zstd_block", suffix=ZST)
def endless_empty_blocks() -> bytes:
    """100,000 blocks of nothing: work without output."""
    return blocks(block(b"") * 100_000)


@attack("not_a_bundle", suffix=ZST)
def frame_in_a_frame() -> bytes:
    """A compressed bundle, compressed again."""
    return compressed(compressed(good()))


@attack("member_kind", suffix=ZST)
def link_in_a_frame() -> bytes:
    """What is refused plain is refused compressed."""
    return compressed(plain(declared(), header("tokenizer.json", 0, kind=b"2", link=b"/etc/passwd"), member("x", b"")))
