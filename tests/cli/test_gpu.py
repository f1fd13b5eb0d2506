"""`toktier gpu`: compiling without a device, what is refused with which exit code, what is kept, listed and removed."""

# ruff: noqa: F811 - fixtures are imported, and arguments bear their names

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Outcome, check_document, environment, run, run_here
from tests.support.kernel_host import fake, installation  # noqa: F401
from tests.support.kernels import COMPILER, FakeToolchain, list_digests, make_cubin
from tests.support.material import ROOT, SMALL_DIR
from tests.support.namespaces import can_unshare, read_only
from tests.support.nvrtc_site import SITE, required_toolchain
from toktier.gpu.architectures import ARCHITECTURES
from toktier.gpu.delivery import PREBUILT
from toktier.gpu.digests import shipped_digests

Here = Callable[..., Outcome]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    """The command in this process, on a host without NVRTC."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / "nvidia").is_dir()])
    for name in ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    return partial(run_here, home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary)


@pytest.fixture
def with_fake(installation: Path, fake: FakeToolchain, here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """The command beside the fake toolchain, which makes what is listed."""
    monkeypatch.setattr(sys, "path", [str(fake.site), *sys.path])
    return here


def lacks_toolchain() -> bool:
    from toktier.gpu.toolchain import Missing, Places, find_toolchain

    return isinstance(find_toolchain(Places((), {})), Missing)


@pytest.mark.skipif(not lacks_toolchain(), reason="this host has a CUDA toolkit of its own")
def test_without_a_toolchain_the_exit_code_is_8_with_what_brings_one(here: Here) -> None:
    outcome = here("gpu", "compile", "--all-archs", "--json")
    document = check_document(outcome)
    assert outcome.code == 8
    assert document["error"]["code"] == "KERNELS_UNAVAILABLE"
    assert document["error"]["details"]["lacks"] == ["binding", "nvrtc"]
    assert document["error"]["remedy"].endswith(shipped_digests().pinned)


def test_every_architecture_is_compiled_twice_kept_and_listed(with_fake: Here, fake: FakeToolchain) -> None:
    document = check_document(with_fake("gpu", "compile", "--json"))
    assert document["exit_code"] == 0
    assert [row["architecture"] for row in document["cubins"]] == list(ARCHITECTURES)
    assert {(r["finding"], r["status"], r["compiler"]) for r in document["cubins"]} == {
        ("listed", "compiled_unjudged", COMPILER)
    }
    assert len(fake.compilations) == 2 * len(ARCHITECTURES)
    assert document["toolchain"]["found_via"] == "import path"
    for row in document["cubins"]:
        assert (Path(row["path"]) / "unit.cubin").read_bytes() == make_cubin(row["architecture"])
    listed = check_document(with_fake("gpu", "list", "--json"))
    assert {row["sha256"] for row in listed["cached"]} == {row["sha256"] for row in document["cubins"]}
    assert all(row["used"] and row["problem"] is None for row in listed["cached"])
    assert listed["delivery"] == "jit"
    cleaned = check_document(with_fake("gpu", "clean", "--json"))
    assert cleaned["removed"] == len(ARCHITECTURES)
    assert check_document(with_fake("gpu", "list", "--json"))["cached"] == []


def test_an_entry_that_does_not_hold_is_not_said_to_be_used(with_fake: Here) -> None:
    (row,) = check_document(with_fake("gpu", "compile", "--arch", "sm_90", "--json"))["cubins"]
    cubin = Path(row["path"]) / "unit.cubin"
    cubin.write_bytes(cubin.read_bytes()[:1000])  # as a crash of the host leaves it
    (listed,) = check_document(with_fake("gpu", "list", "--json"))["cached"]
    assert (listed["used"], listed["problem"]) == (False, "its cubin is not the one that was stored")
    assert check_document(with_fake("gpu", "compile", "--arch", "sm_90", "--json"))["exit_code"] == 0
    (listed,) = check_document(with_fake("gpu", "list", "--json"))["cached"]
    assert (listed["used"], listed["problem"]) == (True, None)


def test_some_architectures(with_fake: Here) -> None:
    outcome = with_fake("gpu", "compile", "--arch", "sm_90", "--arch", "sm_80")
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.text.splitlines()[2:]] == ["sm_80", "sm_90"]
    assert f"NVRTC {COMPILER}, found via import path" in outcome.text


def _other(architecture: str) -> bytes:
    return make_cubin(architecture, salt=b"other")


@pytest.mark.parametrize(
    ("more", "finding", "said"),
    [
        ({"version": "13.1.80"}, "other_toolchain", f"NVRTC {COMPILER} is no certified toolchain"),
        (
            {"sources": "0" * 64},
            "other_sources",
            "the sources of the kernels are not those that the listed digests are of",
        ),
        ({}, "differs", "is not what this build made where it was listed"),
    ],
)
def test_kernels_that_are_not_listed_are_refused_unless_accepted_this_once(
    with_fake: Here,
    installation: Path,
    more: dict[str, str],
    finding: str,
    said: str,
) -> None:
    list_digests(installation, _other, **more)
    line = ("gpu", "compile", "--arch", "sm_90", "--arch", "sm_80")
    refused = check_document(with_fake(*line, "--json"))
    assert (refused["exit_code"], refused["error"]["code"]) == (4, "UNCERTIFIED_KERNELS")
    assert refused["error"]["details"]["finding"] == finding
    assert "kernels for sm_80, sm_90 are not kept" in refused["error"]["message"]
    assert said in refused["error"]["message"]
    assert refused["error"]["message"].endswith("the CPU engine serves")
    assert "--accept-uncertified-jit" in refused["error"]["remedy"]
    assert check_document(with_fake("gpu", "list", "--json"))["cached"] == []

    accepted = with_fake(*line, "--accept-uncertified-jit", "--json")
    document = check_document(accepted)
    assert document["exit_code"] == 0
    assert {(row["finding"], row["status"]) for row in document["cubins"]} == {(finding, "experimental")}
    assert accepted.stderr.startswith("warning: UNCERTIFIED JIT OPT-IN: ")
    assert said in accepted.stderr
    assert with_fake(*line).code == 4  # nothing remembers it
    kept = check_document(with_fake("gpu", "list", "--json"))["cached"]
    assert {row["status"] for row in kept} == {"experimental"}


def test_an_architecture_that_fails_does_not_keep_the_others_back(with_fake: Here, fake: FakeToolchain) -> None:
    (fake.binding / "sm_100.cubin").unlink()
    outcome = with_fake("gpu", "compile", "--all-archs", "--json")
    document = check_document(outcome)
    assert document["exit_code"] == 6
    assert len(document["cubins"]) == len(ARCHITECTURES) - 1
    assert [error["details"]["architecture"] for error in document["errors"]] == ["sm_100"]
    assert "error: NVRTC refuses the kernels for sm_100" in outcome.stderr
    fake.plan("hang")


@pytest.mark.parametrize(
    ("mode", "said"), [("crash", "signal 6"), ("differ", "two different cubins"), ("refuse", "undefined")]
)
def test_a_compiler_that_fails_is_exit_code_8(with_fake: Here, fake: FakeToolchain, mode: str, said: str) -> None:
    fake.plan(mode)
    document = check_document(with_fake("gpu", "compile", "--arch", "sm_90", "--json"))
    assert (document["exit_code"], document["error"]["code"]) == (8, "KERNEL_BUILD_FAILED")
    assert said in document["error"]["message"]


def test_a_library_that_cannot_be_loaded_is_asked_once(with_fake: Here, fake: FakeToolchain) -> None:
    (fake.libraries / "libnvrtc.so.13").write_bytes(b"")
    document = check_document(with_fake("gpu", "compile", "--all-archs", "--json"))
    assert (document["exit_code"], document["error"]["code"]) == (8, "KERNELS_UNAVAILABLE")


def test_damage_in_the_cache_is_listed_and_mended(with_fake: Here) -> None:
    document = check_document(with_fake("gpu", "compile", "--arch", "sm_90", "--json"))
    (Path(document["cubins"][0]["path"]) / "unit.cubin").write_bytes(b"x")
    (row,) = check_document(with_fake("gpu", "list", "--json"))["cached"]
    assert row["problem"] == "its cubin is not the one that was stored"
    assert "its cubin is not the one" in with_fake("gpu", "list").text
    with_fake("gpu", "compile", "--arch", "sm_90")
    (row,) = check_document(with_fake("gpu", "list", "--json"))["cached"]
    assert row["problem"] is None


def test_shipped_kernels_are_listed_with_what_is_wrong_with_them(with_fake: Here, installation: Path) -> None:
    place = installation / "kernels" / PREBUILT
    place.mkdir()
    (place / "sm_80.cubin").write_bytes(make_cubin("sm_80"))
    (place / "sm_90.cubin").write_bytes(_other("sm_90"))
    good, bad = check_document(with_fake("gpu", "list", "--json"))["shipped"]
    assert (good["architecture"], good["status"], good["problem"]) == ("sm_80", "compiled_unjudged", None)
    assert (bad["architecture"], bad["status"]) == ("sm_90", "experimental")
    assert "not those that are listed" in bad["problem"]


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs a private mount namespace")
def test_a_cache_that_cannot_be_written_is_exit_code_7_with_what_was_compiled(
    fake: FakeToolchain,
    installation: Path,
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    script = (
        "import sys\nfrom pathlib import Path\nfrom toktier import resources\n"
        f"resources.data_root = lambda: Path({str(installation)!r})\n"
        "from toktier_cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    env = environment(home, PYTHONPATH=f"{fake.site}{os.pathsep}{ROOT}")
    line = [sys.executable, "-c", script, "gpu", "compile", "--arch", "sm_90", "--json"]
    done = subprocess.run(read_only(home, *line), capture_output=True, cwd=ROOT, env=env)
    outcome = Outcome(done.returncode, done.stdout, done.stderr.decode())
    document = check_document(outcome)
    assert document["exit_code"] == 7, outcome.stderr
    assert document["cubins"][0]["path"] is None
    assert document["cubins"][0]["listed"] is True
    assert [error["code"] for error in document["errors"]] == ["ENVIRONMENT_FAULT"]
    assert "error: cannot make the directory" in outcome.stderr
    assert not list(home.iterdir())


def test_a_host_without_directories_compiles_and_keeps_nothing(
    with_fake: Here, installation: Path, fake: FakeToolchain, monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path,
) -> None:  # fmt: skip
    from toktier_cli.main import main

    with_fake("gpu", "clean")
    for name in ("TOKTIER_HOME", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    capfdbinary.readouterr()
    code = main(["gpu", "compile", "--arch", "sm_90", "--json"])
    document: Any = check_document(Outcome(code, capfdbinary.readouterr().out, ""))
    assert (code, document["cubins"][0]["path"], document["errors"]) == (0, None, [])


def test_tokenizers_that_are_named_are_told_whether_a_device_can_run_them(with_fake: Here) -> None:
    line = ("gpu", "compile", "toktier_mini", "--arch", "sm_90")
    document = check_document(with_fake(*line, "--json"))
    assert document["families"] == [{"family": "toktier_mini", "suitable": True, "reason": None}]
    outcome = with_fake(*line, str(SMALL_DIR / "gemma_like.json"), "--json")
    told = check_document(outcome)["families"][1]
    assert (outcome.code, told["suitable"]) == (1, False)
    assert told["reason"]
    assert with_fake("gpu", "compile", "qwen38b", "--arch", "sm_90").code == 3


# With NVRTC itself


@pytest.mark.ci
def test_nvrtc_compiles_what_is_listed_without_a_device(tmp_path: Path) -> None:
    required_toolchain()
    env = {"PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}"}
    document = check_document(run("gpu", "compile", "--arch", "sm_90", "--json", home=tmp_path, env=env))
    assert document["exit_code"] == 0, document
    (row,) = document["cubins"]
    assert row["sha256"] == shipped_digests().builds[0].cubins["sm_90"]
    assert row["compiler"] == shipped_digests().builds[0].version
    assert row["build"]
