// NFC, NFKC, NFD and NFKD by a program's tables, local: text is cut into units (a unit begins at a character that cannot
// interact with anything before it), and only units with a character that is not inert are decomposed, ordered and composed.
// Alignment follows the reference's (character, change) pairs, through decomposition (the first code point replaces, further
// ones are inserted), ordering (changes travel with their code points) and composition (changes add up, less one).
#include <algorithm>
#include <bit>
#include <cstring>

#include "counters.h"
#include "faults.h"
#include "normalizer.h"

namespace toktier {

namespace {

using Item = FormScratch::Item;

// The primary composite of two characters, or TT_NONE. Ascending by (first, second), so the few of one first are.
std::uint32_t composite(const Program& program, std::uint32_t first, std::uint32_t second) {
  const FormInfo& info = program.form_index[first];
  const std::uint32_t* row = program.form.compositions.data + std::size_t{info.first} * 3;
  for (std::uint32_t left = info.first_count; left != 0 && row[1] <= second; --left, row += 3)
    if (row[1] == second) return row[2];
  return TT_NONE;
}

// Stable order by combining class of each run of marks. Short runs by insertion; long ones by counting, so that a text of
// nothing but marks stays linear.
void order_marks(FormScratch& s) {
  Scratch<Item>& items = s.items;
  for (std::size_t begin = 0; begin < items.size();) {
    if (items[begin].combining_class == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < items.size() && items[end].combining_class != 0) ++end;
    if (TOKTIER_FAULT(form_many_marks) && end - begin > 32) return;
    if (end - begin <= 32) {
      for (std::size_t i = begin + 1; i < end; ++i) {
        const Item moved = items[i];
        std::size_t k = i;
        for (; k > begin && items[k - 1].combining_class > moved.combining_class; --k) items[k] = items[k - 1];
        items[k] = moved;
      }
    } else {
      std::size_t at[257] = {};
      for (std::size_t i = begin; i < end; ++i) ++at[items[i].combining_class + 1];
      for (std::size_t c = 1; c < 257; ++c) at[c] += at[c - 1];
      s.sorted.resize(end - begin);
      for (std::size_t i = begin; i < end; ++i) s.sorted[at[items[i].combining_class]++] = items[i];
      std::memcpy(items.data() + begin, s.sorted.data(), (end - begin) * sizeof(Item));
    }
    begin = end;
  }
}

// Canonical composition in place: a starter takes in every later mark that is not blocked and has a composite with it.
void compose_items(const Program& program, Scratch<Item>& items) {
  constexpr std::size_t nothing = static_cast<std::size_t>(-1);
  std::size_t kept = 0, starter = nothing;
  std::uint32_t last_class = 0;  // of what stands between the starter and here; 0: nothing
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item item = items[i];
    const bool blocked = last_class != 0 && last_class >= item.combining_class + TOKTIER_FAULT(form_blocked);
    if (item.is_second && starter != nothing && !blocked) {
      const std::uint32_t made = composite(program, items[starter].cp, item.cp);
      if (made != TT_NONE) {
        items[starter].cp = made;
        items[starter].change += item.change - 1;
        continue;
      }
    }
    if (item.combining_class == 0) {
      starter = kept;
      last_class = 0;
    } else if (starter != nothing) {
      last_class = item.combining_class;
    }
    items[kept++] = item;
  }
  items.resize(kept);
}

// True when nothing in the unit decomposes or composes and its marks are in order, as in most text with marks: it stays as it is.
bool is_ordered(const Program& program, bool compose, const Segment& in, std::uint32_t begin, std::uint32_t end) {
  std::uint8_t last = 0;
  for (std::uint32_t i = begin; i < end;) {
    std::uint32_t length;
    const FormInfo& info = program.form_index[tt_utf8_next(in.text + i, length)];
    if (info.decomposition != 0 || (compose && info.is_second != 0)) return false;
    if (info.combining_class != 0 && info.combining_class < last) return false;
    last = info.combining_class;
    i += length;
  }
  return true;
}

// Normalizes the unit in[begin, end) and tells `out` when it changes.
void rewrite_unit(const Program& program, bool compose, const Segment& in, std::uint32_t begin, std::uint32_t end,
                  FormScratch& s, Rewriter& out) {
  const FormTables& form = program.form;
  if (is_ordered(program, compose, in, begin, end)) return;
  s.items.clear();
  s.positions.clear();
  for (std::uint32_t i = begin; i < end;) {
    std::uint32_t length;
    const std::uint32_t cp = tt_utf8_next(in.text + i, length);
    s.positions.push(i);
    const FormInfo& info = program.form_index[cp];
    if (info.decomposition == 0) {
      s.items.push({cp, 0, info.combining_class, info.is_second != 0});
    } else {
      const std::uint32_t* const row = form.decompositions.data + (std::size_t{info.decomposition} - 1) * 3;
      for (std::uint32_t k = 0; k < row[2]; ++k) {
        const std::uint32_t part = form.decomposed[row[1] + k];
        const FormInfo& of_part = program.form_index[part];
        s.items.push({part, k == 0 ? 0 : 1, of_part.combining_class, of_part.is_second != 0});
      }
    }
    i += length;
  }
  TOKTIER_COUNT(normalizer_steps, s.items.size());
  order_marks(s);
  if (compose) compose_items(program, s.items);

  SegmentBuffer& made = s.rewritten;
  made.text.clear();
  made.origin.clear();
  const std::size_t characters = s.positions.size();
  std::size_t next = 0;  // character of the window that the next replacement takes
  for (std::size_t i = 0; i < s.items.size(); ++i) {
    const Item& item = s.items[i];
    const std::uint32_t length = tt_utf8_write(item.cp, made.text.room(4));
    made.text.advance(length);
    const bool inserted = item.change > 0;
    if (in.origin != nullptr) {
      const std::size_t from = std::min(inserted && next > 0 ? next - 1 : next, characters - 1);
      std::fill_n(made.origin.room(length), length, in.origin[s.positions[from]]);
      made.origin.advance(length);
    }
    if (!inserted) next += 1 + static_cast<std::size_t>(TOKTIER_FAULT(form_alignment) ? 0 : -item.change);
  }
  const auto size = static_cast<std::uint32_t>(made.text.size());
  const bool same =
      size == end - begin && std::memcmp(made.text.data(), in.text + begin, size) == 0 &&
      (in.origin == nullptr || std::memcmp(made.origin.data(), in.origin + begin, size * sizeof(std::uint32_t)) == 0);
  if (!same) out.replace(begin, end, made.text.data(), size, made.origin.data());
}

bool is_ascii(std::uint8_t byte) { return byte < 0x80; }

std::uint8_t quick_bits(const Program& program, const std::uint8_t* character) {
  std::uint32_t length;
  return tt_trie(program.quick, tt_utf8_next(character, length));
}

// For programs whose form changes ASCII too: every character is looked at.
void rewrite_each(const Program& program, bool compose, const Segment& in, FormScratch& scratch, Rewriter& out) {
  std::uint32_t unit = 0;    // where the current unit begins
  bool inert = true;         // so far
  for (std::uint32_t i = 0; i < in.size;) {
    const std::uint8_t bits = quick_bits(program, in.text + i);
    if ((bits & TT_NQC_INSIDE_UNIT) == 0) {
      if (!inert) rewrite_unit(program, compose, in, unit, i, scratch, out);
      unit = i;
      inert = true;
    }
    if ((bits & TT_NQC_NOT_INERT) != 0) inert = false;
    i += tt_utf8_length(in.text[i]);
  }
  if (!inert) rewrite_unit(program, compose, in, unit, in.size, scratch, out);
}

}  // namespace

void rewrite_form(const Program& program, const ScanLanes& lanes, bool compose, const Segment& in, FormScratch& scratch,
                  Rewriter& out) {
  if (!program.ascii_inert) return rewrite_each(program, compose, in, scratch, out);
  const std::uint8_t* const text = in.text;
  std::uint32_t floor = 0;  // where the last unit that was rewritten ends
  for (std::uint32_t searched = 0; searched < in.size;) {
    std::uint64_t places;
    const std::uint32_t block = lanes.find_characters(program.not_inert, text, searched, in.size, places);
    for (; places != 0; places &= places - 1) {
      const std::uint32_t at = block + static_cast<std::uint32_t>(std::countr_zero(places));
      if (at < floor || (quick_bits(program, text + at) & TT_NQC_NOT_INERT) == 0) continue;
      std::uint32_t begin = at, end = at;
      while (begin > floor && (quick_bits(program, text + begin) & TT_NQC_INSIDE_UNIT) != 0)
        do --begin;
        while (tt_is_continuation(text[begin]));
      if (TOKTIER_FAULT(form_ascii_unit) && begin >= 7 && std::all_of(text + begin - 7, text + begin + 1, is_ascii)) begin = at;
      do end += tt_utf8_length(text[end]);
      while (end < in.size && (quick_bits(program, text + end) & TT_NQC_INSIDE_UNIT) != 0);
      rewrite_unit(program, compose, in, begin, end, scratch, out);
      floor = end;
    }
    searched = in.size - block > 64 ? block + 64 : in.size;
  }
}

}  // namespace toktier
