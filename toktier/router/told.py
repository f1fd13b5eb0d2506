"""What the log was told of upstreams and of what stands beside them: a line where it changes, and none where it lasts.

Not here: requests (`exchange`), what counts as a fault.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from toktier.router.upstream import Upstream
from toktier.router.vocabulary import UpstreamState

LOG: Final = logging.getLogger("toktier.router")


class Told:
    def __init__(self) -> None:
        self._upstreams: dict[int, tuple[UpstreamState, int]] = {}  # state and epoch
        self._faults: Mapping[str, str | None] = {}

    def upstream(self, upstream: Upstream) -> None:
        """One line where it is in another state than the last line said, or another process."""
        told, now = self._upstreams.get(upstream.index), (upstream.state, upstream.epoch)
        if now == told:
            return
        self._upstreams[upstream.index] = now
        notes = upstream.notes
        is_expected = told is None and upstream.state is UpstreamState.UP and not notes  # as it should be: no news
        is_anew = told is not None and upstream.state is UpstreamState.UP and upstream.epoch > told[1] > 0
        LOG.log(
            logging.INFO if is_expected else logging.WARNING,
            "upstream %d, %s, is %s%s%s",
            upstream.index,
            upstream.url,
            upstream.state.value,
            ", and was started anew" if is_anew else "",
            "".join(f": {note.removeprefix(upstream.url).lstrip()}" for note in notes[:1]),
        )

    def faults(self, now: Mapping[str, str | None]) -> None:
        """One line where something beside the upstreams began to fail, fails otherwise, or works again."""
        for what, why in now.items():
            if why != self._faults.get(what):
                LOG.warning("%s: %s", what, why or "nothing is wrong any more")
        self._faults = now
