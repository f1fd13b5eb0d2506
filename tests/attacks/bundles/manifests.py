"""Attacks on the manifest: its JSON, its form, its names, its digest; and on the index of several bundles."""

from __future__ import annotations

import json
from typing import Any

from tests.attacks.bundles.craft import (
    ALIAS,
    ALPHA,
    BETA_ALIAS,
    CONFIG,
    INDEX,
    MANIFEST,
    archive,
    attack,
    declared,
    digest_of,
    entry,
    files,
    good,
    good_beta,
    member,
    naming,
    plain,
)


def text(document: dict[str, Any]) -> str:
    return json.dumps(document)


@attack("manifest_json")
def nested_manifest() -> bytes:
    """Half a megabyte of brackets, which end a recursive parser."""
    return plain(b"[" * 500_000)


@attack("manifest_json")
def nested_objects_in_a_manifest() -> bytes:
    """Objects in objects, 100,000 deep, inside a right manifest."""
    return plain(
        text(declared()).replace('"alias"', '"x": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + ', "alias"').encode()
    )


@attack("manifest_json")
def manifest_that_is_no_json() -> bytes:
    """A manifest with a comment after it."""
    return plain(text(declared()).encode() + b" // see below")


@attack("manifest_json")
def manifest_that_is_no_utf8() -> bytes:
    """Bytes that are no text."""
    return plain(text(declared()).replace(ALIAS, "\xff").encode("latin-1"))


@attack("manifest_json")
def repeated_key() -> bytes:
    """The alias twice, for parsers that disagree which one counts."""
    return plain(text(declared()).replace('{"alias"', '{"alias": "other", "alias"', 1).encode())


@attack("manifest_json")
def not_a_number() -> bytes:
    """NaN, which is no JSON and which some parsers take."""
    return plain(text(declared()).replace(f'"size": {len(CONFIG)}', '"size": NaN').encode())


@attack("manifest_json")
def float_size() -> bytes:
    """A size of 16.0, which equals the right one."""
    return plain(text(declared()).replace(f'"size": {len(CONFIG)}', f'"size": {len(CONFIG)}.0').encode())


@attack("manifest_json")
def size_of_many_digits() -> bytes:
    """A number of 100,000 digits, which takes a parser minutes."""
    return plain(text(declared()).replace(f'"size": {len(CONFIG)}', '"size": ' + "9" * 100_000).encode())


@attack("manifest_form")
def negative_declared_size() -> bytes:
    """A size below zero."""
    return plain(declared(files=[{**entry("tokenizer.json", ALPHA), "size": -1}]))


@attack("manifest_form")
def boolean_size() -> bytes:
    """True, which is 1 in Python."""
    return plain(declared(files=[{**entry("tokenizer.json", b"x"), "size": True}]), member("tokenizer.json", b"x"))


@attack("manifest_form")
def unknown_key() -> bytes:
    """A key that a later version might obey."""
    return plain(declared(run="install.sh"), *files())


@attack("manifest_form")
def unknown_key_of_a_file() -> bytes:
    """A mode among the facts of a file."""
    return plain(declared(files=[{**entry("tokenizer.json", ALPHA), "mode": 0o4755}]), *files(["tokenizer.json"]))


@attack("manifest_form")
def missing_key() -> bytes:
    """No root digest at all."""
    document = declared()
    del document["root_digest"]
    return plain(document, *files())


@attack("manifest_form")
def manifest_that_is_a_list() -> bytes:
    """Another shape of JSON."""
    return plain([1, 2, 3])


@attack("manifest_form")
def no_files() -> bytes:
    """A manifest of nothing."""
    return plain(declared(files=[]))


@attack("manifest_form")
def files_as_text() -> bytes:
    """A string where a list is expected."""
    return plain(declared(files="tokenizer.json"))


@attack("manifest_form")
def too_many_files() -> bytes:
    """4,097 files, one more than the bound."""
    return plain(declared("other", [entry(f"f{i:04}", b"") for i in range(4097)]))


@attack("manifest_size")
def a_million_declared_files() -> bytes:
    """A manifest of a million entries."""
    return plain(b'{"alias":"x","files":[' + b"{}," * 1_000_000 + b"{}]}")


@attack("manifest_form")
def digest_in_capitals() -> bytes:
    """A second spelling of the same digest."""
    return plain(declared(files=[{**entry("tokenizer.json", ALPHA), "sha256": "AB" * 32}]))


@attack("manifest_order")
def unsorted_files() -> bytes:
    """Declared files in descending order: a second form of the same bundle."""
    names = ["tokenizer_config.json", "tokenizer.json"]
    return plain(declared(files=[entry(n, {"tokenizer.json": ALPHA}.get(n, CONFIG)) for n in names]), *files(names))


@attack("declared_size")
def declared_terabytes() -> bytes:
    """A file of 9 TB."""
    return plain(declared("other", [{**entry("x", b""), "size": 9 << 40}]))


@attack("declared_size")
def declared_too_much_together() -> bytes:
    """4,000 files of 255 MiB."""
    return plain(declared("other", [{**entry(f"f{i:04}", b""), "size": 255 << 20} for i in range(4000)]))


@attack("root_digest")
def forged_root_digest() -> bytes:
    """The root digest of another manifest."""
    return plain(declared(root_digest="sha256:" + "0" * 64), *files())


@attack("root_digest")
def root_digest_of_an_older_form() -> bytes:
    """A digest without its tag, which would equal that of any other document."""
    document = declared()
    content = {k: v for k, v in document.items() if k != "root_digest"}
    return plain({**content, "root_digest": digest_of("", content)}, *files())


@attack("root_digest")
def root_digest_that_is_a_number() -> bytes:
    """Another type."""
    return plain(declared(root_digest=0), *files())


@attack("name_clash")
def names_that_differ_in_case() -> bytes:
    """Two names that are one file on some systems."""
    return plain(declared("other", [entry("Tokenizer.json", b""), entry("tokenizer.json", b"")]))


@attack("name_clash")
def the_same_name_twice() -> bytes:
    """One path declared twice with different digests."""
    return plain(declared("other", [entry("a", b"x"), entry("a", b"y")]))


@attack("name_clash")
def file_and_directory() -> bytes:
    """A name that is a file and a directory of another."""
    return plain(declared("other", [entry("a", b""), entry("a/b", b"")]))


@attack("name_clash")
def directories_that_differ_in_case() -> bytes:
    """A file whose name is another's directory in capitals."""
    return plain(declared("other", [entry("A", b""), entry("a/b", b"")]))


@attack("name_clash")
def manifest_declared_as_a_file() -> bytes:
    """The manifest's own name among the files."""
    return plain(declared("other", [entry(MANIFEST, b"{}")]), member(MANIFEST, b"{}"))


NAMES = {
    "parent": "../evil", "absolute": "/etc/cron.d/evil", "parent_inside": "a/../../evil", "empty_segment": "a//b",
    "current_directory": "./a", "trailing_slash": "a/", "backslash": "..\\evil", "drive": "C:evil", "newline": "a\nb",
    "zero": "a\0b", "escape": "\x1b[2Jx", "device": "NUL", "device_with_suffix": "com1.json", "trailing_dot": "a.",
    "trailing_blank": "a ", "hidden": ".bashrc", "option": "-rf", "look_alike": "tоkenizer.json", "combining": "é.json",
    "full_width_slash": "a／..／b", "right_to_left": "\u202egpj.exe", "lone_surrogate": "\ud800", "long": "a" * 101,
    "empty": "", "blank": " ", "star": "*", "quote": "'; rm -rf ~", "tilde_user": "~/evil/..",
}  # fmt: skip


def _name(kind: str, name: str) -> None:
    def build() -> bytes:
        return naming(name)

    build.__name__ = f"name_{kind}"
    build.__doc__ = f"A declared path {name[:20]!a}."
    attack("name")(build)


for _kind, _spelled in NAMES.items():
    _name(_kind, _spelled)


@attack("name")
def alias_with_a_path() -> bytes:
    """An alias that leads out of its directory."""
    return plain(declared("../../evil"), *files())


@attack("name")
def alias_with_a_newline() -> bytes:
    """An alias that adds a line to every message."""
    return plain(declared("x\nerror: all is well"), *files())


@attack("name")
def alias_that_is_a_list() -> bytes:
    """Another type."""
    return plain(declared(["alpha"]), *files())


# The index of several bundles.


def parts(*bundles: tuple[str, bytes], **lies: Any) -> bytes:
    """A right index of these bundles; `lies` replace facts of its first entry."""
    entries = [
        {"alias": alias, "path": f"{alias}.tar", "root_digest": _root(data), "size": len(data)}
        for alias, data in bundles
    ]
    entries[0].update(lies)
    return indexed(entries, *(member(f"{alias}.tar", data) for alias, data in bundles))


def indexed(entries: list[dict[str, Any]], *members: bytes) -> bytes:
    content = {"bundles": entries}
    document = {**content, "root_digest": digest_of("toktier.bundle-index.v1", content)}
    return archive(member(INDEX, json.dumps(document).encode()), *members)


def _root(data: bytes) -> str:
    size = int(data[124:135], 8)
    try:
        return str(json.loads(data[512 : 512 + size])["root_digest"])
    except (ValueError, KeyError):
        return "sha256:" + "0" * 64


def good_parts() -> bytes:
    """Two bundles in one; it is imported."""
    return parts((ALIAS, good()), (BETA_ALIAS, good_beta()))


@attack("root_digest")
def forged_index() -> bytes:
    """An index that was changed after it was digested."""
    return good_parts().replace(_root(good()).encode(), b"sha256:" + b"1" * 64, 1)


@attack("part")
def part_of_another_name() -> bytes:
    """A part whose manifest says another alias than the index."""
    return parts((BETA_ALIAS, good()))


@attack("part")
def part_of_another_digest() -> bytes:
    """A part whose manifest is not the one that the index names."""
    return parts((ALIAS, good()), root_digest="sha256:" + "1" * 64)


@attack("member_size")
def part_of_another_size() -> bytes:
    """A part that is longer than the index says."""
    return parts((ALIAS, good()), size=len(good()) - 10240)


@attack("truncated")
def part_cut() -> bytes:
    """A part that ends early, inside an archive that is whole."""
    return parts((ALIAS, good()[:100_352]))


@attack("trailing_data")
def part_with_more_behind_it() -> bytes:
    """A part with data after its end."""
    return parts((ALIAS, good() + bytes(512)))


@attack("part")
def index_in_an_index() -> bytes:
    """Archives in archives without end."""
    return parts((ALIAS, good_parts()))


@attack("manifest_form")
def part_path_outside() -> bytes:
    """A part under another path than its alias."""
    return parts((ALIAS, good()), path="../../evil.tar")


@attack("name_clash")
def part_twice() -> bytes:
    """The same part declared twice."""
    return parts((ALIAS, good()), (ALIAS, good()))


@attack("member_order")
def missing_part() -> bytes:
    """A part that is declared and not there."""
    entries = [{"alias": a, "path": f"{a}.tar", "root_digest": _root(d), "size": len(d)}
               for a, d in ((ALIAS, good()), (BETA_ALIAS, good_beta()))]  # fmt: skip
    return indexed(entries, member(f"{ALIAS}.tar", good()))


@attack("member_extra")
def undeclared_part() -> bytes:
    """A part more than the index says."""
    entries = [{"alias": ALIAS, "path": f"{ALIAS}.tar", "root_digest": _root(good()), "size": len(good())}]
    return indexed(entries, member(f"{ALIAS}.tar", good()), member(f"{BETA_ALIAS}.tar", good_beta()))


@attack("part")
def manifest_in_place_of_a_part() -> bytes:
    """A part that is no bundle."""
    data = archive(member("x", b"x"))
    return parts((ALIAS, data))
