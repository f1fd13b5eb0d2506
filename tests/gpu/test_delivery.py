"""The kernels that a device gets, by delivery and by what is there; no shipped one is run unless it is listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kernels import COMPILER, FakeToolchain, list_digests, make_cubin
from toktier.config import Config, Settings, resolve_settings
from toktier.errors import ConfigInvalid, KernelBuildFailed, KernelDigestMismatch, KernelsUnavailable
from toktier.gpu.delivery import PREBUILT, available, deliver, prebuilt_architectures
from toktier.gpu.toolchain import Places
from toktier.routing.vocabulary import GpuDelivery, Status

AUTO, JIT, SHIPPED = GpuDelivery.AUTO, GpuDelivery.JIT, GpuDelivery.PREBUILT
NOWHERE = Places((), {}, Path("/nonexistent"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve_settings(Config(home=tmp_path / "home"), environ={})


def ship(installation: Path, architecture: str, data: bytes) -> None:
    place = installation / "kernels" / PREBUILT
    place.mkdir(exist_ok=True)
    (place / f"{architecture}.cubin").write_bytes(data)


def test_jit_compiles_and_keeps(installation: Path, fake: FakeToolchain, settings: Settings) -> None:
    given = deliver("sm_90", JIT, settings, fake.places)
    assert (given.data, given.architecture, given.delivery) == (make_cubin("sm_90"), "sm_90", JIT)
    assert (given.listed, given.status, given.toolchain) == (True, Status.COMPILED_UNJUDGED, COMPILER)
    assert given.notices == ()
    deliver("sm_90", AUTO, settings, fake.places)
    assert len(fake.compilations) == 1
    assert settings.cubins_dir is not None
    assert list(settings.cubins_dir.rglob("unit.cubin"))


def test_a_device_gets_the_kernels_that_it_can_run(installation: Path, fake: FakeToolchain, settings: Settings) -> None:
    assert deliver("sm_103", JIT, settings, fake.places).architecture == "sm_100"
    for device in ("sm_70", "sm_110", "nonsense"):
        with pytest.raises(KernelsUnavailable, match="there are no kernels for") as caught:
            deliver(device, AUTO, settings, fake.places)
        assert caught.value.reason == "R_BACKEND_UNAVAILABLE"


def test_what_is_shipped_is_taken_where_there_is_no_toolchain(installation: Path, settings: Settings) -> None:
    ship(installation, "sm_90", make_cubin("sm_90"))
    for delivery in (AUTO, SHIPPED):
        given = deliver("sm_90", delivery, settings, NOWHERE)
        assert (given.data, given.delivery, given.listed) == (make_cubin("sm_90"), SHIPPED, True)
    with pytest.raises(KernelsUnavailable, match=r"kernels cannot be compiled here.*are not installed"):
        deliver("sm_90", JIT, settings, NOWHERE)
    with pytest.raises(KernelsUnavailable, match="brought no kernels for sm_80"):
        deliver("sm_80", AUTO, settings, NOWHERE)


def test_an_installation_from_source_says_what_it_lacks(installation: Path, settings: Settings) -> None:
    with pytest.raises(KernelsUnavailable, match="brought no compiled kernels: release wheels bring them") as caught:
        deliver("sm_90", AUTO, settings, NOWHERE)
    assert caught.value.exit_code == 8
    assert "nvidia-cuda-nvrtc==" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "data", [make_cubin("sm_90", salt=b"other"), make_cubin("sm_80"), b"", b"\x7fELF", make_cubin("sm_90", abi=[1])]
)
def test_a_shipped_cubin_that_is_not_listed_is_not_run(installation: Path, settings: Settings, data: bytes) -> None:
    ship(installation, "sm_90", data)
    for delivery in (AUTO, SHIPPED):
        with pytest.raises(KernelDigestMismatch) as caught:
            deliver("sm_90", delivery, settings, NOWHERE)
        assert caught.value.reason == "R_KERNEL_DIGEST_MISMATCH"
        assert caught.value.exit_code == 5


def test_a_listed_digest_does_not_make_kernels_of_another_module(installation: Path, settings: Settings) -> None:
    def made(architecture: str) -> bytes:
        return make_cubin(architecture, abi=[1, 2, 3])

    list_digests(installation, made)
    ship(installation, "sm_90", made("sm_90"))
    with pytest.raises(KernelDigestMismatch, match=r"its ABI block is \[1, 2, 3\]"):
        deliver("sm_90", SHIPPED, settings, NOWHERE)


def test_unlisted_kernels_are_experimental(installation: Path, fake: FakeToolchain, settings: Settings) -> None:
    list_digests(installation, lambda architecture: make_cubin(architecture, salt=b"other"))
    for delivery in (AUTO, JIT):
        given = deliver("sm_90", delivery, settings, fake.places)
        assert (given.listed, given.status, given.delivery) == (False, Status.EXPERIMENTAL, JIT)


def test_auto_takes_a_shipped_cubin_in_the_place_of_one_that_is_not_listed(
    installation: Path, fake: FakeToolchain, settings: Settings
) -> None:
    shipped = make_cubin("sm_90", salt=b"other")
    list_digests(installation, lambda architecture: make_cubin(architecture, salt=b"other"))
    ship(installation, "sm_90", shipped)
    given = deliver("sm_90", AUTO, settings, fake.places)
    assert (given.data, given.delivery, given.listed) == (shipped, SHIPPED, True)
    assert given.notices == (
        f"the kernels that came with the installation are taken: those of NVRTC {COMPILER} are not listed",
    )
    assert deliver("sm_90", JIT, settings, fake.places).delivery is JIT


def test_auto_takes_a_shipped_cubin_where_compiling_fails(
    installation: Path, fake: FakeToolchain, settings: Settings
) -> None:
    fake.plan("crash")
    with pytest.raises(KernelBuildFailed):
        deliver("sm_90", AUTO, settings, fake.places)
    ship(installation, "sm_90", make_cubin("sm_90"))
    given = deliver("sm_90", AUTO, settings, fake.places)
    assert given.delivery is SHIPPED
    assert "the compiling process ended by signal 6" in given.notices[0]
    with pytest.raises(KernelBuildFailed):
        deliver("sm_90", JIT, settings, fake.places)


def test_a_host_without_directories_compiles_each_time(installation: Path, fake: FakeToolchain) -> None:
    bare = resolve_settings(Config(), environ={})
    assert bare.cubins_dir is None
    for _ in range(2):
        assert deliver("sm_90", JIT, bare, fake.places).listed
    assert len(fake.compilations) == 2


def test_nvrtc_that_cannot_be_read_is_a_build_that_failed(
    installation: Path, fake: FakeToolchain, settings: Settings
) -> None:
    library = fake.libraries / "libnvrtc.so.13"
    library.unlink()
    library.symlink_to("nowhere")
    with pytest.raises(KernelBuildFailed, match="cannot read"):
        deliver("sm_90", JIT, settings, fake.places)


def test_what_is_available_is_told_by_names_alone(installation: Path, fake: FakeToolchain) -> None:
    assert available(AUTO, fake.places) is JIT
    assert available(SHIPPED, fake.places) is None
    assert available("auto", NOWHERE) is None
    ship(installation, "sm_90", b"not looked at")
    assert prebuilt_architectures() == ["sm_90"]
    assert available("auto", NOWHERE) is SHIPPED
    assert available("jit", NOWHERE) is None
    assert fake.compilations == []
    with pytest.raises(ConfigInvalid, match="delivery of kernels"):
        available("nightly")


def test_each_user_of_a_group_s_cache_has_cubins_of_his_own(tmp_path: Path) -> None:
    import os

    shared = resolve_settings(Config(home=tmp_path, cache_mode="group"), environ={})
    assert shared.cubins_dir == tmp_path / "cache" / f"gpu-{os.geteuid()}"
