"""Opens regular files and nothing else: a FIFO or a device under an expected name is an error, never a wait.

Not here: what a path may be called, and what its bytes mean.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> io.FileIO:
    """`path` for reading, unbuffered. Raises OSError, also for anything but a regular file; links are followed."""
    # Without O_NONBLOCK the open of a FIFO waits for a writer; on a regular file the flag does nothing.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        return io.FileIO(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
