// What an open engine holds of the driver. Made and unmade as a whole.
#pragma once
#include <memory>
#include <vector>

#include "device.h"
#include "engine.h"
#include "lane.h"

namespace toktier::gpu {

struct Engine::Resources {
  explicit Resources(std::shared_ptr<const Device> opened) : device(std::move(opened)) {}
  ~Resources();

  const std::shared_ptr<const Device> device;  // DeviceIds may outlive the engine
  DeviceMemory table_memory;
  TtGpuTables tables{};
  std::vector<std::unique_ptr<Lane>> lanes;
};

}  // namespace toktier::gpu
