// Many texts through the engine, or one long one, on several threads that end before the call does: nothing is left to be
// inherited by a fork. A text that is longer than its share is parted where ids cannot tell (engine/cuts.h).
// No Python API inside run(): it may run without the GIL.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "bind/bind.h"
#include "bind/engine_call.h"
#include "bind/program.h"
#include "bind/text.h"
#include "engine/scratch.h"

namespace toktier::bind {

unsigned usable_processors();

// From this many bytes on, one text is worth several threads.
constexpr Py_ssize_t kLongText = 1 << 18;
// True where a text of that many bytes gets them: this process may run on several processors, and parts of a text will do.
bool is_shared_out(const ProgramOwner& owner, Py_ssize_t weight);

class BatchCall {
 public:
  // `texts`: tuple of exact str and bytes, which must outlive the call. `keep_ids` false: only lengths are wanted.
  // `caller` is this thread's.
  BatchCall(const ProgramOwner& owner, Caller& caller, PyObject* texts, const EncodeOptions& options, bool keep_ids);

  Py_ssize_t weight() const { return weight_; }  // about the bytes of the texts
  // `workers` threads at most, this one included; 0: as many as the host has and the texts are worth.
  void run(unsigned workers);

  // After run(): true when a text failed; then sets the Python error of the first such text.
  bool failed() const { return fault_item_.load() != kNoItem; }
  void set_error(bool single = false) const;  // `single`: one text, whose error names no item

  std::size_t rows() const { return lengths_.size(); }
  std::uint64_t bytes() const { return bytes_; }  // of UTF-8
  // Ids of each row, stored padding to the longest of the batch applied.
  std::size_t length(std::size_t row) const { return longest_ != 0 ? longest_ : lengths_[row]; }
  std::size_t total() const;
  // Writes total() ids and rows() + 1 splits.
  void gather(std::uint32_t* ids, std::uint64_t* row_splits) const;

 private:
  static constexpr std::size_t kNoItem = SIZE_MAX;
  struct Group {  // consecutive texts that one thread takes at once; or a part of one
    std::size_t begin, end;
    std::string_view part;  // of text `begin`, as UTF-8
    Scratch<std::uint32_t> ids;
    bool continued = false;  // a part behind the first one
    std::size_t count = 0;  // of ids of the part
  };
  void share_out(unsigned workers);
  bool part_text(std::size_t item, std::size_t shares);
  void work(Context& context, TextBuffer& buffer);
  void work_on(Group& group, Context& context, TextBuffer& buffer, std::size_t& item, std::uint64_t& bytes);
  void fail(std::size_t item, const TextFault* fault, std::exception_ptr error);

  const ProgramOwner& owner_;
  Caller& caller_;
  PyObject* const texts_;
  const EncodeOptions options_;
  const bool keep_ids_;
  const IdsAround around_;  // of each text that is parted
  Py_ssize_t weight_ = 0;
  std::vector<Group> groups_;
  std::vector<std::unique_ptr<TextBuffer>> parted_;  // UTF-8 of the texts that were parted
  std::vector<std::size_t> lengths_;
  std::size_t longest_ = 0;  // length of every row where padding makes them equal
  std::uint64_t bytes_ = 0;
  std::atomic<std::size_t> next_group_{0};
  std::mutex guard_;                            // of the members below and bytes_
  std::atomic<std::size_t> fault_item_{kNoItem};  // written under the guard
  TextFault fault_{};
  bool is_text_fault_ = false;
  std::exception_ptr error_;
#ifdef TOKTIER_COUNTERS
  std::vector<Counters> counters_;  // of the threads that ended
#endif
};

}  // namespace toktier::bind
