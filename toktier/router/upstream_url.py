"""The URL of a llama-server: a scheme, a host and a port, and nothing that could send requests or keys elsewhere.

Not here: whether anybody answers there.
"""

from __future__ import annotations

import re
from typing import Final

from toktier.errors import ConfigInvalid
from toktier.labels import shown

# A name of a host in ASCII (others in their "xn--" form), or an address.
_URL: Final = re.compile(r"(https?)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?/?")


def checked_url(url: str) -> str:
    """`url` without a slash at its end. Raises ConfigInvalid."""
    found = _URL.fullmatch(url)
    if found is not None and (found[3] is None or 0 < int(found[3]) < 65_536):
        return url.rstrip("/")
    if "@" in url:  # what stands before it is a secret, and is not repeated
        raise ConfigInvalid(
            "the URL of an upstream has a name or password in it: a llama-server takes an API key",
            details={"argument": "url"},
            remedy="give the key by its own setting",
        )
    raise ConfigInvalid(
        f"an upstream is {shown(url, 80)}: expected http or https, a host and a port",
        details={"argument": "url"},
        remedy="give a URL as http://127.0.0.1:8080",
    )
