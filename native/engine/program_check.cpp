// The checks declared in program_check.h. They decide whether following a table is safe, not whether it is the right table:
// that is what the digest is for.
#include "program_check.h"

#include <algorithm>

namespace toktier {

void refuse(const char* section, std::string what) { throw ProgramError{section, std::move(what)}; }
void require(bool ok, const char* section, const char* what) {
  if (!ok) refuse(section, what);
}

namespace {

template <typename T>
void below(const char* section, Array<T> values, std::uint32_t limit) {
  std::uint32_t greatest = 0;
  for (std::uint64_t i = 0; i < values.size; ++i) greatest = std::max<std::uint32_t>(greatest, values[i]);
  require(values.size == 0 || greatest < limit, section, "a value is out of range");
}

std::uint32_t is_no_scalar(std::uint32_t cp) {
  return static_cast<std::uint32_t>(cp - 0xD800 < 0x800) | static_cast<std::uint32_t>(cp >= 0x110000);
}

// The top bit of what is gathered says whether a value was above `greatest`, which is below 2^31. The oldest x86-64 has no
// comparison and no maximum of unsigned words, so that either would double the time of these loops.
std::uint32_t above(std::uint32_t greatest, std::uint32_t value) { return (greatest - value) | value; }
constexpr std::uint32_t top_bit = 0x80000000;

}  // namespace

void check_below(const char* section, Array<std::uint8_t> values, std::uint32_t limit) { below(section, values, limit); }
void check_below(const char* section, Array<std::uint16_t> values, std::uint32_t limit) { below(section, values, limit); }

void check_ids(const char* section, Array<std::uint32_t> values, std::uint32_t limit) {
  std::uint32_t bad = 0;
  for (std::uint64_t i = 0; i < values.size; ++i) bad |= above(limit, values[i] + 1);  // none becomes 0
  require((bad & top_bit) == 0, section, "an id is out of range");
}

void check_offsets(const char* section, Array<std::uint32_t> offsets, std::uint64_t bytes) {
  require(offsets.size > 0, section, "it is empty");
  std::uint32_t descends = offsets[0];  // as `above`; where an offset has the top bit, it may be in order yet
  for (std::uint64_t i = 1; i < offsets.size; ++i) descends |= above(offsets[i], offsets[i - 1]) | offsets[i];
  if ((descends & top_bit) != 0)
    for (std::uint64_t i = 1; i < offsets.size; ++i) require(offsets[i - 1] <= offsets[i], section, "offsets descend");
  require(offsets[offsets.size - 1] <= bytes, section, "offsets go beyond the bytes");
}

void check_ascending(const char* section, Array<std::uint32_t> rows, std::uint32_t columns, std::uint32_t keys) {
  require(rows.size % columns == 0, section, "its length is no whole number of records");
  std::uint32_t bad = 0;
  for (std::uint64_t i = columns; i < rows.size; i += columns) {
    const std::uint32_t* a = rows.data + i - columns;
    const std::uint32_t* b = rows.data + i;
    bad |= !(a[0] < b[0] || (keys == 2 && a[0] == b[0] && a[1] < b[1]));
  }
  require(bad == 0, section, "records are not in ascending order");
}

void check_scalars(const char* section, Array<std::uint32_t> rows, std::uint32_t columns, std::uint32_t checked) {
  std::uint32_t bad = 0;
  for (std::uint64_t i = 0; i + columns <= rows.size; i += columns)
    for (std::uint32_t k = 0; k < checked; ++k) bad |= is_no_scalar(rows[i + k]);
  require(bad == 0, section, "a code point is no Unicode scalar value");
}

void check_spans(const char* section, Array<std::uint32_t> rows, std::uint64_t size, std::uint32_t longest) {
  std::uint32_t bad = 0;
  for (std::uint64_t i = 0; i + 3 <= rows.size; i += 3) {
    const std::uint64_t offset = rows[i + 1], length = rows[i + 2];
    bad |= length == 0 || length > longest || offset + length > size;
  }
  require(bad == 0, section, "a span is empty, too long or out of range");
}

void check_utf8(const char* section, Array<std::uint8_t> bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data), bytes.size);
  require(validate_utf8(all) == std::string_view::npos, section, "it is not valid UTF-8");
}

void check_starts(const char* section, Array<std::uint8_t> bytes, Array<std::uint32_t> offsets) {
  std::uint32_t bad = 0;
  for (std::uint64_t i = 0; i < offsets.size; ++i) bad |= offsets[i] < bytes.size && tt_is_continuation(bytes[offsets[i]]);
  require(bad == 0, section, "a string begins inside a character");
}

void check_hash(const char* section, Array<std::uint32_t> slots, std::uint32_t columns, std::uint32_t limit) {
  if (slots.size == 0) return;
  const std::uint64_t capacity = slots.size / columns;
  require(slots.size % columns == 0 && (capacity & (capacity - 1)) == 0 && capacity <= 0x80000000ull, section,
          "its capacity is no power of two");
  std::uint64_t used = 0;
  std::uint32_t bad = 0;  // of id + 1 in used slots
  if (columns == 1) {     // 2^19 slots are usual: this loop becomes vector code
    std::uint32_t empty = 0;
    for (std::uint64_t i = 0; i < slots.size; ++i) {
      empty += slots[i] == TT_NONE;
      bad |= above(limit, slots[i] + 1);
    }
    used = capacity - empty;
  } else {
    for (std::uint64_t i = 0; i < slots.size; i += columns) {
      if (slots[i] == TT_NONE) continue;
      ++used;
      for (std::uint32_t k = 0; k < columns; ++k) bad |= above(limit, slots[i + k] == TT_NONE ? TT_NONE : slots[i + k] + 1);
    }
  }
  require((bad & top_bit) == 0, section, "an id is out of range");
  require(used * 2 <= capacity && used < capacity, section, "it is more than half full, so that probing need not end");
}

void check_each_id(const char* section, Array<std::uint32_t> values, std::uint32_t limit) { below(section, values, limit); }

void check_lines(const char* section, Array<std::uint32_t> slots, std::uint32_t limit) {
  if (slots.size == 0) return;
  require(slots.size % TT_LINE_SLOTS == 0 && slots.size <= 0xFFFFFFFFull, section, "it is no whole number of lines");
  std::uint32_t bad = 0, empty = 0;  // id + 1 of used slots
  for (std::uint64_t i = 0; i < slots.size; ++i) {
    const std::uint32_t none = slots[i] == TT_NONE;
    empty += none;
    bad |= above(limit, ((slots[i] & TT_SLOT_IDS) + 1) & (none - 1));
  }
  require((bad & top_bit) == 0, section, "an id is out of range");
  require(empty != 0, section, "no slot is empty, so that a look-up need not end");
}

void check_pairs(Array<std::uint8_t> displacement, Array<tt_u64> entries, std::uint32_t limit, std::uint64_t orders) {
  const std::uint64_t buckets = displacement.size;
  require(buckets >= 2 && (buckets & (buckets - 1)) == 0 && buckets <= 0x80000000ull, "MDIS", "its length is no power of two");
  require(entries.size != 0 && entries.size <= 0xFFFFFFFFull, "MENT", "it has the wrong length");
  require(limit <= TT_PAIR_IDS, "MENT", "ids do not fit it");
  // The top bit again, of 64: there is no comparison of such words either, and no part of an entry has it.
  const tt_u64 last_id = tt_u64{limit} - 1, last_order = std::min<tt_u64>(orders, tt_u64{TT_PAIR_ORDERS} + 1) - 1;
  static_assert(TT_NO_PAIR == ~tt_u64{0});
  tt_u64 bad = 0;
  for (std::uint64_t i = 0; i < entries.size; ++i) {
    const tt_u64 entry = entries[i], used = ~entry | (entry + 1);  // has the top bit but for TT_NO_PAIR
    const tt_u64 left = entry >> (TT_PAIR_ID_BITS + TT_PAIR_ORDER_BITS), right = entry >> TT_PAIR_ORDER_BITS & TT_PAIR_IDS;
    bad |= used & ((last_id - left) | (last_id - right) | (last_order - (entry & TT_PAIR_ORDERS)));
  }
  require(bad >> 63 == 0, "MENT", "an id or an order is out of range");
}

void check_wide_pairs(Array<std::uint32_t> slots, std::uint32_t limit, std::uint64_t orders) {
  const std::uint64_t capacity = slots.size / 3;
  require(slots.size % 3 == 0 && (capacity & (capacity - 1)) == 0 && capacity <= 0x80000000ull, "PAIR",
          "its capacity is no power of two");
  std::uint64_t used = 0;
  std::uint32_t bad = 0;
  for (std::uint64_t i = 0; i < slots.size; i += 3) {
    const std::uint32_t* s = slots.data + i;
    const std::uint32_t filled = s[0] != TT_NONE;
    used += filled;
    bad |= filled & (static_cast<std::uint32_t>(s[0] >= limit) | static_cast<std::uint32_t>(s[1] >= limit) |
                     static_cast<std::uint32_t>(s[2] >= orders));
  }
  require(bad == 0, "PAIR", "an id or an order is out of range");
  require(used * 2 <= capacity && used < capacity, "PAIR", "it is more than half full, so that probing need not end");
}

std::uint32_t check_bit_set(const char* section, Array<std::uint32_t> words) {
  require(words.size >= 2 && (words.size & (words.size - 1)) == 0 && words.size <= 0x04000000ull, section,
          "its length is no power of two");
  std::uint32_t log = 5;
  while (std::uint64_t{32} << (log - 5) < words.size * 32) ++log;
  return 32 - log;
}

void check_trie1(const char* section, Array<std::uint16_t> stage1, std::uint64_t stage2_size) {
  require(stage1.size == TT_TRIE_STAGE1, section, "its first stage has the wrong length");
  require(stage2_size % TT_TRIE_BLOCK == 0, section, "its second stage is no whole number of blocks");
  const std::uint64_t blocks = stage2_size / TT_TRIE_BLOCK;
  check_below(section, stage1, static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, 0x10000)));
}

void check_token_automaton(const TtBoundary& b) {
  constexpr std::uint8_t unseen = 0xFF;
  std::vector<std::uint8_t> pending(b.n_token, unseen);
  std::vector<std::uint32_t> queue{b.token_start};
  pending[b.token_start] = 0;
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const std::uint32_t state = queue[head], count = pending[state];
    require(b.token_end[state] >> (2 * count) == 0, "TEOF", "it speaks of a position that is not pending");
    for (std::uint32_t k = 0; k < count; ++k)
      require((b.token_end[state] >> (2 * k) & 3) != 3, "TEOF", "a value is out of range");
    for (std::uint32_t cls = 0; cls < b.n_class; ++cls) {
      const std::uint64_t cell = static_cast<std::uint64_t>(state) * b.n_class + cls;
      const std::uint32_t action = b.token_action[cell];
      require(action >> (2 * count + 2) == 0, "TACT", "an action speaks of a position that is not pending");
      std::uint32_t kept = 0;
      for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint32_t verdict = action >> (2 * k + 2) & 3;
        require(kept == 0 || (verdict & 1) == 0, "TACT", "boundaries would come out of order");
        kept += verdict == 0;
      }
      const std::uint32_t self = action & 3;
      require(self == 0 || self == 3 || kept == 0, "TACT", "boundaries would come out of order");
      kept += self == 3;
      require(kept <= TT_MAX_PENDING, "TACT", "more than three positions would be pending");
      const std::uint32_t next = b.token_next[cell];
      if (pending[next] == unseen) {
        pending[next] = static_cast<std::uint8_t>(kept);
        queue.push_back(next);
      }
      require(pending[next] == kept, "TRAN", "a state is reached with different counts of pending positions");
    }
  }
}

void check_matcher(const char* section, const Matcher& m, std::uint32_t tokens) {
  const std::uint64_t nodes = m.token.size, edges = m.edge_byte.size;
  require(m.first_edge.size == nodes + 1 && m.edge_child.size == edges && m.first_edge[0] == 0, section,
          "its four tables do not fit each other");
  check_offsets(section, m.first_edge, edges);
  require(m.first_edge[nodes] == edges, section, "its edges do not belong to its nodes");
  check_ids(section, m.token, tokens);
  require(m.token[0] == TT_NONE, section, "the root is a token");
  for (std::uint64_t node = 0; node < nodes; ++node)
    for (std::uint32_t e = m.first_edge[node]; e < m.first_edge[node + 1]; ++e) {
      require(e == m.first_edge[node] || m.edge_byte[e - 1] < m.edge_byte[e], section, "edges of a node are not ascending");
      require(m.edge_child[e] > node && m.edge_child[e] < nodes, section, "a child does not come after its parent");
      require(node > 0 || !tt_is_continuation(m.edge_byte[e]), section, "a token begins inside a character");
    }
}

}  // namespace toktier
