// A call of the engine: chunks go through the lanes, one packed while others run, and are put together in the order in which they
// were packed. Opening, and the rules of who may use what, stand in engine_state.cpp.
#include "engine.h"

#include <algorithm>
#include <deque>

#include "engine_run.h"

namespace toktier::gpu {

namespace {

// Shorter chunks do not fill a device, whose kernels then wait for each other; longer ones leave it idle while the host packs. An
// estimate: 512 blocks, and about 0.2 ms of either.
constexpr std::size_t kLeastChunk = std::size_t(2) << 20;

}  // namespace

class Engine::Call {
 public:
  Call(Engine& engine, TextSource& texts, bool add_special_tokens, bool plain, IdSink& sink)
      : engine_(engine),
        plain_(plain),
        around_(add_special_tokens ? ids_around(*engine.program_) : IdsAround{}),
        sink_(sink),
        most_bytes_(chunk_bytes(engine, texts)),
        packer_(*engine.program_, engine.contexts_, texts, plain, most_bytes_, engine.facts_.lane_documents) {
    sink_.reserve(texts.count(), texts.weight() / 3 + texts.count() * (around_.n_before + around_.n_after));
  }

  void run(bool on_device) {
    while (!packer_.done()) {
      Lane* const lane = on_device ? engine_.take(runs_.empty()) : nullptr;
      if (lane != nullptr)
        begin(*lane);
      else if (!runs_.empty())
        finish_first();
      else
        serve_here();
    }
    while (!runs_.empty()) finish_first();
    packer_.rethrow();
  }

  const SpliceCounts& counts() const { return counts_; }
  std::size_t bytes() const { return packer_.bytes(); }

 private:
  // As many chunks as keep the lanes busy, where they fill the device.
  static std::size_t chunk_bytes(const Engine& engine, const TextSource& texts) {
    const Facts& facts = engine.facts_;
    return std::min(facts.lane_bytes, std::max(kLeastChunk, texts.weight() / (2 * facts.lanes) + 1));
  }

  void begin(Lane& lane) {
    runs_.emplace_back(engine_, lane);
    packer_.fill(runs_.back().chunk());
    runs_.back().start(plain_, sink_.wants_ids_here());
  }

  void finish_first() {
    const DeviceRows* const rows = runs_.front().finish();
    put_together(runs_.front().chunk(), rows);
    runs_.pop_front();
  }

  // A chunk without a lane.
  void serve_here() {
    if (here_ == nullptr) here_.reset(new std::uint8_t[most_bytes_]);
    chunk_.text = here_.get();
    packer_.fill(chunk_);
    put_together(chunk_, nullptr);
  }

  void put_together(const Chunk& chunk, const DeviceRows* rows) {
    std::vector<CpuText> left;
    for (const Chunk::Entry& entry : chunk.entries) {
      if (entry.document == TT_NONE) continue;
      const std::uint32_t flags = rows == nullptr ? 0 : rows->flags[entry.document];
      if (rows != nullptr && flags == 0) continue;
      left.push_back({chunk.document(entry.document), entry.item, !entry.first});
      for (unsigned k = 0; k < kLeftReasons; ++k) engine_.counters_.redone[k] += (flags & left_bits[k]) != 0;
    }
    if (rows == nullptr) engine_.counters_.fallen += left.size();
    splice(chunk, rows, encode_by_cpu(engine_.contexts_, left, plain_, engine_.workers_), around_, sink_, counts_);
  }

  Engine& engine_;
  const bool plain_;
  const IdsAround around_;
  IdSink& sink_;
  const std::size_t most_bytes_;
  Packer packer_;
  std::deque<Run> runs_;  // first packed first
  SpliceCounts counts_;
  Chunk chunk_;
  std::unique_ptr<std::uint8_t[]> here_;
};

bool Engine::encode(TextSource& texts, bool add_special_tokens, bool plain, IdSink& sink) {
  const Entered entered(*this);
  Call call(*this, texts, add_special_tokens, plain, sink);
  call.run(entered.on_device());
  const SpliceCounts& counts = call.counts();
  counters_.texts += counts.texts;
  counters_.bytes += call.bytes();
  counters_.device_texts += counts.device_texts;
  counters_.device_documents += counts.device_documents;
  counters_.uncut += counts.uncut;
  return counts.device_documents != 0 || (entered.on_device() && call.bytes() == 0);
}

std::unique_ptr<DeviceIds> Engine::encode_on_device(TextSource& texts, bool add_special_tokens, bool plain,
                                                    std::optional<CuStream> stream, std::vector<std::uint64_t>& row_splits) {
  const Entered entered(*this);
  if (!entered.on_device()) throw refusal();
  try {
    DeviceIdSink sink(resources_->device, patience_.least);
    encode(texts, add_special_tokens, plain, sink);
    row_splits = sink.take_row_splits();
    return sink.take(stream);
  } catch (const GpuError& error) {
    note(error);
    throw;
  }
}

}  // namespace toktier::gpu
