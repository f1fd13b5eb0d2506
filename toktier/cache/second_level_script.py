"""The script that a server runs for a look-up: the first of many keys that holds anything, in one round trip.

It only reads, so that a replica can run it. What it finds is not judged here: what cannot be a value is answered as an
empty one, and the client counts and removes it.
"""

from __future__ import annotations

from toktier.cache.level import KEY_BYTES
from toktier.cache.second_level_exchange import Exchange, Refused
from toktier.cache.second_level_values import MAX_VALUE_BYTES
from toktier.sessions.redis_scripts import Script

INDEX_BYTES = 4  # of an answer: the index of the key, little-endian; its value follows

# KEYS what keys begin with. ARGV the largest value in bytes, the keys one after another: one argument, for a client
# needs milliseconds to pack a thousand of them. Nil: none is there. n keys take a server about n microseconds.
FIND = Script(f"""
local from, most, keys = KEYS[1], tonumber(ARGV[1]), ARGV[2]
for at = 0, #keys / {KEY_BYTES} - 1 do
  local key = from .. string.sub(keys, {KEY_BYTES} * at + 1, {KEY_BYTES} * (at + 1))
  local size = redis.pcall('STRLEN', key)
  if type(size) == 'table' then
    if string.find(size.err, 'WRONGTYPE', 1, true) then return struct.pack('<I{INDEX_BYTES}', at) end
    return size
  end
  if size > most then return struct.pack('<I{INDEX_BYTES}', at) end
  local value = size > 0 and redis.call('GET', key)
  if value then return struct.pack('<I{INDEX_BYTES}', at) .. value end
end
return false
""")
_MOST = INDEX_BYTES + MAX_VALUE_BYTES


def find(exchange: Exchange, key_prefix: bytes, keys: bytes, deadline: float) -> tuple[int, memoryview] | None:
    """Index and value of the first key that holds anything. Raises what `Exchange.ask` raises; a server that does not
    know the script, or forgot it, is told within the same deadline."""
    arguments = (1, key_prefix, MAX_VALUE_BYTES, keys)
    try:
        answer = exchange.ask("EVALSHA", FIND.digest, *arguments, deadline=deadline, most=_MOST)
    except Refused as refused:
        if refused.word != "NOSCRIPT":
            raise
        answer = exchange.ask("EVAL", FIND.text, *arguments, deadline=deadline, most=_MOST)
    if answer is None:
        return None
    return int.from_bytes(answer[:INDEX_BYTES], "little"), answer[INDEX_BYTES:]
