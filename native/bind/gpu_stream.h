// A stream that a caller hands over: a handle of the driver as an int, or an object with `__cuda_stream__`.
#pragma once
#include <optional>

#include "bind/bind.h"
#include "gpu/driver.h"

namespace toktier::bind {

// None gives none; 0 is the legacy default stream, as for the driver. Raises TypeError, ValueError.
std::optional<gpu::CuStream> stream_of(nanobind::handle given);

inline std::uintptr_t stream_number(gpu::CuStream stream) { return reinterpret_cast<std::uintptr_t>(stream); }

}  // namespace toktier::bind
