"""The server of a Redis store: one client for any number of threads and forks, its refusals as our errors.

A command whose connection was lost is sent once more, on a new one: so what is sent must bear being done twice, or tell
its own result. Nothing that a server says is quoted but the word that names its refusal: it can hold text and names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from toktier.errors import (
    BackendExecutionFault,
    BackendUnavailable,
    ConfigInvalid,
    EnvironmentFault,
    StoreCorrupt,
    ToktierError,
)
from toktier.missing_distribution import missing_distribution
from toktier.sessions import chains
from toktier.sessions.redis_scripts import Script
from toktier.sessions.redis_url import Address, address

MAX_CONNECTIONS = 2**31 - 1  # a thread has one while it waits, and none of them may be refused here
MANY = 256  # commands in one write
_WORD = re.compile(
    r"\b(OOM|MISCONF|READONLY|WRONGTYPE|NOPERM|NOAUTH|WRONGPASS|NOREPLICAS|LOADING|BUSY|MASTERDOWN|CLUSTERDOWN"
    r"|TRYAGAIN|CROSSSLOT|MOVED|ASK|UNKILLABLE|NOSCRIPT)\b"
)

Command = tuple[Any, ...]
Client = Any  # redis.Redis or RedisCluster: their types do not tell an answer from an awaitable one
_T = TypeVar("_T")


class Answer(NamedTuple):
    value: Any
    repeated: bool  # sent twice: it may have been done twice


class Server:
    """`where` is its URL without credentials."""

    def __init__(self, url: str, timeout: float) -> None:
        """Raises BACKEND_UNAVAILABLE without the extra; connects on first use, so that a server may come later."""
        self._address: Address = address(url)
        self.where = self._address.shown
        self.cluster = self._address.cluster
        self.timeout = timeout
        self._client: Client | None = None
        self._closed = False
        try:
            import redis  # noqa: F401
        except ImportError:
            raise missing_distribution("stores in Redis or Valkey need", "redis", "redis", "'redis>=6'") from None

    def __repr__(self) -> str:
        return f"Server({self.where!r})"

    def call(self, *command: Any) -> Any:
        return self._attempt(lambda client: client.execute_command(*command)).value

    def run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Any:
        return self.answer(script, keys, *arguments).value

    def answer(self, script: Script, keys: Sequence[str], *arguments: Any) -> Answer:
        """What a script gives; a server that does not know it yet is told."""
        from redis.exceptions import NoScriptError

        def send(client: Client) -> Any:
            try:
                return client.execute_command("EVALSHA", script.digest, len(keys), *keys, *arguments)
            except NoScriptError:
                return client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

        return self._attempt(send)

    def many(self, commands: Sequence[Command]) -> list[Any]:
        """The answers of commands that need not be one step: one round trip for some hundred of them where a server is
        alone, one for each where it is a cluster. The answer is Damage where a key holds another type."""
        answers: list[Any] = []
        if self.cluster:
            for command in commands:
                try:
                    answers.append(self.call(*command))
                except chains.Damage as damage:
                    answers.append(damage)
            return answers
        for at in range(0, len(commands), MANY):
            some = commands[at : at + MANY]

            def send(client: Client, some: Sequence[Command] = some) -> list[Any]:
                with client.pipeline(transaction=False) as pipeline:
                    for command in some:
                        pipeline.execute_command(*command)
                    return list(pipeline.execute(raise_on_error=False))

            for answer in self._attempt(send).value:
                found = self._translated(answer) if isinstance(answer, Exception) else answer
                if isinstance(found, ToktierError):
                    raise found
                answers.append(found)
        return answers

    def run_many(self, script: Script, calls: Sequence[tuple[Sequence[str], Command]]) -> list[Any]:
        """`run` of several sessions, as `many`."""
        answers: list[Any] = []
        for keys, arguments in calls if self.cluster else calls[:1]:
            try:
                answers.append(self.run(script, keys, *arguments))  # after it the server knows the script
            except chains.Damage as damage:
                answers.append(damage)
        rest = calls[len(answers) :]
        return answers + self.many([("EVALSHA", script.digest, len(keys), *keys, *given) for keys, given in rest])

    def keys(self, prefix: str) -> Iterator[bytes]:
        """All keys that begin so, of all nodes; some may come twice."""
        found: list[bytes] = self._attempt(lambda client: list(client.scan_iter(match=f"{prefix}*", count=1000))).value
        return iter(found)

    def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def corrupt(self, what: str, session: int | None) -> StoreCorrupt:
        """`what` says what does not hold; it must not quote any text of the store."""
        return StoreCorrupt(
            f"the store {self.where} is damaged: {what}",
            details={"server": self.where, "session": session},
            remedy="remove this session from the store, and present its text anew",
        )

    def _connected(self) -> Client:
        """No lock, which a fork could leave held: of two clients made at once one is dropped."""
        if self._closed:
            raise EnvironmentFault(f"the store {self.where} is closed", remedy="open it again")
        client = self._client
        if client is None:
            client = self._client = self._new_client()
        return client

    def _new_client(self) -> Client:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        settings: dict[str, Any] = {
            "socket_timeout": self.timeout,
            "socket_connect_timeout": self.timeout,
            # Here it is known what may be sent again; a cluster's client counts its tries by it.
            "retry": Retry(NoBackoff(), int(self.cluster)),
            "protocol": 2,
            "decode_responses": False,
        }
        try:
            return self._made(redis, settings)
        except (ValueError, TypeError):  # of an option; what they say quotes it
            raise ConfigInvalid(
                f"an option in the URL of the store {self.where} is not understood", remedy="correct store="
            ) from None

    def _made(self, redis: Any, settings: dict[str, Any]) -> Client:
        if self.cluster:
            # Its commands are the same ones; what its client lacks (pipelines of scripts) is not asked of it.
            return redis.RedisCluster.from_url(self._address.url, **settings)
        return redis.Redis.from_url(self._address.url, max_connections=MAX_CONNECTIONS, **settings)

    def _attempt(self, send: Callable[[Client], _T]) -> Answer:
        from redis import exceptions

        for repeated in (False, True):
            try:
                return Answer(send(self._connected()), repeated)
            except exceptions.TimeoutError:
                raise self._unavailable(
                    f"did not answer within {self.timeout:g} s", "TIMEOUT", "look after the server, or raise timeout="
                ) from None
            except (exceptions.RedisError, exceptions.RedisClusterException) as error:
                lost = type(error) is exceptions.ConnectionError
                if repeated or not lost or self._closed:
                    raise self._translated(error) from None
            except Exception:
                raise
            except (
                BaseException
            ):  # a signal: an answer may be on its way, which the next command would take for its own
                self._client = None
                raise
        raise AssertionError("unreachable")

    def _translated(self, error: Exception) -> Exception:
        """A refusal as ours, or Damage where a key holds another type than it should."""
        from redis import exceptions

        found = _WORD.search(str(error))
        word = None if found is None else found[1]
        refused: tuple[type[Exception], ...] = (
            *(exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError),
            exceptions.AuthenticationWrongNumberOfArgsError,
        )
        if isinstance(error, refused) or word in ("NOPERM", "NOAUTH", "WRONGPASS"):
            return self._unavailable(
                "refuses the credentials, or does not allow their user what a store needs",
                word or "NOAUTH",
                "correct user and password in store=, or let that user run EVALSHA, SCAN and writes on the namespace",
            )
        if word == "WRONGTYPE":
            return chains.Damage("a key holds another type than it should")
        if isinstance(error, exceptions.OutOfMemoryError) or word in ("OOM", "MISCONF", "NOREPLICAS"):
            what = "cannot keep what it is given" if word == "MISCONF" else "has no memory left for it"
            return self._refused(
                EnvironmentFault,
                "has too few replicas to write" if word == "NOREPLICAS" else what,
                word or "OOM",
                "give the server memory and disk, or evict: its log says which is missing",
            )
        if isinstance(error, exceptions.ReadOnlyError) or word in ("READONLY", "MASTERDOWN", "MOVED", "ASK"):
            return self._unavailable(
                "is not one to write to: a replica, or a node of a cluster",
                word or "READONLY",
                "name the primary in store=, or redis+cluster:// for a cluster",
            )
        if isinstance(error, exceptions.BusyLoadingError) or word in ("LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN"):
            return self._unavailable("is busy, or not up yet", word or "LOADING", "try again in a moment")
        if isinstance(error, (exceptions.ConnectionError, exceptions.RedisClusterException, exceptions.ClusterError)):
            return self._unavailable("cannot be reached", "CONNECTION", "start the server, or correct store=")
        return self._refused(
            BackendExecutionFault,
            "refuses a command",
            word,
            "the log of the server says more; Redis 5 or newer is needed",
        )

    def _unavailable(self, what: str, word: str, remedy: str) -> ToktierError:
        return self._refused(BackendUnavailable, what, word, remedy)

    def _refused(self, kind: type[ToktierError], what: str, word: str | None, remedy: str) -> ToktierError:
        return kind(
            f"the store {self.where} {what}",
            details={"server": self.where, "refusal": word, "timeout_s": self.timeout},
            remedy=remedy,
        )
