// `_native.Program`: an open program and the memory under it.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "bind/bind.h"
#include "engine/engine.h"
#include "engine/lanes/transcode_lanes.h"

namespace toktier::bind {

class IdleCallers;

class ProgramOwner {
 public:
  // Keeps `buffer` exported. Throws ProgramError, nb::python_error; nb::value_error for a level that is not available.
  // `cache_lines`: see Context; for tests.
  ProgramOwner(nanobind::handle buffer, std::optional<std::string> level, std::optional<std::uint32_t> cache_lines);
  ~ProgramOwner();
  ProgramOwner(const ProgramOwner&) = delete;
  ProgramOwner& operator=(const ProgramOwner&) = delete;

  const Program& program() const { return *program_; }
  const std::shared_ptr<const Program>& shared() const { return program_; }
  ContextPool& contexts() const { return *contexts_; }
  IdleCallers& idle_callers() const { return *idle_callers_; }
  const TranscodeLanes& transcode() const { return *transcode_; }
  const ProgramFacts& facts() const { return facts_; }
  Level level() const { return level_; }

 private:
  Py_buffer view_;
  std::shared_ptr<const Program> program_;
  std::unique_ptr<ContextPool> contexts_;
  std::unique_ptr<IdleCallers> idle_callers_;  // they have contexts of the pool
  const TranscodeLanes* transcode_ = nullptr;
  ProgramFacts facts_{};
  Level level_ = best_level();
};

// The owner inside a `_native.Program`, or null with TypeError set. Lives as long as the object.
ProgramOwner* program_of(PyObject* object);

}  // namespace toktier::bind
