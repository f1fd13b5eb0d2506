"""Settings of the router, checked each and together, and the file that may hold them.

The command line is asked first, then the file of `--config`, then the defaults; `origins` says of each setting who
spoke. Keys of the file are the long options without their dashes in front. There are no environment variables but
those of toktier itself (`toktier.config`). Not here: the table of options (`options`), keys of clients (`api_keys`),
and addresses that only a bound socket knows (`server`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from toktier.config import MAX_CONFIG_BYTES, without_credentials
from toktier.errors import ConfigInvalid
from toktier.labels import MAX_QUOTED, quoted, shown, shown_path
from toktier.regular_files import open_regular
from toktier.router import addresses
from toktier.router.options import BY_FIELD, BY_NAME, LOCAL_EMBEDDINGS, OFF, OPTIONS, Option

RECORDS: Final = ("router", "requests.db")  # below the state directory

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """What the router does. Every value was checked; ConfigInvalid names the one that was not what it may be.

    Durations are seconds, sizes are bytes. `records` None: nothing is recorded. `origins`: by option, `--NAME`, the
    file, or `default`; empty where a program made the settings.
    """

    upstreams: tuple[str, ...]
    upstream_api_key_file: Path | None = None
    family: str | None = None
    tokenizer_file: Path | None = None
    policy: str = "certified"
    device: str = "auto"
    tokenizer: str | None = None
    no_tokenizer_fallback: bool = False
    host: str = "127.0.0.1"
    port: int = 8765
    api_key_file: Path | None = None
    no_auth: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    embedding: str = "hashed"
    embeddings_upstream: str | None = None
    max_body_bytes: int = 32 * _MIB
    max_answer_bytes: int = 256 * _MIB
    max_concurrent: int = 100
    max_queued: int = 100
    turns_in_a_row: int = 4
    queue_seconds: float = 30.0
    connect_seconds: float = 5.0
    first_byte_seconds: float = 600.0
    idle_seconds: float = 120.0
    whole_seconds: float = 3600.0
    body_seconds: float = 30.0
    drain_seconds: float = 30.0
    health_seconds: float = 5.0
    records: Path | None = None
    keep_rows: int = 100_000
    record_outputs: bool = False
    kv_events: str | None = None
    kv_replay: str | None = None
    kv_scheme: str = "dynamo"
    kv_form: str = "array"
    kv_topic: str = ""
    kv_block_size: int = 16
    open_metrics: bool = False
    access_log: bool = False
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    def __post_init__(self) -> None:
        for option in OPTIONS:
            value = _checked(option, getattr(self, option.field), option.field)
            object.__setattr__(self, option.field, value)
        _check_together(self)

    @property
    def max_connections(self) -> int:
        """Open connections: those of running and waiting requests, and 256 that are idle or ask how things are."""
        return self.max_concurrent + self.max_queued + 256

    @property
    def embedding_url(self) -> str | None:
        """The embedding server that compares prompts; None: they are compared in this process."""
        return None if self.embedding in LOCAL_EMBEDDINGS else self.embedding

    def cautions(self) -> list[str]:
        """What somebody should know who did not mean it."""
        said = []
        if not addresses.is_loopback(self.host) and self.no_auth:
            said.append(f"whoever reaches {self.host} may use the upstreams: there is no key")
        if not addresses.is_loopback(self.host) and not self.no_auth:
            said.append("keys and prompts travel unencrypted: put a TLS proxy in front where the network is not yours")
        for endpoint in filter(None, (self.kv_events, self.kv_replay)):
            if not addresses.is_local_endpoint(endpoint):
                said.append(f"KV events hold the token IDs of prompts, and whoever reaches {endpoint} may read them")
        if self.record_outputs:
            said.append(f"outputs are kept as text in {shown_path(self.records or '')}")
        return said


def _check_together(settings: ServeSettings) -> None:
    """What no single setting can say."""
    if settings.family is not None and settings.tokenizer_file is not None:
        raise _invalid("tokenizer_file", "--family and --tokenizer-file name two tokenizers", "give one of them")
    if settings.no_auth and settings.api_key_file is not None:
        raise _invalid("no_auth", "--no-auth and --api-key-file contradict each other", "leave one of them out")
    if not addresses.is_loopback(settings.host) and settings.api_key_file is None and not settings.no_auth:
        raise _invalid(
            "api_key_file",
            f"--host {settings.host} serves other hosts, and there is no key that they must have",
            "give --api-key-file PATH, or --no-auth where everybody may use it",
        )
    if settings.record_outputs and settings.records is None:
        raise _invalid(
            "record_outputs", "--record-outputs needs a database, and records are off", "give --records PATH"
        )
    if settings.kv_replay is not None and settings.kv_events is None:
        raise _invalid(
            "kv_replay", "--kv-replay replays events that nothing publishes", "give --kv-events ENDPOINT too"
        )
    if settings.kv_events is not None and settings.kv_events == settings.kv_replay:
        raise _invalid("kv_replay", "--kv-replay and --kv-events are one endpoint", "give another port to one of them")
    served = {addresses.identity(url) for url in settings.upstreams}
    for name, url in (("embedding", settings.embedding_url), ("embeddings_upstream", settings.embeddings_upstream)):
        if url is not None and addresses.identity(url) in served:
            raise _invalid(
                name,
                f"--{BY_FIELD[name].name} {url} is an upstream that generates, and embeddings empty all its slots",
                "start another llama-server with --embeddings, and name that one",
            )
    require_not_itself(settings, settings.port)


def require_not_itself(settings: ServeSettings, port: int) -> None:
    """ConfigInvalid where a server that is to be asked is the router itself, listening on `port` (0: not yet known)."""
    for name, urls in (
        ("upstreams", settings.upstreams),
        ("embedding", (settings.embedding_url,)),
        ("embeddings_upstream", (settings.embeddings_upstream,)),
    ):
        for url in filter(None, urls):
            if addresses.leads_to(url, settings.host, port):
                raise _invalid(
                    name,
                    f"--{BY_FIELD[name].name} {url} is where this router listens",
                    "name the llama-server, or give another --port",
                )


def _invalid(name: str, message: str, remedy: str) -> ConfigInvalid:
    return ConfigInvalid(message, details={"setting": name}, remedy=remedy)


def _checked(option: Option, value: Any, where: str) -> Any:
    try:
        return option.check(value)
    except ValueError as error:
        raise ConfigInvalid(
            f"{where} is {_written(value)}: {error}",
            details={"setting": option.field, "value": shown(_written(value))},
            remedy=f"correct {where}",
        ) from None


def _written(value: Any) -> str:
    """A value for a message, without credentials: of a list the only item, or what it is."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, str | Path):
        return quoted(without_credentials(str(value)))
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "empty"
    return f"of type {type(value).__name__}" if isinstance(value, dict) else shown(repr(value), MAX_QUOTED)


def resolve(
    given: Mapping[str, Any], config_file: Path | None = None, default_records: Callable[[], Path] | None = None
) -> ServeSettings:
    """Settings from `given` (what the line says, by option; None: nothing), the file, and the defaults.

    `default_records`: where requests are recorded when nobody says; None: nowhere. Raises ConfigInvalid.
    """
    filed = {} if config_file is None else _values_of_file(config_file)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for option in OPTIONS:
        if (said := given.get(option.name)) is not None and said != []:
            values[option.field] = _checked(option, said, f"--{option.name}")
            origins[option.name] = f"--{option.name}"
        elif option.name in filed:
            values[option.field] = filed[option.name]
            origins[option.name] = str(config_file)
        else:
            origins[option.name] = "default"
    if "upstreams" not in values:
        raise _invalid(
            "upstreams", "no upstream is named", "give --upstream http://127.0.0.1:8080, where llama-server is"
        )
    if origins["records"] == "default" and default_records is not None:
        values["records"] = default_records()
    return ServeSettings(**values, origins=MappingProxyType(origins))


def _values_of_file(path: Path) -> dict[str, Any]:
    """By option, each checked, those too that the line overrules: a mistake must not wait until it does not."""
    values = {}
    for name, said in read_config_file(path).items():
        value = _checked(BY_NAME[name], said, f"`{name}` in {shown_path(path)}")
        values[name] = path.parent / value if isinstance(value, Path) else value
    return values


def read_config_file(path: Path) -> dict[str, Any]:
    """The document of a TOML file. Unknown keys are refused: a misspelt limit must not be ignored."""
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise _bad_file(path, f"cannot be read: {error.strerror}", "check the path") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise _bad_file(path, f"is larger than {MAX_CONFIG_BYTES:,} bytes")
    import tomllib

    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _bad_file(path, f"is not TOML: {error}") from None
    for key in document:
        if key not in BY_NAME:
            near = get_close_matches(key[:MAX_QUOTED].replace("_", "-"), BY_NAME, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise _bad_file(path, f"has the unknown key `{shown(key, MAX_QUOTED)}`{hint}")
    return document


def _bad_file(path: Path, problem: str, remedy: str | None = None) -> ConfigInvalid:
    return ConfigInvalid(
        f"{shown_path(path)} {problem}", details={"file": str(path)}, remedy=remedy or f"correct {shown_path(path)}"
    )


def default_of(option: Option) -> Any:
    """The value of a setting that nobody named; MISSING where it must be named."""
    by_name = {f.name: f for f in fields(ServeSettings)}
    return by_name[option.field].default


def plain(settings: ServeSettings) -> dict[str, Any]:
    """Every setting by its option, as JSON holds it. No key is in it: only where keys are."""

    def value(held: Any) -> Any:
        if isinstance(held, tuple):
            return list(held)
        return str(held) if isinstance(held, Path) else held

    found = {option.name: value(getattr(settings, option.field)) for option in OPTIONS}
    return found | {"records": found["records"] or OFF}
