"""Settings and directories: what the caller says, config.toml, the environment, defaults, in that order.

`Config` is what a caller wants (None: not said). `Settings` is the outcome, with the origin of every value; it is made
once for each loaded tokenizer or command and nothing looks at the environment again. No setting can change a token ID:
policy and waivers are call arguments and flags only.

Directories: `cache` (artifacts, programs: may be deleted at any time) and `state` (must not be lost). Both lie under
TOKTIER_HOME when it is set, else where the XDG variables or HOME say. A host without any of them has no directories:
that is an error only for what needs one. `shared_caches` are cache directories of
others, read and never written. The user database is not asked: a service without HOME was not given a place.
`store` is where sessions are kept, a directory or a URL. Nothing is kept unless it is said; the command, which only
looks at what others kept, goes to `sessions` in the state directory then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from toktier.errors import ConfigInvalid
from toktier.labels import MAX_QUOTED, quoted, shown, shown_path
from toktier.regular_files import open_regular
from toktier.routing.vocabulary import BACKEND_NAMES, GPU_MIN_BYTES, GpuDelivery, expected_one

CONFIG_FILE = "config.toml"
MAX_CONFIG_BYTES = 1 << 20
# What the command writes to stderr, each level what those before it do too. error: errors, and what mends them;
# warning: warnings, notes, progress; info: of each tokenizer what serves it and why; debug: the trace of an error.
# Warnings of the package in another program go through Python's `warnings`, whatever the level.
LOG_LEVELS = ("debug", "info", "warning", "error")
CACHE_MODES = ("private", "group")
MAX_GPU_MIN_BYTES = 1 << 40
STORE_DIRECTORY = "sessions"  # in the state directory
STORE_SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")  # docs/redis-store.md

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a caller asks for. None leaves a setting to config.toml, the environment and the default."""

    home: str | os.PathLike[str] | None = None
    offline: bool | None = None
    log_level: str | None = None
    disable_gpu: bool | None = None
    diagnostics: bool | None = None
    tokenizer: str | None = None
    tokenizer_fallback: bool | None = None
    cache_mode: str | None = None
    shared_caches: Sequence[str | os.PathLike[str]] | None = None
    signature_keys: Sequence[str | os.PathLike[str]] | None = None
    store: str | os.PathLike[str] | None = None
    gpu_min_bytes: int | None = None
    gpu_delivery: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Resolved settings. `origins` names, for each field, where its value came from."""

    home: Path | None
    cache_dir: Path | None
    state_dir: Path | None
    config_file: Path | None
    offline: bool
    log_level: str
    disable_gpu: bool
    diagnostics: bool
    tokenizer: str
    tokenizer_fallback: bool
    cache_mode: str
    shared_caches: tuple[Path, ...]
    signature_keys: tuple[Path, ...]
    store: str | None
    gpu_min_bytes: int
    gpu_delivery: str
    origins: Mapping[str, str]

    def require_cache(self) -> Path:
        """The cache directory (it need not exist). ConfigInvalid on a host that has none."""
        if self.cache_dir is None:
            raise ConfigInvalid(
                "no cache directory: none of TOKTIER_HOME, XDG_CACHE_HOME and HOME is an absolute path",
                details={"setting": "cache_dir"},
                remedy="set TOKTIER_HOME to a directory, or give --home DIR",
            )
        return self.cache_dir

    def require_state(self) -> Path:
        """The state directory (it need not exist). ConfigInvalid on a host that has none."""
        if self.state_dir is None:
            raise ConfigInvalid(
                "no state directory: none of TOKTIER_HOME, XDG_STATE_HOME and HOME is an absolute path",
                details={"setting": "state_dir"},
                remedy="set TOKTIER_HOME to a directory, or give --home DIR",
            )
        return self.state_dir

    def require_store(self) -> str:
        """Where sessions are kept: what is said, else `sessions` in the state directory (it need not exist).
        ConfigInvalid on a host that has none."""
        return self.store if self.store is not None else str(self.require_state() / STORE_DIRECTORY)

    @property
    def programs_dir(self) -> Path | None:
        """Where compiled programs are kept; None on a host without a cache directory.

        Each user of a group's cache has a directory of his own: a program that another could have written is not run.
        """
        if self.cache_dir is None:
            return None
        return self.cache_dir / (f"programs-{os.geteuid()}" if self.cache_mode == "group" else "programs")

    @property
    def cubins_dir(self) -> Path | None:
        """Where compiled kernels are kept; None on a host without a cache directory. As with programs, each user of a
        group's cache has a directory of his own."""
        if self.cache_dir is None:
            return None
        return self.cache_dir / (f"gpu-{os.geteuid()}" if self.cache_mode == "group" else "gpu")


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("expected 1, true, yes, on or 0, false, no, off")


def _log_level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise ValueError(f"expected one of {', '.join(LOG_LEVELS)}")
    return text.lower()


def _backend_name(text: str) -> str:
    if text not in BACKEND_NAMES:
        raise ValueError(expected_one(text, BACKEND_NAMES))
    return text


def _gpu_min_bytes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:16]) <= MAX_GPU_MIN_BYTES):
        raise ValueError(f"expected a number of bytes from 1 to {MAX_GPU_MIN_BYTES}")
    return int(text)


def _gpu_delivery(text: str) -> str:
    if text not in set(GpuDelivery):
        raise ValueError(f"expected one of {', '.join(GpuDelivery)}")
    return text


def _cache_mode(text: str) -> str:
    if text not in CACHE_MODES:
        raise ValueError(f"expected one of {', '.join(CACHE_MODES)}")
    return text


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(_absolute_path(part) for part in text.split(os.pathsep) if part)


def _absolute_path(text: str) -> Path:
    if not os.path.isabs(text):
        raise ValueError("expected absolute paths")
    return Path(text)


def store_scheme(place: str) -> str | None:
    """The scheme of a store that is a URL; None: it is a directory."""
    match = _URL.match(place)
    return None if match is None else match[1].lower()


def without_credentials(place: str) -> str:
    """A URL without user, password and query, for messages; anything else as it is."""
    scheme = store_scheme(place)
    if scheme is None:
        return place
    # A password may hold any character that nobody escaped: up to the last @, and nothing at all where a ? or # comes
    # before that one.
    rest, *query = re.split("[?#]", place[len(scheme) + 3 :], maxsplit=1)
    return f"{scheme}://{'...' if '@' in ''.join(query) else rest.rpartition('@')[2]}"


def _store(text: str) -> str:
    scheme = store_scheme(text)
    if scheme is None and os.path.isabs(text) and "\0" not in text:
        return text
    if scheme not in STORE_SCHEMES:
        raise ValueError(f"expected an absolute path, or a URL of {' or '.join(STORE_SCHEMES)}")
    return text


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    variable: str
    kind: type
    parse: Callable[[str], Any]
    default: Any
    note: str | None = None  # what people would otherwise expect of it, and does not happen


# The one table of settings: field of Config and Settings, key of config.toml, environment variable.
_SETTINGS: tuple[_Setting, ...] = (
    _Setting("offline", "TOKTIER_OFFLINE", bool, _boolean, False),
    _Setting(
        "log_level",
        "TOKTIER_LOG_LEVEL",
        str,
        _log_level,
        "warning",
        note="of the command's stderr; error: errors alone, info: also what serves, debug: also the trace of an error",
    ),
    _Setting("disable_gpu", "TOKTIER_DISABLE_GPU", bool, _boolean, False),
    _Setting("diagnostics", "TOKTIER_DIAGNOSTICS", bool, _boolean, False),
    _Setting("tokenizer", "TOKTIER_TOKENIZER", str, _backend_name, "auto"),
    _Setting("tokenizer_fallback", "TOKTIER_TOKENIZER_FALLBACK", bool, _boolean, True),
    _Setting("cache_mode", "TOKTIER_CACHE_MODE", str, _cache_mode, "private"),
    _Setting("shared_caches", "TOKTIER_SHARED_CACHES", tuple, _paths, ()),
    _Setting("signature_keys", "TOKTIER_SIGNATURE_KEYS", tuple, _paths, ()),
    _Setting(
        "store",
        "TOKTIER_STORE",
        Path,
        _store,
        None,
        note="not set: programs keep no sessions; toktier session looks into sessions in state_dir",
    ),
    _Setting(
        "gpu_min_bytes",
        "TOKTIER_GPU_MIN_BYTES",
        int,
        _gpu_min_bytes,
        GPU_MIN_BYTES,
        note="bytes from which on a text or a batch goes to a GPU that is admitted",
    ),
    _Setting("gpu_delivery", "TOKTIER_GPU_DELIVERY", str, _gpu_delivery, GpuDelivery.AUTO.value),
)


def resolve_settings(config: Config | None = None, *, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from `config`, config.toml, the environment and the defaults, the first that speaks.

    Nothing is created. An empty variable counts as unset. Raises ConfigInvalid, naming the variable or the key, for a
    value that is not understood; a typing error must not pass for the default.
    """
    config = config or Config()
    environ = os.environ if environ is None else environ
    home, home_origin = _home(config, environ)
    user_home = _absolute(environ.get("HOME"))
    cache_dir, cache_origin = _directory(home, "cache", environ, "XDG_CACHE_HOME", user_home, ".cache")
    state_dir, state_origin = _directory(home, "state", environ, "XDG_STATE_HOME", user_home, ".local/state")
    config_file = _config_file(home, environ, user_home)
    document = _read_config_file(config_file) if config_file is not None else {}

    origins = {"home": home_origin, "cache_dir": cache_origin, "state_dir": state_origin}
    values: dict[str, Any] = {}
    for setting in _SETTINGS:
        values[setting.name], origins[setting.name] = _value(setting, config, document, config_file, environ)
    return Settings(
        home=home,
        cache_dir=cache_dir,
        state_dir=state_dir,
        config_file=config_file if document else None,
        origins=origins,
        **values,
    )


def _value(
    setting: _Setting,
    config: Config,
    document: dict[str, Any],
    config_file: Path | None,
    environ: Mapping[str, str],
) -> tuple[Any, str]:
    said = getattr(config, setting.name)
    if said is not None:
        return _checked(setting, said, f"Config.{setting.name}"), "argument"
    if setting.name in document:
        return _checked(
            setting, document[setting.name], f"`{setting.name}` in {shown_path(config_file or CONFIG_FILE)}"
        ), f"{config_file}"
    text = environ.get(setting.variable, "")
    if text:
        try:
            return setting.parse(text), setting.variable
        except ValueError as error:
            raise ConfigInvalid(
                f"{setting.variable} is {quoted(without_credentials(text))}: {error}",
                details={"variable": setting.variable, "value": shown(without_credentials(text))},
                remedy=f"correct or unset {setting.variable}",
            ) from None
    # The hub client's own switch is honoured: who closed the network for it does not expect another client to open it.
    if setting.name == "offline" and environ.get("HF_HUB_OFFLINE", "").strip().lower() in _TRUE:
        return True, "HF_HUB_OFFLINE"
    return setting.default, "default"


_EXPECTED = {
    bool: "true or false",
    int: "a number",
    str: "text",
    tuple: "a list of absolute paths",
    Path: "an absolute path or a URL",
}


def _checked(setting: _Setting, value: Any, where: str) -> Any:
    problem = f"expected {_EXPECTED[setting.kind]}"
    if setting.kind is bool and isinstance(value, bool):
        return value
    if setting.kind is int and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if setting.kind is Path and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if setting.kind in (str, Path, int) and isinstance(value, str):
        try:
            return setting.parse(value)
        except ValueError as error:
            problem = str(error)
    if setting.kind is tuple and isinstance(value, (list, tuple)):
        try:
            return tuple(_absolute_path(os.fspath(item)) for item in value)
        except (TypeError, ValueError) as error:
            problem = str(error) if isinstance(error, ValueError) else problem
    raise ConfigInvalid(
        f"{where} is {_written(value)}: {problem}",
        details={"setting": setting.name, "value": shown(_written(value))},
        remedy=f"correct {where}",
    )


def _written(value: Any) -> str:
    """A value of config.toml or of a Config for a message; of a container only what it is."""
    if isinstance(value, str):
        return quoted(without_credentials(value))
    return (
        f"of type {type(value).__name__}" if isinstance(value, (list, tuple, dict)) else shown(repr(value), MAX_QUOTED)
    )


def _absolute(text: str | None) -> Path | None:
    """XDG: a relative path in such a variable is to be ignored."""
    return Path(text) if text and os.path.isabs(text) else None


def _home(config: Config, environ: Mapping[str, str]) -> tuple[Path | None, str]:
    argument = "" if config.home is None else os.fspath(config.home)
    for spelled, origin in ((argument, "argument"), (environ.get("TOKTIER_HOME", ""), "TOKTIER_HOME")):
        if not spelled:
            continue
        if spelled == "~" or spelled.startswith("~/"):
            # Not every place that sets variables expands the tilde; a directory named "~" is never what was meant.
            user_home = _absolute(environ.get("HOME"))
            if user_home is None:
                raise ConfigInvalid(
                    f"the home {quoted(spelled)} starts with ~ and HOME is not set",
                    details={"value": spelled},
                    remedy="give an absolute path",
                )
            return Path(os.path.abspath(os.fspath(user_home) + spelled[1:])), origin
        try:
            return Path(os.path.abspath(spelled)), origin
        except FileNotFoundError:
            raise ConfigInvalid(
                f"the home {quoted(spelled)} is relative, and the current directory does not exist any more",
                details={"value": shown(spelled)},
                remedy="give an absolute path, or change to another directory",
            ) from None
    return None, "default"


def _directory(
    home: Path | None, leaf: str, environ: Mapping[str, str], variable: str, user_home: Path | None, below_home: str
) -> tuple[Path | None, str]:
    if home is not None:
        return home / leaf, "home"
    xdg = _absolute(environ.get(variable))
    if xdg is not None:
        return xdg / "toktier", variable
    if user_home is not None:
        return user_home / below_home / "toktier", "HOME"
    return None, "default"


def _config_file(home: Path | None, environ: Mapping[str, str], user_home: Path | None) -> Path | None:
    if home is not None:
        return home / CONFIG_FILE
    xdg = _absolute(environ.get("XDG_CONFIG_HOME"))
    if xdg is not None:
        return xdg / "toktier" / CONFIG_FILE
    return None if user_home is None else user_home / ".config" / "toktier" / CONFIG_FILE


def _read_config_file(path: Path) -> dict[str, Any]:
    """The document, empty when there is no file. Unknown keys are refused: a misspelt switch must not be ignored."""
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_CONFIG_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        if isinstance(error, PermissionError) and not os.path.lexists(path):
            return {}  # a directory above may not be searched (HOME of another user): no file that was meant for us
        raise _bad_file(path, f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise _bad_file(path, f"is larger than {MAX_CONFIG_BYTES} bytes")
    import tomllib

    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: a number of thousands of digits, too
        raise _bad_file(path, f"is not TOML: {error}") from None
    known = {s.name for s in _SETTINGS}
    for key in document:
        if key not in known:
            import difflib

            near = difflib.get_close_matches(key, sorted(known), n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise _bad_file(path, f"has the unknown key `{shown(key, MAX_QUOTED)}`{hint}")
    return document


def _bad_file(path: Path, problem: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"{shown_path(path)} {problem}", details={"file": str(path)}, remedy=f"correct or remove {shown_path(path)}"
    )


def setting_names() -> tuple[str, ...]:
    """Names of all settings, in the order that `config show` prints them."""
    return tuple(f.name for f in fields(Settings) if f.name not in ("origins",))


def variable_names() -> tuple[str, ...]:
    """Every TOKTIER_ variable that is read."""
    return ("TOKTIER_HOME", *(s.variable for s in _SETTINGS))


def setting_notes() -> dict[str, str]:
    """For settings that do less than their name promises: what they do."""
    return {s.name: s.note for s in _SETTINGS if s.note is not None}
