"""Attacks on the archive: its members, their headers, its end."""

from __future__ import annotations

import gzip

from tests.attacks.bundles.craft import (
    ALPHA,
    CONFIG,
    FILES,
    MANIFEST,
    archive,
    attack,
    declared,
    files,
    good,
    header,
    member,
    plain,
)


@attack("empty")
def empty() -> bytes:
    """No byte at all, as a full disk leaves it."""
    return b""


@attack("not_a_bundle")
def zeros() -> bytes:
    """An archive that is only an end."""
    return bytes(10240)


@attack("not_a_bundle")
def noise() -> bytes:
    """No archive."""
    return b"PK or ELF or nothing at all " * 100


@attack("not_a_bundle")
def gzipped() -> bytes:
    """A compression that is not accepted, under a name that is."""
    return gzip.compress(good(), mtime=0)


@attack("truncated")
def cut_in_the_first_header() -> bytes:
    """300 bytes of a bundle."""
    return good()[:300]


@attack("truncated")
def cut_after_the_first_header() -> bytes:
    """A header whose manifest does not follow."""
    return good()[:512]


@attack("truncated")
def cut_in_the_manifest() -> bytes:
    """Half a manifest."""
    return good()[:600]


@attack("truncated")
def cut_in_a_file() -> bytes:
    """Half a tokenizer.json."""
    return good()[:80_000]


@attack("truncated")
def cut_before_the_end_mark() -> bytes:
    """Every file, and no end: an interrupted copy."""
    return good().rstrip(b"\0")


@attack("truncated")
def cut_by_one_byte() -> bytes:
    """The last zero is missing."""
    return good()[:-1]


@attack("truncated")
def cut_by_one_block() -> bytes:
    """The last block of zeros is missing."""
    return good()[:-512]


@attack("trailing_data")
def one_byte_more() -> bytes:
    """A byte after the end, where a second payload could hide."""
    return good() + b"\0"


@attack("trailing_data")
def a_second_archive() -> bytes:
    """Another archive after the end, which tools that ignore zeros would read."""
    return good() + good()


@attack("trailing_data")
def text_in_the_last_record() -> bytes:
    """Data in the zeros after the end mark."""
    return good()[:-5] + b"hello"


@attack("trailing_data")
def a_member_after_one_zero_block() -> bytes:
    """A single zero block, then another member."""
    content = member(MANIFEST, b"x" * 10)
    return good().rstrip(b"\0")[: -len(CONFIG)] + CONFIG.ljust(512, b"\0") + bytes(512) + archive(content)


@attack("header_checksum")
def wrong_checksum() -> bytes:
    """A header that was changed after it was summed."""
    return plain(declared(), header("tokenizer.json", len(ALPHA), checksum=b"000001\0 ") + ALPHA)


@attack("header_format")
def gnu_header() -> bytes:
    """GNU's magic, under which fields mean something else."""
    return plain(declared(), member("tokenizer.json", ALPHA, magic=b"ustar  \0"))


@attack("header_format")
def header_without_magic() -> bytes:
    """A header from before USTAR."""
    return plain(declared(), member("tokenizer.json", ALPHA, magic=b""))


@attack("header_field")
def negative_size() -> bytes:
    """A size below zero, which makes some readers go backwards."""
    return plain(declared(), member("tokenizer.json", ALPHA, size=b"-0000000001\0"))


@attack("header_field")
def base_256_size() -> bytes:
    """A binary size of 2**70, beyond every integer of the host."""
    return plain(declared(), member("tokenizer.json", ALPHA, size=b"\x80\0\0" + (2**70).to_bytes(9, "big")))


@attack("header_field")
def negative_base_256_size() -> bytes:
    """A binary size of -512."""
    return plain(declared(), member("tokenizer.json", ALPHA, size=b"\xff" * 10 + b"\xfe\0"))


@attack("header_field")
def decimal_size() -> bytes:
    """A size with digits that octal does not have."""
    return plain(declared(), member("tokenizer.json", ALPHA, size=b"00000099999\0"))


@attack("header_field")
def unterminated_size() -> bytes:
    """A size that runs into the next field."""
    return plain(declared(), member("tokenizer.json", ALPHA, size=b"777777777777"))


@attack("member_size")
def size_of_eight_gigabytes() -> bytes:
    """The largest octal size, for a member of 150 kB."""
    return plain(declared(), member("tokenizer.json", ALPHA, size=b"77777777777\0"))


@attack("member_size")
def size_one_more() -> bytes:
    """A header that says one byte more than the manifest."""
    return plain(declared(), member("tokenizer.json", ALPHA, size=len(ALPHA) + 1), *files(["tokenizer_config.json"]))


@attack("member_size")
def size_one_less() -> bytes:
    """A header that says one byte less than the manifest."""
    return plain(declared(), member("tokenizer.json", ALPHA, size=len(ALPHA) - 1), *files(["tokenizer_config.json"]))


@attack("manifest_size")
def manifest_of_two_hundred_megabytes() -> bytes:
    """A manifest that a reader would take into memory whole."""
    return header(MANIFEST, 200 << 20) + b"{" * 4096


@attack("member_padding")
def data_in_the_padding() -> bytes:
    """Bytes after a member's end that no digest covers."""
    return plain(declared(), *files(["tokenizer.json"]), member("tokenizer_config.json", CONFIG, pad=b"\xaa"))


@attack("header_field")
def data_after_the_name() -> bytes:
    """A name that ends, for readers of C strings, before it ends for others."""
    return plain(declared(), member(b"tokenizer.json\0/../../evil", ALPHA))


@attack("header_field")
def name_with_a_prefix() -> bytes:
    """A name whose directory stands in another field."""
    return plain(declared(), member("tokenizer.json", ALPHA, prefix=b"../../.."))


@attack("header_field")
def regular_file_with_a_link() -> bytes:
    """A regular file that also names a link target."""
    return plain(declared(), member("tokenizer.json", ALPHA, link=b"/etc/passwd"))


@attack("header_field")
def regular_file_with_a_device() -> bytes:
    """A regular file with a device number."""
    return plain(declared(), member("tokenizer.json", ALPHA, devmajor=b"0000001\0"))


@attack("header_field")
def data_in_the_unused_bytes() -> bytes:
    """Bytes in the part of a header that USTAR leaves empty."""
    return plain(declared(), member("tokenizer.json", ALPHA, tail=b"\1"))


@attack("member_kind")
def symbolic_link() -> bytes:
    """A link under a declared name, to a file outside."""
    return plain(declared(), header("tokenizer.json", 0, kind=b"2", link=b"/etc/passwd"))


@attack("member_kind")
def hard_link() -> bytes:
    """A hard link to a file outside, which a second member would write through."""
    return plain(declared(), header("tokenizer.json", 0, kind=b"1", link=b"../../../config.toml"))


@attack("member_kind")
def character_device() -> bytes:
    """A node for /dev/mem."""
    return plain(declared(), header("tokenizer.json", 0, kind=b"3", devmajor=b"0000001\0"))


@attack("member_kind")
def block_device() -> bytes:
    """A node for a disk."""
    return plain(declared(), header("tokenizer.json", 0, kind=b"4"))


@attack("member_kind")
def directory() -> bytes:
    """A directory, which a later member would go into."""
    return plain(declared(), header("tokenizer.json/", 0, kind=b"5"), *files())


@attack("member_kind")
def fifo() -> bytes:
    """A pipe, on which a reader waits for ever."""
    return plain(declared(), header("tokenizer.json", 0, kind=b"6"))


@attack("member_kind")
def contiguous_file() -> bytes:
    """A kind that some readers take for a regular file and some do not."""
    return plain(declared(), member("tokenizer.json", ALPHA, kind=b"7"), *files(["tokenizer_config.json"]))


@attack("member_kind")
def sparse_file() -> bytes:
    """A sparse map that makes a terabyte of holes."""
    return plain(declared(), header("tokenizer.json", 512, kind=b"S") + bytes(512))


@attack("member_kind")
def old_regular_file() -> bytes:
    """Type NUL, which with a slash at the end of the name is a directory to some."""
    return plain(declared(), member("tokenizer.json", ALPHA, kind=b"\0"), *files(["tokenizer_config.json"]))


@attack("member_kind")
def unknown_kind() -> bytes:
    """A type that nobody defined."""
    return plain(declared(), member("tokenizer.json", ALPHA, kind=b"Z"))


@attack("member_kind")
def huge_pax_header() -> bytes:
    """An extended header of 600 MB, which a public tool reads into memory."""
    return plain(declared(), header("pax", 600 << 20, kind=b"x") + b"9 a=b\n" * 1000)


@attack("member_kind")
def pax_path() -> bytes:
    """An extended header that renames the next member."""
    return plain(declared(), member("pax", b"25 path=../../../escape\n\n", kind=b"x"), *files())


@attack("member_kind")
def global_pax_header() -> bytes:
    """An extended header for all members."""
    return plain(declared(), member("pax", b"16 size=9999999\n", kind=b"g"), *files())


@attack("member_kind")
def huge_long_name() -> bytes:
    """A GNU long name of a gigabyte."""
    return plain(declared(), header("././@LongLink", 1 << 30, kind=b"L") + b"a" * 4096)


@attack("member_kind")
def long_link_name() -> bytes:
    """A GNU long link target."""
    return plain(declared(), member("././@LongLink", b"/etc/passwd\0", kind=b"K"), *files())


@attack(None)
def a_million_headers_before_the_manifest() -> bytes:
    """Extended headers without end, before anything is known of the archive: never taken for a bundle."""
    return member("pax", b"9 a=b\n", kind=b"x") * 4000


@attack("not_a_bundle")
def manifest_second() -> bytes:
    """A file before the manifest, written before anyone could know whether it is wanted."""
    return archive(member("zzz", b"x"), good())


@attack("member_order")
def manifest_twice() -> bytes:
    """A second manifest, for readers that believe the last one."""
    return plain(declared(), member(MANIFEST, b"{}"), *files())


@attack("member_extra")
def manifest_again_at_the_end() -> bytes:
    """A second manifest after everything was read."""
    return plain(declared(), *files(), member(MANIFEST, b"{}"))


@attack("member_order")
def file_twice() -> bytes:
    """A file that comes again with other bytes, for writers that overwrite."""
    return plain(declared(), *files(["tokenizer.json"]), member("tokenizer.json", b"evil"), *files())


@attack("member_extra")
def undeclared_file() -> bytes:
    """A member that the manifest does not mention."""
    return plain(declared(), *files(), member("zz_payload", b"x"))


@attack("member_order")
def undeclared_file_between() -> bytes:
    """A member outside the tree, between declared ones."""
    return plain(declared(), *files(["tokenizer.json"]), member("../../evil", b"x"), *files(["tokenizer_config.json"]))


@attack("member_missing")
def missing_file() -> bytes:
    """A declared file that is not there."""
    return plain(declared(), *files(["tokenizer.json"]))


@attack("member_order")
def swapped_order() -> bytes:
    """Declared files in another order than declared."""
    return plain(declared(), *files(["tokenizer_config.json", "tokenizer.json"]))


@attack("member_order")
def absolute_member() -> bytes:
    """A declared file under an absolute name."""
    return plain(declared(), member("/tokenizer.json", ALPHA), *files(["tokenizer_config.json"]))


@attack("header_field")
def look_alike_member() -> bytes:
    """A Cyrillic o in the name of a member."""
    return plain(declared(), member("tоkenizer.json", ALPHA))


@attack("file_digest")
def flipped_bit() -> bytes:
    """One bit of a file."""
    data = bytearray(good())
    data[data.index(ALPHA) + 5000] ^= 1
    return bytes(data)


@attack("file_digest")
def swapped_content() -> bytes:
    """The bytes of another file of equal size."""
    return plain(declared(), member("tokenizer.json", FILES["tokenizer.json"][::-1]), *files(["tokenizer_config.json"]))
