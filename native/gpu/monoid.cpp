// Closure of the generators under composition. An element is first met as an earlier one and a generator behind it, so the whole
// table of compositions follows from those by the associative law, without comparing functions again.
#include "gpu/monoid.h"

#include <map>
#include <numeric>

namespace toktier::gpu {

std::optional<Monoid> make_monoid(const std::uint8_t* table, std::uint32_t n_class, std::uint32_t n_states, std::uint32_t start) {
  using Function = std::vector<std::uint8_t>;
  std::vector<Function> generators;
  for (std::uint32_t cls = 0; cls < n_class; ++cls) {
    Function& f = generators.emplace_back(n_states);
    for (std::uint32_t s = 0; s < n_states; ++s) f[s] = table[s * n_class + cls];
  }
  for (std::uint32_t cls = 0; cls < n_class; ++cls) generators.emplace_back(n_states, table[start * n_class + cls]);

  struct Step {
    std::uint32_t before, generator;
  };
  std::vector<Function> elements(1, Function(n_states));
  std::iota(elements[0].begin(), elements[0].end(), std::uint8_t{0});
  std::vector<Step> met(1, Step{0, 0});  // how an element was first made; not of the identity
  std::map<Function, std::uint32_t> number{{elements[0], 0}};
  std::vector<std::uint8_t> then;  // [element * generators + generator]
  for (std::uint32_t e = 0; e < elements.size(); ++e)
    for (std::uint32_t g = 0; g < generators.size(); ++g) {
      Function f(n_states);
      for (std::uint32_t s = 0; s < n_states; ++s) f[s] = generators[g][elements[e][s]];
      const auto [place, is_new] = number.emplace(f, static_cast<std::uint32_t>(elements.size()));
      if (is_new) {
        if (elements.size() == TT_MAX_ELEMENTS) return std::nullopt;
        elements.push_back(std::move(f));
        met.push_back({e, g});
      }
      then.push_back(static_cast<std::uint8_t>(place->second));
    }

  Monoid m;
  const auto n = static_cast<std::uint32_t>(elements.size());
  m.n_elements = n;
  m.of_class.assign(then.begin(), then.begin() + n_class);
  m.of_first.assign(then.begin() + n_class, then.begin() + 2 * n_class);
  m.compose.resize(std::size_t{n} * n);
  for (std::uint32_t a = 0; a < n; ++a) {
    std::uint8_t* const row = m.compose.data() + std::size_t{a} * n;
    row[0] = static_cast<std::uint8_t>(a);
    for (std::uint32_t b = 1; b < n; ++b) row[b] = then[row[met[b].before] * generators.size() + met[b].generator];
  }
  for (const Function& f : elements) {
    m.state.push_back(f[start]);
    m.functions.insert(m.functions.end(), f.begin(), f.end());
  }
  return m;
}

}  // namespace toktier::gpu
