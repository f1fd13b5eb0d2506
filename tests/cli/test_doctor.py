"""`toktier doctor` as users and jobs meet it: exit codes, hosts wrong in one way, what it must not say or do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Outcome, check_document, environment, run, run_here, run_on_terminal
from tests.support import nvml_stub
from tests.support.material import ROOT
from tests.support.namespaces import can_unshare, no_network, read_only
from toktier import diagnostics_ring
from toktier.artifacts import cache as caches
from toktier.artifacts.pins import shipped_pins
from toktier.config import Config, resolve_settings
from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Check, Finding, Status, ok

# What a checkout that others build in says of itself is no part of these tests.
SETTLED = ("--skip", "build.identity", "--skip", "evidence.registry", "--timeout", "600")
QWEN = shipped_pins().family("qwen3_8b").tokenizer
Here = Callable[..., Outcome]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    """The command in this process, in a home of its own."""

    def call(*arguments: str, home: Path = tmp_path / "home", **environ: str) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr("tests.cli.command.environment", lambda home, **more: environment(home, **more, **environ))
            # A loaded machine may take longer than the default for a check that takes milliseconds.
            patient = () if "--timeout" in arguments else ("--timeout", "600")
            return run_here(*arguments, *patient, home=home, monkeypatch=patch, capture=capfdbinary)

    return call


def row(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(check for check in document["checks"] if check["id"] == name)
    return found


def damaged_cache(home: Path) -> Path:
    """A blob of the pinned size with other bytes."""
    blob = home / "cache" / "artifacts" / "blobs" / "sha256" / QWEN.sha256[:2] / QWEN.sha256
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"x" * QWEN.size)
    return blob


def wrong_reference(place: Path) -> Path:
    """A directory for the import path with another version of the reference."""
    (place / "tokenizers").mkdir(parents=True)
    (place / "tokenizers" / "__init__.py").write_text('raise ImportError("never imported")\n')
    (place / "tokenizers-0.99.0.dist-info").mkdir()
    return place


def listing(root: Path) -> list[tuple[str, int, int]]:
    return sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_size) for p in [root, *root.rglob("*")])


def checks_of(monkeypatch: pytest.MonkeyPatch, *statuses: Status, required: bool = True) -> None:
    def look(status: Status) -> Callable[[Context], Finding]:
        return lambda _: Finding(status, status.value)

    made = [
        Check(f"test.{n}{s.value}", "?", look(s), required=required) for n, s in zip("abcdef", statuses, strict=False)
    ]
    monkeypatch.setattr("toktier_cli.verbs.doctor.selected", lambda *_, **__: made)


@pytest.mark.parametrize(
    ("statuses", "status", "plain", "gated", "strict"),
    [
        ((Status.OK, Status.SKIP), "ok", 0, 0, 0),
        ((Status.OK, Status.WARN), "warn", 0, 0, 1),
        ((Status.WARN, Status.UNKNOWN), "unknown", 0, 6, 6),
        ((Status.UNKNOWN, Status.FAIL, Status.OK), "fail", 0, 1, 1),
    ],
)
def test_exit_codes(
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
    statuses: tuple[Status, ...],
    status: str,
    plain: int,
    gated: int,
    strict: int,
) -> None:
    checks_of(monkeypatch, *statuses)
    for line, code in (((), plain), (("--check",), gated), (("--check=fail",), gated), (("--check=warn",), strict)):
        document = check_document(here("doctor", "--json", *line))
        assert (document["status"], document["exit_code"]) == (status, code), line


def test_an_optional_part_never_fails_it(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    checks_of(monkeypatch, Status.FAIL, Status.WARN, required=False)
    document = check_document(here("doctor", "--json", "--check=warn"))
    assert (document["status"], document["exit_code"]) == ("ok", 0)
    assert document["summary"]["fail"] == 1


def test_a_good_host(here: Here, tmp_path: Path) -> None:
    document = check_document(here("doctor", "--json", "--check", *SETTLED))
    assert document["status"] == "ok"
    assert document["facts"]["automatic_effective_backend"] == "fast_cpu"
    assert document["facts"]["gpu_min_bytes"] == 65536
    assert document["family"] is None
    assert not (tmp_path / "home").exists()


def test_two_reports_differ_in_time_alone(here: Here, tmp_path: Path) -> None:
    line = ("doctor", "--json", *SETTLED, "--family", "toktier_mini")
    other = tmp_path / "other.json"
    other.write_bytes(here(*line).stdout)
    compared = check_document(here("doctor", *line[2:], "--json", "--check", "--compare", str(other)))
    assert (compared["same"], compared["differences"]) == (True, [])
    changed = json.loads(other.read_text())
    changed["facts"]["tokenizers_version"] = "0.22.2"
    other.write_text(json.dumps(changed))
    compared = check_document(here(*line, "--check", "--compare", str(other)))
    assert compared["exit_code"] == 1
    assert compared["differences"] == [{"path": "facts.tokenizers_version", "here": "0.23.3", "there": "0.22.2"}]
    assert check_document(here(*line, "--compare", str(other)))["exit_code"] == 0
    assert "facts.tokenizers_version" in here("doctor", *line[2:], "--compare", str(other)).text
    other.write_text('{"schema": "toktier.encode"}')
    assert here(*line, "--compare", str(other)).code == 2


def test_what_runs_for_a_family_and_why_nothing_faster(here: Here) -> None:
    document = check_document(here("doctor", "--json", "--only", "family", "--family", "toktier_mini"))
    block = document["family"]
    assert block["effective_backend"] == block["effective_backend_below_crossover"] == "fast_cpu"
    assert (block["cached"], block["verified"], block["program"]) == (True, True, "compiled_now")
    assert block["first_closed_gate"]["gate"] == "device"
    assert block["gates"][0]["backend"] == "gpu"
    assert block["gpu_kernels"]["suits"]
    text = here("doctor", "--only", "family", "--family", "toktier_mini").text
    assert "closed gpu device: no usable GPU (R_NO_GPU_DETECTED)" in text
    assert "kernels of the GPU can follow it" in text


def test_a_tokenizer_that_kernels_cannot_follow(here: Here) -> None:
    path = str(ROOT / "tests" / "data" / "tokenizers" / "gemma_like.json")
    document = check_document(here("doctor", "--json", "--only", "family", "--family", path))
    kernels = document["family"]["gpu_kernels"]
    assert (kernels["suits"], kernels["premise"], kernels["tables_sha256"]) == (False, "model", None)
    assert document["family"]["gpu_status"] == "unsupported"
    gate = next(g for g in document["family"]["gates"] if (g["backend"], g["gate"]) == ("gpu", "program"))
    assert (gate["open"], gate["reason"], gate["summary"]) == (False, "R_GPU_PROGRAM_UNSUITABLE", kernels["reason"])
    text = here("doctor", "--only", "family", "--family", path).text
    assert f"kernels of the GPU cannot follow it: {kernels['reason']} (model)" in text


def test_a_family_that_is_not_here(here: Here) -> None:
    line = ("doctor", "--json", "--only", "family", "--family", "qwen3_8b", "--check")
    online = check_document(here(*line))
    assert (online["status"], online["exit_code"]) == ("warn", 0)
    assert row(online, "family.artifact")["remedy"]["command"] == "toktier artifacts fetch qwen3_8b"
    offline = check_document(here(*line, "--offline"))
    assert (offline["status"], offline["exit_code"]) == ("fail", 1)
    assert offline["family"]["effective_backend"] is None


def test_a_file_beyond_the_compiler(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    mini = json.loads((ROOT / "tables/artifacts/toktier_mini/tokenizer.json").read_text("utf-8"))
    mini["pre_tokenizer"] = {"type": "Unheard"}
    path.write_text(json.dumps(mini))
    document = check_document(here("doctor", "--json", "--only", "family", "--family", str(path)))
    assert document["status"] == "warn"
    assert document["family"]["effective_backend"] == "hf"
    assert document["family"]["program"] == "unsupported"
    assert document["family"]["gpu_kernels"]["premise"] == "compiler"
    assert "R_PROGRAM_UNSUPPORTED" in row(document, "family.route")["summary"]
    path.write_bytes(b"{")
    document = check_document(here("doctor", "--json", "--check", "--only", "family", "--family", str(path)))
    assert row(document, "family.route")["reasons"][0]["measured"] == "ARTIFACT_DAMAGED"
    assert document["exit_code"] == 1


def test_a_damaged_artifact(here: Here, tmp_path: Path) -> None:
    blob = damaged_cache(tmp_path / "home")
    before = listing(tmp_path / "home")
    document = check_document(here("doctor", "--json", "--check", *SETTLED))
    found = row(document, "artifacts.cache")
    assert (document["status"], document["exit_code"], found["status"]) == ("fail", 1, "fail")
    assert found["reasons"][0] == {
        "code": "ARTIFACT_DAMAGED", "measured": "qwen3_8b/tokenizer.json", "expected": "the pinned SHA-256"
    }  # fmt: skip
    assert found["remedy"]["command"] == "toktier artifacts fetch qwen3_8b"
    assert row(document, "python.version")["status"] == "ok"
    text = here("doctor", *SETTLED).text
    last = [line for line in text.splitlines() if line.startswith("[")][-1]
    assert last.startswith("[FAIL] artifacts.cache:")
    assert "$ toktier artifacts fetch qwen3_8b" in text
    assert listing(tmp_path / "home") == before
    assert blob.stat().st_size == QWEN.size


def test_what_is_beyond_the_bound_is_compared_by_size(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged_cache(tmp_path / "home")
    monkeypatch.setattr("toktier.diagnosis.artifacts.MAX_HASHED", 1000)
    monkeypatch.setattr(caches, "hash_file", lambda _: pytest.fail("hashed"))
    found = row(check_document(here("doctor", "--json", "--only", "artifacts.cache")), "artifacts.cache")
    assert (found["status"], found["facts"]["compared_by_size"]) == ("ok", 1)


@pytest.mark.unsanitized
def test_a_wrong_reference(tmp_path: Path) -> None:
    path = f"{wrong_reference(tmp_path / 'site')}:{ROOT}"
    env = {"PYTHONPATH": path}
    done = run("doctor", "--json", "--check", *SETTLED, "--family", "toktier_mini", home=tmp_path / "home", env=env)
    document = check_document(done)
    assert done.code == 1
    found = row(document, "dependencies.reference")
    assert found["reasons"] == [{"code": "REFERENCE_UNCERTIFIED", "measured": "0.99.0", "expected": "0.22.2 or 0.23.3"}]
    assert found["remedy"]["command"] == "pip install tokenizers==0.23.3"
    assert document["family"]["effective_backend"] == "hf"
    assert row(document, "family.route")["status"] == "warn"


def test_pynvml(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site" / "pynvml-12.0.0.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    document = check_document(here("doctor", "--json", "--check", "--only", "dependencies"))
    assert (document["status"], document["exit_code"]) == ("warn", 0)
    assert row(document, "dependencies.pynvml")["remedy"]["command"].startswith("pip uninstall pynvml")


def test_a_misspelt_variable(here: Here) -> None:
    document = check_document(here("doctor", "--json", "--only", "config", TOKTIER_OFLINE="1", HTTPS_PROXY="http://p"))
    found = row(document, "config.variables")
    assert found["reasons"] == [
        {"code": "VARIABLE_UNKNOWN", "measured": "TOKTIER_OFLINE", "expected": "TOKTIER_OFFLINE"}
    ]
    assert found["facts"]["environment"]["HTTPS_PROXY"] == "set"
    assert found["facts"]["environment"]["TOKTIER_OFFLINE"] == "unset"


def test_a_bad_config_file_is_a_row_not_an_error(here: Here, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("ofline = true\n")
    document = check_document(here("doctor", "--json", "--check", *SETTLED))
    assert (document["status"], document["exit_code"]) == ("fail", 1)
    assert "did you mean `offline`?" in row(document, "config.settings")["summary"]
    assert document["summary"]["fail"] == 1


@pytest.mark.unsanitized
def test_without_a_home(tmp_path: Path) -> None:
    done = run("doctor", "--json", "--check", *SETTLED, home=None)
    document = check_document(done)
    assert (document["status"], done.code) == ("warn", 0)
    found = row(document, "directories.cache")
    assert found["reasons"][0]["code"] == "DIRECTORY_NONE"
    assert found["remedy"]["command"].startswith("export TOKTIER_HOME=")
    assert document["facts"]["artifact_cache_dir"] is None


@pytest.mark.unsanitized
@pytest.mark.skipif(not can_unshare("--mount"), reason="cannot make a read-only mount here")
def test_a_read_only_home(tmp_path: Path) -> None:
    damaged_cache(tmp_path)
    command = [sys.executable, "-m", "toktier_cli.main", "doctor", "--json", "--check", *SETTLED]
    before = listing(tmp_path)
    done = subprocess.run(read_only(tmp_path, *command), capture_output=True, cwd=ROOT, env=environment(tmp_path))
    document = check_document(Outcome(done.returncode, done.stdout, done.stderr.decode()))
    assert row(document, "directories.cache")["reasons"][0]["code"] == "DIRECTORY_READ_ONLY"
    assert row(document, "directories.cache")["status"] == "warn"
    assert row(document, "artifacts.cache")["status"] == "fail"  # still looked into
    assert done.returncode == 1
    assert listing(tmp_path) == before


@pytest.mark.unsanitized
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv")
def test_a_home_of_somebody_else_is_unknown_not_fine(tmp_path: Path) -> None:
    """ "The diagnosis itself cannot look" is a status and an exit code of its own. The command runs as this user,
    without the right to pass over permissions: another one may not be able to reach the interpreter."""
    damaged_cache(tmp_path)
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 65534, 65534)
    bound = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--"]
    command = [*bound, sys.executable, "-m", "toktier_cli.main", "doctor", "--json", "--check", *SETTLED]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment(tmp_path))
    document = check_document(Outcome(done.returncode, done.stdout, done.stderr.decode()))
    assert row(document, "directories.cache")["status"] == "unknown"
    assert row(document, "artifacts.cache")["status"] == "unknown"
    assert (document["status"], done.returncode) == ("unknown", 6)


def test_a_file_where_the_home_should_be(here: Here, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = row(
        check_document(here("doctor", "--json", "--only", "directories", home=tmp_path / "file")), "directories.cache"
    )
    assert (found["status"], found["reasons"][0]["code"]) == ("fail", "DIRECTORY_NOT_A_DIRECTORY")


@pytest.mark.unsanitized
@pytest.mark.skipif(nvml_stub.compiler() is None, reason="the stub needs a C compiler")
@pytest.mark.parametrize("mode", ["", "hang"])
def test_two_gpus_and_a_driver_that_hangs(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("toktier.diagnosis.gpu_hardware.present", lambda _: True)
    environ = {"LD_LIBRARY_PATH": str(nvml_stub.build(tmp_path)), "NVML_STUB": mode}
    if mode != "hang":
        # The driver answers through an interpreter of its own, whose start is the host's matter.
        monkeypatch.setattr("toktier.diagnosis.gpu_hardware.DRIVER_SECONDS", 200.0)
    before = time.monotonic()
    document = check_document(here("doctor", "--json", "--check", *SETTLED, **environ))
    assert time.monotonic() - before < 180  # a hang would be for ever
    assert document["exit_code"] == 0  # an optional part
    facts = document["facts"]
    if mode == "hang":
        assert facts["devices"] is None
        assert row(document, "gpu.driver")["status"] == "unknown"
        assert row(document, "artifacts.pins")["status"] == "ok"
        return
    assert facts["devices"] == nvml_stub.DEVICES
    assert facts["automatic_gpu_delivery_certification"] == {"sm_86": "compiled_unjudged", "sm_90": "compiled_unjudged"}
    assert facts["automatic_gpu_candidate"] is True
    text = here("doctor", "--only", "gpu", **environ).text
    assert "NVIDIA H200 (sm_90), NVIDIA GeForce RTX 3090 (sm_86)" in text
    assert "[WARN] gpu.route: the GPU is not used: " in text


@pytest.mark.unsanitized
@pytest.mark.skipif(not can_unshare("--net"), reason="cannot take the network away here")
def test_no_network_is_used(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom toktier_cli.main import main\ncode = main(sys.argv[1:])\n"
        "assert 'socket' not in sys.modules and 'ctypes' not in sys.modules\nsys.exit(code)\n"
    )
    command = [sys.executable, "-c", script, "doctor", "--check", "--family", "qwen3_8b", *SETTLED]
    done = subprocess.run(no_network(*command), capture_output=True, cwd=ROOT, env=environment(tmp_path), text=True)
    assert done.returncode == 0, done.stderr


CANARY = "hf_CANARYcanary0123456789"


def test_no_secret_in_any_output(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = "quirinius"
    home = tmp_path / user
    (home / "cache").mkdir(parents=True)
    (home / "config.toml").write_text(f'log_level = "{CANARY}"\n')
    (home / CANARY).write_text("[]")
    environ = {
        "HF_TOKEN": CANARY, "HF_ENDPOINT": f"https://{user}:{CANARY}@mirror.example/x?key={CANARY}", "USER": user,
        "HTTPS_PROXY": f"http://{user}:{CANARY}@proxy.example:3128", "TOKTIER_TOKEN": CANARY, "HOME": str(home),
        "TOKTIER_SHARED_CACHES": f"/srv/{user}/{CANARY}",
    }  # fmt: skip
    out = tmp_path / "out.tar"
    lines = [
        ("doctor",), ("doctor", "--json"), ("doctor", "--bundle", str(out)),
        ("doctor", "--family", f"{home}/{CANARY}.json"),
        ("doctor", "--only", "network,artifacts.shared", "--json"),
    ]  # fmt: skip
    for config in (True, False):
        if not config:
            (home / "config.toml").unlink()
        for line in lines:
            done = here(*line, home=home, **environ)
            said = done.text.replace(str(tmp_path / "out.tar"), "") + done.stderr
            assert CANARY not in said, line
            assert user not in said, line
            if line == ("doctor", "--json"):
                fired = check_document(done)["redaction"]["fired"]
                assert set(fired) >= ({"token"} if config else {"home", "token", "url", "user"})
        assert CANARY.encode() not in out.read_bytes()
        assert user.encode() not in out.read_bytes()
    open_ = check_document(here("doctor", "--json", "--no-redact", "--only", "network", home=home, **environ))
    assert CANARY in open_["facts"].get("x", "") + json.dumps(open_["checks"])
    assert open_["redaction"] == {"enabled": False, "fired": []}


def test_a_bundle(here: Here, tmp_path: Path) -> None:
    out = tmp_path / "support.tar"
    home = tmp_path / "home"
    ring = resolve_settings(Config(home=home, diagnostics=True))
    assert diagnostics_ring.record(ring, diagnostics_ring.FALLBACK, "R_ORACLE_MISMATCH", backend="fast_cpu")
    before = listing(home)
    done = here("doctor", "--bundle", str(out), "--json")
    document = check_document(done)
    listed = [m["name"] for m in document["members"]]
    assert listed == ["diagnostics.json", "doctor.schema.json", "installed.json", "report.json"]
    assert [line.split()[3].rstrip(",") for line in done.stderr.splitlines()] == listed
    assert out.stat().st_mode & 0o777 == 0o600
    assert listing(home) == before
    with tarfile.open(out) as tar:
        assert tar.getnames() == listed
        assert all(m.mtime == 0 and m.uid == 0 for m in tar.getmembers())

        def member(name: str) -> Any:
            file = tar.extractfile(name)
            assert file is not None
            return json.loads(file.read())

        report = member("report.json")
        check_document(Outcome(report["exit_code"], (json.dumps(report) + "\n").encode(), ""))
        assert row(report, "diagnostics.ring")["status"] == "warn"
        assert member("diagnostics.json")[0]["code"] == "R_ORACLE_MISMATCH"
        assert "toktier/api.py" in member("installed.json")


@pytest.mark.ci
@pytest.mark.unsanitized
def test_a_bundle_takes_the_last_certifications_without_their_texts(here: Here, tmp_path: Path) -> None:
    home = tmp_path / "home"
    env = environment(home, TINY_FAULT="ids", PYTHONPATH=str(ROOT))
    command = [sys.executable, "tests/certify/tiny_suites.py", "certify", "toktier_mini"]
    failed = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert failed.returncode == 1, failed.stderr
    out = tmp_path / "x.tar"
    listed = [m["name"] for m in check_document(here("doctor", "--json", "--bundle", str(out)))["members"]]
    assert "certify/00.json" in listed
    with tarfile.open(out) as tar:
        file = tar.extractfile("certify/00.json")
        assert file is not None
        told = json.loads(file.read())
    assert told["outcome"] == "failed"
    assert told["totals"]["mismatches"] > 0
    assert "failures" not in told


def test_the_same_report_gives_the_same_bundle(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toktier.diagnosis.report.time.strftime", lambda *_: "2026-01-01T00:00:00Z")
    monkeypatch.setattr("toktier_cli.verbs.doctor.selected", lambda *_, **__: [Check("a.b", "?", lambda _: ok("x"))])
    digests = set()
    for name in ("a.tar", "b.tar"):
        monkeypatch.setattr("toktier.diagnosis.model.Row.to_dict", _without_time)
        digests.add(check_document(here("doctor", "--json", "--bundle", str(tmp_path / name)))["sha256"])
    assert len(digests) == 1


def _without_time(self: Any) -> dict[str, Any]:
    return {
        "id": self.check.id, "area": "a", "required": True, "status": "ok", "summary": "x", "facts": {}, "reasons": [],
        "remedy": None, "duration_ms": 0,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "device", "name", "nowhere"])
def test_a_bundle_replaces_nothing_but_a_file(here: Here, tmp_path: Path, kind: str) -> None:
    out = tmp_path / ("x.zip" if kind == "name" else "x.tar")
    if kind == "directory":
        out.mkdir()
    elif kind == "fifo":
        os.mkfifo(out)
    elif kind == "link":
        (tmp_path / "target").write_text("kept")
        out.symlink_to(tmp_path / "target")
    elif kind == "device":
        out = Path("/dev/null")
    elif kind == "nowhere":
        out = tmp_path / "absent" / "x.tar"
    done = here("doctor", "--bundle", str(out))
    assert done.code == (7 if kind == "nowhere" else 2)
    assert done.stdout == b""
    assert Path("/dev/null").is_char_device()
    assert not out.is_file() or (tmp_path / "target").read_text() == "kept"


def test_text_fits_narrow_terminals_and_is_plain_where_nobody_looks(here: Here, tmp_path: Path) -> None:
    from toktier_cli.doctor.text import report_text

    damaged_cache(tmp_path / "home")
    document = check_document(here("doctor", "--json", "--family", "toktier_mini"))
    text = report_text(document, width=40, colour=False)
    long = [line for line in text.splitlines() if len(line) > 40 and not line.lstrip().startswith("$ ")]
    assert not [line for line in long if " " in line.strip()], long  # only a word that is longer
    assert text.isascii()
    assert "\x1b" not in here("doctor").text
    severity = ["[OK]", "[SKIP]", "[WARN]", "[UNKNOWN]", "[FAIL]"]
    tags = [severity.index(line.split()[0]) for line in here("doctor").text.splitlines() if line.startswith("[")]
    assert tags == sorted(tags)


@pytest.mark.unsanitized
def test_colour_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ("doctor", "--only", "python", "--timeout", "600")
    code, shown = run_on_terminal(*line, home=tmp_path)
    assert code == 0
    assert "\x1b[32m[OK]\x1b[0m python.version" in shown
    assert "\x1b" not in run_on_terminal(*line, "--no-color", home=tmp_path)[1]


def test_the_list_is_the_table(here: Here) -> None:
    from toktier.diagnosis.checks import CHECKS

    assert [c["id"] for c in check_document(here("doctor", "--list", "--json"))["checks"]] == [c.id for c in CHECKS]
    text = here("doctor", "--list").text
    assert all(check.id in text for check in CHECKS)
