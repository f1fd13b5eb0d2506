// Strict UTF-8 validation (RFC 3629) at the best level of this CPU: lanes/transcode_lanes.cpp does it.
#include <cstdint>

#include "engine.h"
#include "lanes/transcode_lanes.h"

namespace toktier {

std::size_t validate_utf8(std::string_view bytes) {
  static const TranscodeLanes& lanes = transcode_lanes(best_level());
  const std::size_t fault = lanes.first_malformed(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return fault == bytes.size() ? std::string_view::npos : fault;
}

}  // namespace toktier
