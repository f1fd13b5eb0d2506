// Shares the texts of a batch among threads and puts the rows together in order.
#include "bind/batch_call.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "bind/errors.h"

namespace toktier::bind {

namespace {

constexpr Py_ssize_t kWorthAThread = 1 << 16;  // bytes: below it, starting a thread costs more than it brings

unsigned usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return unsigned(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

BatchCall::BatchCall(const ProgramOwner& owner, PyObject* texts, const EncodeOptions& options, bool keep_ids)
    : owner_(owner), texts_(texts), options_(options), keep_ids_(keep_ids), lengths_(std::size_t(PyTuple_GET_SIZE(texts)), 0) {
  for (std::size_t i = 0; i < lengths_.size(); ++i) weight_ += text_weight(PyTuple_GET_ITEM(texts_, Py_ssize_t(i)));
}

void BatchCall::run(unsigned workers) {
  const std::size_t n = lengths_.size();
  if (workers == 0) workers = unsigned(std::min<Py_ssize_t>(usable_processors(), 1 + weight_ / kWorthAThread));
  // About eight groups a thread, so that the last to finish is not late.
  const Py_ssize_t share = std::max<Py_ssize_t>(weight_ / (Py_ssize_t(workers) * 8), 1 << 12);
  Py_ssize_t size = 0;
  for (std::size_t i = 0, begin = 0; i < n; ++i) {
    size += text_weight(PyTuple_GET_ITEM(texts_, Py_ssize_t(i))) + 64;
    if (size < share && i + 1 < n) continue;
    groups_.push_back({begin, i + 1, {}});
    begin = i + 1;
    size = 0;
  }
  workers = unsigned(std::min<std::size_t>(workers, groups_.size()));
  std::vector<std::thread> others;
  others.reserve(workers);
  try {
    for (unsigned k = 1; k < workers; ++k) others.emplace_back([this] { work(); });
  } catch (const std::exception&) {
    // The host gives no more threads: those that started, and this one, do the work.
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (owner_.facts().pad_mode == 1)
    for (const std::size_t length : lengths_) longest_ = std::max(longest_, length);
}

void BatchCall::work() {
  std::uint64_t bytes = 0;
  std::size_t item = 0;
  try {
    TextBuffer buffer;
    const ContextPool::Lease context = owner_.contexts().acquire();
    for (;;) {
      const std::size_t g = next_group_.fetch_add(1);
      if (g >= groups_.size()) break;
      Group& group = groups_[g];
      for (item = group.begin; item < group.end; ++item) {
        if (item > fault_item_.load(std::memory_order_relaxed)) break;  // an earlier text failed: this one cannot matter
        std::string_view utf8;
        TextFault fault{};
        if (!utf8_of(PyTuple_GET_ITEM(texts_, Py_ssize_t(item)), owner_.transcode(), buffer, utf8, fault)) {
          fail(item, &fault, nullptr);
          break;
        }
        bytes += utf8.size();
        if (!keep_ids_) {
          lengths_[item] = context->count(utf8, options_);
          continue;
        }
        const std::size_t count = lengths_[item] = context->prepare(utf8, options_);
        context->write(group.ids.room(count));
        group.ids.advance(count);
      }
    }
  } catch (...) {
    fail(item, nullptr, std::current_exception());
  }
  const std::lock_guard<std::mutex> lock(guard_);
  bytes_ += bytes;
}

void BatchCall::fail(std::size_t item, const TextFault* fault, std::exception_ptr error) {
  const std::lock_guard<std::mutex> lock(guard_);
  if (item >= fault_item_.load()) return;
  fault_item_.store(item);
  is_text_fault_ = fault != nullptr;
  if (fault != nullptr) fault_ = *fault;
  error_ = std::move(error);
}

void BatchCall::set_error() const {
  const Py_ssize_t item = Py_ssize_t(fault_item_.load());
  if (is_text_fault_) return set_invalid_text(fault_, item);
  try {
    std::rethrow_exception(error_);
  } catch (...) {
    set_from_current_exception(item);
  }
}

std::size_t BatchCall::total() const {
  if (longest_ != 0) return longest_ * rows();
  std::size_t sum = 0;
  for (const std::size_t length : lengths_) sum += length;
  return sum;
}

void BatchCall::gather(std::uint32_t* ids, std::uint64_t* row_splits) const {
  const ProgramFacts& facts = owner_.facts();
  row_splits[0] = 0;
  for (std::size_t i = 0; i < rows(); ++i) row_splits[i + 1] = row_splits[i] + length(i);
  for (const Group& group : groups_) {
    std::uint32_t* out = ids + row_splits[group.begin];
    if (longest_ == 0) {
      if (!group.ids.empty()) std::memcpy(out, group.ids.data(), group.ids.size() * sizeof(std::uint32_t));
      continue;
    }
    const std::uint32_t* row = group.ids.data();
    for (std::size_t i = group.begin; i < group.end; ++i) {
      const std::size_t missing = longest_ - lengths_[i];
      if (facts.pad_left != 0) out = std::fill_n(out, missing, facts.pad_id);
      out = std::copy_n(row, lengths_[i], out);
      if (facts.pad_left == 0) out = std::fill_n(out, missing, facts.pad_id);
      row += lengths_[i];
    }
  }
}

}  // namespace toktier::bind
