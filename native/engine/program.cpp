// Opening a program file: after header and section table (program_sections.h) every table that the engine follows is checked
// (program_check.h), then the views and small derived tables of program.h are filled in. The digest is not checked here: the
// Python side does that before, and a reader that never trusts it can be fuzzed.
#include "program.h"

#include <algorithm>
#include <utility>

#include "faults.h"
#include "program_check.h"
#include "program_sections.h"

namespace toktier {

namespace {

// What an absent table reads as: tries whose every value is 0, hash tables with one empty slot.
const std::uint16_t zero_stage1[TT_TRIE_STAGE1] = {};
const std::uint8_t zero_stage2[TT_TRIE_BLOCK] = {};
const std::uint8_t zero_bytes[8192] = {};  // GPAR and GBYT
const std::uint32_t empty_slots[4] = {TT_NONE, TT_NONE, TT_NONE, TT_NONE};
const std::uint8_t no_displacement[2] = {};
const tt_u64 no_entry[1] = {TT_NO_PAIR};
alignas(64) const std::uint32_t empty_line[TT_LINE_SLOTS] = {
    TT_NONE, TT_NONE, TT_NONE, TT_NONE, TT_NONE, TT_NONE, TT_NONE, TT_NONE,
    TT_NONE, TT_NONE, TT_NONE, TT_NONE, TT_NONE, TT_NONE, TT_NONE, TT_NONE};

constexpr std::uint32_t longest_decomposition = 64;  // Unicode has 18; bounds what one hostile record can blow up

class Opener {
 public:
  Opener(const Sections& sections, Program& program) : s_(sections), p_(program) {}

  void run() {
    conf();
    characters();
    boundary();
    vocabulary();
    added_tokens();
    normalizer();
    model();
    join_filter();
    cuts();
    after();
    decoder();
  }

 private:
  template <typename T>
  TtTrie<T> trie(TtSection first, TtSection second) const {
    check_trie1(section_names[first], s_.get<std::uint16_t>(first), s_.get<T>(second).size);
    return {s_.get<std::uint16_t>(first).data, s_.get<T>(second).data};
  }

  // Optional trie of bytes: absent reads as 0 everywhere.
  TtTrie<std::uint8_t> byte_trie(TtSection first, TtSection second, std::uint32_t limit) const {
    if (!s_.has(first) && !s_.has(second)) return {zero_stage1, zero_stage2};
    check_below(section_names[second], s_.get<std::uint8_t>(second), limit);
    return trie<std::uint8_t>(first, second);
  }

  std::string_view text(TtSection section, std::uint32_t offset, std::uint32_t length) const {
    const auto bytes = s_.get<std::uint8_t>(section);
    require(std::uint64_t{offset} + length <= bytes.size, section_names[section], "a string is out of range");
    const std::string_view view(reinterpret_cast<const char*>(bytes.data) + offset, length);
    require(validate_utf8(view) == std::string_view::npos, section_names[section], "a string is not valid UTF-8");
    return view;
  }

  void conf() {
    const auto c = s_.get<std::uint32_t>(TT_SECTION_CONF);
    require(c.size == TT_CONF_FIELDS, "CONF", "it has the wrong length");
    std::copy_n(c.data, TT_CONF_FIELDS, p_.conf);
    p_.n_ids = p_.conf[TT_CONF_N_IDS];
    const auto at_most = [&](TtConf field, std::uint32_t greatest) {
      if (p_.conf[field] > greatest) refuse("CONF", "field " + std::to_string(field) + " is out of range");
    };
    at_most(TT_CONF_MODEL, TT_MODEL_CODE_POINTS);
    at_most(TT_CONF_FLAGS, TT_ALL_FLAGS);
    at_most(TT_CONF_N_IDS, 0x7FFFFFFF);
    at_most(TT_CONF_N_CLASS, 256);
    at_most(TT_CONF_N_LEFT, 256);
    at_most(TT_CONF_N_RIGHT, 256);
    at_most(TT_CONF_N_TOKEN, 0x10000);
    at_most(TT_CONF_TRUNC_ON, 1);
    at_most(TT_CONF_TRUNC_LEFT, 1);
    at_most(TT_CONF_PAD_MODE, TT_PAD_FIXED);
    at_most(TT_CONF_PAD_LEFT, 1);
    at_most(TT_CONF_PREFIX_STAGE, 0);
    at_most(TT_CONF_JOIN_KIND, TT_JOIN_SYMBOLS);
    require(p_.conf[TT_CONF_UNK_ID] == TT_NONE || p_.conf[TT_CONF_UNK_ID] < p_.n_ids, "CONF", "unk_id is out of range");
  }

  void characters() { p_.chars = byte_trie(TT_SECTION_CHR1, TT_SECTION_CHR2, 4); }

  void boundary() {
    TtBoundary& b = p_.boundary;
    b.n_class = p_.conf[TT_CONF_N_CLASS];
    if (b.n_class == 0) return;
    b.n_left = p_.conf[TT_CONF_N_LEFT];
    b.n_right = p_.conf[TT_CONF_N_RIGHT];
    b.left_start = p_.conf[TT_CONF_LEFT_START];
    b.right_end = p_.conf[TT_CONF_RIGHT_END];
    b.n_token = p_.conf[TT_CONF_N_TOKEN];
    b.token_start = p_.conf[TT_CONF_TOKEN_START];
    require(b.left_start < b.n_left && b.right_end < b.n_right, "CONF", "a start state is out of range");
    check_below("CLS2", s_.get<std::uint8_t>(TT_SECTION_CLS2), b.n_class);
    const auto classes = trie<std::uint8_t>(TT_SECTION_CLS1, TT_SECTION_CLS2);
    b.class1 = classes.stage1;
    b.class2 = classes.stage2;
    for (std::uint32_t cp = 0; cp < 128; ++cp) p_.ascii_class[cp] = static_cast<std::uint8_t>(tt_class(b, cp));

    const auto table = [&](TtSection section, std::uint64_t size, std::uint32_t limit) {
      const auto t = s_.get<std::uint8_t>(section);
      require(t.size == size, section_names[section], "it has the wrong length");
      check_below(section_names[section], t, limit);
      return t.data;
    };
    const std::uint64_t n = b.n_class;
    b.left = table(TT_SECTION_LEFT, b.n_left * n, b.n_left);
    b.right = table(TT_SECTION_RGHT, b.n_right * n, b.n_right);
    b.matrix = table(TT_SECTION_BMAT, std::uint64_t{b.n_left} * b.n_right, 3);
    if (s_.has(TT_SECTION_CUT2)) p_.cuts.pair = table(TT_SECTION_CUT2, n * n, 2);
    if (s_.has(TT_SECTION_CUT3)) p_.cuts.triple = table(TT_SECTION_CUT3, 2 * n * n * n, 2);
    if (s_.has(TT_SECTION_CUTI)) p_.cuts.inner = table(TT_SECTION_CUTI, n * n, 2);
    if (b.n_token == 0) return;

    const auto next = s_.get<std::uint16_t>(TT_SECTION_TRAN);
    require(next.size == b.n_token * n, "TRAN", "it has the wrong length");
    check_below("TRAN", next, b.n_token);
    require(b.token_start < b.n_token, "CONF", "a start state is out of range");
    b.token_next = next.data;
    b.token_action = table(TT_SECTION_TACT, b.n_token * n, 256);
    b.token_end = table(TT_SECTION_TEOF, b.n_token, 256);
    check_token_automaton(b);
    p_.steps.resize(next.size);
    for (std::uint64_t i = 0; i < next.size; ++i) p_.steps[i] = next[i] * b.n_class << 8 | b.token_action[i];

    const auto rules = s_.get<std::uint64_t>(TT_SECTION_RULE);
    if (rules.size == 0) return;
    require(n <= TT_MAX_RULE_CLASSES, "RULE", "there are too many classes for it");
    require(rules.size == TT_RULE_PLACES * (n + 1), "RULE", "it has the wrong length");
    make_split_program(b, rules.data, p_.split);
  }

  void vocabulary() {
    p_.string_offset = s_.get<std::uint32_t>(TT_SECTION_STRO);
    p_.string_bytes = s_.get<std::uint8_t>(TT_SECTION_STRB);
    p_.raw_offset = s_.get<std::uint32_t>(TT_SECTION_RAWO);
    p_.raw_bytes = s_.get<std::uint8_t>(TT_SECTION_RAWB);
    p_.token_flags = s_.get<std::uint8_t>(TT_SECTION_TFLG);
    const std::uint64_t ids = p_.n_ids;
    require(p_.string_offset.size == ids + 1, "STRO", "it has the wrong length");
    require(p_.raw_offset.size == ids + 1, "RAWO", "it has the wrong length");
    require(p_.token_flags.size == ids, "TFLG", "it has the wrong length");
    check_offsets("STRO", p_.string_offset, p_.string_bytes.size);
    check_offsets("RAWO", p_.raw_offset, p_.raw_bytes.size);
    check_utf8("STRB", p_.string_bytes);
    check_starts("STRO", p_.string_bytes, p_.string_offset);
    check_below("TFLG", p_.token_flags, 64);
    const auto keys = s_.get<tt_u64>(TT_SECTION_PKEY);
    p_.pieces = look_up(TT_SECTION_PLIN, TT_SECTION_PHSH, p_.raw_offset, p_.raw_bytes);
    require(keys.size == (s_.has(TT_SECTION_PLIN) ? 2 * ids : 0), "PKEY", "it has the wrong length");
    if (keys.size != 0) p_.pieces.keys = keys.data;
    p_.strings = look_up(TT_SECTION_VLIN, TT_SECTION_VHSH, p_.string_offset, p_.string_bytes);
  }

  // Lines where there are any, else the wide form.
  TtPieceTable look_up(TtSection lines, TtSection wide, Array<std::uint32_t> offsets, Array<std::uint8_t> bytes) const {
    const auto line = s_.get<std::uint32_t>(lines), slots = s_.get<std::uint32_t>(wide);
    TtPieceTable table{empty_line, 1, nullptr, nullptr, 0, offsets.data, bytes.data};
    require(line.size == 0 || slots.size == 0, section_names[wide], "it stands beside its compact form");
    check_lines(section_names[lines], line, p_.n_ids);
    check_hash(section_names[wide], slots, 1, p_.n_ids);
    if (line.size != 0) {
      table.lines = line.data;
      table.n_lines = static_cast<std::uint32_t>(line.size / TT_LINE_SLOTS);
    } else if (slots.size != 0) {
      table.lines = nullptr;
      table.slots = slots.data;
      table.mask = static_cast<std::uint32_t>(slots.size - 1);
    }
    return table;
  }

  void added_tokens() {
    const auto rows = s_.get<std::uint32_t>(TT_SECTION_ATOK);
    require(rows.size % 4 == 0, "ATOK", "its length is no whole number of records");
    for (std::uint64_t i = 0; i < rows.size; i += 4) {
      require(rows[i] < p_.n_ids && rows[i + 1] < 32, "ATOK", "an id or a flag is out of range");
      text(TT_SECTION_ASTR, rows[i + 2], rows[i + 3]);
      p_.added.push_back({rows[i], rows[i + 1]});
    }
    matcher(p_.matcher[0], TT_SECTION_A0NF);
    matcher(p_.matcher[1], TT_SECTION_A1NF);
  }

  void matcher(Matcher& m, TtSection first) {
    const auto section = [&](int k) { return static_cast<TtSection>(first + k); };
    m.first_edge = s_.get<std::uint32_t>(section(0));
    m.edge_byte = s_.get<std::uint8_t>(section(1));
    m.edge_child = s_.get<std::uint32_t>(section(2));
    m.token = s_.get<std::uint32_t>(section(3));
    std::fill_n(m.root_child, 256, TT_NONE);
    if (m.first_edge.size == 0 && m.edge_byte.size == 0 && m.edge_child.size == 0 && m.token.size == 0) return;
    require(m.token.size > 0, section_names[first], "it has no root");
    check_matcher(section_names[first], m, static_cast<std::uint32_t>(p_.added.size()));
    m.two_bytes.assign(1024, 0);
    std::vector<TokenStart> starts;
    for (std::uint32_t e = 0; e < m.first_edge[1]; ++e) {
      const std::uint32_t byte = m.edge_byte[e], child = m.edge_child[e];
      m.root_child[byte] = child;
      const auto mark = [&](std::uint32_t second) { m.two_bytes[byte << 2 | second >> 6] |= std::uint64_t{1} << (second & 63); };
      if (m.token[child] != TT_NONE)
        for (std::uint32_t second = 0; second < 256; ++second) mark(second);
      for (std::uint32_t k = m.first_edge[child]; k < m.first_edge[child + 1]; ++k) mark(m.edge_byte[k]);
      const std::uint64_t* const row = m.two_bytes.data() + (byte << 2);
      starts.push_back({static_cast<std::uint8_t>(byte), {row[0], row[1], row[2], row[3]}});
    }
    m.starts = make_start_filter(starts);
  }

  void normalizer() {
    const auto rows = s_.get<std::uint32_t>(TT_SECTION_NOPS);
    require(rows.size % 5 == 0, "NOPS", "its length is no whole number of records");
    std::uint32_t form = 0;
    for (std::uint64_t i = 0; i < rows.size; i += 5) {
      const std::uint32_t* r = rows.data + i;
      NormalizerOp op{r[0], {}, {}, false, false};
      require(op.kind >= TT_NORMALIZER_NFC && op.kind <= TT_NORMALIZER_STRIP, "NOPS", "a kind is unknown");
      if (op.kind <= TT_NORMALIZER_NFKD) {
        require(form == 0 || form == op.kind, "NOPS", "two normalization forms in one program");
        form = op.kind;
      } else if (op.kind == TT_NORMALIZER_STRIP) {
        require(r[1] <= 1 && r[2] <= 1, "NOPS", "a value is out of range");
        op.strip_left = r[1] != 0;
        op.strip_right = r[2] != 0;
      } else if (op.kind != TT_NORMALIZER_LOWERCASE) {
        op.a = text(TT_SECTION_NSTR, r[1], r[2]);
        op.b = text(TT_SECTION_NSTR, r[3], r[4]);
        require(!op.a.empty(), "NOPS", "a string is empty");
      }
      p_.normalizer.push_back(op);
    }
    require(form == 0 || s_.has(TT_SECTION_NQC1), "NQC1", "the normalization form has no tables");
    p_.quick = byte_trie(TT_SECTION_NQC1, TT_SECTION_NQC2, 4);
    p_.ascii_inert = true;  // and each begins a unit
    for (std::uint32_t cp = 0; cp < 128; ++cp) {
      p_.ascii_quick[cp] = tt_trie(p_.quick, cp);
      if (p_.ascii_quick[cp] != 0) p_.ascii_inert = false;
    }
    if (form != 0) p_.not_inert = make_character_filter(p_.quick, TT_NQC_NOT_INERT);
    form_tables();
    p_.lower = s_.get<std::uint32_t>(TT_SECTION_NLOW);
    p_.lower_text = s_.get<std::uint32_t>(TT_SECTION_NLCP);
    check_ascending("NLOW", p_.lower, 3, 1);
    check_scalars("NLOW", p_.lower, 3, 1);
    check_spans("NLOW", p_.lower, p_.lower_text.size, longest_decomposition);
    check_scalars("NLCP", p_.lower_text, 1, 1);
    for (std::uint32_t cp = 0; cp < 128; ++cp) p_.ascii_lower[cp] = static_cast<std::uint8_t>(cp);
    for (std::uint64_t i = 0; i < p_.lower.size && p_.lower[i] < 128; i += 3) {
      const bool simple = p_.lower[i + 2] == 1 && p_.lower_text[p_.lower[i + 1]] < 128;
      p_.ascii_lower[p_.lower[i]] = simple ? static_cast<std::uint8_t>(p_.lower_text[p_.lower[i + 1]]) : 0xFF;
    }
  }

  void form_tables() {
    FormTables& f = p_.form;
    f.classes = s_.get<std::uint32_t>(TT_SECTION_NCCC);
    f.decompositions = s_.get<std::uint32_t>(TT_SECTION_NDEC);
    f.decomposed = s_.get<std::uint32_t>(TT_SECTION_NDCP);
    f.compositions = s_.get<std::uint32_t>(TT_SECTION_NCMP);
    check_ascending("NCCC", f.classes, 2, 1);
    check_scalars("NCCC", f.classes, 2, 1);
    for (std::uint64_t i = 1; i < f.classes.size; i += 2)
      require(f.classes[i] > 0 && f.classes[i] < 256, "NCCC", "a class is out of range");
    check_ascending("NDEC", f.decompositions, 3, 1);
    check_scalars("NDEC", f.decompositions, 3, 1);
    check_spans("NDEC", f.decompositions, f.decomposed.size, longest_decomposition);
    check_scalars("NDCP", f.decomposed, 1, 1);
    check_ascending("NCMP", f.compositions, 3, 2);
    check_scalars("NCMP", f.compositions, 3, 3);
    // The index of them (form_index.h) has 16 bits for a row; Unicode has fewer than 20,000 of each.
    require(f.decompositions.size / 3 < 0xFFFF, "NDEC", "it is longer than any Unicode has it");
    require(f.compositions.size / 3 < 0xFFFF, "NCMP", "it is longer than any Unicode has it");
  }

  void model() {
    pair_table();
    const std::uint32_t join = p_.conf[TT_CONF_JOIN_KIND];
    if (p_.conf[TT_CONF_MODEL] == TT_MODEL_BYTE_LEVEL) {
      const auto symbols = s_.get<std::uint32_t>(TT_SECTION_BSYM);
      require(symbols.size == 256, "BSYM", "it has the wrong length");
      check_ids("BSYM", symbols, p_.n_ids);
      p_.byte_symbol = symbols.data;
      p_.all_bytes = std::find(symbols.data, symbols.data + 256, TT_NONE) == symbols.data + 256;
      require(p_.all_bytes || !p_.flag(TT_FLAG_BYTE_FALLBACK), "CONF", "byte fallback of a byte-level alphabet that lacks bytes");
      require(p_.all_bytes || p_.conf[TT_CONF_UNK_ID] == TT_NONE, "CONF",
              "an unknown token of a byte-level alphabet that lacks bytes");
      require(join != TT_JOIN_SYMBOLS, "CONF", "JSYM in a byte-level model");
      if (join == TT_JOIN_BYTES) {
        require(s_.get<std::uint8_t>(TT_SECTION_JBYT).size == 8192, "JBYT", "it has the wrong length");
        p_.join_bytes = s_.get<std::uint8_t>(TT_SECTION_JBYT).data;
      }
      return;
    }
    check_ids("CSY2", s_.get<std::uint32_t>(TT_SECTION_CSY2), p_.n_ids);
    p_.char_symbol = trie<std::uint32_t>(TT_SECTION_CSY1, TT_SECTION_CSY2);
    p_.fallback = s_.get<std::uint32_t>(TT_SECTION_BFBK);
    if (!p_.flag(TT_FLAG_BYTE_FALLBACK)) p_.fallback = {};
    require(p_.fallback.size == 0 || p_.fallback.size == 256, "BFBK", "it has the wrong length");
    check_ids("BFBK", p_.fallback, p_.n_ids);
    for (std::uint32_t cp = 0; cp < 128; ++cp) p_.ascii_symbol[cp] = tt_trie(p_.char_symbol, cp);
    require(join != TT_JOIN_BYTES, "CONF", "JBYT in a model of code points");
    if (join == TT_JOIN_SYMBOLS) {
      const auto slots = s_.get<std::uint32_t>(TT_SECTION_JSYM);
      check_hash("JSYM", slots, 2, p_.n_ids);
      p_.join_symbols = slots.size == 0 ? TtJoinTable{empty_slots, 0}
                                        : TtJoinTable{slots.data, static_cast<std::uint32_t>(slots.size / 2 - 1)};
      p_.join_ascii.assign(256, 0);
      for (std::uint32_t a = 0; a < 128; ++a)
        for (std::uint32_t c = 0; c < 128; ++c) {
          const std::uint32_t left = p_.ascii_symbol[a], right = p_.ascii_symbol[c];
          if (left == TT_NONE || right == TT_NONE || tt_symbols_join(p_.join_symbols, left, right))
            p_.join_ascii[a << 1 | c >> 6] |= std::uint64_t{1} << (c & 63);
        }
    }
  }

  void pair_table() {
    const auto wide = s_.get<std::uint32_t>(TT_SECTION_PAIR), product = s_.get<std::uint32_t>(TT_SECTION_MPRD);
    const auto displacement = s_.get<std::uint8_t>(TT_SECTION_MDIS);
    const auto entries = s_.get<tt_u64>(TT_SECTION_MENT);
    check_each_id("MPRD", product, p_.n_ids);
    TtPairTable& t = p_.pairs;
    t = TtPairTable{no_displacement, no_entry, product.size == 0 ? nullptr : product.data, {}, 31, 1, empty_slots, 0};
    const std::uint64_t orders = product.size == 0 ? p_.n_ids : product.size;
    tt_pair_multipliers(p_.conf[TT_CONF_PAIR_SEED], t.multiply);
    if (wide.size != 0) {
      require(displacement.size == 0 && entries.size == 0, "PAIR", "it stands beside its compact form");
      check_wide_pairs(wide, p_.n_ids, orders);
      t.displacement = nullptr;
      t.slots = wide.data;
      t.mask = static_cast<std::uint32_t>(wide.size / 3 - 1);
    } else if (entries.size != 0 || displacement.size != 0) {
      check_pairs(displacement, entries, p_.n_ids, orders);
      t.displacement = displacement.data;
      t.entries = entries.data;
      t.n_entries = static_cast<std::uint32_t>(entries.size);
      for (t.bucket_shift = 31; std::uint64_t{1} << (32 - t.bucket_shift) < displacement.size;) --t.bucket_shift;
    }
  }

  // After the symbols of characters.
  void join_filter() {
    const auto pairs = s_.get<std::uint32_t>(TT_SECTION_JCHR), fragments = s_.get<std::uint32_t>(TT_SECTION_JFRG);
    if (pairs.size == 0) {
      require(fragments.size == 0, "JFRG", "it stands without JCHR");
      return;
    }
    TtJoinFilter& t = p_.joins;
    t.pairs = pairs.data;
    t.pair_shift = check_bit_set("JCHR", pairs);
    if (fragments.size != 0) {
      t.fragments = fragments.data;
      t.fragment_shift = check_bit_set("JFRG", fragments);
    }
    if (p_.conf[TT_CONF_MODEL] == TT_MODEL_BYTE_LEVEL) return;
    // A character without symbol becomes byte-fallback symbols, which no rule touches, when every byte has one.
    bool falls_back = p_.fallback.size != 0;
    for (std::uint32_t b = 0; falls_back && b < 0xF5; ++b) falls_back = p_.fallback[b] != TT_NONE || b == 0xC0 || b == 0xC1;
    if (!falls_back) t.symbol = p_.char_symbol;
  }

  void cuts() {
    TtCuts& c = p_.cuts;
    const bool tokens = !p_.added.empty();
    const auto pairs = s_.get<std::uint8_t>(TT_SECTION_GPAR), edges = s_.get<std::uint8_t>(TT_SECTION_GBYT);
    require(pairs.size == (tokens ? 8192 : 0), "GPAR", "it has the wrong length");
    require(edges.size == (tokens ? 256 : 0), "GBYT", "it has the wrong length");
    check_below("GBYT", edges, TT_ALL_EDGES + 1);
    c.token_pairs = tokens ? pairs.data : zero_bytes;
    c.token_edges = tokens ? edges.data : zero_bytes;
    std::uint32_t all = 0;
    for (std::uint64_t i = 0; i < edges.size; ++i) all |= edges[i];
    c.has_lstrip = (all & TT_EDGE_LSTRIP) != 0;
    c.has_rstrip = (all & TT_EDGE_RSTRIP) != 0;
    require((p_.normalizer.empty() && !p_.flag(TT_FLAG_ADD_PREFIX_SPACE)) || s_.has(TT_SECTION_GCP1), "GCP1",
            "the normalizer or the prefix space has no guards");
    c.guard = byte_trie(TT_SECTION_GCP1, TT_SECTION_GCP2, TT_ALL_GUARDS + 1);
    c.chars = p_.chars;
    const auto images = s_.get<std::uint32_t>(TT_SECTION_GIMG);
    check_ascending("GIMG", images, 2, 1);
    check_scalars("GIMG", images, 2, 2);
    c.images = images.data;
    c.n_images = images.size / 2;
    for (const NormalizerOp& op : p_.normalizer) {
      if (op.kind <= TT_NORMALIZER_NFKD) c.has_form = true;
      // White space that is stripped away leaves its neighbour at the start of the segment, where no triple was looked at.
      if (op.kind == TT_NORMALIZER_STRIP) c.triple = nullptr;
    }
    // A part of a piece may be an entry that is taken whole and that merges do not make.
    c.join = p_.flag(TT_FLAG_IGNORE_MERGES) ? std::uint32_t{TT_JOIN_NONE} : p_.conf[TT_CONF_JOIN_KIND];
    c.join_bytes = p_.join_bytes;
    c.symbol = p_.char_symbol;
    c.join_symbols = p_.join_symbols;
  }

  void after() {
    const auto post = s_.get<std::uint32_t>(TT_SECTION_POST);
    if (post.size == 0) return;
    const std::uint64_t before = post[0];
    require(before + 2 <= post.size, "POST", "its counts do not fit its length");
    const std::uint64_t after = post[before + 1];
    require(before + after + 2 == post.size, "POST", "its counts do not fit its length");
    p_.before = {post.data + 1, before};
    p_.after = {post.data + before + 2, after};
  }

  void decoder() {
    const auto rows = s_.get<std::uint32_t>(TT_SECTION_DOPS);
    require(rows.size % 5 == 0, "DOPS", "its length is no whole number of records");
    for (std::uint64_t i = 0; i < rows.size; i += 5) {
      const std::uint32_t* r = rows.data + i;
      DecoderOp op{r[0], {}, {}, 0, 0};
      require(op.kind >= TT_DECODER_BYTE_LEVEL && op.kind <= TT_DECODER_STRIP, "DOPS", "a kind is unknown");
      if (op.kind == TT_DECODER_REPLACE || op.kind == TT_DECODER_STRIP) {
        op.a = text(TT_SECTION_DSTR, r[1], r[2]);
        require(!op.a.empty(), "DOPS", "a string is empty");
      }
      if (op.kind == TT_DECODER_REPLACE) op.b = text(TT_SECTION_DSTR, r[3], r[4]);
      if (op.kind == TT_DECODER_STRIP) {
        require(tt_utf8_length(static_cast<std::uint8_t>(op.a[0])) == op.a.size(), "DOPS", "Strip of more than one character");
        op.start = r[3];
        op.stop = r[4];
      }
      p_.decoder.push_back(op);
    }
    require(p_.decoder.empty() || !p_.flag(TT_FLAG_NO_DECODER), "DOPS", "a decoder in a program without decoder");
    p_.decode_offset = s_.get<std::uint32_t>(TT_SECTION_DBYO);
    p_.decode_bytes = s_.get<std::uint8_t>(TT_SECTION_DBYT);
    if (p_.decode_offset.size == 0) return;
    require(p_.decode_offset.size == std::uint64_t{p_.n_ids} + 1, "DBYO", "it has the wrong length");
    check_offsets("DBYO", p_.decode_offset, p_.decode_bytes.size);
  }

  const Sections& s_;
  Program& p_;
};

}  // namespace

std::uint32_t Program::rank_of(std::uint32_t order) const {
  if (pairs.product != nullptr) return order;
  std::call_once(ranked_, [this] {
    ranks_.assign(n_ids, 0);
    tt_each_rule(pairs, [this](std::uint32_t, std::uint32_t, std::uint32_t o) { ranks_[o] = 1; });
    std::uint32_t rank = 0;
    for (std::uint32_t& r : ranks_) rank += std::exchange(r, rank);
  });
  return ranks_[order];
}

std::shared_ptr<const Program> open_program(const std::uint8_t* data, std::size_t size) {
  const Sections sections = read_sections(data, size);
  auto program = std::make_shared<Program>();
  Opener(sections, *program).run();
  plant_in_tables(*program);
  for (const NormalizerOp& op : program->normalizer)
    if (op.kind <= TT_NORMALIZER_NFKD) {
      program->form_index.build(program->form);
      break;
    }
  return program;
}

}  // namespace toktier
