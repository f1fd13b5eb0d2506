"""Encoding with what a store remembers: the longest stored prefix of a text answers for its part, the rest is encoded,
and what was new is remembered (`lookup="auto"`).

A prefix is believed after its digests held over the presented text (`Store.longest_prefix`); whether the text may be
cut where it ends is decided on the presented text, too. A store that cannot be asked or written is no error: the text
is encoded as if there were none. Not here: named sessions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from toktier._native import EncoderBase, Encoding
from toktier.errors import ToktierError
from toktier.sessions import chains
from toktier.sessions.live import Live, Text
from toktier.sessions.protocol import Store
from toktier.sessions.records import Append, Prefix


def encode(
    text: Text,
    utf8: bytes,
    add_special_tokens: bool,
    encoder: EncoderBase,
    new_live: Callable[[], Live],
    fingerprint: str,
    store: Store,
) -> Encoding:
    """The Encoding of `text`, whose UTF-8 is `utf8`."""
    prefix = store.longest_prefix(utf8, fingerprint)
    if prefix is not None and len(utf8) - prefix.text_bytes < chains.MARK:
        found = encoder._encode_behind(text, utf8, prefix.ids, prefix.text_bytes, add_special_tokens)
        if found is not None:
            return found
    live = new_live()
    if prefix is not None:
        live.restore(0, (prefix.text_bytes, prefix.code_points, prefix.tokens), b"", b"")
        live.adopt(utf8[: prefix.text_bytes], prefix.ids, b"")
    if live.prepare_present(text):
        _remember(live, utf8, prefix, fingerprint, store)
        live.commit(1)
    return live.presented(text, add_special_tokens)


def _remember(live: Live, utf8: bytes, prefix: Prefix | None, fingerprint: str, store: Store) -> None:
    """Writes the steps of what was prepared, where a look-up would find more by them."""
    known = 0 if prefix is None else prefix.text_bytes
    if len(utf8) - known < chains.MARK:
        return
    with contextlib.suppress(ToktierError):
        if prefix is not None and live.prepared_begin() >= known:
            steps, _, _ = live.changes(prefix.text_bytes, prefix.tokens)
            if store.extend(prefix, [Append(0, ids, text) for ids, text in steps]):
                return
        steps, _, _ = live.changes(0, 0)
        store.remember(fingerprint, [Append(at, ids, text) for at, (ids, text) in enumerate(steps)])
