// `_native.GpuIds`: ids that stayed on a device, and where the rows begin, on the host.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "bind/bind.h"
#include "gpu/device_ids.h"

namespace toktier::bind {

class GpuIds {
 public:
  GpuIds(std::unique_ptr<gpu::DeviceIds> ids, const std::vector<std::uint64_t>& row_splits);

  std::size_t count() const { return ids_->count(); }
  nanobind::object row_splits() const;
  nanobind::dict array_interface() const;
  nanobind::object dlpack(nanobind::handle stream, nanobind::handle max_version, nanobind::handle dl_device,
                          nanobind::handle copy) const;
  nanobind::tuple dlpack_device() const;

 private:
  void complete_for(nanobind::handle stream) const;

  std::shared_ptr<const gpu::DeviceIds> ids_;  // of this object and of what DLPack made of it
  nanobind::bytes row_splits_;
};

void register_gpu_ids(nanobind::module_& m);

}  // namespace toktier::bind
