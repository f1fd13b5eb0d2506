// Puts the tables of a program one behind the other. Sizes follow from the tables themselves, which the program reader checked.
#include "gpu/tables.h"

#include <algorithm>

#include "gpu/monoid.h"

namespace toktier::gpu {

namespace {

struct Monoids {
  Monoid left, right;
};

// Throws Unsuitable for the first premise that does not hold.
Monoids check(const Program& p) {
#define TOKTIER_X(name, clause) const auto name = [] { throw Unsuitable{#name, clause}; };
  TOKTIER_PREMISES(TOKTIER_X)
#undef TOKTIER_X
  if (p.conf[TT_CONF_MODEL] != TT_MODEL_BYTE_LEVEL) model();
  if (!p.all_bytes) byte_symbols();
  if (p.flag(TT_FLAG_FUSE_UNK)) fuse_unk();
  if (p.flag(TT_FLAG_BYTE_FALLBACK)) byte_fallback();
  if (p.flag(TT_FLAG_ADD_PREFIX_SPACE)) prefix_space();
  if (p.boundary.n_class == 0) pre_tokenizer();
  for (const NormalizerOp& op : p.normalizer)
    if (op.kind > TT_NORMALIZER_NFKD) normalizer();
  // No Unicode form changes ASCII, so kernels do not ask for it; a program that says otherwise is no form.
  if (!p.normalizer.empty())
    for (const std::uint8_t bits : p.ascii_quick)
      if ((bits & TT_NQC_NOT_INERT) != 0) normalizer();
  if (p.conf[TT_CONF_TRUNC_ON] != 0) truncation();
  if (p.conf[TT_CONF_PAD_MODE] != TT_PAD_NONE) padding();
  const TtBoundary& b = p.boundary;
  auto left = make_monoid(b.left, b.n_class, b.n_left, b.left_start);
  if (!left) left_monoid();
  auto right = make_monoid(b.right, b.n_class, b.n_right, b.right_end);
  if (!right) right_monoid();
  return {std::move(*left), std::move(*right)};
}

class ImageWriter {
 public:
  ImageWriter() { bytes_.resize(sizeof(TtGpuTables)); }

  // Appends a table and sets `field` to where it lies. An empty table has a place too, so that it is not taken for an absent one.
  template <typename T>
  void add(const T*& field, const T* data, std::uint64_t n) {
    const std::uint64_t offset = (bytes_.size() + image_alignment - 1) / image_alignment * image_alignment;
    bytes_.resize(offset + std::max<std::uint64_t>(n, 1) * sizeof(T));
    if (n != 0) std::memcpy(bytes_.data() + offset, data, n * sizeof(T));
    field = reinterpret_cast<const T*>(offset);
  }
  template <typename T>
  void add(const T*& field, const std::vector<T>& data) {
    add(field, data.data(), data.size());
  }
  template <typename T>
  void add(const T*& field, const Array<T>& data) {
    add(field, data.data, data.size);
  }
  void add_trie(TtTrie<tt_u8>& field, const TtTrie<tt_u8>& trie) {
    add(field.stage1, trie.stage1, TT_TRIE_STAGE1);
    const std::uint64_t blocks = *std::max_element(trie.stage1, trie.stage1 + TT_TRIE_STAGE1) + std::uint64_t{1};
    add(field.stage2, trie.stage2, blocks * TT_TRIE_BLOCK);
  }

  std::vector<std::uint8_t> finish(const TtGpuTables& tables) {
    bytes_.resize((bytes_.size() + image_alignment - 1) / image_alignment * image_alignment);
    std::memcpy(bytes_.data(), &tables, sizeof tables);
    return std::move(bytes_);
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

void add_monoid(ImageWriter& out, TtMonoid& field, const Monoid& m) {
  out.add(field.of_class, m.of_class);
  out.add(field.of_first, m.of_first);
  out.add(field.compose, m.compose);
  out.add(field.state, m.state);
  field.n_elements = m.n_elements;
}

void add_matcher(ImageWriter& out, TtAddedTrie& field, const Matcher& m) {
  if (m.empty()) return;
  std::vector<std::uint32_t> two_bytes;
  for (const std::uint64_t bits : m.two_bytes) {
    two_bytes.push_back(static_cast<std::uint32_t>(bits));
    two_bytes.push_back(static_cast<std::uint32_t>(bits >> 32));
  }
  out.add(field.two_bytes, two_bytes);
  out.add(field.first_edge, m.first_edge);
  out.add(field.edge_byte, m.edge_byte);
  out.add(field.edge_child, m.edge_child);
  out.add(field.token, m.token);
}

void add_pieces(ImageWriter& out, TtPieceTable& field, const Program& p) {
  const TtPieceTable& t = p.pieces;
  if (t.lines != nullptr) out.add(field.lines, t.lines, std::uint64_t{t.n_lines} * TT_LINE_SLOTS);
  if (t.keys != nullptr) out.add(field.keys, t.keys, 2 * std::uint64_t{p.n_ids});
  if (t.slots != nullptr) out.add(field.slots, t.slots, std::uint64_t{t.mask} + 1);
  out.add(field.raw_offset, p.raw_offset);
  out.add(field.raw, p.raw_bytes);
  field.n_lines = t.n_lines;
  field.mask = t.mask;
}

void add_pairs(ImageWriter& out, TtPairTable& field, const TtPairTable& t) {
  if (t.displacement != nullptr) {
    out.add(field.displacement, t.displacement, std::uint64_t{1} << (32 - t.bucket_shift));
    out.add(field.entries, t.entries, t.n_entries);
  } else {
    out.add(field.slots, t.slots, 3 * (std::uint64_t{t.mask} + 1));
  }
  if (t.product != nullptr) {
    std::uint64_t orders = 0;
    tt_each_rule(t, [&](tt_u32, tt_u32, tt_u32 order) { orders = std::max(orders, std::uint64_t{order} + 1); });
    out.add(field.product, t.product, orders);
  }
  std::copy_n(t.multiply, 4, field.multiply);
  field.bucket_shift = t.bucket_shift;
  field.n_entries = t.displacement != nullptr ? t.n_entries : 0;
  field.mask = t.displacement != nullptr ? 0 : t.mask;
}

}  // namespace

std::optional<Unsuitable> find_unsuitable(const Program& program) {
  try {
    check(program);
  } catch (Unsuitable& unsuitable) {
    return std::move(unsuitable);
  }
  return std::nullopt;
}

DeviceTables make_device_tables(const Program& p) {
  const Monoids monoids = check(p);
  ImageWriter out;
  TtGpuTables t;
  std::memset(&t, 0, sizeof t);  // the bytes between its fields are part of the image
  const TtBoundary& b = p.boundary;
  TtTrie<tt_u8> classes{};
  out.add_trie(classes, {b.class1, b.class2});
  t.boundary.class1 = classes.stage1;
  t.boundary.class2 = classes.stage2;
  out.add(t.boundary.left, b.left, std::uint64_t{b.n_left} * b.n_class);
  out.add(t.boundary.right, b.right, std::uint64_t{b.n_right} * b.n_class);
  out.add(t.boundary.matrix, b.matrix, std::uint64_t{b.n_left} * b.n_right);
  t.boundary.n_class = b.n_class;
  t.boundary.n_left = b.n_left;
  t.boundary.n_right = b.n_right;
  t.boundary.left_start = b.left_start;
  t.boundary.right_end = b.right_end;
  add_monoid(out, t.left, monoids.left);
  add_monoid(out, t.right, monoids.right);
  if (!p.normalizer.empty()) out.add_trie(t.quick, p.quick);
  add_matcher(out, t.added_trie[0], p.matcher[0]);
  add_matcher(out, t.added_trie[1], p.matcher[1]);
  std::vector<std::uint32_t> added;
  for (const AddedToken& token : p.added) added.insert(added.end(), {token.id, token.flags});
  out.add(t.added, added);
  add_pieces(out, t.pieces, p);
  out.add(t.token_flags, p.token_flags);
  add_pairs(out, t.pairs, p.pairs);
  out.add(t.byte_symbol, p.byte_symbol, 256);
  if (p.join_bytes != nullptr) out.add(t.join_bytes, p.join_bytes, 8192);
  t.max_piece = p.conf[TT_CONF_MAX_PIECE];
  return {out.finish(t), monoids.left.n_elements, monoids.right.n_elements};
}

}  // namespace toktier::gpu
