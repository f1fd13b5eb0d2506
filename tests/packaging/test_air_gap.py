"""The air-gap story, whole: a kit made on the connected side, used on a host that starts with nothing but Python.

The other host is a network namespace without a single interface, another user, another home, locale C, and a store
that becomes read-only. The lines that are typed there are those of INSTALL.txt. Where strace is installed, the whole
chain runs under it, and no process may call connect() on anything but a UNIX socket.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import tokenizers

from tests.artifacts.test_signatures import key_pair
from tests.cli.command import check_document, environment, run, validator
from tests.support.material import ROOT
from toktier.artifacts.pins import shipped_pins

pytestmark = [pytest.mark.ci, pytest.mark.unsanitized]

FAMILY = "deepseek_v4_flash"
TEXT = "There were 14 boats, 日本語 and naïve emoji 👩‍👩‍👧 on the beach.\n"
STRANGER = 31337  # a user of whom this host knows nothing
NAMESPACE = ("unshare", "--net")


def can_isolate() -> str | None:
    """Why the other host cannot be played here, or None."""
    if os.geteuid() != 0:
        return "needs root, to become another user in a namespace without a network"
    for tool in ("unshare", "setpriv"):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        return "this host allows no network namespaces"
    return None


@dataclass(frozen=True)
class Host:
    """The disconnected one: `place` belongs to the stranger, `kit` is what was carried, `trace` is strace's log."""

    place: Path
    kit: Path
    trace: Path | None

    def shell(self, script: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a script as the stranger, with an environment that knows nothing of this side."""
        home = self.place / "home of the stranger"
        clean = {"HOME": str(home), "PATH": f"{home}/env/bin:/usr/bin:/bin", "LC_ALL": "C", "USER": "stranger"}
        watched = () if self.trace is None else (
            "strace", "--follow-forks", "--quiet=all", "-A", "--output", str(self.trace),
            "--trace=connect,execve", "--signal=none",
        )  # fmt: skip
        user = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--no-new-privs")
        return subprocess.run(
            [*watched, *NAMESPACE, *user, "env", "-i", *(f"{k}={v}" for k, v in clean.items()),
             "sh", "-e", "-c", script],
            cwd=cwd or self.kit, capture_output=True, text=True, errors="surrogateescape", check=False,
        )  # fmt: skip

    def make_environment(self) -> str:
        """A fresh environment, from a Python that the stranger may run: this one can lie in a home of ours."""
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        bases = [sys._base_executable, f"/usr/local/bin/{name}", f"/usr/bin/{name}"]  # type: ignore[attr-defined]
        for base in bases:
            made = self.shell(f'rm -rf "$HOME/env"; "{base}" -m venv "$HOME/env"')
            if made.returncode == 0:
                return made.stdout + made.stderr
        pytest.skip(f"needs {name} with venv where every user can run it")


@dataclass(frozen=True)
class Connected:
    """This side, after the kit was made: where, with which digest, and the ids that the reference gives."""

    kit: Path
    digest: str
    ids: list[int]


def pip_settings() -> dict[str, str]:
    """pip as it is set up here: the wheels come from the index that it knows."""
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {"PIP_NO_INDEX": "", "HOME": os.environ.get("HOME", "/"), **pip}


@pytest.fixture(scope="module")
def connected(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Connected:
    place = tmp_path_factory.mktemp("connected-side")
    source = shared / "artifacts" / "deepseek_v4.json.zst"
    assert run("artifacts", "import", str(source), home=place / "home").code == 0
    here = pip_settings()
    out = str(place / "kit")
    said = run(
        "artifacts", "kit", FAMILY, "toktier_mini", "--out", out, "--json", home=place / "home", env=here, timeout=900
    )
    document = check_document(said)
    assert said.code == 0, said.stderr + said.text
    assert [entry["comes_in"] for entry in document["kit"]["families"]] == [
        "bundle.tar",
        document["kit"]["toktier"]["path"],
    ]
    blob = next(p for p in (place / "home").rglob("*") if p.is_file() and p.stat().st_size == PIN.size)
    ids = tokenizers.Tokenizer.from_buffer(blob.read_bytes()).encode(TEXT, add_special_tokens=False).ids
    return Connected(place / "kit", document["digest"], ids)


PIN = shipped_pins().family(FAMILY).tokenizer


@pytest.fixture
def host(connected: Connected) -> Iterator[Host]:
    """The kit, carried to a path with blanks and more, where the stranger may read and not write."""
    if why := can_isolate():
        pytest.skip(why)
    place = Path(tempfile.mkdtemp(prefix="other host "))
    try:
        place.chmod(0o755)
        kit = place / "carried über land" / "kit"
        shutil.copytree(connected.kit, kit)
        home = place / "home of the stranger"
        home.mkdir(mode=0o700)
        os.chown(home, STRANGER, STRANGER)
        yield Host(place, kit, place / "trace" if shutil.which("strace") else None)
    finally:
        shutil.rmtree(place)


def ok(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def lines_to_type(kit: Path) -> list[str]:
    """The indented lines of INSTALL.txt, in order."""
    return re.findall(r"^    (\S.*)$", (kit / "INSTALL.txt").read_text("ascii"), re.MULTILINE)


def test_from_nothing_to_token_ids_without_a_network(connected: Connected, host: Host) -> None:
    verify, install, import_, *see = lines_to_type(host.kit)
    assert install.startswith("pip install --no-index --find-links wheels toktier-")
    assert import_ == "toktier artifacts import bundle.tar"
    said = ok(host.shell(f"{verify} --expect {connected.digest}"))
    assert said.startswith("complete: yes\nvalid: yes\n")
    assert host.shell("command -v toktier || python3 -c 'import toktier'").returncode != 0, "it starts without toktier"
    said += host.make_environment()
    said += ok(host.shell(install))
    said += ok(host.shell(import_))
    for line in see:
        said += ok(host.shell(line))
    whole = host.shell("toktier artifacts verify . --json")
    document = json.loads(ok(whole))
    validator("artifacts_verify").validate(document)
    (entry,) = document["paths"]
    assert (entry["kit"]["complete"], entry["kit"]["valid"], entry["kit"]["digest"]) == (True, True, connected.digest)
    assert [file["family"] for file in entry["kit"]["bundle"]["files"]] == [FAMILY]
    encode = f"printf '%s' '{TEXT}' | toktier encode --family {FAMILY} --policy require_accelerated - --json"
    document = json.loads(host.shell(encode).stdout)
    assert (document["ids"], document["backend"]) == (connected.ids, "fast_cpu")

    # What came in a kit makes the same kit again, also where no checkout is and no index.
    again = f'toktier artifacts kit {FAMILY} toktier_mini --offline --json --out "$HOME/again"'
    refused = json.loads(host.shell(again).stdout)
    assert (refused["exit_code"], "expected --wheel FILE" in refused["error"]["message"]) == (2, True)
    made = host.shell(f"PIP_FIND_LINKS=wheels {again} --wheel toktier-*.whl")
    assert json.loads(ok(made).splitlines()[0])["digest"] == connected.digest

    # The store becomes read-only.
    ok(host.shell('chmod -R a-w "$HOME/.cache/toktier"'))
    said += ok(host.shell('toktier artifacts verify && ! touch "$HOME/.cache/toktier/x" 2>/dev/null'))
    assert json.loads(ok(host.shell(encode)).splitlines()[0])["ids"] == connected.ids

    for absolute in (str(connected.kit), str(connected.kit.parent), str(ROOT)):
        assert absolute not in said, "a path of the first machine was printed"
    if host.trace is not None:
        log = host.trace.read_text("utf-8", "surrogateescape")
        assert "/env/bin/toktier" in log, "the log is of something else"
        calls = [line for line in log.splitlines() if "connect(" in line]
        assert [line for line in calls if "AF_UNIX" not in line] == []


def test_a_signed_kit_is_verified_where_there_is_nothing_but_python(
    connected: Connected, host: Host, tmp_path: Path
) -> None:
    for name in ("right", "wrong"):
        key_pair(tmp_path, name)
    (wheel,) = connected.kit.glob("toktier-*.whl")
    line = ("artifacts", "kit", FAMILY, "--out", str(tmp_path / "kit"), "--wheel", str(wheel), "--sign")
    made = run(*line, str(tmp_path / "right.pem"), home=connected.kit.parent / "home", env=pip_settings(), timeout=900)
    assert made.code == 0, made.stderr
    signed = replace(host, kit=host.place / "signed")
    shutil.copytree(tmp_path / "kit", signed.kit)
    verify, install, import_, *_ = lines_to_type(signed.kit)
    assert (install.endswith('[sign]"'), import_) == (
        True,
        "toktier artifacts import bundle.tar --verify-key PUBLIC.pem",
    )
    ok(signed.shell(verify))
    host.make_environment()
    ok(signed.shell(install))
    for name, code in (("wrong", 5), ("right", 0)):
        shutil.copyfile(tmp_path / f"{name}.pub.pem", host.place / "PUBLIC.pem")
        (host.place / "PUBLIC.pem").chmod(0o644)
        ran = signed.shell(import_.replace("PUBLIC.pem", "../PUBLIC.pem"))
        assert ran.returncode == code, ran.stdout + ran.stderr
    assert ": signed by " in ran.stdout


def test_no_path_of_the_first_machine_is_in_the_kit(connected: Connected) -> None:
    paths = [os.fsencode(path) for path in (connected.kit.parent, ROOT)]
    for file in sorted(p for p in connected.kit.rglob("*") if p.is_file()):
        contents = [file.read_bytes()]
        if file.name.startswith("toktier-"):
            with zipfile.ZipFile(file) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        assert not [path for path in paths for content in contents if path in content], file.name


def test_a_kit_that_lacks_one_wheel_names_it(connected: Connected, host: Host) -> None:
    (gone,) = (host.kit / "wheels").glob("rich-*.whl")
    gone.unlink()
    verify, install, *_ = lines_to_type(host.kit)
    checked = host.shell(verify)
    assert (checked.returncode, f"missing: wheels/{gone.name}" in checked.stdout) == (6, True)
    host.make_environment()
    installed = host.shell(install)
    assert installed.returncode != 0
    assert "No matching distribution found for rich" in installed.stderr
    assert host.shell("python -c 'import toktier'").returncode != 0, "nothing was half installed"


def test_environment_of_the_connected_side_is_this_projects(connected: Connected) -> None:
    """Our own wheel comes from the checkout, whatever the index has under its name."""
    document = json.loads((connected.kit / "kit.json").read_text("utf-8"))
    assert document["toktier"]["path"].startswith("toktier-0.1.0-cp3")
    assert not [wheel for wheel in document["wheels"] if wheel["name"] == "toktier"]
    assert environment(None)["PIP_NO_INDEX"] == "1", "the suite's own default keeps pip away from the index"
