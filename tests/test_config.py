"""Settings: precedence, strict values, directories, origins; and that nothing is created or read twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toktier.config import Config, resolve_settings, setting_names, without_credentials
from toktier.errors import ConfigInvalid


def test_precedence_is_argument_then_file_then_environment_then_default(tmp_path: Path) -> None:
    environ = {"TOKTIER_HOME": str(tmp_path), "TOKTIER_OFFLINE": "0", "TOKTIER_LOG_LEVEL": "info"}
    assert resolve_settings(environ=environ).offline is False
    (tmp_path / "config.toml").write_text("offline = true\n")
    settings = resolve_settings(environ=environ)
    assert (settings.offline, settings.log_level, settings.disable_gpu) == (True, "info", False)
    assert settings.origins["offline"] == str(tmp_path / "config.toml")
    assert settings.origins["log_level"] == "TOKTIER_LOG_LEVEL"
    assert settings.origins["disable_gpu"] == "default"
    settings = resolve_settings(Config(offline=False), environ=environ)
    assert settings.offline is False
    assert settings.origins["offline"] == "argument"


@pytest.mark.parametrize("text", ["1", "true", "YES", "On", "0", "False", "no", "OFF"])
def test_booleans_that_are_understood(text: str) -> None:
    assert resolve_settings(environ={"TOKTIER_OFFLINE": text}).offline is (text.lower() in ("1", "true", "yes", "on"))


@pytest.mark.parametrize("text", ["2", "y", "enabled", " ", "nope", "tru"])
def test_a_boolean_that_is_not_understood_is_an_error_that_names_the_variable(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="TOKTIER_OFFLINE"):
        resolve_settings(environ={"TOKTIER_OFFLINE": text})


def test_an_empty_variable_is_unset() -> None:
    assert resolve_settings(environ={"TOKTIER_OFFLINE": "", "TOKTIER_TOKENIZER": ""}).tokenizer == "auto"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("offlin = true", "did you mean `offline`"),
        ('offline = "yes"', "expected true or false"),
        ("log_level = 3", "expected text"),
        ('log_level = "loud"', "expected one of"),
        ("offline = ", "is not TOML"),
        ("policy = 'experimental'", "unknown key `policy`"),
        ("offline = " + "9" * 9000, "is not TOML"),
        ("offline = " + "9" * 4000, "expected true or false"),
        ("offline = [" + "[" * 100_000, "is not TOML"),
        ('"' + "k" * 100_000 + '" = 1', "unknown key `kkk"),
        ('"\\u001b[2J" = 1', "unknown key `\\x1b[2J`"),
    ],
)
def test_config_toml_is_read_strictly(tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "config.toml").write_text(content)
    with pytest.raises(ConfigInvalid, match=r"config\.toml") as caught:
        resolve_settings(Config(home=tmp_path), environ={})
    assert named in caught.value.message


def test_config_toml_that_is_no_text_or_too_large_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigInvalid, match="is not TOML"):
        resolve_settings(Config(home=tmp_path), environ={})
    (tmp_path / "config.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigInvalid, match="is larger than"):
        resolve_settings(Config(home=tmp_path), environ={})


@pytest.mark.parametrize(
    ("environ", "cache", "state"),
    [
        ({"TOKTIER_HOME": "/t"}, "/t/cache", "/t/state"),
        ({"TOKTIER_HOME": "/t", "XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/t/cache", "/t/state"),
        ({"XDG_CACHE_HOME": "/c", "XDG_STATE_HOME": "/s", "HOME": "/h"}, "/c/toktier", "/s/toktier"),
        ({"HOME": "/h"}, "/h/.cache/toktier", "/h/.local/state/toktier"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/toktier", "/h/.local/state/toktier"),
        ({"HOME": "/h", "TOKTIER_HOME": "~/x"}, "/h/x/cache", "/h/x/state"),
    ],
)
def test_directories(environ: dict[str, str], cache: str, state: str) -> None:
    settings = resolve_settings(environ=environ)
    assert (str(settings.cache_dir), str(settings.state_dir)) == (cache, state)


def test_no_home_is_an_error_only_when_a_directory_is_needed() -> None:
    settings = resolve_settings(environ={})
    assert settings.cache_dir is None
    assert settings.programs_dir is None
    with pytest.raises(ConfigInvalid, match="no cache directory") as caught:
        settings.require_cache()
    assert caught.value.remedy is not None
    assert "TOKTIER_HOME" in caught.value.remedy
    with pytest.raises(ConfigInvalid, match="no state directory"):
        settings.require_state()


def test_the_hub_client_s_offline_switch_counts_unless_ours_speaks() -> None:
    settings = resolve_settings(environ={"HF_HUB_OFFLINE": "1"})
    assert settings.offline
    assert settings.origins["offline"] == "HF_HUB_OFFLINE"
    assert not resolve_settings(environ={"HF_HUB_OFFLINE": "1", "TOKTIER_OFFLINE": "0"}).offline


def test_resolving_creates_nothing(tmp_path: Path) -> None:
    resolve_settings(Config(home=tmp_path / "new"), environ={})
    assert not (tmp_path / "new").exists()


def test_no_setting_can_change_an_id() -> None:
    # A new setting has to be judged here: policy, waivers and sidecar handling are call arguments only.
    harmless = {"home", "cache_dir", "state_dir", "config_file", "offline", "log_level", "disable_gpu", "diagnostics",
                "tokenizer", "tokenizer_fallback", "cache_mode", "shared_caches", "signature_keys",
                "store", "gpu_min_bytes", "gpu_delivery"}  # fmt: skip
    assert set(setting_names()) == harmless


def test_shared_caches_come_from_each_place_and_are_absolute(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('shared_caches = ["/opt/a b", "/opt/c"]\ncache_mode = "group"\n')
    environ = {"TOKTIER_SHARED_CACHES": "/srv/x:/srv/y:", "TOKTIER_CACHE_MODE": "private"}
    settings = resolve_settings(Config(home=tmp_path), environ=environ)
    assert settings.shared_caches == (Path("/opt/a b"), Path("/opt/c"))
    assert settings.cache_mode == "group"
    settings = resolve_settings(environ=environ)
    assert settings.shared_caches == (Path("/srv/x"), Path("/srv/y"))
    assert settings.origins["shared_caches"] == "TOKTIER_SHARED_CACHES"
    settings = resolve_settings(Config(shared_caches=[tmp_path]), environ=environ)
    assert settings.shared_caches == (tmp_path,)
    for wrong in ({"TOKTIER_SHARED_CACHES": "relative"}, {"TOKTIER_CACHE_MODE": "0777"}):
        with pytest.raises(ConfigInvalid, match=next(iter(wrong))):
            resolve_settings(environ=wrong)
    for content in ('shared_caches = "/opt/a"', "shared_caches = [1]", 'shared_caches = ["a"]'):
        (tmp_path / "config.toml").write_text(content)
        with pytest.raises(ConfigInvalid, match="absolute path"):
            resolve_settings(Config(home=tmp_path), environ={})


def test_a_store_comes_from_each_place_and_none_is_the_default(tmp_path: Path) -> None:
    assert resolve_settings(Config(home=tmp_path), environ={}).store is None
    assert resolve_settings(Config(home=tmp_path), environ={}).require_store() == str(tmp_path / "state" / "sessions")
    with pytest.raises(ConfigInvalid, match="no state directory"):
        resolve_settings(environ={}).require_store()
    environ = {"TOKTIER_STORE": "redis://host:6379/0"}
    settings = resolve_settings(environ=environ)
    assert (settings.store, settings.origins["store"]) == ("redis://host:6379/0", "TOKTIER_STORE")
    (tmp_path / "config.toml").write_text('store = "/srv/chats"\n')
    settings = resolve_settings(Config(home=tmp_path), environ=environ)
    assert settings.store == settings.require_store() == "/srv/chats"
    settings = resolve_settings(Config(home=tmp_path, store=tmp_path / "x"), environ=environ)
    assert (settings.store, settings.origins["store"]) == (str(tmp_path / "x"), "argument")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("value", ["relative", "~/chats", "ftp://user:geheim@host/x", "redis:/x", "/a\0b", b"/a", 1])
def test_a_store_that_is_no_place_is_an_error_without_its_credentials(value: object) -> None:
    with pytest.raises(ConfigInvalid, match=r"an absolute path,? or a URL") as caught:
        resolve_settings(Config(store=value), environ={})  # type: ignore[arg-type]
    assert "geheim" not in str(caught.value.to_dict())
    if isinstance(value, str) and "\0" not in value:
        with pytest.raises(ConfigInvalid, match="TOKTIER_STORE") as caught:
            resolve_settings(environ={"TOKTIER_STORE": value})
        assert "geheim" not in str(caught.value.to_dict())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://user:geheim@host/0", "redis://host/0"),
        ("REDISS://:ge/h@eim@host?password=geheim#geheim", "rediss://host"),
        ("/a/user:x@b", "/a/user:x@b"),
    ],
)
def test_credentials_of_a_url_are_left_out(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


def test_users_of_one_group_s_cache_keep_their_programs_apart(tmp_path: Path) -> None:
    settings = resolve_settings(Config(home=tmp_path, cache_mode="group"), environ={})
    assert settings.programs_dir == tmp_path / "cache" / f"programs-{os.geteuid()}"
    assert resolve_settings(Config(home=tmp_path), environ={}).programs_dir == tmp_path / "cache" / "programs"


def test_a_fifo_in_the_place_of_config_toml_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(ConfigInvalid, match="not a regular file"):
        resolve_settings(environ={"TOKTIER_HOME": str(tmp_path)})


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "64 KiB", "", " 1", "1e3", "٣", str(1 << 60), None])
def test_a_crossover_that_is_no_number_of_bytes_is_refused(value: object) -> None:
    if isinstance(value, str) and value:
        with pytest.raises(ConfigInvalid, match="TOKTIER_GPU_MIN_BYTES"):
            resolve_settings(environ={"TOKTIER_GPU_MIN_BYTES": value})
    if value is not None:
        with pytest.raises(ConfigInvalid, match="gpu_min_bytes"):
            resolve_settings(Config(gpu_min_bytes=value), environ={})  # type: ignore[arg-type]


def test_crossover_and_delivery_of_kernels(tmp_path: Path) -> None:
    environ = {"TOKTIER_HOME": str(tmp_path)}
    settings = resolve_settings(environ=environ)
    assert (settings.gpu_min_bytes, settings.gpu_delivery) == (65536, "auto")
    (tmp_path / "config.toml").write_text('gpu_min_bytes = 1000\ngpu_delivery = "jit"\n')
    settings = resolve_settings(environ=environ)
    assert (settings.gpu_min_bytes, settings.gpu_delivery) == (1000, "jit")
    assert resolve_settings(Config(gpu_min_bytes=1), environ=environ).gpu_min_bytes == 1
    assert resolve_settings(environ={"TOKTIER_GPU_MIN_BYTES": "4096"}).gpu_min_bytes == 4096
    with pytest.raises(ConfigInvalid, match="prebuilt"):
        resolve_settings(environ={"TOKTIER_GPU_DELIVERY": "nvcc"})
