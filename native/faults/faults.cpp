// The planted fault of the process, and what the faults in tables change; compiled with TOKTIER_FAULTS only. Changed tables
// are copies that stay until the process ends: only tests open such programs.
#include <algorithm>
#include <deque>
#include <iterator>
#include <string_view>
#include <vector>

#include "engine/faults.h"
#include "engine/program.h"

namespace toktier {

Fault planted_fault = Fault::none;

bool plant_fault(std::string_view name) {
  constexpr std::string_view names[] = {
      "",  // Fault::none
#define TOKTIER_FAULT_ROW(name, on, what) #name,
#include "faults.def"
#undef TOKTIER_FAULT_ROW
  };
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return false;
  planted_fault = static_cast<Fault>(found - names);
  return true;
}

namespace {

template <typename T>
T* copy_of(const T* from, std::size_t size) {
  static std::deque<std::vector<T>> kept;
  return kept.emplace_back(from, from + size).data();
}

template <typename T>
T* own(Array<T>& table) {
  T* const copy = copy_of(table.data, table.size);
  table.data = copy;
  return copy;
}

// Entry of a code point in a two-stage trie, its block now its own: stage 1 points to a copy of the block.
template <typename T>
void set_in_trie(const std::uint16_t*& stage1, const T*& stage2, std::uint32_t cp, T value) {
  std::uint16_t* const blocks = copy_of(stage1, TT_TRIE_STAGE1);
  const std::size_t count = *std::max_element(blocks, blocks + TT_TRIE_STAGE1) + std::size_t{1};
  std::vector<T> values(stage2, stage2 + count * TT_TRIE_BLOCK);
  values.insert(values.end(), stage2 + std::size_t{blocks[cp >> TT_TRIE_SHIFT]} * TT_TRIE_BLOCK,
                stage2 + (std::size_t{blocks[cp >> TT_TRIE_SHIFT]} + 1) * TT_TRIE_BLOCK);
  values[count * TT_TRIE_BLOCK + (cp & (TT_TRIE_BLOCK - 1))] = value;
  blocks[cp >> TT_TRIE_SHIFT] = static_cast<std::uint16_t>(count);
  stage1 = blocks;
  stage2 = copy_of(values.data(), values.size());
}

// The one-pass step that the last character of an ASCII text takes, from the start of a segment.
std::uint32_t& step_of(Program& p, std::string_view text) {
  std::size_t row = std::size_t{p.boundary.token_start} * p.boundary.n_class;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) row = p.steps[row + p.ascii_class[static_cast<int>(text[i])]] >> 8;
  return p.steps[row + p.ascii_class[static_cast<int>(text.back())]];
}

struct Rule {
  std::size_t place;  // in the entries of the pair table
  std::uint32_t left, right, order;
};

std::vector<Rule> rules_by_rank(const Program& p) {
  std::vector<Rule> rules;
  for (std::size_t i = 0; i < p.pairs.n_entries; ++i) {
    const std::uint64_t e = p.pairs.entries[i];
    if (e == TT_NO_PAIR) continue;
    rules.push_back({i, static_cast<std::uint32_t>(e >> (TT_PAIR_ID_BITS + TT_PAIR_ORDER_BITS)),
                     static_cast<std::uint32_t>(e >> TT_PAIR_ORDER_BITS) & TT_PAIR_IDS,
                     static_cast<std::uint32_t>(e) & TT_PAIR_ORDERS});
  }
  std::sort(rules.begin(), rules.end(), [](const Rule& a, const Rule& b) { return a.order < b.order; });
  return rules;
}

void plant_in_boundaries(Program& p) {
  TtBoundary& b = p.boundary;
  if (TOKTIER_FAULT(rule_term)) {
    for (std::uint8_t* term : {p.split.lanes.terms[0][2], p.split.lanes.terms[1][2], p.split.lanes.terms[2][2]})
      term[tt_class(b, 'a')] = 0;
    p.split.lanes.words[2][tt_class(b, 'a')] &= ~std::uint64_t{0xFFFFFF};
    return;
  }
  // The local rules would answer before a table that is changed.
  if (TOKTIER_FAULT(class_of_one) || TOKTIER_FAULT(class_of_ascii) || TOKTIER_FAULT(step_to_start) || TOKTIER_FAULT(cut_added) ||
      TOKTIER_FAULT(cut_missed) || TOKTIER_FAULT(look_ahead) || TOKTIER_FAULT(look_ahead_at_end) || TOKTIER_FAULT(matrix_entry))
    p.split.usable = false;
  if (TOKTIER_FAULT(class_of_one)) set_in_trie(b.class1, b.class2, 0xA4D0, static_cast<std::uint8_t>(tt_class(b, '!')));
  if (TOKTIER_FAULT(class_of_ascii)) p.ascii_class[0x1F] = p.ascii_class['z'];
  if (TOKTIER_FAULT(step_to_start)) {
    std::uint32_t& step = step_of(p, "!\n");
    step = (b.token_start * b.n_class) << 8 | (step & 0xFF);
  }
  if (TOKTIER_FAULT(cut_added)) step_of(p, "!\r\n") |= TT_BOUNDARY;
  if (TOKTIER_FAULT(cut_missed)) step_of(p, "'sa") &= ~3u;
  if (TOKTIER_FAULT(look_ahead)) step_of(p, "\t\ta") ^= 3u << 2;  // of the oldest undecided position: boundary to none
  if (TOKTIER_FAULT(look_ahead_at_end)) {
    std::uint8_t* const verdicts = copy_of(b.token_end, b.n_token);
    b.token_end = verdicts;
    verdicts[(step_of(p, "\t\t") >> 8) / b.n_class] ^= TT_BOUNDARY;
  }
  if (TOKTIER_FAULT(matrix_entry)) {
    std::uint8_t* const values = copy_of(b.matrix, std::size_t{b.n_left} * b.n_right);
    b.matrix = values;
    const std::uint32_t left = tt_left_step(b, b.left_start, tt_class(b, 'a'));
    values[left * b.n_right + tt_right_step(b, b.right_end, tt_class(b, '1'))] = TT_NO_BOUNDARY;
  }
}

void plant_in_form(Program& p) {
  FormTables& f = p.form;
  if (TOKTIER_FAULT(form_filter)) p.not_inert.second[0x0D] = 0;
  if (TOKTIER_FAULT(form_inert)) set_in_trie(p.quick.stage1, p.quick.stage2, 0x344, std::uint8_t{0});
  if (TOKTIER_FAULT(form_composition)) own(f.compositions)[f.compositions.size / 6 * 3 + 2] = TT_NONE;
  if (TOKTIER_FAULT(form_class)) own(f.classes)[f.classes.size / 4 * 2 + 1] = 1;
  if (TOKTIER_FAULT(form_decomposition)) {
    std::uint64_t row = f.decompositions.size - 3;
    while (f.decompositions[row + 2] != 1) row -= 3;
    own(f.decomposed)[f.decompositions[row + 1]] = f.decompositions[row];
  }
}

// Characters at the junction of a rule: the last one before it and the first one behind it, as far as the sides hold them.
struct Junction {
  std::uint32_t left, right;  // code points; or, where `left_whole` or `right_whole` is not set, the byte beside the bar
  bool left_whole, right_whole;
};

bool find_junction(const Program& p, const Rule& rule, Junction& out) {
  const std::string_view left = p.raw_text(rule.left), right = p.raw_text(rule.right);
  if (left.empty() || right.empty() || tt_is_continuation(static_cast<std::uint8_t>(right[0]))) return false;
  const auto* const end = reinterpret_cast<const std::uint8_t*>(left.data() + left.size());
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(right.data());
  std::size_t back = 1;
  while (back < left.size() && back < 4 && tt_is_continuation(end[-static_cast<int>(back)])) ++back;
  const std::uint8_t lead = end[-static_cast<int>(back)];
  std::uint32_t length;
  out.left_whole = !tt_is_continuation(lead) && tt_utf8_length(lead) == back;
  out.left = out.left_whole ? tt_utf8_next(end - back, length) : end[-1];
  out.right_whole = tt_utf8_length(begin[0]) <= right.size();
  out.right = out.right_whole ? tt_utf8_next(begin, length) : begin[0];
  return true;
}

// The middle one of the rules by rank whose junction is as wanted loses its bit.
void clear_join(Program& p, bool fragment) {
  std::vector<std::uint32_t> bits;
  for (const Rule& rule : rules_by_rank(p)) {
    Junction j;
    if (!find_junction(p, rule, j) || (j.left_whole && j.right_whole) == fragment) continue;
    if (j.left_whole && j.right_whole && j.left < 0x80 && j.right < 0x80) continue;  // these are not asked for
    if (fragment && (!j.left_whole || j.left >= 0x80)) continue;
    const std::uint32_t hash =
        tt_join_hash(j.left, fragment ? TT_JOIN_FRAGMENT | j.right : j.right);
    bits.push_back(hash >> (fragment ? p.joins.fragment_shift : p.joins.pair_shift));
  }
  const tt_u32*& set = fragment ? p.joins.fragments : p.joins.pairs;
  if (set == nullptr || bits.empty()) return;
  tt_u32* const copy = copy_of(set, std::size_t{1} << (32 - (fragment ? p.joins.fragment_shift : p.joins.pair_shift) - 5));
  const std::uint32_t bit = bits[bits.size() / 2];
  copy[bit >> 5] &= ~(1u << (bit & 31));
  set = copy;
}

void swap_ranks(const Program& p, const std::vector<Rule>& rules, tt_u64* entries, std::vector<tt_u32>& products) {
  if (!TOKTIER_FAULT(rank_swapped)) return;
  const auto is_letter = [&](std::uint32_t id) {  // letters stand in one piece
    const std::string_view text = p.raw_text(id);
    return text.size() == 1 && text[0] >= 'a' && text[0] <= 'z';
  };
  for (const Rule& a : rules)
    for (const Rule& b : rules) {
      if (a.order == b.order || a.right != b.left || !is_letter(a.left) || !is_letter(a.right) || !is_letter(b.right)) continue;
      entries[a.place] = tt_pair_entry(a.left, a.right, b.order);
      entries[b.place] = tt_pair_entry(b.left, b.right, a.order);
      std::swap(products[a.order], products[b.order]);
      return;
    }
}

void plant_in_merges(Program& p) {
  if (p.pairs.displacement == nullptr) return;  // no tokenizer that faults are planted in has the wide form
  const std::vector<Rule> rules = rules_by_rank(p);
  if (rules.empty()) return;
  tt_u64* const entries = copy_of(p.pairs.entries, p.pairs.n_entries);
  p.pairs.entries = entries;
  std::vector<tt_u32> products(p.pairs.product == nullptr ? p.n_ids : rules.size());
  for (const Rule& rule : rules) products[rule.order] = tt_product(p.pairs, rule.order);
  const std::size_t middle = rules.size() / 2;
  if (TOKTIER_FAULT(merge_dropped))  // a pair that is looked up elsewhere
    entries[rules[middle].place] = tt_pair_entry(rules[middle].left, products[rules[middle].order], rules[middle].order);
  if (TOKTIER_FAULT(displacement)) {
    tt_u8* const displacements = copy_of(p.pairs.displacement, std::size_t{1} << (32 - p.pairs.bucket_shift));
    ++displacements[tt_pair_bucket(p.pairs, rules[middle].left, rules[middle].right)];
    p.pairs.displacement = displacements;
  }
  if (TOKTIER_FAULT(merge_product)) products[rules[middle].order] = products[rules[middle + 1].order];
  swap_ranks(p, rules, entries, products);
  p.pairs.product = copy_of(products.data(), products.size());
}

void plant_in_bytes(Program& p) {
  if (TOKTIER_FAULT(byte_symbol)) {
    std::uint32_t* const symbols = copy_of(p.byte_symbol, 256);
    p.byte_symbol = symbols;
    symbols[0xEE] = symbols[0xEF];
  }
  if (TOKTIER_FAULT(join_missed)) {
    std::uint8_t* const matrix = copy_of(p.join_bytes, 8192);
    p.join_bytes = matrix;
    constexpr std::uint32_t bit = std::uint32_t{'s'} << 8 | 't';
    matrix[bit >> 3] &= static_cast<std::uint8_t>(~(1u << (bit & 7)));
  }
  if (TOKTIER_FAULT(decoder_byte)) own(p.decode_bytes)[p.decode_bytes.size / 2] ^= 1;
}

}  // namespace

void plant_in_tables(Program& p) {
  if (TOKTIER_FAULT(space_of_one)) set_in_trie(p.chars.stage1, p.chars.stage2, 0x2009, std::uint8_t{0});
  if (TOKTIER_FAULT(word_of_one)) set_in_trie(p.chars.stage1, p.chars.stage2, 0xA4D0, std::uint8_t{0});
  if (p.boundary.n_token != 0) plant_in_boundaries(p);
  if (p.form.compositions.size != 0) plant_in_form(p);
  if (TOKTIER_FAULT(merge_dropped) || TOKTIER_FAULT(merge_product) || TOKTIER_FAULT(rank_swapped) || TOKTIER_FAULT(displacement))
    plant_in_merges(p);
  if (TOKTIER_FAULT(join_bit) || TOKTIER_FAULT(join_fragment)) clear_join(p, TOKTIER_FAULT(join_fragment));
  if (p.byte_symbol != nullptr) plant_in_bytes(p);
}

}  // namespace toktier
