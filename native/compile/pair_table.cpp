// Hash and displace: keys fall into buckets of about two; the largest buckets first, each takes the least displacement that
// puts all its keys on empty entries. Two keys a bucket let one byte hold the displacement with 92 to 95 entries in 100 filled,
// and most buckets are placed within a few tries: 150,000 rules take 10 ms. A seed with which some bucket finds no place, or in
// which two keys cannot be told apart, is given up for the next one; with these sizes that is rare, and keys chosen to defeat
// all seeds get the wide table.
#include "compile/pair_table.h"

#include <algorithm>

#include "compile/probing.h"
#include "shared/pair_table.h"

namespace toktier::compile {

namespace {

constexpr std::uint32_t kSeeds = 16;
constexpr std::uint32_t kDisplacements = 256;
constexpr std::uint32_t kLargestBucket = 32;  // keys; of two on average: beyond, the keys were made to meet

bool displace(const std::vector<std::uint32_t>& rules, const TtPairTable& t, PairTable& out) {
  const std::uint32_t count = std::uint32_t(rules.size() / 3), buckets = std::uint32_t(out.displacement.size());
  std::vector<std::uint32_t> first(std::size_t(buckets) + 1, 0), bucket(count), member(count);
  for (std::uint32_t r = 0; r < count; ++r) {
    bucket[r] = tt_pair_bucket(t, rules[3 * std::size_t(r)], rules[3 * std::size_t(r) + 1]);
    ++first[bucket[r] + 1];
  }
  std::uint32_t largest = 0;
  for (std::uint32_t b = 0; b < buckets; ++b) largest = std::max(largest, first[b + 1]);
  if (largest > kLargestBucket) return false;
  // Buckets by size, the largest first.
  std::vector<std::uint32_t> of_size(std::size_t(largest) + 2, 0), order(buckets);
  for (std::uint32_t b = 0; b < buckets; ++b) ++of_size[largest - first[b + 1] + 1];
  for (std::uint32_t n = 0; n <= largest; ++n) of_size[n + 1] += of_size[n];
  for (std::uint32_t b = 0; b < buckets; ++b) order[of_size[largest - first[b + 1]]++] = b;
  for (std::uint32_t b = 0; b < buckets; ++b) first[b + 1] += first[b];
  std::vector<std::uint32_t> fill(first.begin(), first.end() - 1);
  for (std::uint32_t r = 0; r < count; ++r) member[fill[bucket[r]]++] = r;

  std::fill(out.entries.begin(), out.entries.end(), TT_NO_PAIR);
  std::uint32_t scatter[kLargestBucket], place[kLargestBucket];
  for (const std::uint32_t b : order) {
    const std::uint32_t* const keys = member.data() + first[b];
    const std::uint32_t size = first[b + 1] - first[b];
    if (size == 0) break;
    for (std::uint32_t k = 0; k < size; ++k)
      scatter[k] = tt_pair_scatter(t, rules[3 * std::size_t(keys[k])], rules[3 * std::size_t(keys[k]) + 1]);
    std::uint32_t d = 0;
    for (; d < kDisplacements; ++d) {
      std::uint32_t placed = 0;
      for (; placed < size; ++placed) {
        place[placed] = tt_pair_place(scatter[placed], d, t.n_entries);
        if (out.entries[place[placed]] != TT_NO_PAIR) break;
        const std::uint32_t* const rule = rules.data() + 3 * std::size_t(keys[placed]);
        out.entries[place[placed]] = tt_pair_entry(rule[0], rule[1], out.product.empty() ? rule[2] : keys[placed]);
      }
      if (placed == size) break;
      while (placed > 0) out.entries[place[--placed]] = TT_NO_PAIR;
    }
    if (d == kDisplacements) return false;
    out.displacement[b] = std::uint8_t(d);
  }
  return true;
}

bool build_compact(const std::vector<std::uint32_t>& rules, PairTable& out) {
  const std::uint32_t count = std::uint32_t(rules.size() / 3);
  TtPairTable t{};
  std::uint32_t log = 1;
  while ((std::uint64_t{1} << log) * 5 < std::uint64_t{count} * 2) ++log;  // 1.25 to 2.5 keys a bucket
  out.displacement.assign(std::size_t{1} << log, 0);
  t.bucket_shift = 32 - log;
  // Above two keys a bucket the last ones find no place in a table that full.
  const std::uint32_t spare = count >> (log + 1) != 0 ? count / 11 : count / 20;
  for (out.seed = 0; out.seed < kSeeds; ++out.seed) {
    // More room with each seed given up, so that chance alone never leads to the wide form.
    t.n_entries = count + spare + count / 64 * out.seed + 4;
    out.entries.resize(t.n_entries);
    tt_pair_multipliers(out.seed, t.multiply);
    if (displace(rules, t, out)) return true;
  }
  out.displacement.clear();
  out.entries.clear();
  out.seed = 0;
  return false;
}

}  // namespace

PairTable build_pair_table(const std::vector<std::uint32_t>& rules, std::uint32_t n_ids) {
  PairTable out;
  const std::uint32_t count = std::uint32_t(rules.size() / 3);
  bool ascend = true;
  for (std::size_t r = 3; r < rules.size(); r += 3) ascend &= rules[r - 1] < rules[r + 2];
  for (std::size_t r = 0; !ascend && r < rules.size(); r += 3) out.product.push_back(rules[r + 2]);
  if (count == 0 || (n_ids <= TT_PAIR_IDS && count <= TT_PAIR_ORDERS && build_compact(rules, out))) return out;
  std::uint64_t capacity = 2;
  while (capacity < 2 * std::uint64_t{count}) capacity *= 2;
  out.slots.assign(3 * capacity, TT_NONE);
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const std::uint32_t left = rules[3 * std::size_t(rank)], right = rules[3 * std::size_t(rank) + 1];
    Probe probe(tt_hash_pair(left, right), capacity - 1);
    while (out.slots[3 * probe.at()] != TT_NONE) probe.next();
    std::uint32_t* const slot = out.slots.data() + 3 * probe.at();
    slot[0] = left, slot[1] = right, slot[2] = ascend ? rules[3 * std::size_t(rank) + 2] : rank;
  }
  return out;
}

}  // namespace toktier::compile
