"""Checks a kit: every file that SHA256SUMS names has that content, and nothing else lies there.

Two answers: complete (nothing is missing) and valid (nothing is damaged, added, or a link). It stands alone, because it
is copied into every kit and runs there before anything is installed: Python 3.8 or newer, no other module of this
project. `toktier artifacts verify DIR` calls the same functions. Not here: whether the content is the pinned one, which
`artifacts import` decides, and who made the kit: for that compare the digest that it prints with the one that
`artifacts kit` printed, over another channel.

    python3 verify_kit.py [DIRECTORY] [--expect DIGEST]

Exit codes: 0 complete and valid, 2 usage, 5 not valid, 6 incomplete, 7 something cannot be read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import stat
import sys
from typing import Any, NamedTuple

SUMS = "SHA256SUMS"
MANIFEST = "kit.json"
MAX_SUMS_BYTES = 1 << 20
MAX_MANIFEST_BYTES = 4 << 20
MAX_NAMED = 20  # problems that are printed; all of them count
MAX_PROBLEMS = 10_000
MAX_DEPTH = 8
CHUNK = 1 << 20

DONE, USAGE, INTEGRITY, INCOMPLETE, ENVIRONMENT = 0, 2, 5, 6, 7

MALFORMED, DAMAGED, EXTRA, LINK, SPECIAL, MISSING, UNREADABLE = (
    "malformed", "damaged", "extra", "link", "special", "missing", "unreadable",
)  # fmt: skip

_LINE = re.compile(r"([0-9a-f]{64})  ([\x21-\x7e]{1,255})")
_COMPONENT = re.compile(r"[A-Za-z0-9_+!.-]{1,200}")  # `!` is the epoch of a version, `+` its local part


class Problem(NamedTuple):
    """One thing that is wrong: which kind, where (relative to the kit), and in words."""

    kind: str
    path: str
    said: str


class Outcome(NamedTuple):
    """What a check gave. `digest` is the SHA-256 of SHA256SUMS, None where it cannot be read; `files` were hashed."""

    digest: str | None
    files: int
    problems: list[Problem]

    @property
    def complete(self) -> bool:
        return self.digest is not None and not {problem.kind for problem in self.problems} & {MISSING, UNREADABLE}

    @property
    def valid(self) -> bool:
        return self.digest is not None and all(problem.kind == MISSING for problem in self.problems)

    @property
    def exit_code(self) -> int:
        kinds = {problem.kind for problem in self.problems}
        if kinds - {MISSING, UNREADABLE}:
            return INTEGRITY
        if UNREADABLE in kinds:
            return ENVIRONMENT
        return INCOMPLETE if kinds else DONE


class _Refused(Exception):
    """A file that is not what it should be."""

    def __init__(self, kind: str, said: str) -> None:
        super().__init__(said)
        self.kind = kind
        self.said = said


def check(directory: str | os.PathLike[str], expect: str | None = None) -> Outcome:
    """Checks the kit in `directory`, reading only. `expect`: the digest that SHA256SUMS itself must have."""
    problems: list[Problem] = []
    try:
        top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return Outcome(None, 0, [Problem(UNREADABLE, ".", f"the directory cannot be read: {error.strerror}")])
    try:
        data = _bounded(top, SUMS, MAX_SUMS_BYTES)
        listed = parse_sums(data)
    except FileNotFoundError:
        problems.append(Problem(MISSING, SUMS, "it is not there; without it nothing can be checked"))
        return Outcome(None, 0, problems)
    except _Refused as error:
        return Outcome(None, 0, [Problem(error.kind, SUMS, error.said)])
    else:
        digest = hashlib.sha256(data).hexdigest()
        if expect is not None and digest != expect:
            problems.append(Problem(DAMAGED, SUMS, f"expected SHA-256 {expect}, it is {digest}"))
        sizes = _manifest_sizes(top, listed, problems)
        seen = _walk(top, "", listed, sizes, problems)
        unread = tuple(problem.path + "/" for problem in problems if problem.kind == UNREADABLE)
        absent = [path for path in listed if path not in seen and not path.startswith(unread)]
        problems += [Problem(MISSING, path, "it is not there") for path in absent]
        hashed = len(seen)
        return Outcome(digest, hashed, sorted(problems, key=lambda problem: (problem.path, problem.kind)))
    finally:
        os.close(top)


def parse_sums(data: bytes) -> dict[str, str]:
    """Digest of each path, from the bytes of SHA256SUMS. Stricter than sha256sum: no path leaves the kit."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise _Refused(MALFORMED, "it is not ASCII text") from None
    if not text.endswith("\n"):
        raise _Refused(MALFORMED, "its last line does not end")
    listed: dict[str, str] = {}
    folded: set[str] = set()
    for number, line in enumerate(text[:-1].split("\n"), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise _Refused(MALFORMED, f"line {number} is not `DIGEST  PATH`")
        digest, path = match.groups()
        parts = path.split("/")
        plain = all(_COMPONENT.fullmatch(part) and part not in (".", "..") for part in parts)
        if not plain or len(parts) > MAX_DEPTH or path == SUMS:
            raise _Refused(MALFORMED, f"line {number} names {shown(path)}, which is no path inside a kit")
        if path.lower() in folded:
            raise _Refused(MALFORMED, f"line {number} names {shown(path)} a second time")
        folded.add(path.lower())
        listed[path] = digest
    for path in listed:
        parents = path.split("/")[:-1]
        if any("/".join(parents[: i + 1]) in listed for i in range(len(parents))):
            raise _Refused(MALFORMED, f"{shown(path)} lies below a file")
    return listed


def _manifest_sizes(top: int, listed: dict[str, str], problems: list[Problem]) -> dict[str, int]:
    """Sizes that kit.json states, once it is known to be the listed one; a file of another size is not hashed.

    kit.json names each other file too. Where the two lists differ, one of them was changed.
    """
    if MANIFEST not in listed:
        problems.append(Problem(MALFORMED, SUMS, f"it does not name {MANIFEST}"))
        return {}
    try:
        data = _bounded(top, MANIFEST, MAX_MANIFEST_BYTES)
        if hashlib.sha256(data).hexdigest() != listed[MANIFEST]:
            return {}  # the walk reports it
        entries = json.loads(data)["files"]
        stated = {str(entry["path"]): str(entry["sha256"]) for entry in entries}
        sizes = {str(entry["path"]): int(entry["size"]) for entry in entries}
    except (FileNotFoundError, _Refused):
        return {}  # the walk reports it
    except (ValueError, KeyError, TypeError, RecursionError):
        problems.append(Problem(MALFORMED, MANIFEST, "it is not the manifest of a kit"))
        return {}
    others = {path: digest for path, digest in listed.items() if path != MANIFEST}
    if stated != others:
        odd = sorted(p for p in set(stated) | set(others) if stated.get(p) != others.get(p))
        problems.append(
            Problem(MALFORMED, SUMS, f"it and {MANIFEST} disagree about {', '.join(map(shown, odd[:MAX_NAMED]))}")
        )
    return sizes


def _walk(
    directory: int, prefix: str, listed: dict[str, str], sizes: dict[str, int], problems: list[Problem]
) -> set[str]:
    """Compares what lies in an open directory with what is listed; gives the listed paths that were met."""
    seen: set[str] = set()
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        problems.append(Problem(UNREADABLE, prefix or ".", f"it cannot be read: {error.strerror}"))
        return seen
    for name in names:
        path = prefix + name
        below = any(other.startswith(path + "/") for other in listed)
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if path in listed:
                seen.add(path)
                _compare(directory, name, status, listed[path], sizes.get(path))
            elif path == SUMS:
                pass
            elif stat.S_ISLNK(status.st_mode):
                raise _Refused(LINK, "a link, and not listed")
            elif stat.S_ISDIR(status.st_mode) and below:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                inner = os.open(name, flags, dir_fd=directory)
                try:
                    seen |= _walk(inner, path + "/", listed, sizes, problems)
                finally:
                    os.close(inner)
            else:
                raise _Refused(EXTRA, "it is not listed" + (" (a directory)" if stat.S_ISDIR(status.st_mode) else ""))
        except _Refused as error:
            problems.append(Problem(error.kind, path, error.said))
        except OSError as error:
            problems.append(Problem(UNREADABLE, path, f"it cannot be read: {error.strerror}"))
        if len(problems) >= MAX_PROBLEMS:
            problems.append(Problem(EXTRA, prefix or ".", f"more than {MAX_PROBLEMS} problems; the rest is not named"))
            break
    return seen


def _compare(directory: int, name: str, status: os.stat_result, sha256: str, size: int | None) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _Refused(LINK, "a link in place of a file")
    if not stat.S_ISREG(status.st_mode):
        raise _Refused(SPECIAL, "not a regular file")
    if size is not None and status.st_size != size:
        raise _Refused(DAMAGED, f"expected {size:,} bytes, it has {status.st_size:,}")
    state = hashlib.sha256()
    with _open(directory, name) as file:
        while True:
            block = file.read(CHUNK)
            if not block:
                break
            state.update(block)
    if state.hexdigest() != sha256:
        raise _Refused(DAMAGED, f"expected SHA-256 {sha256}, it is {state.hexdigest()}")


def _open(directory: int, name: str) -> Any:
    """A regular file, opened without following a link or waiting for a writer. Raises OSError or _Refused."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(name, flags, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _Refused(SPECIAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def _bounded(directory: int, name: str, limit: int) -> bytes:
    """All of a small file. Raises FileNotFoundError or _Refused."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise _Refused(LINK, "a link in place of a file")
        with _open(directory, name) as file:
            data: bytes = file.read(limit + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _Refused(UNREADABLE, f"it cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise _Refused(MALFORMED, f"it is longer than {limit:,} bytes")
    return data


def shown(path: str) -> str:
    """A path as one printable ASCII word: names in a kit are not to be believed."""
    text = path.encode("unicode_escape", "backslashreplace").decode("ascii")
    return text if len(text) <= 200 else text[:197] + "..."


def describe(outcome: Outcome) -> str:
    """The outcome in lines: problems first, then the two answers and the digest to compare."""
    lines = [f"{problem.kind}: {shown(problem.path)}: {problem.said}\n" for problem in outcome.problems[:MAX_NAMED]]
    left = len(outcome.problems) - MAX_NAMED
    if left > 0:
        lines.append(f"and {left} more\n")
    lines.append(f"complete: {'yes' if outcome.complete else 'no'}\n")
    lines.append(f"valid: {'yes' if outcome.valid else 'no'}\n")
    if outcome.digest is not None:
        lines.append(f"files: {outcome.files}\nkit digest: {outcome.digest}\n")
    return "".join(lines)


def main() -> int:
    """The command. Gives its exit code."""
    parser = argparse.ArgumentParser(description="Checks a kit: every listed file, nothing else, no links.")
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("directory", nargs="?", default=here, help="default: where this program lies")
    parser.add_argument("--expect", metavar="DIGEST", help="the kit digest that `toktier artifacts kit` printed")
    options = parser.parse_args()
    outcome = check(options.directory, options.expect)
    sys.stdout.write(describe(outcome))
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
