"""Tools of the attack scripts: archives with any field set to anything, manifests with any lie, and the two families
that the attacks know to be pinned. Nothing of the package's writer is used: it could not write these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.artifacts.conftest import make_pins, pin, tokenizer_bytes
from toktier.artifacts.pins import Pins

ALPHA, BETA, CONFIG = tokenizer_bytes(1), tokenizer_bytes(2, 160_000), b'{"side": "file"}'
ALIAS, BETA_ALIAS = f"alpha-{'a' * 12}", f"beta-{'b' * 12}"
FILES = {"tokenizer.json": ALPHA, "tokenizer_config.json": CONFIG}
MANIFEST, INDEX = "bundle_manifest.json", "bundle_index.json"
RECORD = 10240

FORGED, MALFORMED, UNPINNED = "ARTIFACT_HASH_MISMATCH", "BUNDLE_INVALID", "UNCERTIFIED_TOKENIZER"
EXIT = {FORGED: 5, MALFORMED: 5, UNPINNED: 4}


def pins() -> Pins:
    """alpha has a side file, beta has none."""
    return make_pins(
        {
            "alpha": {
                "repo_id": "org/Alpha",
                "revision": "a" * 40,
                "files": {"tokenizer.json": pin(ALPHA), "tokenizer_config.json": pin(CONFIG)},
            },
            "beta": {"repo_id": "org/Beta", "revision": "b" * 40, "files": {"tokenizer.json": pin(BETA)}},
        }
    )


@dataclass(frozen=True)
class Attack:
    """One hostile bundle. `code` and `reason`: with what an import must refuse it."""

    name: str
    tries: str
    code: str
    reason: str | None
    suffix: str
    build: Callable[[], bytes]


ATTACKS: list[Attack] = []
Builder = Callable[[], bytes]


def attack(reason: str | None, *, code: str = MALFORMED, suffix: str = ".tar") -> Callable[[Builder], Builder]:
    """Enters a script into the corpus; its docstring says in one line what it tries."""

    def enter(build: Builder) -> Builder:
        assert build.__doc__
        ATTACKS.append(Attack(build.__name__, build.__doc__.strip(), code, reason, suffix, build))
        return build

    return enter


def header(name: str | bytes, size: int | bytes, *, kind: bytes = b"0", checksum: bytes | None = None,
           **fields: bytes) -> bytes:  # fmt: skip
    """A header block; `fields`: mode, uid, gid, mtime, link, magic, prefix, devmajor, tail as raw bytes."""
    places = {"mode": (100, 8), "uid": (108, 8), "gid": (116, 8), "mtime": (136, 12), "link": (157, 100),
              "magic": (257, 8), "devmajor": (329, 8), "prefix": (345, 155), "tail": (500, 12)}  # fmt: skip
    given = {"mode": b"0000644\0", "uid": b"0000000\0", "gid": b"0000000\0", "mtime": b"00000000000\0",
             "magic": b"ustar\x0000", **fields}  # fmt: skip
    block = bytearray(512)
    raw = name.encode() if isinstance(name, str) else name
    block[: len(raw)] = raw
    block[124:136] = size if isinstance(size, bytes) else b"%011o\0" % size
    block[156:157] = kind
    for field, value in given.items():
        at, length = places[field]
        block[at : at + length] = value.ljust(length, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block) if checksum is None else checksum
    return bytes(block)


def member(name: str | bytes, data: bytes, *, size: int | bytes | None = None, pad: bytes = b"\0",
           **fields: Any) -> bytes:  # fmt: skip
    """A header, the data and its padding; `size` lies about the data."""
    return header(name, len(data) if size is None else size, **fields) + data + pad * (-len(data) % 512)


def archive(*members: bytes) -> bytes:
    """Members and a right end."""
    content = b"".join(members) + bytes(1024)
    return content + bytes(-len(content) % RECORD)


def digest_of(tag: str, content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(tag.encode() + b"\0" + canonical.encode("utf-8", "surrogatepass")).hexdigest()


def entry(path: Any, data: bytes) -> dict[str, Any]:
    return {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def declared(alias: Any = ALIAS, files: Any = None, **more: Any) -> dict[str, Any]:
    """A manifest with the root digest of its content, whatever that is."""
    files = [entry(n, d) for n, d in sorted(FILES.items())] if files is None else files
    content = {"alias": alias, "files": files}
    return {**content, "root_digest": digest_of("toktier.bundle.v1", content), **more}


def plain(document: Any, *rest: bytes) -> bytes:
    """A bundle with this manifest (bytes are taken as they are) and these members."""
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return archive(member(MANIFEST, raw), *rest)


def files(names: Sequence[str] | None = None) -> list[bytes]:
    """The members of alpha, in order, or those named."""
    return [member(n, FILES[n]) for n in (sorted(FILES) if names is None else names)]


def good() -> bytes:
    """The bundle that the attacks are variations of; it is imported."""
    return plain(declared(), *files())


def good_beta() -> bytes:
    return plain(declared(BETA_ALIAS, [entry("tokenizer.json", BETA)]), member("tokenizer.json", BETA))


def of(alias: str, contents: dict[str, bytes]) -> bytes:
    """A bundle that is right in itself, whatever it holds."""
    document = declared(alias, [entry(n, d) for n, d in sorted(contents.items())])
    return plain(document, *(member(n, d) for n, d in sorted(contents.items())))


def naming(path: str) -> bytes:
    """A bundle that is right in itself and declares a file of this name."""
    return plain(declared("other", [entry(path, b"x")]), member("x", b"x"))
