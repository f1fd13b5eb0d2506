"""The stand-alone verifier of kits: what it accepts, and every way in which a carried folder can lie.

It runs here as it does on the other host: the copied file, isolated, by an interpreter with an empty environment.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.material import ROOT
from toktier.artifacts import verify_kit
from toktier.artifacts.verify_kit import MAX_SUMS_BYTES, check, describe

SOURCE = ROOT / "toktier" / "artifacts" / "verify_kit.py"
CONTENT = {"bundle.tar": b"bundle", "wheels/a-1-py3-none-any.whl": b"a", "wheels/b-2+local-py3-none-any.whl": b"b"}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_sums(kit: Path) -> None:
    """SHA256SUMS over what lies there."""
    paths = sorted(p for p in kit.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    lines = [f"{sha(p.read_bytes())}  {p.relative_to(kit)}\n" for p in paths]
    (kit / "SHA256SUMS").write_text("".join(lines))


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    folder = tmp_path / "kit"
    (folder / "wheels").mkdir(parents=True)
    (folder / "verify_kit.py").write_bytes(SOURCE.read_bytes())
    for path, data in CONTENT.items():
        (folder / path).write_bytes(data)
    files = sorted([*CONTENT, "verify_kit.py"])
    entries = [
        {"path": p, "sha256": sha((folder / p).read_bytes()), "size": (folder / p).stat().st_size} for p in files
    ]
    (folder / "kit.json").write_text(json.dumps({"files": entries}))
    write_sums(folder)
    return folder


def run(kit: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(kit / "verify_kit.py"), *arguments],
        cwd=cwd or kit.parent, env={"LC_ALL": "C"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_whole_kit(kit: Path) -> None:
    ran = run(kit)
    digest = sha((kit / "SHA256SUMS").read_bytes())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout == f"complete: yes\nvalid: yes\nfiles: 5\nkit digest: {digest}\n"
    assert run(kit, str(kit), "--expect", digest, cwd=Path("/")).returncode == 0
    assert not (kit / "__pycache__").exists()


def test_sha256sum_reads_the_same_list(kit: Path) -> None:
    ran = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=kit, check=False)
    assert ran.returncode == 0


def test_it_needs_the_standard_library_alone_and_an_old_python() -> None:
    tree = ast.parse(SOURCE.read_text("utf-8"), feature_version=(3, 8))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert named <= set(sys.stdlib_module_names) | {"__future__"}


def damage(kit: Path) -> None:
    (kit / "bundle.tar").write_bytes(b"bundlf")


def grow(kit: Path) -> None:
    with open(kit / "bundle.tar", "ab") as file:
        file.truncate(1 << 40)  # sparse: hashing it would take an hour


def add(kit: Path) -> None:
    (kit / "wheels" / "c-1-py3-none-any.whl").write_bytes(b"c")


def add_directory(kit: Path) -> None:
    (kit / "more").mkdir()
    (kit / "more" / "x").write_bytes(b"")


def add_hidden(kit: Path) -> None:
    (kit / ".pip.conf").write_bytes(b"")


def link(kit: Path) -> None:
    (kit / "bundle.tar").rename(kit.parent / "elsewhere")
    (kit / "bundle.tar").symlink_to(kit.parent / "elsewhere")


def link_directory(kit: Path) -> None:
    (kit / "wheels").rename(kit.parent / "wheels")
    (kit / "wheels").symlink_to(kit.parent / "wheels")


def link_sums(kit: Path) -> None:
    (kit / "SHA256SUMS").rename(kit.parent / "sums")
    (kit / "SHA256SUMS").symlink_to(kit.parent / "sums")


def extra_link(kit: Path) -> None:
    (kit / "wheels" / "here").symlink_to("/etc")


def fifo(kit: Path) -> None:
    (kit / "bundle.tar").unlink()
    os.mkfifo(kit / "bundle.tar")


def directory_in_place(kit: Path) -> None:
    (kit / "bundle.tar").unlink()
    (kit / "bundle.tar").mkdir()


def unlist(kit: Path) -> None:
    """A file and its line are gone: only kit.json still knows of it."""
    (kit / "bundle.tar").unlink()
    write_sums(kit)


def list_more(kit: Path) -> None:
    add(kit)
    write_sums(kit)


def edited(old: str, new: str) -> Callable[[Path], None]:
    def edit(kit: Path) -> None:
        path = kit / "SHA256SUMS"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return edit


def sums_of(data: bytes) -> Callable[[Path], None]:
    def replace(kit: Path) -> None:
        (kit / "SHA256SUMS").write_bytes(data)

    return replace


LINE = "0" * 64 + "  "
ATTACKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "one byte changed": (damage, "damaged: bundle.tar: expected SHA-256"),
    "a file of another size is not hashed": (grow, "damaged: bundle.tar: expected 6 bytes"),
    "a wheel more, which pip would find": (add, "extra: wheels/c-1-py3-none-any.whl: it is not listed"),
    "a directory more": (add_directory, "extra: more: it is not listed (a directory)"),
    "a hidden file more": (add_hidden, "extra: .pip.conf"),
    "a link with the right content": (link, "link: bundle.tar: a link in place of a file"),
    "a linked directory with the right content": (link_directory, "link: wheels: a link"),
    "linked sums": (link_sums, "link: SHA256SUMS"),
    "a link more": (extra_link, "link: wheels/here"),
    "a FIFO, which would wait": (fifo, "special: bundle.tar"),
    "a directory in place of a file": (directory_in_place, "special: bundle.tar"),
    "a file and its line removed": (unlist, "malformed: SHA256SUMS: it and kit.json disagree about bundle.tar"),
    "a file and its line added": (list_more, "malformed: SHA256SUMS: it and kit.json disagree about wheels/c-1"),
    "traversal": (edited("  bundle.tar", "  ../bundle.tar"), "malformed: SHA256SUMS: line 1 names ../bundle.tar"),
    "traversal inside": (edited("  wheels/a", "  wheels/../a"), "which is no path inside a kit"),
    "an absolute path": (edited("  bundle.tar", "  /etc/passwd"), "line 1 names /etc/passwd, which is no path"),
    "a doubled slash": (edited("  wheels/a", "  wheels//a"), "which is no path inside a kit"),
    "a dot": (edited("  bundle.tar", "  ./bundle.tar"), "which is no path inside a kit"),
    "a name with an escape sequence": (edited("  bundle.tar", "  bundle\x1b[2J"), "line 1 is not `DIGEST  PATH`"),
    "a name escaped for sha256sum": (edited("  bundle.tar", "  bundle\\n.tar"), "which is no path inside a kit"),
    "a name that is not ASCII": (sums_of(f"{LINE}bündle\n".encode()), "malformed: SHA256SUMS: it is not ASCII text"),
    "a line twice": (sums_of(f"{LINE}a\n{LINE}a\n".encode()), "line 2 names a a second time"),
    "a clash of case": (sums_of(f"{LINE}a\n{LINE}A\n".encode()), "line 2 names A a second time"),
    "a file below a file": (sums_of(f"{LINE}a\n{LINE}a/b\n".encode()), "a/b lies below a file"),
    "itself": (sums_of(f"{LINE}SHA256SUMS\n".encode()), "which is no path inside a kit"),
    "too deep": (sums_of(f"{LINE}{'a/' * 20}a\n".encode()), "which is no path inside a kit"),
    "binary mode": (edited("  bundle.tar", " *bundle.tar"), "line 1 is not"),
    "an empty list": (sums_of(b""), "its last line does not end"),
    "a cut list": (sums_of(f"{LINE}a".encode()), "its last line does not end"),
    "an endless list": (sums_of(b"0" * (MAX_SUMS_BYTES + 1)), "longer than"),
    "no manifest": (edited("  kit.json", "  kit.jsom"), "it does not name kit.json"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_not_valid(kit: Path, name: str) -> None:
    attack, said = ATTACKS[name]
    attack(kit)
    ran = run(kit)
    assert ran.returncode == 5, ran.stdout + ran.stderr
    assert said in ran.stdout
    assert "valid: no\n" in ran.stdout
    assert ran.stderr == ""
    assert ran.stdout.isascii()
    assert "\x1b" not in ran.stdout


def test_a_missing_file_is_incomplete_and_the_rest_valid(kit: Path) -> None:
    (kit / "wheels/a-1-py3-none-any.whl").unlink()
    ran = run(kit)
    assert ran.returncode == 6
    assert ran.stdout.startswith("missing: wheels/a-1-py3-none-any.whl: it is not there\ncomplete: no\nvalid: yes\n")


def test_a_missing_directory_names_every_file(kit: Path) -> None:
    for path in CONTENT:
        (kit / path).unlink()
    (kit / "wheels").rmdir()
    outcome = check(kit)
    assert [(p.kind, p.path) for p in outcome.problems] == [("missing", path) for path in sorted(CONTENT)]


def test_missing_and_damaged_are_two_answers(kit: Path) -> None:
    damage(kit)
    (kit / "wheels/a-1-py3-none-any.whl").unlink()
    outcome = check(kit)
    assert (outcome.complete, outcome.valid, outcome.exit_code) == (False, False, 5)


def test_without_the_list_nothing_is_known(kit: Path) -> None:
    (kit / "SHA256SUMS").unlink()
    outcome = check(kit)
    assert (outcome.complete, outcome.valid, outcome.exit_code, outcome.digest) == (False, False, 6, None)


def test_the_digest_of_another_kit(kit: Path) -> None:
    ran = run(kit, "--expect", "0" * 64)
    assert ran.returncode == 5
    assert "damaged: SHA256SUMS: expected SHA-256 0000" in ran.stdout


@pytest.mark.parametrize("text", ["[]", "{", '{"files": 1}', '{"files": [{"path": "a"}]}', "[" * 200_000])
def test_a_manifest_that_is_none(kit: Path, text: str) -> None:
    (kit / "kit.json").write_text(text)
    write_sums(kit)
    outcome = check(kit)
    assert outcome.exit_code == 5
    assert [p.path for p in outcome.problems] == ["kit.json"]


def test_names_are_shown_as_plain_ascii(kit: Path) -> None:
    (kit / "wheels" / "ü\x1b[2J\n").write_bytes(b"")
    (kit / os.fsdecode(b"\xff")).write_bytes(b"")
    text = describe(check(kit))
    assert text.isascii()
    assert "\x1b" not in text
    assert "extra: wheels/\\xfc\\x1b[2J\\n: it is not listed" in text


def test_many_problems_are_counted_and_twenty_named(kit: Path) -> None:
    for number in range(100):
        (kit / f"x{number}").write_bytes(b"")
    outcome = check(kit)
    assert len(outcome.problems) == 100
    assert describe(outcome).count("extra: ") == verify_kit.MAX_NAMED
    assert "and 80 more\n" in describe(outcome)


def test_no_kit_at_all(tmp_path: Path) -> None:
    assert check(tmp_path / "nowhere").exit_code == 7
    assert check(tmp_path).exit_code == 6


def test_what_cannot_be_read_is_neither_missing_nor_damaged(kit: Path) -> None:
    """In a fork that gives up its rights: another interpreter may not be readable for that user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody who may not read")
    (kit / "bundle.tar").chmod(0)
    (kit / "wheels").chmod(0)
    kit.chmod(0o755)
    top = os.open(kit, os.O_RDONLY | os.O_DIRECTORY)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.fchdir(top)
            os.setgid(65534)
            os.setuid(65534)
            outcome = check(".")
            kinds = sorted((p.kind, p.path) for p in outcome.problems)
            right = kinds == [("unreadable", "bundle.tar"), ("unreadable", "wheels")]
            code = outcome.exit_code if right and not outcome.valid else 98
        finally:
            os._exit(code)
    os.close(top)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
