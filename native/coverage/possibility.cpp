// Runs of the boundary automaton over all contexts at once, and what the normalizer can leave.
#include "coverage/possibility.h"

#include <algorithm>
#include <set>

namespace toktier::coverage {

namespace {

constexpr std::uint32_t kCodePoints = 0x110000;

Segment segment_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), static_cast<std::uint32_t>(text.size()), nullptr};
}

}  // namespace

Possibility::Possibility(const Program& program) : program_(program) {
  lowered_to_.assign(program.lower_text.data, program.lower_text.data + program.lower_text.size);
  std::sort(lowered_to_.begin(), lowered_to_.end());
  for (int pass = 0; pass < 2; ++pass) {
    const Array<std::uint32_t>& tokens = program.matcher[pass].token;
    certain_[pass] = std::none_of(tokens.data, tokens.data + tokens.size, [&](std::uint32_t index) {
      return index != TT_NONE && (program.added[index].flags & TT_ADDED_SINGLE_WORD) != 0;
    });
  }
  find_representatives();
  find_states();
}

bool Possibility::lowered(std::uint32_t cp) const {
  const std::uint32_t* const rows = program_.lower.data;
  std::size_t begin = 0, end = program_.lower.size / 3;
  while (begin < end) {
    const std::size_t middle = (begin + end) / 2;
    if (rows[3 * middle] == cp) return true;
    if (rows[3 * middle] < cp) begin = middle + 1;
    else end = middle;
  }
  return false;
}

bool Possibility::is_left(std::string_view text) {
  // Strip leaves a part of what it is given, so that the step before it decides.
  auto step = program_.normalizer.rbegin();
  while (step != program_.normalizer.rend() && step->kind == TT_NORMALIZER_STRIP) ++step;
  if (step == program_.normalizer.rend() || text.empty()) return true;
  switch (step->kind) {
    case TT_NORMALIZER_NFC:
    case TT_NORMALIZER_NFKC:
    case TT_NORMALIZER_NFD:
    case TT_NORMALIZER_NFKD: {
      const Segment segment = segment_of(text);
      rewritten_.text.clear();
      Rewriter out(segment, rewritten_);
      rewrite_form(program_, scan_lanes(best_level()), step->kind == TT_NORMALIZER_NFC || step->kind == TT_NORMALIZER_NFKC,
                   segment, form_, out);
      if (!out.changed()) return true;
      const Segment result = out.finish();
      return result.size == segment.size && std::equal(result.text, result.text + result.size, segment.text);
    }
    case TT_NORMALIZER_REPLACE: {
      const bool one = tt_utf8_length(byte_at(step->a, 0)) == step->a.size();
      return !one || step->b.find(step->a) != std::string_view::npos || text.find(step->a) == std::string_view::npos;
    }
    case TT_NORMALIZER_LOWERCASE:
      for (std::size_t i = 0; i < text.size();) {
        std::uint32_t length;
        const std::uint32_t cp = tt_utf8_next(reinterpret_cast<const std::uint8_t*>(text.data()) + i, length);
        if (lowered(cp) && !std::binary_search(lowered_to_.begin(), lowered_to_.end(), cp)) return false;
        i += length;
      }
      return true;
    default:
      return true;
  }
}

void Possibility::find_representatives() {
  const std::uint32_t n = program_.boundary.n_class;
  const auto left = [&](std::uint32_t cp) {
    std::string text;
    append_utf8(cp, text);
    return is_left(text);
  };
  std::vector<std::uint32_t> first(n, TT_NONE), second(n, TT_NONE);
  const auto class_of = [&](std::uint32_t cp) { return tt_class(program_.boundary, cp); };
  for (std::uint32_t cp = 0x20; n != 0 && cp < 0x7F; ++cp)
    if (first[class_of(cp)] == TT_NONE && left(cp)) first[class_of(cp)] = cp;
  for (std::uint32_t cp = 0; n != 0 && cp < kCodePoints; ++cp) {
    if (!is_scalar(cp)) continue;
    const std::uint32_t c = class_of(cp);
    if (first[c] == TT_NONE && left(cp)) first[c] = cp;
    // The other one is not ASCII where the class has such a character, because most merges are of ASCII.
    if (cp != first[c] && (second[c] == TT_NONE || (second[c] < 0x80 && cp > 0xFF)) && left(cp)) second[c] = cp;
  }
  for (const std::uint32_t cp : first)
    if (cp != TT_NONE) representatives_.push_back(cp);
  for (const std::uint32_t cp : second)
    if (cp != TT_NONE) representatives_.push_back(cp);
  if (n == 0) representatives_ = {'a', ' ', '\n', '1', '(', 0x4E2D};
}

void Possibility::find_states() {
  befores_ = behinds_ = {""};
  const TtBoundary& b = program_.boundary;
  if (b.n_class == 0) return;
  const auto breadth_first = [&](std::uint32_t start, std::uint32_t states, auto&& step, auto&& longer,
                                 std::vector<std::string>& texts) {
    std::vector<std::uint8_t> order;
    std::vector<std::uint8_t> seen(states, 0);
    std::vector<std::pair<std::uint32_t, std::string>> queue{{start, ""}};
    for (std::size_t k = 0; k < queue.size(); ++k)
      for (const std::uint32_t cp : representatives_) {
        const std::uint32_t next = step(queue[k].first, tt_class(b, cp));
        if (seen[next] != 0) continue;
        seen[next] = 1;
        order.push_back(static_cast<std::uint8_t>(next));
        std::string character;
        append_utf8(cp, character);
        queue.emplace_back(next, longer(queue[k].second, character));
        texts.push_back(queue.back().second);
      }
    return order;
  };
  left_reached_ = breadth_first(
      b.left_start, b.n_left, [&](std::uint32_t s, std::uint32_t c) { return tt_left_step(b, s, c); },
      [](const std::string& text, const std::string& c) { return text + c; }, befores_);
  if (std::find(left_reached_.begin(), left_reached_.end(), b.left_start) == left_reached_.end())
    left_reached_.push_back(static_cast<std::uint8_t>(b.left_start));
  right_reached_ = breadth_first(
      b.right_end, b.n_right, [&](std::uint32_t s, std::uint32_t c) { return tt_right_step(b, s, c); },
      [](const std::string& text, const std::string& c) { return c + text; }, behinds_);
}

// True where this text stands in a normalized text only if it stood in the raw one: nothing that the normalizer writes has a byte
// of it, and what it replaces leaves something between.
bool Possibility::is_left_alone(std::string_view text) const {
  const auto apart = [&](std::string_view written) {
    return !written.empty() && written.find_first_of(text) == std::string_view::npos;
  };
  return std::all_of(program_.normalizer.begin(), program_.normalizer.end(), [&](const NormalizerOp& step) {
    return step.kind == TT_NORMALIZER_STRIP || (step.kind == TT_NORMALIZER_REPLACE && apart(step.b)) ||
           (step.kind == TT_NORMALIZER_PREPEND && apart(step.a));
  });
}

bool Possibility::holds(int pass, std::string_view bytes) const {
  const Matcher& m = program_.matcher[pass];
  if (m.empty()) return false;
  for (std::size_t from = 0; from < bytes.size(); ++from) {
    std::uint32_t node = 0;
    for (std::size_t i = from; i < bytes.size(); ++i) {
      const std::uint8_t* const edges = m.edge_byte.data;
      const std::uint8_t* const end = edges + m.first_edge[node + 1];
      const std::uint8_t* const at = std::lower_bound(edges + m.first_edge[node], end, byte_at(bytes, i));
      if (at == end || *at != byte_at(bytes, i)) break;
      node = m.edge_child[std::size_t(at - edges)];
      if (m.token[node] != TT_NONE && (pass == 1 || is_left_alone(bytes.substr(from, i + 1 - from)))) return true;
    }
  }
  return false;
}

// Matching is leftmost-longest without overlap, so that each occurrence of an added token is taken or overlaps one that is. That
// ends where a match can be thrown away afterwards (single_word), and of raw text it says something only where is_left_alone().
bool Possibility::has_added_token(std::string_view bytes) const {
  return (certain_[0] && holds(0, bytes)) || (certain_[1] && holds(1, bytes));
}

const std::vector<std::uint8_t>& Possibility::classes(std::string_view part, bool head) {
  const auto [entry, added] = classes_.try_emplace({std::string(part), head});
  if (!added) return entry->second;
  std::set<std::uint8_t> found;
  const auto visit = [&](std::uint32_t cp) {
    const auto c = static_cast<std::uint8_t>(tt_class(program_.boundary, cp));
    if (found.count(c) == 0) {
      std::string text;
      append_utf8(cp, text);
      if (is_left(text)) found.insert(c);
    }
    return found.size() < program_.boundary.n_class;
  };
  if (head)
    for_each_ending(part, visit);
  else
    for_each_beginning(part, visit);
  entry->second.assign(found.begin(), found.end());
  return entry->second;
}

Place Possibility::judge(std::string_view bytes) {
  const auto parts = parts_of(bytes);
  if (!parts) return {Obstacle::invalid_utf8, false, false, false, false};
  if (!is_left(parts->middle)) return {Obstacle::normalizer, false, false, false, false};
  if (has_added_token(bytes)) return {Obstacle::added_token, false, false, false, false};
  if (program_.boundary.n_class == 0) {
    const bool begins = parts->head.empty(), ends = parts->tail.empty();
    return {Obstacle::none, begins, ends, begins && ends, true};
  }
  return walk(*parts);
}

Place Possibility::walk(const Parts& parts) {
  std::vector<std::uint8_t> middle;
  for (std::size_t i = 0; i < parts.middle.size();) {
    std::uint32_t length;
    middle.push_back(static_cast<std::uint8_t>(
        tt_class(program_.boundary, tt_utf8_next(reinterpret_cast<const std::uint8_t*>(parts.middle.data()) + i, length))));
    i += length;
  }
  std::string key(middle.begin(), middle.end());  // most texts have the classes of another one
  key.append(parts.head).append(parts.tail);
  key.append({char(parts.head.size()), char(parts.tail.size())});  // the lengths make it unambiguous
  const auto found = walked_.find(key);
  if (found != walked_.end()) return found->second;
  const Place place = walk(middle, parts);
  walked_.emplace(std::move(key), place);
  return place;
}

Place Possibility::walk(const std::vector<std::uint8_t>& middle, const Parts& parts) {
  const TtBoundary& b = program_.boundary;
  static const std::vector<std::uint8_t> nothing{0};
  const bool has_head = !parts.head.empty(), has_tail = !parts.tail.empty();
  const std::vector<std::uint8_t>& heads = has_head ? classes(parts.head, true) : nothing;
  const std::vector<std::uint8_t>& tails = has_tail ? classes(parts.tail, false) : nothing;
  if (heads.empty() || tails.empty()) return {Obstacle::normalizer, false, false, false, false};
  const std::size_t n = middle.size() + has_head + has_tail;  // characters
  // Left states before each character and after the last; right states at each character and behind the last.
  std::set<std::vector<std::uint8_t>> lefts;
  std::set<std::pair<std::vector<std::uint8_t>, bool>> rights;  // and whether the text ends there
  for (const std::uint8_t head : heads)
    for (const std::uint8_t start : left_reached_) {
      std::vector<std::uint8_t> states{start};
      const auto step = [&](std::uint8_t c) { states.push_back(static_cast<std::uint8_t>(tt_left_step(b, states.back(), c))); };
      if (has_head) step(head);
      for (const std::uint8_t c : middle) step(c);
      if (!has_tail) {
        lefts.insert(states);
        continue;
      }
      states.push_back(0);  // behind a character that is not known: never asked
      lefts.insert(states);
    }
  for (const std::uint8_t tail : tails)
    for (std::size_t k = 0; k <= right_reached_.size(); ++k) {
      const bool ends = k == right_reached_.size();
      std::vector<std::uint8_t> states(n + 1);
      states[n] = ends ? static_cast<std::uint8_t>(b.right_end) : right_reached_[k];
      std::size_t at = n;
      const auto step = [&](std::uint8_t c) {
        states[at - 1] = static_cast<std::uint8_t>(tt_right_step(b, states[at], c));
        --at;
      };
      if (has_tail) step(tail);
      for (std::size_t i = middle.size(); i > 0; --i) step(middle[i - 1]);
      if (has_head) states[0] = 0;  // never asked
      rights.insert({states, ends});
    }
  Place place{Obstacle::pre_tokenizer, false, false, false, false};
  for (const auto& left : lefts)
    for (const auto& [right, text_ends] : rights) {
      bool split = false;
      for (std::size_t i = 1; i < n && !split; ++i) split = tt_boundary_value(b, left[i], right[i]) != TT_NO_BOUNDARY;
      if (split) continue;
      const std::uint32_t at_start = has_head ? TT_NO_BOUNDARY : tt_boundary_value(b, left[0], right[0]);
      if (at_start == TT_BOUNDARY_DROPPED) continue;
      const bool begins = at_start == TT_BOUNDARY;
      const bool ends = !has_tail && (text_ends || tt_boundary_value(b, left[n], right[n]) != TT_NO_BOUNDARY);
      place.obstacle = Obstacle::none;
      place.begins |= begins;
      place.ends |= ends;
      place.exact |= begins && ends;
      place.inner |= !begins || !ends;
    }
  return place;
}

}  // namespace toktier::coverage
