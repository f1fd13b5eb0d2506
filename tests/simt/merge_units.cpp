// Tables and pieces are drawn from a seed. Between pieces lie bytes of no piece, so that a token outside of one is seen.
#include "merge_units.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi.h"
#include "compile/pair_table.h"
#include "launch.h"

namespace {

using Random = std::mt19937_64;

std::uint32_t below(Random& random, std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); }

constexpr std::uint32_t longest_token = 64;

struct Rules {
  std::vector<std::string> tokens;      // by id; the first 256 are bytes
  std::vector<std::uint32_t> rows;      // left, right, product, in order of rank
};

Rules draw_rules(const MergeUnits& units, Random& random) {
  Rules made;
  std::unordered_map<std::string, std::uint32_t> ids;
  for (std::uint32_t b = 0; b < 256; ++b) {
    made.tokens.emplace_back(1, static_cast<char>(b));
    ids[made.tokens.back()] = b;
  }
  std::vector<std::uint32_t> usable;
  for (std::uint32_t letter = 0; letter < units.letters; ++letter) usable.push_back('a' + letter);
  std::unordered_map<std::uint64_t, bool> pairs;
  for (std::uint32_t tries = 0; pairs.size() < units.rules && tries < 50 * units.rules; ++tries) {
    const std::uint32_t left = usable[below(random, static_cast<std::uint32_t>(usable.size()))];
    const std::uint32_t right = usable[below(random, static_cast<std::uint32_t>(usable.size()))];
    const std::string text = made.tokens[left] + made.tokens[right];
    if (text.size() > longest_token) continue;
    const auto known = ids.find(text);
    if (known != ids.end() && units.table == MERGE_ASCENDING) continue;
    if (!pairs.emplace(static_cast<std::uint64_t>(left) << 32 | right, true).second) continue;
    const std::uint32_t product = known != ids.end() ? known->second : static_cast<std::uint32_t>(made.tokens.size());
    if (known == ids.end()) {
      made.tokens.push_back(text);
      ids[text] = product;
      usable.push_back(product);
    }
    made.rows.insert(made.rows.end(), {left, right, product});
  }
  if (units.table != MERGE_ASCENDING) {
    for (std::size_t i = made.rows.size() / 3; i > 1; --i) {
      const std::size_t j = random() % i;
      std::swap_ranges(made.rows.begin() + 3 * (i - 1), made.rows.begin() + 3 * i, made.rows.begin() + 3 * j);
    }
  }
  return made;
}

// Letters at random, a few letters over and over, or tokens one behind the other.
std::string draw_piece(const MergeUnits& units, const Rules& rules, Random& random) {
  static constexpr std::uint32_t borders[] = {1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 4095, 4096};
  std::uint32_t bytes = units.shortest + below(random, units.longest - units.shortest + 1);
  if (below(random, 3) == 0) {
    const std::uint32_t border = borders[below(random, sizeof borders / sizeof *borders)];
    if (border >= units.shortest && border <= units.longest) bytes = border;
  }
  std::string piece;
  const std::uint32_t kind = below(random, 4), period = 1 + below(random, 4);
  while (piece.size() < bytes) {
    if (kind == 0 && piece.size() >= period)
      piece += piece[piece.size() - period];
    else if (kind == 1)
      piece += rules.tokens[below(random, 2) == 0 ? 'a' : rules.rows[3 * below(random, static_cast<std::uint32_t>(
                                                              rules.rows.size() / 3)) + 2]];
    else
      piece += static_cast<char>('a' + below(random, units.letters));
  }
  piece.resize(bytes);
  return piece;
}

struct Table {
  toktier::compile::PairTable built;
  TtPairTable view{};

  Table(const std::vector<std::uint32_t>& rows, std::uint32_t n_ids)
      : built(toktier::compile::build_pair_table(rows, n_ids)) {
    view.product = built.product.empty() ? nullptr : built.product.data();
    if (built.displacement.empty()) {
      view.slots = built.slots.data();
      view.mask = static_cast<tt_u32>(built.slots.size() / 3 - 1);
      return;
    }
    view.displacement = built.displacement.data();
    view.entries = reinterpret_cast<const tt_u64*>(built.entries.data());
    view.n_entries = static_cast<tt_u32>(built.entries.size());
    view.bucket_shift = 32;
    for (std::size_t size = built.displacement.size(); size > 1; size /= 2) --view.bucket_shift;
    tt_pair_multipliers(built.seed, view.multiply);
  }
};

// tt_merge_small; and how often ranks go down, which it does not say.
std::vector<TtSymbol> merge(const TtPairTable& table, const std::string& piece, MergeCounts& counts) {
  std::vector<TtSymbol> symbols(piece.size());
  for (std::uint32_t i = 0; i < piece.size(); ++i) symbols[i] = {static_cast<tt_u8>(piece[i]), i + 1, TT_NONE, TT_NONE};
  std::vector<tt_u32> ids;
  for (const TtSymbol& s : symbols) ids.push_back(s.id);
  symbols.resize(tt_merge_small(table, symbols.data(), static_cast<tt_u32>(symbols.size())));
  counts.merges += static_cast<std::uint32_t>(piece.size() - symbols.size());
  if (piece.size() > TT_WARP_PIECE) return symbols;  // quadratic
  for (tt_u32 last = 0;;) {
    tt_u32 lowest = TT_NONE;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const tt_u32 rank = tt_find_rank(table, ids[i], ids[i + 1]);
      if (rank < lowest) lowest = rank, at = i;
    }
    if (lowest == TT_NONE) return symbols;
    counts.interrupted += lowest < last;
    last = lowest;
    ids[at] = tt_product(table, lowest);
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

}  // namespace

int merge_units_run(const MergeUnits* input, MergeCounts* counts, char* report, std::uint64_t report_bytes) {
  const MergeUnits& units = *input;
  Random random(units.seed);
  const Rules rules = draw_rules(units, random);
  const std::uint32_t n_ids = units.table == MERGE_WIDE ? 1u << TT_PAIR_ID_BITS : static_cast<std::uint32_t>(rules.tokens.size());
  const Table table(rules.rows, n_ids);
  *counts = {};

  std::string text;
  std::vector<tt_u64> queue;
  std::vector<tt_u32> expected;  // by byte: the token that begins there, or none
  for (std::uint32_t k = 0; k < units.pieces; ++k) {
    text.append(below(random, 40), '.');
    const std::string piece = draw_piece(units, rules, random);
    queue.push_back(text.size() | static_cast<tt_u64>(piece.size()) << 32);
    expected.resize(text.size() + piece.size(), TT_NONE);
    tt_u32 begin = 0;
    for (const TtSymbol& symbol : merge(table.view, piece, *counts)) {
      expected[text.size() + begin] = symbol.id;
      begin = symbol.end;
      ++counts->tokens;
    }
    text += piece;
    ++counts->pieces;
  }
  for (std::size_t i = queue.size(); i > 1; --i) std::swap(queue[i - 1], queue[random() % i]);  // in no order

  const auto n = static_cast<tt_u32>(text.size());
  struct alignas(16) Aligned {
    tt_u8 bytes[16];
  };
  std::vector<Aligned> padded((n + TT_TEXT_PADDING) / 16 + 1);
  std::memcpy(padded.data(), text.data(), n);
  std::vector<tt_u32> control(TT_CONTROL_WORDS), tokens(n / 32 + 1), token_id(n, 0xDEADBEEF), byte_symbol(256);
  for (tt_u32 b = 0; b < 256; ++b) byte_symbol[b] = b;
  control[TT_CONTROL_QUEUED + units.queue] = static_cast<tt_u32>(queue.size());

  TtGpuParams p{};
  p.n = n;
  p.n_words = (n + 31) / 32;
  p.tables.pairs = table.view;
  p.tables.byte_symbol = byte_symbol.data();
  p.buffers.text = padded.data()->bytes;
  p.buffers.control = control.data();
  p.buffers.tokens = tokens.data();
  p.buffers.token_id = token_id.data();
  p.buffers.queue[units.queue] = queue.data();
  const SimtKernel* const kernel = simt_kernel(units.kernel);
  if (kernel == nullptr) {
    std::snprintf(report, report_bytes, "%s is no kernel", units.kernel);
    return 1;
  }
  SimtOptions options;
  options.seed = units.lane_seed;
  if (simt_launch(*kernel, 3, TT_TILE_THREADS, p, options, report, report_bytes) != SIMT_OK) return 1;
  for (tt_u32 i = 0; i < n; ++i) {
    const bool begins = (tokens[i / 32] >> i % 32 & 1) != 0;
    const tt_u32 id = begins ? token_id[i] : TT_NONE;
    if (id == expected[i]) continue;
    std::snprintf(report, report_bytes, "at byte %u of %u there is %d instead of %d, in ...%s...", i, n, static_cast<int>(id),
                  static_cast<int>(expected[i]), text.substr(i < 20 ? 0 : i - 20, 60).c_str());
    return 1;
  }
  return 0;
}
