"""`toktier session`: what it shows, what it removes, what it finds, and stores that are not as they should be."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command import Outcome, check_document, environment, run_here
from tests.sessions.model import FINGERPRINT, change
from tests.support import namespaces
from tests.support.material import ROOT
from toktier.errors import ExitCode, SessionRevisionConflict
from toktier.sessions.store import SessionStore

SECRET = "s3cretText "
# Nothing that a name may hold must reach a terminal as it is, or be taken for an option.
NAMES = ["chat-42", "", " ", "-x", "--json", "a b", "it's", "\x1b[2J\n", "\x9b31m", "\u202eevil", "日本", "x" * 300,
         "\udcff", "anonymous 1", "[bold]", "%s", "{}", "$(id)"]  # fmt: skip
Here = Callable[..., Outcome]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    """`toktier session` in this process, in a home of its own."""

    def call(*arguments: str) -> Outcome:
        with monkeypatch.context() as patch:
            return run_here("session", *arguments, home=tmp_path / "home", monkeypatch=patch, capture=capfdbinary)

    return call


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a session for each name and two without one."""
    place = tmp_path_factory.mktemp("made") / "store"
    with SessionStore(place) as store:
        for name in NAMES:
            session = store.open(name, FINGERPRINT, keep_text=name == "chat-42")
            session.append(change(0, SECRET * 500, "tail"))
            session.append(change(1, "more", "tail"))
        for _ in range(2):
            store.remember(FINGERPRINT, [change(0, SECRET * 400)])
    return place


@pytest.fixture
def filled(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be altered."""
    return shutil.copytree(made, tmp_path / "store")


def damage(path: Path, statement: str) -> None:
    with sqlite3.connect(path / "sessions.db") as connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()


def of(path: Path, name: str) -> str:
    """A condition on steps of the session with this name."""
    with SessionStore(path) as store:
        info = store.show(name)
    assert info is not None
    return f"number >> 32 = {info.number}"


def test_a_list_has_every_name_and_no_text(here: Here, filled: Path) -> None:
    document = check_document(here("list", "--store", str(filled), "--json"))
    assert sorted(s["name"] for s in document["sessions"]) == sorted(NAMES)
    assert document["anonymous"]["sessions"] == 2
    assert document["anonymous"]["held_bytes"] > 2 * 4 * len(SECRET) * 400
    (chat,) = (s for s in document["sessions"] if s["name"] == "chat-42")
    length = len(SECRET * 500 + "more")
    assert (chat["tokens"], chat["text_bytes"], chat["code_points"]) == (length, length, length)
    assert (chat["tail_tokens"], chat["tail_bytes"], chat["revision"], chat["appends"]) == (4, 4, 2, 2)
    assert (chat["fingerprint"], chat["keep_text"]) == (FINGERPRINT, True)
    text = here("list", "--store", str(filled)).text
    lines = text.splitlines()
    assert len(lines) == 1 + len(NAMES) + 1
    assert all(line.isprintable() for line in lines)
    assert SECRET not in text
    assert lines[-1].startswith("without a name: 2 sessions, ")
    assert sum(line.endswith("  'chat-42'") for line in lines) == 1
    assert [line.split()[0] for line in lines[1:3]] == [str(length + 4)] * 2


def test_all_lists_anonymous_sessions_too(here: Here, filled: Path) -> None:
    document = check_document(here("list", "--all", "--json", "--store", str(filled)))
    assert [s["name"] for s in document["sessions"][:2]] == [None, None], "last used first"
    assert len(document["sessions"]) == len(NAMES) + 2
    assert document["anonymous"]["sessions"] == 2
    lines = here("list", "--all", "--store", str(filled)).text.splitlines()
    assert len(lines) == 1 + len(NAMES) + 2
    assert lines[1].split("  ")[-1].startswith("anonymous ")


def test_an_empty_store_is_said_to_be_empty(here: Here, tmp_path: Path) -> None:
    SessionStore(tmp_path / "store").close()
    outcome = here("list", "--store", str(tmp_path / "store"))
    assert (outcome.code, outcome.stdout) == (0, b"")
    assert "holds no session" in outcome.stderr
    assert here("list", "--quiet", "--store", str(tmp_path / "store")).stderr == ""
    assert here("verify", "--store", str(tmp_path / "store")).text.startswith("ok: 0 sessions")


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_shown_verified_and_removed(here: Here, filled: Path, name: str) -> None:
    at = ("--store", str(filled))
    document = check_document(here("show", "--json", *at, "--", name))
    assert document["session"]["name"] == name
    shown = here("show", *at, "--", name)
    assert shown.code == 0
    assert all(line.isprintable() for line in shown.text.splitlines())
    assert SECRET not in shown.text
    assert here("verify", *at, "--", name).code == 0
    removed = here("remove", *at, "--", name)
    assert (removed.code, removed.stderr) == (0, "")
    assert removed.text.count("\n") == 1
    assert here("show", *at, "--", name).code == ExitCode.NOT_FOUND
    left = check_document(here("list", "--json", *at))["sessions"]
    assert sorted(s["name"] for s in left) == sorted(set(NAMES) - {name})


def test_the_settings_name_the_store(here: Here, filled: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f"store = {str(filled)!r}\n")
    assert check_document(here("list", "--json"))["store"] == str(filled)
    other = tmp_path / "other"
    SessionStore(other).close()
    assert check_document(here("list", "--json", "--store", str(other)))["sessions"] == []


def test_the_state_directory_has_the_store_that_nobody_named(here: Here, tmp_path: Path) -> None:
    absent = here("list", "--json")
    assert absent.code == ExitCode.NOT_FOUND
    place = tmp_path / "home" / "state" / "sessions"
    error = check_document(absent)["error"]
    assert (error["code"], error["details"]) == ("STORE_NOT_FOUND", {"path": str(place)})
    assert not (tmp_path / "home").exists()
    SessionStore(place).close()
    assert check_document(here("list", "--json"))["store"] == str(place)


@pytest.mark.parametrize("verb", ["list", "show x", "remove x", "remove --anonymous", "verify", "verify x", "compact"])
def test_no_verb_makes_a_store(here: Here, tmp_path: Path, verb: str) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "absent"):
        outcome = here(*verb.split(), "--store", str(place))
        assert (outcome.code, outcome.stdout) == (ExitCode.NOT_FOUND, b"")
        assert "there is no session store" in outcome.stderr
        assert "--store" in outcome.stderr.splitlines()[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_credentials_of_a_server_are_in_no_output(here: Here) -> None:
    for flags in ((), ("--json",)):
        outcome = here("list", "--store", "redis://user:geheim@host/0?password=geheim", *flags)
        assert outcome.code == ExitCode.USAGE
        assert "geheim" not in outcome.text + outcome.stderr
        assert "correct store=" in outcome.text + outcome.stderr


def test_an_unknown_name_is_an_error_and_the_others_go(here: Here, filled: Path) -> None:
    at = ("--store", str(filled))
    for verb in ("show", "remove", "verify"):
        error = check_document(here(verb, "nobody", "--json", *at))["error"]
        assert error["code"] == "SESSION_NOT_FOUND"
        assert error["remedy"] == f"toktier session list --store {filled}"
    several = here("remove", "nobody", "chat-42", "chat-42", "\x1b", "--json", *at)
    document = check_document(several)
    assert (several.code, document["removed"]) == (ExitCode.INCOMPLETE, ["chat-42"])
    assert [e["details"]["session"] for e in document["errors"]] == ["nobody", "\x1b"]
    assert "\x1b" not in several.stderr
    assert here("remove", "nobody", "nothing", *at).code == ExitCode.NOT_FOUND
    assert here("remove", *at).code == ExitCode.USAGE


def test_anonymous_sessions_go_together_and_named_ones_stay(here: Here, filled: Path) -> None:
    at = ("--store", str(filled))
    document = check_document(here("remove", "--anonymous", "a b", "--json", *at))
    assert (document["anonymous_removed"], document["removed"]) == (2, ["a b"])
    listed = check_document(here("list", "--all", "--json", *at))
    assert sorted(s["name"] for s in listed["sessions"]) == sorted(set(NAMES) - {"a b"})
    again = here("remove", "--anonymous", *at)
    assert (again.code, again.text) == (0, "0 without a name: removed\n")


def test_a_program_notices_that_its_session_was_removed(here: Here, filled: Path) -> None:
    with SessionStore(filled) as store:
        session = store.open("chat-42", FINGERPRINT)
        assert here("remove", "chat-42", "--store", str(filled)).code == 0
        with pytest.raises(SessionRevisionConflict):
            session.append(change(2, "x"))


def test_verify_says_what_it_read(here: Here, filled: Path) -> None:
    document = check_document(here("verify", "--json", "--store", str(filled)))
    count, length = len(NAMES), len(SECRET * 500 + "more")
    assert (document["session"], document["findings"]) == (None, [])
    assert document["checked"] == {
        "sessions": count + 2, "anonymous": 2, "with_text": 1, "appends": 2 * count + 2,
        "tokens": count * length + 2 * len(SECRET * 400), "text_bytes": count * length + 2 * len(SECRET * 400),
    }  # fmt: skip
    text = here("verify", "--store", str(filled)).text
    assert text.startswith(f"ok: {count + 2} sessions, 2 without a name: digests of ")
    assert text.endswith("kept text of 1, the database\n")
    one = check_document(here("verify", "chat-42", "--json", "--store", str(filled)))
    assert (one["session"], one["checked"]["sessions"], one["checked"]["tokens"]) == ("chat-42", 1, length)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE step SET text_chain = zeroblob(32) WHERE {of}",
        "UPDATE step SET ids = x'00' WHERE {of}",
        "DELETE FROM step WHERE {of}",
        "DELETE FROM block WHERE {of}",
        "UPDATE state SET revision = revision + 1 WHERE number = {of}",
        "UPDATE state SET tail_text = x'00' WHERE number = {of}",
        "UPDATE state SET tokens = 'many', held = -1, revision = x'00' WHERE number = {of}",
        "UPDATE state SET last_use = 9223372036854775807 WHERE number = {of}",
        "UPDATE session SET fingerprint = x'1b5b324a' WHERE number = {of}",
        "DELETE FROM state WHERE number = {of}",
    ],
)
def test_a_damaged_session_is_listed_found_and_removed(here: Here, filled: Path, statement: str) -> None:
    at, name = ("--store", str(filled)), "a b"
    condition = of(filled, name)
    damage(filled, statement.format(of=condition if "step" in statement or "block" in statement else condition[15:]))
    harmless = "last_use" in statement
    for line in (("list",), ("list", "--all"), ("show", name)):
        outcome = here(*line, *at)
        assert outcome.code in (0, ExitCode.INTEGRITY), outcome.stderr
        assert all(part.isprintable() for part in (outcome.text + outcome.stderr).splitlines())
        check_document(here(*line, *at, "--json"))
    for line in (("verify",), ("verify", name)):
        outcome = here(*line, *at)
        assert outcome.code == (0 if harmless else ExitCode.INTEGRITY)
        if harmless:
            continue
        document = check_document(here(*line, "--json", *at))
        assert document["exit_code"] == ExitCode.INTEGRITY
        assert {f["name"] for f in document["findings"]} <= {name, None}
        assert SECRET not in outcome.text
        assert "DAMAGED" in outcome.text
        if "DELETE FROM state" not in statement or len(line) == 2:
            assert f"'a b': DAMAGED: {document['findings'][0]['finding']}" in outcome.text
            assert f"(toktier session remove --store {filled} 'a b')" in outcome.text
    assert here("remove", name, *at).code == 0
    assert here("verify", *at).code == 0


def test_a_session_without_its_state_is_damaged_not_absent(here: Here, filled: Path) -> None:
    damage(filled, f"DELETE FROM state WHERE number = {of(filled, 'chat-42')[15:]}")
    error = check_document(here("show", "chat-42", "--json", "--store", str(filled)))["error"]
    assert (error["code"], error["remedy"]) == (
        "STORE_CORRUPT",
        f"toktier session remove --store {filled} chat-42",
    )


@pytest.mark.parametrize("what", ["name_key = zeroblob(32)", "name = x'ff'", "name = 'text'", "name = 7"])
def test_no_command_is_given_for_a_session_that_its_name_does_not_lead_to(here: Here, filled: Path, what: str) -> None:
    damage(filled, f"UPDATE session SET {what} WHERE number = {of(filled, 'chat-42')[15:]}")
    assert here("list", "--store", str(filled)).code == 0
    outcome = here("verify", "--store", str(filled))
    assert outcome.code == ExitCode.INTEGRITY
    assert "session remove" not in outcome.text
    assert "does not lead to it" in outcome.text
    assert all(line.isprintable() for line in outcome.text.splitlines())


def test_damage_of_an_anonymous_session_is_mended_by_removing_those(here: Here, filled: Path) -> None:
    with SessionStore(filled) as store:
        number = next(info.number for info in store.sessions() if info.name is None)
    damage(filled, f"UPDATE step SET ids = x'' WHERE number >> 32 = {number}")
    outcome = here("verify", "--store", str(filled))
    assert outcome.code == ExitCode.INTEGRITY
    assert f"anonymous {number}: DAMAGED: " in outcome.text
    assert f"(toktier session remove --anonymous --store {filled})" in outcome.text
    assert here("remove", "--anonymous", "--store", str(filled)).code == 0
    assert here("verify", "--store", str(filled)).code == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_mends_a_damaged_session_can_be_pasted(here: Here, filled: Path, name: str) -> None:
    damage(filled, f"UPDATE step SET ids = x'00' WHERE {of(filled, name)}")
    (line, _) = here("verify", "--store", str(filled)).text.splitlines()
    command = line[line.rindex("(toktier session remove ") + 1 : -1]
    typed = subprocess.run(
        ["bash", "-c", f"""printf '%s\\0' {command}"""], capture_output=True, check=True
    ).stdout.split(b"\0")[:-1]
    if name == "$(id)":
        assert shlex.split(command)[-1] == name
    words = [os.fsdecode(word) for word in typed]
    assert words[:3] == ["toktier", "session", "remove"]
    assert here(*words[2:]).code == 0
    assert here("verify", "--store", str(filled)).code == 0


def test_compact_gives_space_back_and_changes_nothing(here: Here, filled: Path) -> None:
    at = ("--store", str(filled))
    before = check_document(here("list", "--all", "--json", *at))
    here("remove", "--anonymous", *at)
    document = check_document(here("compact", "--json", *at))
    assert document["bytes_after"] < document["bytes_before"]
    after = check_document(here("list", "--json", *at))
    assert after["sessions"] == [s for s in before["sessions"] if s["name"] is not None]
    assert here("verify", *at).code == 0
    assert "rows merged" in here("compact", *at).text


VERBS = [("list",), ("show", "chat-42"), ("verify",), ("verify", "chat-42"), ("remove", "chat-42"), ("compact",)]


def refused(outcome: Outcome, code: ExitCode, error: str) -> None:
    document = check_document(outcome)
    assert (outcome.code, document["error"]["code"]) == (code, error), document
    assert document["error"]["remedy"]
    assert "Traceback" not in outcome.stderr
    assert SECRET not in outcome.text


@pytest.mark.parametrize("line", VERBS, ids=" ".join)
@pytest.mark.parametrize(("version", "application"), [(2, 0x746B7365), (1, 7)])
def test_another_format_is_refused(
    here: Here, filled: Path, line: tuple[str, ...], version: int, application: int
) -> None:
    connection = sqlite3.connect(filled / "sessions.db")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute(f"PRAGMA application_id = {application}")
    connection.close()
    before = (filled / "sessions.db").read_bytes()
    refused(here(*line, "--json", "--store", str(filled)), ExitCode.REFUSED, "STORE_FORMAT_UNSUPPORTED")
    assert (filled / "sessions.db").read_bytes() == before


@pytest.mark.parametrize("line", VERBS, ids=" ".join)
def test_a_file_that_is_no_database_is_damaged(here: Here, filled: Path, line: tuple[str, ...]) -> None:
    (filled / "sessions.db").write_bytes(SECRET.encode() * 1000)
    refused(here(*line, "--json", "--store", str(filled)), ExitCode.INTEGRITY, "STORE_CORRUPT")


@pytest.mark.parametrize("page", range(2, 9))
def test_a_corrupted_page_is_an_answer_or_an_error_of_integrity(here: Here, filled: Path, page: int) -> None:
    with open(filled / "sessions.db", "r+b") as file:
        file.seek((page - 1) * 1024)
        file.write(b"\xa5" * 1024)
    codes = []
    for line in VERBS[:4]:
        outcome = here(*line, "--json", "--store", str(filled))
        check_document(outcome)
        assert outcome.code in (0, ExitCode.INTEGRITY, ExitCode.NOT_FOUND), outcome.text
        assert "Traceback" not in outcome.stderr
        codes.append(outcome.code)
    assert codes[2] == ExitCode.INTEGRITY, "verify must find it"


@pytest.mark.parametrize("line", VERBS, ids=" ".join)
def test_a_network_file_system_is_refused(
    here: Here, filled: Path, line: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"21 1 254:0 / / rw - ext4 /dev/vda rw\n30 21 0:30 / {filled} rw - nfs4 host:/x rw\n")
    monkeypatch.setattr("toktier.sessions.file_systems._MOUNTS", table)
    outcome = here(*line, "--json", "--store", str(filled))
    refused(outcome, ExitCode.ENVIRONMENT, "ENVIRONMENT_FAULT")
    assert "nfs4" in outcome.text


NOBODY = 65534
# As root no permission ever stops anything. Modules are imported while everything may still be read.
AS_NOBODY = f"""
import os, sys
import toktier.labels, toktier_cli.verbs.session
from toktier_cli.main import main
main(["session", "list", "--home", "/nonexistent", "--json"])
print()
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
sys.exit(main())
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A store in a directory that everybody may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        place = Path(directory, "store")
        with SessionStore(place) as store:
            store.open("chat-42", FINGERPRINT).append(change(0, SECRET))
        yield place


@pytest.mark.unsanitized
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to drop it")
@pytest.mark.parametrize("line", VERBS, ids=" ".join)
@pytest.mark.parametrize("mode", ["0700/0600", "0755/0600", "0755/0644"])
def test_a_store_of_somebody_else_is_an_environment_fault(public: Path, line: tuple[str, ...], mode: str) -> None:
    directory_mode, file_mode = (int(part, 8) for part in mode.split("/"))
    (public / "sessions.db").chmod(file_mode)
    public.chmod(directory_mode)
    before = sorted(p.name for p in public.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, "session", *line, "--json", "--store", str(public)],
        capture_output=True, cwd=ROOT, env=environment(Path("/nonexistent")),
    )  # fmt: skip
    last = done.stdout.splitlines(keepends=True)[-1]
    refused(Outcome(done.returncode, last, done.stderr.decode()), ExitCode.ENVIRONMENT, "ENVIRONMENT_FAULT")
    assert sorted(p.name for p in public.iterdir()) == before


@pytest.mark.unsanitized
@pytest.mark.skipif(not namespaces.can_unshare("--mount"), reason="needs a private mount namespace")
@pytest.mark.parametrize("line", VERBS, ids=" ".join)
def test_a_read_only_file_system_is_an_environment_fault(filled: Path, line: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toktier_cli.main", "session", *line, "--json", "--store", str(filled)]
    done = subprocess.run(
        namespaces.read_only(filled, *command), capture_output=True, cwd=ROOT, env=environment(tmp_path / "home")
    )
    refused(Outcome(done.returncode, done.stdout, done.stderr.decode()), ExitCode.ENVIRONMENT, "ENVIRONMENT_FAULT")
