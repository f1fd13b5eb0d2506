"""How a second level comes to a connection: by the URL that sessions in Redis take, through its client library.

Connecting is of no look-up: names are resolved, certificates exchanged and credentials given in the background, and
what failed there is told as what a look-up can meet.
"""

from __future__ import annotations

import re
from typing import Any

from toktier.cache.second_level_exchange import Exchange, Refused
from toktier.errors import ConfigInvalid
from toktier.missing_distribution import missing_distribution
from toktier.sessions.redis_url import address

_REMEDY = "correct the URL of the second level"
_WORD = re.compile(r"\b(NOAUTH|WRONGPASS|NOPERM|LOADING|BUSY|MASTERDOWN|DENIED)\b")


class Connector:
    """`where` is the URL without credentials."""

    def __init__(self, url: str) -> None:
        """Raises CONFIG_INVALID, and BACKEND_UNAVAILABLE without the extra; connects to nothing."""
        try:
            self._address = address(url)
        except ConfigInvalid as error:
            raise ConfigInvalid(error.message, remedy=_REMEDY) from None
        self.where = self._address.shown
        if self._address.cluster:
            raise ConfigInvalid(
                f"{self.where} is a cluster, and a second level is one server: expected redis://, rediss:// or unix://",
                remedy=_REMEDY,
            )
        try:
            import redis  # noqa: F401
        except ImportError:
            raise missing_distribution(
                "a second level in Redis or Valkey needs", "redis", "redis", "'redis>=6'"
            ) from None
        try:
            self._connection(1.0)
        except Exception:  # of an option; what it says quotes it
            raise ConfigInvalid(
                f"an option in the URL of the second level {self.where} is not understood", remedy=_REMEDY
            ) from None

    def open(self, timeout: float) -> Exchange:
        """A connection that has given its credentials. `timeout`: seconds for each step of that.

        Raises TimeoutError, another OSError, and Refused.
        """
        from redis import exceptions

        connection = self._connection(timeout)
        try:
            connection.connect()
        except exceptions.TimeoutError:
            raise TimeoutError from None
        except exceptions.RedisError as error:
            word = _WORD.search(str(error))
            if word is not None:
                raise Refused(word[1]) from None
            if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
                raise Refused("NOAUTH") from None
            if isinstance(error, exceptions.ConnectionError):
                raise ConnectionError from None
            raise Refused("ERR") from None
        return Exchange(connection)

    def _connection(self, timeout: float) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        pool = redis.ConnectionPool.from_url(
            self._address.url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            decode_responses=False,
        )
        return pool.make_connection()
