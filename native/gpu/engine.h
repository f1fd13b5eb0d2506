// The GPU engine of one program on one device. Any call gives the ids that the CPU engine gives: what a kernel flags is redone by
// it, and after a fault it does whatever is not done, so that a caller meets faults of his texts alone. Only the constructor
// refuses. Safe for any number of threads: they take turns at the lanes, chunk by chunk, and a call waits for its first one.
// A run that hangs is given up after a while (patience.h), and the device with it. In a child of the process that opened it
// nothing of it touches the driver: the CPU engine serves there.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk.h"
#include "counters.h"
#include "device.h"
#include "device_ids.h"
#include "engine/engine.h"
#include "lane.h"
#include "patience.h"
#include "splice.h"

namespace toktier::gpu {

struct EngineOptions {
  int device = 0;
  unsigned lanes = 2;
  std::size_t lane_bytes = std::size_t(16) << 20;  // of text: less where memory is short, never more than TT_MAX_CHUNK
  std::string driver;                              // path of libcuda; empty: the system's
  unsigned workers = 1;                            // threads at most that redo documents of a chunk
  Patience patience;                               // with a run, before it counts as one that hangs
};

class Engine {
 public:
  // `contexts` of the same program, and the memory of the program, outlive the engine. Throws GpuError.
  Engine(std::shared_ptr<const Program> program, ContextPool& contexts, const std::string& cubin, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // One row for each text. True where the device served a part of it, or there was nothing to serve. Throws ItemError.
  bool encode(TextSource& texts, bool add_special_tokens, bool plain, IdSink& sink);
  // The ids stay on the device: complete when the call returns, or, with a stream of the caller, for what is queued there from
  // then on. Throws GpuError where the device does not serve, and ItemError.
  std::unique_ptr<DeviceIds> encode_on_device(TextSource& texts, bool add_special_tokens, bool plain,
                                              std::optional<CuStream> stream, std::vector<std::uint64_t>& row_splits);

  // Milliseconds of each step of one run, of as many texts as fit one chunk. Throws GpuError, ItemError.
  std::vector<std::pair<std::string, float>> time(TextSource& texts);

  // Ends what uses the device, when the calls that do have ended. Later calls are served by the CPU engine.
  void close() noexcept;
  bool is_open() const;

  struct Facts {
    int driver_version;
    DeviceFacts device;
    KernelFacts kernels[TT_KERNEL_COUNT];
    unsigned lanes;
    std::size_t lane_bytes, lane_documents, table_bytes, device_bytes, host_bytes;
  };
  const Facts& facts() const { return facts_; }
  const Counters& counters() const { return counters_; }
  const Patience& patience() const { return patience_; }
  std::optional<GpuError> last_fault() const;

 private:
  class Call;
  class Run;
  struct Resources;
  enum class State : unsigned char { open, lost, closed };

  // A call that may use the device, for its scope; the context is current.
  class Entered {
   public:
    explicit Entered(Engine& engine);
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    bool on_device() const { return current_.has_value(); }

   private:
    Engine& engine_;
    const bool entered_;
    std::optional<CurrentContext> current_;
  };

  void open(const std::string& cubin, const EngineOptions& options);
  bool enter();  // false where no call may use the device
  void leave();
  Lane* take(bool wait);  // null: none is idle, or none ever will be
  void give_back(Lane* lane);
  void note(const GpuError& error);
  GpuError refusal() const;  // where no call may use the device
  bool forked() const;

  const std::shared_ptr<const Program> program_;
  ContextPool& contexts_;
  const unsigned workers_;
  const Patience patience_;
  const int process_;
  std::unique_ptr<Resources> resources_;  // null: closed
  Facts facts_{};
  Counters counters_;
  std::atomic<State> state_{State::closed};

  // Who has what. Apart, so that a forked child can leave it as it lies: to end a condition variable waits for its waiters, and
  // those of the parent never come.
  struct Turns {
    std::mutex guard;  // of the members below; never taken in a child
    std::condition_variable changed;
    std::vector<Lane*> idle;
    unsigned calls = 0;  // that have entered
    std::optional<GpuError> last_fault;
  };
  std::unique_ptr<Turns> turns_ = std::make_unique<Turns>();
};

}  // namespace toktier::gpu
