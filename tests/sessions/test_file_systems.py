"""Network file systems are told from local ones by the mount table."""

from __future__ import annotations

from pathlib import Path

import pytest

from toktier.errors import EnvironmentFault
from toktier.sessions import file_systems
from toktier.sessions.store import SessionStore

TABLE = """\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 21 0:30 / /mnt/a\\040b rw - nfs4 host:/x rw
31 30 0:31 / /mnt/a\\040b/local rw shared:1 - xfs /dev/b rw
32 21 0:32 / /mnt/s rw - fuse.sshfs host: rw
33 21 0:33 / /mnt/f rw - fuse.ntfs-3g /dev/c rw
34 21 0:34 / /mnt/over rw - ext4 /dev/d rw
35 34 0:35 / /mnt/over rw - cifs //h/x rw
broken line
"""


@pytest.mark.parametrize(("place", "kind", "refused"), [
    ("/", "ext4", False),
    ("/mnt", "ext4", False),
    ("/mnt/a b", "nfs4", True),
    ("/mnt/a b/x/y", "nfs4", True),
    ("/mnt/a bc", "ext4", False),
    ("/mnt/a b/local/x", "xfs", False),
    ("/mnt/s/x", "fuse.sshfs", True),
    ("/mnt/f", "fuse.ntfs-3g", False),
    ("/mnt/over", "cifs", True),
])  # fmt: skip
def test_the_deepest_and_last_mount_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str, refused: bool
) -> None:
    (tmp_path / "mountinfo").write_text(TABLE)
    monkeypatch.setattr(file_systems, "_MOUNTS", tmp_path / "mountinfo")
    assert file_systems.type_of(place) == kind
    assert file_systems.is_network(kind) == refused


def test_a_store_there_is_refused_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_text(f"30 21 0:30 / {tmp_path.resolve()} rw - nfs4 host:/x rw\n")
    monkeypatch.setattr(file_systems, "_MOUNTS", tmp_path / "mountinfo")
    with pytest.raises(EnvironmentFault, match="nfs4") as caught:
        SessionStore(tmp_path / "store")
    assert "local file system" in (caught.value.remedy or "")
    assert list((tmp_path / "store").iterdir()) == []


def test_without_a_mount_table_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "_MOUNTS", tmp_path / "absent")
    assert file_systems.type_of(tmp_path) is None
    SessionStore(tmp_path / "store").close()


def test_this_host_says_what_it_has(tmp_path: Path) -> None:
    kind = file_systems.type_of(tmp_path)
    assert kind
    assert not file_systems.is_network(kind)
