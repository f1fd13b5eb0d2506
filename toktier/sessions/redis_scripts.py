"""The Lua scripts that a Redis store runs: each is one step that no other writer comes between.

A state, its steps and its marks lie in one slot, so that one script may touch all of them on a cluster, too. The first
four bytes of a script's answer tell nothing: answers are lists whose first member is one of the codes below.

The first write of a script is one that a full server refuses, so that it refuses all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1

CONFLICT = 0  # the state begins otherwise than was expected: its beginning follows
DONE = 1
DAMAGED = 2
FOREIGN = 3


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha1(self.text.encode()).hexdigest())  # the name EVALSHA knows it by


# An entry of the look-up is the mark's number, 8 bytes of the chain there, and the session that holds it.
_MARKS = """
local function entry(mark, chain) return struct.pack('>I4', mark) .. chain end
local function sessions(mark, chain, most, out)
  local from = entry(mark, chain)
  local found = redis.call('ZREVRANGEBYLEX', KEYS[1], '(' .. from .. 'o', '[' .. from, 'LIMIT', 0, most)
  for _, one in ipairs(found) do
    out[#out + 1] = mark
    out[#out + 1] = string.sub(one, #from + 1)
  end
end
"""

# KEYS state, steps, marks, and where they may be written with it: entries to drop from, entries to add to.
# ARGV head expected ('': a new session), steps and marks there are, steps and marks to keep, session, which of KEYS to
# drop from and to add to (0: none), state, number of steps, steps ..., marks ...
WRITE = Script("""
local found = redis.call('GETRANGE', KEYS[1], 0, 31)
if found ~= ARGV[1] or (found == '' and redis.call('EXISTS', KEYS[1]) == 1) then return {0, found} end
local steps, marks, kept, kept_marks = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('LLEN', KEYS[2]) ~= steps or redis.call('LLEN', KEYS[3]) ~= marks then return {2} end
local function entry(mark, chain) return struct.pack('>I4', mark) .. chain .. ARGV[6] end
local from, to = tonumber(ARGV[7]), tonumber(ARGV[8])
local dropped = {1}
if kept_marks < marks then
  for k, chain in ipairs(redis.call('LRANGE', KEYS[3], kept_marks, -1)) do dropped[k + 1] = chain end
end
redis.call('SET', KEYS[1], ARGV[9])
if kept == 0 and steps > 0 then redis.call('DEL', KEYS[2])
elseif kept < steps then redis.call('LTRIM', KEYS[2], 0, kept - 1) end
if kept_marks == 0 and marks > 0 then redis.call('DEL', KEYS[3])
elseif kept_marks < marks then redis.call('LTRIM', KEYS[3], 0, kept_marks - 1) end
if from > 0 then
  for k = 2, #dropped do redis.pcall('ZREM', KEYS[from], entry(kept_marks + k - 1, dropped[k])) end
end
local last = 10 + tonumber(ARGV[10])
for k = 11, last do redis.call('RPUSH', KEYS[2], ARGV[k]) end
for k = last + 1, #ARGV do
  redis.call('RPUSH', KEYS[3], ARGV[k])
  if to > 0 then redis.pcall('ZADD', KEYS[to], 0, entry(kept_marks + k - last, ARGV[k])) end
end
return dropped
""")

# The last step whose column is at most a value, and some before it, without ids and text.
# KEYS state, steps. ARGV head expected ('': any, the state is answered), column (its first byte; 'sequence': the value
# is one), value, how many, bytes of a step that are asked for.
LOCATE = Script("""
local state
if ARGV[1] == '' then state = redis.call('GET', KEYS[1])
else
  state = redis.call('GETRANGE', KEYS[1], 0, 31)
  if state ~= ARGV[1] then return {0, state} end
end
local steps, value = redis.call('LLEN', KEYS[2]), tonumber(ARGV[3])
local low, high = 0, steps
if ARGV[2] == 'sequence' then low = math.max(0, math.min(value, steps))
else
  local from = tonumber(ARGV[2]) + 1
  while low < high do
    local middle = math.floor((low + high + 1) / 2)
    local found = string.sub(redis.call('LINDEX', KEYS[2], middle - 1), from, from + 7)
    if #found < 8 then return {2} end
    if struct.unpack('<I8', found) <= value then low = middle else high = middle - 1 end
  end
end
local parts = {}
for at = low, math.max(1, low - tonumber(ARGV[4]) + 1), -1 do
  parts[#parts + 1] = string.sub(redis.call('LINDEX', KEYS[2], at - 1), 1, tonumber(ARGV[5]))
end
return {1, state, steps, low, table.concat(parts)}
""")

# The last of some marks that a session holds (0: none), found by halving, for who holds one holds all before it; and
# who holds it or one of the three before. KEYS entries. ARGV number of the first mark, how many at most, chains ...
FIND = Script(
    _MARKS
    + """
local first, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local low, high = 0, #ARGV - 2
while low < high do
  local middle = math.floor((low + high + 1) / 2)
  local from = entry(first + middle - 1, ARGV[middle + 2])
  local found = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. from, '(' .. from .. 'o', 'LIMIT', 0, 1)
  if #found > 0 then low = middle else high = middle - 1 end
end
if low == 0 then return {0} end
local out = {first + low - 1}
for k = low, math.max(1, low - 3), -1 do sessions(first + k - 1, ARGV[k + 2], most, out) end
return out
"""
)

# KEYS entries. ARGV how many at most, then mark and chain, mark and chain ...
HOLDERS = Script(
    _MARKS
    + """
local out = {}
for k = 2, #ARGV, 2 do sessions(tonumber(ARGV[k]), ARGV[k + 1], tonumber(ARGV[1]), out) end
return out
"""
)

# KEYS state, steps, marks. ARGV '1': also what does not begin as a state does. Answers how many keys went, and the
# marks.
DROP = Script("""
if ARGV[1] ~= '1' and redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('TYPE', KEYS[1]).ok ~= 'string' or redis.call('GETRANGE', KEYS[1], 0, 3) ~= 'tkse' then return {3} end
end
local out = {1}
local marks = redis.pcall('LRANGE', KEYS[3], 0, -1)
out[2] = redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
if not marks.err then
  for k, chain in ipairs(marks) do out[k + 2] = chain end
end
return out
""")

# KEYS state. ARGV its first bytes, offset of the last use, the last use.
TOUCH = Script("""
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) ~= ARGV[1] then return 0 end
redis.call('SETRANGE', KEYS[1], ARGV[2], ARGV[3])
return 1
""")

_VICTIMS = """
local function victims(budget, spared)
  local total, out, at = tonumber(redis.call('HGET', KEYS[2], 'total') or '0'), {}, 0
  while total > budget do
    local oldest = redis.call('ZRANGE', KEYS[1], at, at + 99)
    if #oldest == 0 then break end
    for _, one in ipairs(oldest) do
      if total <= budget then break end
      if one ~= spared then
        out[#out + 1] = one
        total = total - tonumber(redis.call('HGET', KEYS[2], one) or '0')
      end
    end
    at = at + 100
  end
  return out
end
"""

# KEYS last uses, bytes held. ARGV session, its bytes, now, budget. Answers who has to go for it.
ADMIT = Script(
    _VICTIMS
    + """
local before = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '0')
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[2], 'total', tonumber(ARGV[2]) - before)
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return victims(tonumber(ARGV[4]), ARGV[1])
"""
)

# KEYS last uses, bytes held. ARGV budget. Answers who has to go.
VICTIMS = Script(_VICTIMS + "return victims(tonumber(ARGV[1]), '')")

# KEYS last uses, bytes held. ARGV sessions ...
FORGET = Script("""
for _, one in ipairs(ARGV) do
  local held = redis.call('HGET', KEYS[2], one)
  if held then
    redis.call('HDEL', KEYS[2], one)
    redis.call('HINCRBY', KEYS[2], 'total', -tonumber(held))
  end
  redis.call('ZREM', KEYS[1], one)
end
if redis.call('ZCARD', KEYS[1]) == 0 then redis.call('DEL', KEYS[2]) end
return 0
""")
