// Questions about an open program that need no text: token strings, ids, sizes and stored settings.
#include "program.h"

namespace toktier {

ProgramFacts program_facts(const Program& p) {
  ProgramFacts f{};
  f.n_ids = p.n_ids;
  f.n_class = p.boundary.n_class;
  f.n_left = p.boundary.n_left;
  f.n_right = p.boundary.n_right;
  f.n_token = p.boundary.n_token;
  f.n_added = static_cast<std::uint32_t>(p.added.size());
  f.n_pair_slots = p.pairs.displacement == nullptr ? p.pairs.mask + 1 : p.pairs.n_entries;
  f.pad_mode = p.conf[TT_CONF_PAD_MODE];
  f.pad_fixed = p.conf[TT_CONF_PAD_FIXED];
  f.pad_multiple = p.conf[TT_CONF_PAD_MULTIPLE];
  f.pad_id = p.conf[TT_CONF_PAD_ID];
  f.pad_left = p.conf[TT_CONF_PAD_LEFT];
  f.has_normalizer = !p.normalizer.empty();
  f.has_pre_tokenizer = p.boundary.n_class != 0;
  return f;
}

std::optional<std::string_view> token_string(const Program& p, std::uint32_t id) {
  if (id >= p.n_ids || (p.token_flags[id] & TT_TOKEN_EXISTS) == 0) return std::nullopt;
  return p.token_text(id);
}

std::optional<std::uint32_t> token_id(const Program& p, std::string_view token) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(token.data());
  if (token.size() > 0xFFFFFFFFull) return std::nullopt;
  const std::uint32_t id = tt_find_piece(p.strings, bytes, static_cast<std::uint32_t>(token.size()));
  if (id == TT_NONE) return std::nullopt;
  return id;
}

bool is_special(const Program& p, std::uint32_t id) { return id < p.n_ids && (p.token_flags[id] & TT_TOKEN_SPECIAL) != 0; }

}  // namespace toktier
