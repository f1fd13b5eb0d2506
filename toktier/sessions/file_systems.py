"""Whether a directory lies where SQLite's WAL works: its index is memory shared by all who have the file open.

By the mount table: it tells sshfs from a local FUSE, whose statfs number is the same. What it does not tell is let
pass.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from toktier.errors import EnvironmentFault
from toktier.labels import shown_path

NETWORK = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "gpfs", "beegfs"),
        *("orangefs", "pvfs2", "gfs2", "ocfs2", "davfs", "ncpfs", "coda", "vboxsf", "vmhgfs", "prl_fs"),
    )
)
NETWORK_FUSE = frozenset(
    (
        *("sshfs", "glusterfs", "ceph", "ceph-fuse", "s3fs", "rclone", "gcsfuse", "juicefs", "davfs2", "davfs"),
        *("goofys", "curlftpfs", "smbnetfs", "vmhgfs-fuse", "mfs", "blobfuse", "blobfuse2", "mount-s3", "hdfs"),
    )
)
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")


def type_of(directory: str | os.PathLike[str]) -> str | None:
    """Name of the file system type of an existing directory; None where the mount table does not tell."""
    try:
        table = _MOUNTS.read_bytes()
    except OSError:
        return None
    place = os.fsencode(os.path.realpath(directory))
    best: tuple[int, bytes] | None = None
    for line in table.splitlines():
        before, separator, after = line.partition(b" - ")
        fields = before.split(b" ")
        if not separator or len(fields) < 5:
            continue
        point = _OCTAL.sub(lambda m: bytes([int(m[1], 8) & 0xFF]), fields[4])
        inside = place == point or place.startswith(point.rstrip(b"/") + b"/")
        if inside and (best is None or len(point) >= best[0]):  # the last of equal ones lies over the others
            best = (len(point), after.split(b" ")[0])
    return None if best is None else best[1].decode("ascii", "replace")


def is_network(kind: str) -> bool:
    if kind.startswith("fuse."):
        return kind.removeprefix("fuse.") in NETWORK_FUSE
    return kind in NETWORK


def refuse_network(directory: str | os.PathLike[str]) -> None:
    """Raises EnvironmentFault where several hosts may have the directory."""
    kind = type_of(directory)
    if kind is not None and is_network(kind):
        raise EnvironmentFault(
            f"a session store cannot lie in {shown_path(directory)}: on a network file system ({kind}) processes do "
            "not see each other's writes in order",
            details={"path": os.fspath(directory), "file_system": kind},
            remedy="point store= at a directory of a local file system",
        )
