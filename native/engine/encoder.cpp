// Context: the stages of docs/reference-semantics.md in order. Added tokens on raw text, normalizer and added tokens on
// normalized text for every segment between them, pieces, ids; then truncation, special tokens, trimmed offsets, padding.
#include <algorithm>
#include <cstring>

#include "added_tokens.h"
#include "counters.h"
#include "faults.h"
#include "normalizer.h"
#include "piece_encoder.h"
#include "split_windows.h"
#include "word_encoder.h"

namespace toktier {

namespace {

// Text-sized buffers beyond this are given back after the call that needed them.
constexpr std::size_t kept_bytes = 1u << 20;

struct Spaces {
  std::uint32_t leading, trailing;  // characters
};

// White space as the trimming post-processor sees it in a token string: also the byte alphabet's character for a blank.
Spaces count_spaces(const Program& p, std::string_view token) {
  constexpr std::uint32_t mapped_blank = 0x120;
  const auto* const text = reinterpret_cast<const std::uint8_t*>(token.data());
  const auto size = static_cast<std::uint32_t>(token.size());
  const auto is_space = [&](std::uint32_t cp) { return cp == mapped_blank || (p.char_bits(cp) & TT_CHAR_SPACE) != 0; };
  Spaces spaces{0, 0};
  std::uint32_t length;
  for (std::uint32_t i = 0; i < size && is_space(tt_utf8_next(text + i, length)); i += length) ++spaces.leading;
  for (std::uint32_t i = size; i > 0 && is_space(tt_utf8_previous(text + i, length)); i -= length) ++spaces.trailing;
  return spaces;
}

// The same for a token that the model made: its own string, even where an added token of the same id has another one.
Spaces count_model_spaces(const Program& p, std::uint32_t id) {
  const std::string_view raw = p.raw_text(id);
  if ((p.token_flags[id] & TT_TOKEN_ADDED) == 0 || raw.empty()) return count_spaces(p, p.token_text(id));
  if (p.byte_symbol == nullptr) return count_spaces(p, raw);
  Spaces spaces{0, 0};
  while (spaces.leading < raw.size() && raw[spaces.leading] == ' ') ++spaces.leading;
  while (spaces.trailing < raw.size() && raw[raw.size() - 1 - spaces.trailing] == ' ') ++spaces.trailing;
  return spaces;
}

// What is kept of `size` ids, and how much is put around it.
struct Layout {
  std::size_t begin, end;             // of the core ids
  std::size_t before, after;          // special tokens
  std::size_t pad_before, pad_after;
  std::size_t total() const { return pad_before + before + (end - begin) + after + pad_after; }
};

}  // namespace

struct Context::State {
  State(std::shared_ptr<const Program> p, Level l, std::uint32_t cache_lines)
      : owner(std::move(p)),
        program(*owner),
        level(l),
        lanes(scan_lanes(l)),
        encoder(program),
        splitter(program, l),
        words(program, l, splitter, encoder, cache_lines) {}

  void core(std::string_view text, const EncodeOptions& options);
  // `continued`: the segment began in an earlier part of the text.
  void raw_segment(const Segment& segment, const EncodeOptions& options, bool continued);
  void normalized_segment(const Segment& segment, bool continued);
  void added_token(const Segment& segment, const AddedMatch& match);
  void trim(std::size_t begin, std::size_t end);
  void surface(std::size_t begin, std::size_t end, std::size_t first, std::vector<Surface>& out);
  void shrink();

  std::shared_ptr<const Program> owner;
  const Program& program;
  const Level level;
  const ScanLanes& lanes;
  PieceEncoder encoder;
  NormalizerRun normalizer;
  SegmentBuffer prefixed;
  Scratch<std::uint32_t> origin;
  WindowSplitter splitter;
  WordEncoder words;
  SplitWindow window;
  std::uint32_t bound[1 + window_bytes + 16];
  std::uint8_t value[1 + window_bytes];
  TokenBuffer tokens;
  // Trimming looks at the text that an added token matched; by index in `tokens`.
  struct Added {
    std::size_t index;
    Spaces spaces;
  };
  Scratch<Added> added;
  std::vector<Surface> matched;  // texts of added tokens, where surfaces are wanted
  bool trims = false, surfaces = false;  // of the running call
  Layout layout;
  std::size_t longest_seen = 0;  // bytes of text since the buffers were last looked at
};

void Context::State::core(std::string_view text, const EncodeOptions& options) {
  if (text.size() > longest_text) throw TextError{static_cast<std::size_t>(longest_text), "the text is longer than 4 GiB"};
  longest_seen = std::max(longest_seen, text.size());
  tokens.ids.clear();
  tokens.offsets.clear();
  added.clear();
  matched.clear();
  surfaces = options.surfaces;
  trims = options.offsets && options.post_process && program.flag(TT_FLAG_TRIM_OFFSETS) && !TOKTIER_FAULT(trim_ignored);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  const auto size = static_cast<std::uint32_t>(text.size());
  if (size == 0) return;
  if (options.offsets) {
    origin.resize(size);
    std::uint32_t index = TT_NONE;
    for (std::uint32_t i = 0; i < size; ++i) {
      origin[i] = index += !tt_is_continuation(bytes[i]);
      if (TOKTIER_FAULT(offset_of_astral) && bytes[i] >= 0xF0) ++index;
    }
  }
  const Segment whole{bytes, size, options.offsets ? origin.data() : nullptr};
  AddedTokenScan scan(program, lanes, 0, bytes, size, options.plain);
  AddedMatch match;
  for (std::uint32_t end = 0;; end = scan.kept_end()) {
    const bool found = scan.next(match);
    const std::uint32_t begin = found ? match.begin : size;
    if (end < begin) raw_segment(whole.part(end, begin), options, options.continued && end == 0);
    if (!found) break;
    added_token(whole, match);
  }
}

void Context::State::raw_segment(const Segment& raw, const EncodeOptions& options, bool continued) {
  const Segment& segment = program.normalizer.empty() ? raw : normalizer.run(program, lanes, raw, continued);
  AddedTokenScan scan(program, lanes, 1, segment.text, segment.size, options.plain);
  AddedMatch match;
  for (std::uint32_t end = 0;; end = scan.kept_end()) {
    const bool found = !TOKTIER_FAULT(added_second_pass) && scan.next(match);
    const std::uint32_t begin = found ? match.begin : segment.size;
    if (end < begin) normalized_segment(segment.part(end, begin), continued && end == 0);
    if (!found) break;
    added_token(segment, match);
  }
}

void Context::State::normalized_segment(const Segment& given, bool continued) {
  Segment with_prefix;
  const bool add_prefix = program.flag(TT_FLAG_ADD_PREFIX_SPACE) && given.text[0] != ' ' && !continued;
  if (add_prefix) {
    const Segment& segment = given;
    prefixed.text.clear();
    prefixed.text.push(' ');
    if (TOKTIER_FAULT(prefix_space_twice) && segment.text[0] >= 0xF0) prefixed.text.push(' ');
    prefixed.text.append(segment.text, segment.size);
    if (segment.origin != nullptr) {
      prefixed.origin.clear();
      prefixed.origin.push(segment.origin[0]);
      if (TOKTIER_FAULT(prefix_space_twice) && segment.text[0] >= 0xF0) prefixed.origin.push(segment.origin[0]);
      prefixed.origin.append(segment.origin, segment.size);
    }
    TOKTIER_COUNT(bytes_copied, segment.size + 1);
    with_prefix = prefixed.view(segment.origin != nullptr);
  }
  const Segment& segment = add_prefix ? with_prefix : given;
  if (segment.origin == nullptr) {
    words.encode(segment, tokens.ids);
    return;
  }
  // `bound` is where pieces begin: slot 0 is where the open piece began, the end of the segment closes the last one.
  std::uint32_t last = 0;
  bound[0] = 0;
  value[0] = TT_BOUNDARY;
  splitter.begin(segment.text, segment.size);
  while (splitter.next(window)) {
    // The first piece begins with the segment: its slot is written again where it was already known.
    const std::uint32_t first = window.begin == 0 ? 0 : 1;
    last = first + list_bits(level, window.start, window.words(), window.begin, bound + first);
    std::fill_n(value + first, last - first, std::uint8_t{TT_BOUNDARY});
    if (window.has_dropped)
      for (std::uint32_t k = first; k < last; ++k)
        if (window.drops(bound[k] - window.begin)) value[k] = TT_BOUNDARY_DROPPED;
    if (last == 0 || --last == 0) continue;
    encoder.encode(segment, bound, value, last, tokens);
    bound[0] = bound[last];
    if (TOKTIER_FAULT(window_border) && window.end < segment.size) bound[0] = bound[last - 1];
    value[0] = value[last];
  }
  bound[1] = segment.size;
  encoder.encode(segment, bound, value, 1, tokens);
}

void Context::State::added_token(const Segment& segment, const AddedMatch& match) {
  if (segment.origin != nullptr) tokens.offsets.push({segment.origin[match.begin], segment.origin[match.end - 1] + 1});
  const std::string_view text(reinterpret_cast<const char*>(segment.text) + match.begin, match.end - match.begin);
  if (trims) added.push({tokens.ids.size(), count_spaces(program, text)});
  if (surfaces) matched.push_back({tokens.ids.size(), std::string(text)});
  tokens.ids.push(program.added[match.token].id);
}

// Offsets of tokens[begin, end), the ones that truncation left.
void Context::State::trim(std::size_t begin, std::size_t end) {
  std::size_t next_added = 0;
  for (std::size_t i = begin; i < end; ++i) {
    while (next_added < added.size() && added[next_added].index < i) ++next_added;
    const bool is_added = next_added < added.size() && added[next_added].index == i;
    Spaces spaces = is_added ? added[next_added].spaces : count_model_spaces(program, tokens.ids[i]);
    Offset& offset = tokens.offsets[i];
    if (spaces.leading > 0) {
      // A single blank before the first token is taken for the one that add_prefix_space put there.
      const bool first = i == begin || offset.begin == 0;
      if (first && program.flag(TT_FLAG_TRIM_PREFIX_SPACE) && spaces.leading == 1) spaces.leading = 0;
      offset.begin = std::min(offset.begin + spaces.leading, offset.end);
    }
    if (spaces.trailing > 0 && offset.end >= spaces.trailing) offset.end = std::max(offset.end - spaces.trailing, offset.begin);
  }
}

// Surfaces of tokens[begin, end), of which the first one is id number `first` of the result.
void Context::State::surface(std::size_t begin, std::size_t end, std::size_t first, std::vector<Surface>& out) {
  for (Surface& s : matched)
    if (s.index >= begin && s.index < end) out.push_back({first + s.index - begin, std::move(s.text)});
}

void Context::State::shrink() {
  if (longest_seen < kept_bytes / 64) return;  // no buffer has 64 times the bytes of the text
  longest_seen = 0;
  const std::size_t held = encoder.bytes() + words.bytes() + normalizer.bytes() + prefixed.text.bytes() +
                           prefixed.origin.bytes() + origin.bytes() + splitter.bytes() + tokens.ids.bytes() +
                           tokens.offsets.bytes() + added.bytes();
  if (held <= kept_bytes) return;
  encoder.release();
  words.release();
  normalizer.release();
  prefixed.text.release();
  prefixed.origin.release();
  origin.release();
  splitter.release();
  tokens.ids.release();
  tokens.offsets.release();
  added.release();
}

namespace {

Layout lay_out(const Program& p, std::size_t size, const EncodeOptions& options) {
  Layout l{0, size, 0, 0, 0, 0};
  if (!options.post_process) return l;
  const std::uint32_t* const conf = p.conf;
  const std::uint64_t special = p.before.size + p.after.size;
  const std::uint64_t room = options.add_special_tokens ? special : 0;
  // Special tokens that leave less than nothing: the reference's subtraction wraps, and it truncates nothing.
  if (conf[TT_CONF_TRUNC_ON] != 0 && room <= conf[TT_CONF_TRUNC_MAX]) {
    const std::uint64_t limit = conf[TT_CONF_TRUNC_MAX] - room + TOKTIER_FAULT(truncation_room);
    if (size > limit) {
      if (limit > 0 && conf[TT_CONF_TRUNC_STRIDE] >= limit)
        throw SettingsError{conf[TT_CONF_TRUNC_STRIDE] == TT_NONE
                                ? "the stored truncation cuts only a second text, and there is none"
                                : "the stored truncation has a stride that is not below the " + std::to_string(limit) +
                                      " tokens that are left for the text"};
      if (conf[TT_CONF_TRUNC_LEFT] != 0)
        l.begin = size - limit;
      else
        l.end = limit;
    }
  }
  if (options.add_special_tokens) {
    l.before = p.before.size;
    l.after = p.after.size;
  }
  if (conf[TT_CONF_PAD_MODE] != TT_PAD_NONE) {
    const std::size_t length = l.total();
    std::uint64_t wanted = conf[TT_CONF_PAD_MODE] == TT_PAD_FIXED ? conf[TT_CONF_PAD_FIXED] : length;
    const std::uint32_t multiple = TOKTIER_FAULT(padding_multiple) ? 0 : conf[TT_CONF_PAD_MULTIPLE];
    if (multiple != 0 && multiple != TT_NONE && wanted % multiple != 0) wanted += multiple - wanted % multiple;
    if (wanted > length) (conf[TT_CONF_PAD_LEFT] != 0 ? l.pad_before : l.pad_after) = wanted - length;
  }
  return l;
}

}  // namespace

bool is_sum_of_parts(const Program& program) {
  return program.conf[TT_CONF_TRUNC_ON] == 0 && program.conf[TT_CONF_PAD_MODE] == TT_PAD_NONE;
}

IdsAround ids_around(const Program& program) {
  return {program.before.data, program.after.data, static_cast<std::size_t>(program.before.size),
          static_cast<std::size_t>(program.after.size)};
}

Context::Context(std::shared_ptr<const Program> program, Level level, std::uint32_t cache_lines)
    : state_(std::make_unique<State>(std::move(program), level, cache_lines)) {}
Context::~Context() = default;

std::size_t Context::prepare(std::string_view text, const EncodeOptions& options) {
  State& s = *state_;
  s.core(text, options);
  s.layout = lay_out(s.program, s.tokens.ids.size(), options);
  return s.layout.total();
}

std::size_t Context::count(std::string_view text, const EncodeOptions& options) {
  EncodeOptions ids_only = options;
  ids_only.offsets = ids_only.surfaces = false;
  const std::size_t total = prepare(text, ids_only);
  state_->shrink();
  return total;
}

void Context::write(std::uint32_t* ids) {
  State& s = *state_;
  const Program& p = s.program;
  const Layout& l = s.layout;
  const auto put = [&](const std::uint32_t* from, std::size_t n) {
    if (n != 0) std::memcpy(ids, from, n * sizeof *ids);
    ids += n;
  };
  std::uint32_t* const first = ids;
  const std::uint32_t pad = p.conf[TT_CONF_PAD_ID];
  ids = std::fill_n(ids, l.pad_before, pad);
  put(p.before.data, l.before);
  put(s.tokens.ids.data() + l.begin, l.end - l.begin);
  if (TOKTIER_FAULT(template_order)) std::rotate(first + l.pad_before, ids - (l.end - l.begin), ids);
  put(p.after.data, l.after);
  std::fill_n(ids, l.pad_after, pad);
  s.shrink();
}

void Context::encode(std::string_view text, const EncodeOptions& options, Result& out) {
  State& s = *state_;
  out.ids.clear();
  out.offsets.clear();
  out.surfaces.clear();
  out.ids.resize(prepare(text, options));
  const Layout l = s.layout;
  if (options.offsets) {
    if (s.trims) s.trim(l.begin, l.end);
    out.offsets.reserve(l.total());
    out.offsets.insert(out.offsets.end(), l.pad_before + l.before, Offset{0, 0});
    out.offsets.insert(out.offsets.end(), s.tokens.offsets.data() + l.begin, s.tokens.offsets.data() + l.end);
    out.offsets.insert(out.offsets.end(), l.after + l.pad_after, Offset{0, 0});
  }
  if (options.surfaces) s.surface(l.begin, l.end, l.pad_before + l.before, out.surfaces);
  write(out.ids.data());
}

}  // namespace toktier
