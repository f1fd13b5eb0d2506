"""Bundles as bytes: what is written is fixed to the byte, and what is written can be read."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.material import ROOT
from toktier.artifacts.bundle_faults import FaultMaker
from toktier.artifacts.bundle_manifest import BundleFile, BundleManifest, parse_manifest
from toktier.artifacts.bundle_reader import Visitor, looks_like_bundle, read_bundle
from toktier.artifacts.bundle_tar import archive_size
from toktier.artifacts.bundle_writer import BundlePart, write_bundle
from toktier.errors import ArtifactHashMismatch, EnvironmentFault, ToktierError, UsageError

FILES = {"a.json": b"{}", "empty": b"", "sub/b.bin": bytes(range(256)) * 700, "z" * 100: b"x" * 512}


def part(place: Path, alias: str = "org-1", files: dict[str, bytes] = FILES) -> BundlePart:
    sources = {}
    for number, (name, data) in enumerate(sorted(files.items())):
        sources[name] = place / f"{alias}-{number}"
        sources[name].write_bytes(data)
    declared = tuple(BundleFile(n, hashlib.sha256(d).hexdigest(), len(d)) for n, d in sorted(files.items()))
    return BundlePart(BundleManifest(alias, declared), sources)


class Collector(Visitor):
    def __init__(self) -> None:
        self.got: dict[tuple[str, str], bytearray] = {}

    def sink(self, manifest, file):  # type: ignore[no-untyped-def]
        return self.got.setdefault((manifest.alias, file.path), bytearray()).extend


@pytest.mark.parametrize("name", ["b.tar", "b.tar.zst"])
@pytest.mark.parametrize("aliases", [["one"], ["one", "two", "three"]])
def test_what_is_written_can_be_read(tmp_path: Path, name: str, aliases: list[str]) -> None:
    written = write_bundle(tmp_path / name, [part(tmp_path, alias) for alias in aliases])
    assert looks_like_bundle(tmp_path / name)
    visitor = Collector()
    content = read_bundle(tmp_path / name, visitor)
    assert visitor.got == {(a, n): d for a in aliases for n, d in FILES.items()}
    assert (content.content_digest, content.uncompressed) == (written.content_digest, written.uncompressed)
    assert content.several is (len(aliases) > 1)
    assert content.compressed is name.endswith(".zst")
    assert [m.alias for m in content.parts] == sorted(aliases)
    assert written.size == (tmp_path / name).stat().st_size


def test_the_content_digest_is_that_of_the_plain_archive_in_either_form(tmp_path: Path) -> None:
    plain = write_bundle(tmp_path / "b.tar", [part(tmp_path)])
    packed = write_bundle(tmp_path / "b.tar.zst", [part(tmp_path)])
    assert plain.content_digest == packed.content_digest
    assert plain.content_digest == hashlib.sha256((tmp_path / "b.tar").read_bytes()).hexdigest()


def test_the_standard_library_writes_the_same_bytes(tmp_path: Path) -> None:
    one = part(tmp_path)
    write_bundle(tmp_path / "b.tar", [one])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in [("bundle_manifest.json", one.manifest.encode()), *sorted(FILES.items())]:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o600
            archive.addfile(info, io.BytesIO(data))
    assert (tmp_path / "b.tar").read_bytes() == buffer.getvalue()


def test_a_part_taken_out_of_several_is_a_plain_bundle(tmp_path: Path) -> None:
    write_bundle(tmp_path / "all.tar", [part(tmp_path, alias) for alias in ("one", "two")])
    write_bundle(tmp_path / "two.tar", [part(tmp_path, "two")])
    with tarfile.open(tmp_path / "all.tar") as archive:
        assert archive.getnames() == ["bundle_index.json", "one.tar", "two.tar"]
        member = archive.extractfile("two.tar")
        assert member is not None
        assert member.read() == (tmp_path / "two.tar").read_bytes()


@pytest.mark.parametrize("name", ["b.tar", "b.tar.zst"])
def test_other_umask_and_time_zone_give_the_same_bytes_and_the_umask_says_who_reads(tmp_path: Path, name: str) -> None:
    script = (
        "import os, sys; os.umask(int(sys.argv[1], 8))\n"
        "from pathlib import Path\nfrom tests.artifacts.test_bundle_format import part\n"
        "from toktier.artifacts.bundle_writer import write_bundle\n"
        "place = Path(sys.argv[2]); place.mkdir(exist_ok=True)\n"
        "write_bundle(place / sys.argv[3], [part(place, 'one'), part(place, 'two')])\n"
    )
    seen = set()
    for umask, zone in (("022", "UTC"), ("077", "Pacific/Auckland"), ("000", "America/Caracas")):
        place = tmp_path / umask
        environment = {**os.environ, "TZ": zone, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", script, umask, place, name], check=True, env=environment, cwd=ROOT)
        seen.add((place / name).read_bytes())
        assert (place / name).stat().st_mode & 0o777 == 0o666 & ~int(umask, 8)
    assert len(seen) == 1


def test_the_root_digest_is_as_documented() -> None:
    manifest = BundleManifest("x-1", (BundleFile("a", "0" * 64, 1),))
    canonical = f'{{"alias":"x-1","files":[{{"path":"a","sha256":"{"0" * 64}","size":1}}]}}'.encode()
    expected = "sha256:" + hashlib.sha256(b"toktier.bundle.v1\0" + canonical).hexdigest()
    assert manifest.root_digest == expected
    assert json.loads(manifest.encode())["root_digest"] == expected


def test_any_spelling_of_a_manifest_is_read(tmp_path: Path) -> None:
    manifest = part(tmp_path).manifest
    document = json.loads(manifest.encode())
    for text in (json.dumps(document), json.dumps(document, separators=(",", ":")), json.dumps(document, indent=4)):
        assert parse_manifest(text.encode(), FaultMaker(tmp_path)) == manifest


def test_sizes_are_known_before_anything_is_written() -> None:
    for sizes in ([0], [1], [511], [512], [8192], [10240, 3]):
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                for number, size in enumerate(sizes):
                    info = tarfile.TarInfo(str(number))
                    info.size = size
                    archive.addfile(info, io.BytesIO(bytes(size)))
            assert len(buffer.getvalue()) == archive_size(sizes)


def test_a_source_that_changed_is_not_exported(tmp_path: Path) -> None:
    one = part(tmp_path)
    one.sources["a.json"].write_bytes(b"[]")
    with pytest.raises(ArtifactHashMismatch, match="changed while"):
        write_bundle(tmp_path / "b.tar", [one])
    assert not [p for p in tmp_path.iterdir() if p.name.startswith((".tmp", "b.tar"))]


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "dir.tar").mkdir()
    os.mkfifo(tmp_path / "fifo.tar")
    (tmp_path / "aim").write_bytes(b"precious")
    (tmp_path / "link.tar").symlink_to(tmp_path / "aim")
    (tmp_path / "null.tar").symlink_to("/dev/null")
    for name in ("dir.tar", "fifo.tar", "link.tar", "null.tar"):
        before = os.lstat(tmp_path / name)
        with pytest.raises(UsageError, match="no regular file"):
            write_bundle(tmp_path / name, [part(tmp_path)])
        assert os.lstat(tmp_path / name).st_ino == before.st_ino
    assert (tmp_path / "aim").read_bytes() == b"precious"
    write_bundle(tmp_path / "b.tar", [part(tmp_path)])
    write_bundle(tmp_path / "b.tar", [part(tmp_path)])


@pytest.mark.parametrize(
    ("out", "error"),
    [("b.zip", UsageError), ("tar", UsageError), ("", UsageError), ("none/b.tar", EnvironmentFault),
     ("f/b.tar", EnvironmentFault)],
)  # fmt: skip
def test_a_target_that_cannot_be_is_an_error(tmp_path: Path, out: str, error: type[ToktierError]) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(error):
        write_bundle(tmp_path / out, [part(tmp_path)])
