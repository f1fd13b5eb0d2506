// Insert and propose of one scope.
#include "speculative/scope.h"

#include <algorithm>
#include <array>
#include <utility>

namespace toktier::speculative {

namespace {

constexpr std::size_t kAhead = 16;           // positions whose set is on its way from memory while another is worked on
constexpr std::size_t kRepeatsThatEnd = 32;  // known tokens in a row that end a stored stretch; shorter repeats are stored again,
                                             // so that a copy is not cut short at each of them

}  // namespace

Scope::Scope(const Geometry& geometry)
    : key_len_(geometry.key_len),
      memory_(geometry.bytes()),
      hash_(geometry.key_len, NgramHash::kPublicBase),
      table_(static_cast<std::uint32_t*>(memory_.data()), geometry.slots, geometry.ring, geometry.key_len),
      ring_(static_cast<std::uint32_t*>(memory_.data()) + geometry.slots * kSlotBytes / kTokenBytes, geometry.ring) {}

// A document's walk: whether a stretch is being stored, and where the occurrence is that predicted the last token.
class Scope::Walk {
 public:
  Walk(Scope& scope, const std::uint32_t* tokens) : s_(scope), tokens_(tokens) {}

  // The token at `e`, behind the n-gram of `place`.
  void step(std::size_t e, const SlotTable::Place& place) {
    const std::size_t k = s_.key_len_;
    const std::uint32_t* const key = tokens_ + e - k;
    const std::uint64_t followed = std::exchange(follow_, 0);
    std::uint64_t last = 0;
    SlotTable::Slot* const slot = s_.table_.find(place, s_.ring_.next(), [&](std::uint64_t position) {
      last = position;
      // The one behind the last occurrence needs no look at its tokens: they are the last n-gram and the token it predicted.
      return position == followed || s_.ring_.equal_before(position, key, k);
    });
    const bool known = slot != nullptr && s_.ring_.token(last) == tokens_[e];
    if (known) follow_ = last + 1;
    if (!open_) {
      if (known) return;
      for (std::size_t i = 0; i < k; ++i) s_.ring_.write(key[i]);
      open_ = true;
      repeats_ = 0;
    } else if (!known) {
      repeats_ = 0;
    } else if (++repeats_ == kRepeatsThatEnd) {
      close();
      return;
    }
    s_.table_.store(place, slot, s_.ring_.write(tokens_[e]));
  }

  void close() {
    if (open_) s_.ring_.write(kMarker);
    open_ = false;
  }

 private:
  Scope& s_;
  const std::uint32_t* const tokens_;
  bool open_ = false;
  std::size_t repeats_ = 0;
  std::uint64_t follow_ = 0;  // position behind the one that predicted the last token, or 0
};

std::size_t Scope::insert(std::span<const std::uint32_t> tokens) {
  tokens = tokens.last(std::min(tokens.size(), ring_.size() - 1));
  const std::size_t n = tokens.size(), k = key_len_;
  if (n <= k) return 0;
  const std::uint64_t before = ring_.next();
  std::array<SlotTable::Place, kAhead> places;  // of positions e .. e + kAhead - 1, each at its remainder
  std::uint64_t rolled = hash_.of(tokens.data());
  const auto look_ahead = [&](std::size_t e) {
    places[e % kAhead] = table_.place_of(NgramHash::mix(rolled));
    table_.prefetch(places[e % kAhead]);
    rolled = hash_.roll(rolled, tokens[e - k], tokens[e]);
  };
  for (std::size_t e = k; e < std::min(n, k + kAhead); ++e) look_ahead(e);
  Walk walk(*this, tokens.data());
  for (std::size_t e = k; e < n; ++e) {
    const SlotTable::Place place = places[e % kAhead];
    if (e + kAhead < n) look_ahead(e + kAhead);
    walk.step(e, place);
  }
  walk.close();
  ring_.settle();
  return std::size_t(ring_.next() - before);
}

std::size_t Scope::propose(const std::uint32_t* key, std::uint32_t* out, std::size_t room) const {
  const std::size_t k = key_len_;
  const SlotTable::Place place = table_.place_of(NgramHash::mix(hash_.of(key)));
  table_.prefetch(place);
  std::size_t copied = 0;
  const auto next = [&] { return ring_.next(); };
  table_.any(place, next, [&](std::uint64_t position) {
    std::size_t same = 0;
    ring_.read(position - k, k, [&](std::uint32_t token) { return token == key[same] && ++same < k; });
    if (same < k) return false;
    copied = 0;
    ring_.read(position, std::size_t(std::min<std::uint64_t>(room, ring_.next() - position)), [&](std::uint32_t token) {
      if (token == kMarker) return false;
      out[copied++] = token;
      return true;
    });
    if (!ring_.still_held(position - k)) copied = 0;
    return copied > 0;
  });
  return copied;
}

std::size_t Scope::held() const { return std::size_t(std::min<std::uint64_t>(stored(), ring_.size())); }

}  // namespace toktier::speculative
