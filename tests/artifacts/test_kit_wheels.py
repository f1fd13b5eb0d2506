"""The wheels of a kit: ours and nobody else's, and all that it needs on the target, or the requirement that lacks.

pip runs for real and asks no index: PIP_FIND_LINKS names a folder of tiny wheels.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_wheels import make_wheel
from toktier import resources
from toktier.artifacts.kit_wheels import PINS_MEMBER, dependency_wheels, own_pins, own_wheel, target_of
from toktier.artifacts.pins import shipped_pins
from toktier.artifacts.wheel_target import Target, Wheel, parse_platform, parse_python, read_wheel
from toktier.errors import (
    ArtifactNotFound,
    BackendUnavailable,
    BundleInvalid,
    SourceUnreachable,
    ToktierError,
    UsageError,
)

TAG = "cp311-cp311-manylinux_2_28_x86_64"
TARGET = Target((3, 11), 28, "x86_64")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def ours(tmp_path: Path, *requires: str, tag: str = TAG, version: str = "0.1.0") -> Wheel:
    table = (resources.tables_dir() / "artifact_pins.json").read_bytes()
    return read_wheel(
        make_wheel(tmp_path / "ours", "toktier", version, requires=requires, tag=tag, members={PINS_MEMBER: table})
    )


def brought(own: Wheel, tmp_path: Path, target: Target = TARGET) -> list[str]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return [wheel.path.name for wheel in dependency_wheels(own, target, scratch, offline=True, timeout=600)]


def test_a_wheel_says_what_it_is(tmp_path: Path) -> None:
    headers = ("License-Expression: MIT", "Requires-Python: >=3.11")
    path = make_wheel(tmp_path, "Some_Name", "2.1", requires=["rich>=1; extra == 'x'", "click"], headers=headers)
    wheel = read_wheel(path)
    assert (wheel.name, str(wheel.version), wheel.licence, wheel.size) == (
        "some-name",
        "2.1",
        "MIT",
        path.stat().st_size,
    )
    assert [str(r) for r in wheel.needs(TARGET, frozenset())] == ["click"]
    assert len(list(wheel.needs(TARGET, frozenset({"x"})))) == 2
    assert wheel.runs_on(TARGET)
    assert not wheel.runs_on(Target((3, 10), 28, "x86_64"))


def test_licences_of_older_metadata(tmp_path: Path) -> None:
    headers = ("Classifier: License :: OSI Approved :: ISC License (ISCL)",)
    assert read_wheel(make_wheel(tmp_path, "a", headers=headers)).licence == "ISC License (ISCL)"
    assert read_wheel(make_wheel(tmp_path, "b", headers=("License: BSD", *headers))).licence == "BSD"
    assert read_wheel(make_wheel(tmp_path, "c")).licence is None


def test_files_that_are_no_wheels(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFound):
        read_wheel(tmp_path / "a-1-py3-none-any.whl")
    with pytest.raises(UsageError, match="not named as a wheel"):
        read_wheel(tmp_path / "toktier.zip")
    whole = make_wheel(tmp_path, "b").read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "b-1-py3-none-any.whl").write_bytes(whole[:cut])
        with pytest.raises(BundleInvalid, match="damaged"):
            read_wheel(tmp_path / "b-1-py3-none-any.whl")
    with pytest.raises(BundleInvalid, match="metadata is not understood"):
        read_wheel(make_wheel(tmp_path, "c", requires=["a b c"]))
    with pytest.raises(BundleInvalid, match="METADATA"):
        read_wheel(make_wheel(tmp_path, "d", members={"d-2.dist-info/METADATA": b""}))


def test_targets_are_what_the_wheel_is_made_for_unless_said(tmp_path: Path) -> None:
    own = ours(tmp_path)
    assert target_of(own, None, None) == TARGET
    assert target_of(own, "3.11", "manylinux_2_39_x86_64").platform == "manylinux_2_39_x86_64"
    both = ours(tmp_path, tag="cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64")
    assert target_of(both, None, None).platform == "manylinux_2_17_x86_64"
    assert str(TARGET) == "CPython 3.11 on Linux x86_64 with glibc 2.28"


@pytest.mark.parametrize(
    ("python", "platform"),
    [
        ("3.12", None),
        ("3.11", "manylinux_2_27_x86_64"),
        (None, "manylinux2014_x86_64"),
        (None, "manylinux_2_28_aarch64"),
    ],
)
def test_a_wheel_that_does_not_run_there_is_refused(tmp_path: Path, python: str | None, platform: str | None) -> None:
    with pytest.raises(UsageError, match=r"does not run on CPython 3\.1.*made for cp311") as caught:
        target_of(ours(tmp_path), python, platform)
    assert "make a wheel with Python" in (caught.value.remedy or "")


@pytest.mark.parametrize("text", ["", "3", "2.7", "3.x", "3.11.4", "311", "3.011", "3.11\n"])
def test_pythons_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"such as 3\.11"):
        parse_python(text)


@pytest.mark.parametrize(
    "text", ["", "linux_x86_64", "win_amd64", "musllinux_1_2_x86_64", "manylinux_2_4_x86_64", "manylinux2014", "x86_64"]
)
def test_platforms_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="manylinux_2_28_x86_64"):
        parse_platform(text)


def test_a_wheel_without_a_glibc_is_no_wheel_for_a_kit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which glibc"):
        target_of(ours(tmp_path, tag="cp311-cp311-linux_x86_64"), None, None)


def test_ours_is_known_by_its_pins(tmp_path: Path) -> None:
    assert own_pins(ours(tmp_path)).root_digest == shipped_pins().root_digest
    stranger = read_wheel(make_wheel(tmp_path / "public", "toktier", "0.3.0"))
    with pytest.raises(UsageError, match="not a wheel of this project"):
        own_pins(stranger)
    other = make_wheel(tmp_path, "rich")
    with pytest.raises(UsageError, match="not a wheel of toktier"):
        own_wheel(other, tmp_path, 60, lambda _: None)
    with pytest.raises(BundleInvalid, match="damaged"):
        own_pins(read_wheel(make_wheel(tmp_path / "bad", "toktier", members={PINS_MEMBER: b"{}"})))


def test_installed_from_a_wheel_the_wheel_must_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "data_root", lambda: tmp_path)
    with pytest.raises(UsageError, match="expected --wheel FILE") as caught:
        own_wheel(None, tmp_path, 60, lambda _: None)
    assert "pip install" not in str(caught.value) + (caught.value.remedy or "")


def test_all_that_is_needed_is_brought_and_nothing_else(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "a", requires=["b[more]>=2", "nothing; extra == 'x'"])
    make_wheel(index, "b", "1")
    make_wheel(index, "b", "2", requires=["c; extra == 'more'", "never; sys_platform == 'win32'"])
    make_wheel(index, "c")
    make_wheel(index, "unrelated")
    assert brought(ours(tmp_path, "a", "nothing; extra == 'dev'"), tmp_path) == [
        "a-1-py3-none-any.whl", "b-2-py3-none-any.whl", "c-1-py3-none-any.whl",
    ]  # fmt: skip


def test_a_missing_requirement_is_named(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "a", requires=["b>=2"])
    make_wheel(index, "b", "1")
    with pytest.raises(SourceUnreachable, match=r"b>=2"):
        brought(ours(tmp_path, "a"), tmp_path)


def test_wheels_are_the_targets_and_never_sources(tmp_path: Path, index: Path) -> None:
    for tag in ("manylinux_2_17_x86_64", "manylinux_2_28_x86_64", "manylinux_2_29_x86_64", "manylinux_2_17_aarch64"):
        make_wheel(index, "a", tag=f"cp311-cp311-{tag}")
    make_wheel(index, "a", "2", tag="cp311-cp311-manylinux_2_29_x86_64")
    (index / "a-3.tar.gz").write_bytes(b"")
    assert brought(ours(tmp_path, "a"), tmp_path) == [f"a-1-{TAG}.whl"]


@pytest.mark.ci
def test_old_names_of_platforms_count(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "a", tag="cp311-cp311-manylinux2014_x86_64")
    assert brought(ours(tmp_path, "a"), tmp_path) == ["a-1-cp311-cp311-manylinux2014_x86_64.whl"]


def test_markers_are_the_targets_not_those_of_this_python(tmp_path: Path, index: Path) -> None:
    """pip asks for what this Python needs; the target's needs are asked for by name, and the rest is left out."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    make_wheel(index, "a", requires=[f"here; python_version == '{here}'", "there; python_version == '3.19'"])
    make_wheel(index, "here")
    make_wheel(index, "there", requires=["deeper; python_version >= '3.19'"])
    make_wheel(index, "deeper")
    own = ours(tmp_path, "a", tag="cp319-cp319-manylinux_2_28_x86_64")
    names = brought(own, tmp_path, target_of(own, None, None))
    assert [name.partition("-")[0] for name in names] == ["a", "deeper", "there"]


@pytest.mark.ci
def test_no_package_of_our_name_comes_from_an_index(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "toktier", "9.9")
    make_wheel(index, "a")
    assert brought(ours(tmp_path, "a", "toktier[x]; extra == 'y'"), tmp_path) == ["a-1-py3-none-any.whl"]


@pytest.mark.ci
def test_a_dependency_that_asks_for_our_name_is_refused(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "toktier", "9.9")
    make_wheel(index, "a", requires=["toktier"])
    with pytest.raises(BundleInvalid, match="another project"):
        brought(ours(tmp_path, "a"), tmp_path)


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "expected", "said"),
    [
        ("echo 'python: No module named pip' >&2; exit 1", BackendUnavailable, "pip is not installed"),
        ("echo 'ERROR: No matching distribution found for a' >&2; exit 1", SourceUnreachable, "found for a"),
        ("exit 3", SourceUnreachable, "it gave no reason"),
        ("sleep 100", SourceUnreachable, "took longer than 0.5 s"),
    ],
)
def test_a_pip_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: type[ToktierError], said: str
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path / "python", script))
    timeout = 0.5 if "longer" in said else 600
    with pytest.raises(expected, match=said):
        dependency_wheels(ours(tmp_path, "a"), TARGET, tmp_path, offline=True, timeout=timeout)


def test_a_build_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "echo 'dev.py: no C++ compiler was found' >&2; exit 1"
    monkeypatch.setattr(sys, "executable", program(tmp_path / "python", said))
    with pytest.raises(BackendUnavailable, match="no C\\+\\+ compiler was found"):
        own_wheel(None, tmp_path, 60, lambda _: None)


# What the other side sees of a wheelhouse that does not fit; pip decides, with the line that INSTALL.txt gives.


def install(wheel: Path, wheels: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", str(wheels),
               "--target", str(tmp_path / "site"), str(wheel)]  # fmt: skip
    environment = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.ci
def test_pip_names_a_dependency_that_lacks_and_never_takes_an_older_release(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "toktier", "0.0.1")
    make_wheel(wheels, "a", requires=["lacking>=2"])
    make_wheel(wheels, "a", "0.9")
    ran = install(ours(tmp_path, "a>=1", tag="py3-none-any").path, wheels, tmp_path)
    assert ran.returncode != 0
    assert "lacking>=2" in ran.stderr
    assert not (tmp_path / "site").exists()


@pytest.mark.ci
def test_pip_refuses_a_wheel_for_a_newer_glibc(tmp_path: Path) -> None:
    own = ours(tmp_path, tag=f"cp{sys.version_info[0]}{sys.version_info[1]}-abi3-manylinux_2_99_x86_64")
    make_wheel(tmp_path / "wheels", "toktier", "0.0.1")
    ran = install(own.path, tmp_path / "wheels", tmp_path)
    assert ran.returncode != 0
    assert f"{own.path.name} is not a supported wheel on this platform" in ran.stderr
    assert not (tmp_path / "site").exists()
