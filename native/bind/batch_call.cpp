// Shares the texts of a batch among threads and puts the rows together in order.
#include "bind/batch_call.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "bind/errors.h"
#include "engine/cuts.h"
#include "engine/faults.h"

namespace toktier::bind {

namespace {

constexpr Py_ssize_t kWorthAThread = 1 << 16;  // bytes: below it, starting a thread costs more than it brings

}  // namespace

unsigned usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return unsigned(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
}

bool is_shared_out(const ProgramOwner& owner, Py_ssize_t weight) {
  return weight >= kLongText && is_sum_of_parts(owner.program()) && usable_processors() > 1;
}

BatchCall::BatchCall(const ProgramOwner& owner, Caller& caller, PyObject* texts, const EncodeOptions& options, bool keep_ids)
    : owner_(owner),
      caller_(caller),
      texts_(texts),
      options_(options),
      keep_ids_(keep_ids),
      around_(options.add_special_tokens ? ids_around(owner.program()) : IdsAround{}),
      lengths_(std::size_t(PyTuple_GET_SIZE(texts)), 0) {
  for (std::size_t i = 0; i < lengths_.size(); ++i) weight_ += text_weight(PyTuple_GET_ITEM(texts_, Py_ssize_t(i)));
}

// About eight groups a thread, so that the last to finish is not late.
void BatchCall::share_out(unsigned workers) {
  const Py_ssize_t share = std::max<Py_ssize_t>(weight_ / (Py_ssize_t(workers) * 8), 1 << 12);
  const bool parts = workers > 1 && is_sum_of_parts(owner_.program());
  std::size_t begin = 0;
  Py_ssize_t size = 0;
  const auto close = [&](std::size_t end) {
    if (begin < end) groups_.push_back({begin, end, {}, {}});
    begin = end;
    size = 0;
  };
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    const Py_ssize_t weight = text_weight(PyTuple_GET_ITEM(texts_, Py_ssize_t(i)));
    if (parts && weight >= kLongText && weight > share * 2) {
      close(i);
      if (!part_text(i, std::size_t(weight / std::max(share, kLongText / 4)))) return;
      begin = i + 1;
      continue;
    }
    size += weight + 64;
    if (size >= share) close(i + 1);
  }
  close(lengths_.size());
}

// False when the text is at fault: no later one matters then.
bool BatchCall::part_text(std::size_t item, std::size_t shares) {
  std::string_view utf8;
  TextFault fault{};
  parted_.push_back(std::make_unique<TextBuffer>());
  if (!utf8_of(PyTuple_GET_ITEM(texts_, Py_ssize_t(item)), owner_.transcode(), *parted_.back(), utf8, fault)) {
    fail(item, &fault, nullptr);
    return false;
  }
  std::size_t from = 0;
  for (const std::size_t cut : share_cuts(owner_.program(), utf8, shares)) {
    groups_.push_back({item, item, utf8.substr(from, cut - from), {}, from > 0});
    if (TOKTIER_FAULT(share_order) && groups_.size() > 1 && groups_[groups_.size() - 2].begin == item)
      std::swap(groups_.back().part, groups_[groups_.size() - 2].part);
    from = cut;
  }
  groups_.push_back({item, item, utf8.substr(from), {}, from > 0});
  return true;
}

void BatchCall::run(unsigned workers) {
  if (workers == 0) workers = unsigned(std::min<Py_ssize_t>(usable_processors(), 1 + weight_ / kWorthAThread));
  try {
    share_out(workers);
  } catch (...) {
    fail(0, nullptr, std::current_exception());
    return;
  }
  workers = unsigned(std::min<std::size_t>(workers, groups_.size()));
  std::vector<std::thread> others;
  try {
    others.reserve(workers);
    for (unsigned k = 1; k < workers; ++k)
      others.emplace_back([this] {
        try {
          const ContextPool::Lease context = owner_.contexts().acquire();
          TextBuffer buffer;
          work(*context, buffer);
#ifdef TOKTIER_COUNTERS
          const std::lock_guard<std::mutex> lock(guard_);
          counters_.push_back(take_counters());
#endif
        } catch (const std::exception&) {
          // No memory for another context.
        }
      });
  } catch (const std::exception&) {
    // The host gives no more threads.
  }
  // However many of them work: this one does too, until nothing is left.
  work(*caller_.context, caller_.buffer);
  for (std::thread& thread : others) thread.join();
#ifdef TOKTIER_COUNTERS
  for (const Counters& of_thread : counters_) add_counters(of_thread);
#endif
  std::size_t last = SIZE_MAX;
  for (const Group& group : groups_) {
    if (group.begin != group.end) continue;
    if (group.begin != last) lengths_[group.begin] = around_.n_before + around_.n_after;
    lengths_[last = group.begin] += group.count;
  }
  if (owner_.facts().pad_mode == 1)
    for (const std::size_t length : lengths_) longest_ = std::max(longest_, length);
}

void BatchCall::work(Context& context, TextBuffer& buffer) {
  std::uint64_t bytes = 0;
  std::size_t item = 0;
  try {
    for (;;) {
      const std::size_t g = next_group_.fetch_add(1);
      if (g >= groups_.size()) break;
      work_on(groups_[g], context, buffer, item, bytes);
    }
  } catch (...) {
    fail(item, nullptr, std::current_exception());
  }
  const std::lock_guard<std::mutex> lock(guard_);
  bytes_ += bytes;
}

void BatchCall::work_on(Group& group, Context& context, TextBuffer& buffer, std::size_t& item, std::uint64_t& bytes) {
  const auto encode = [&](std::string_view utf8, const EncodeOptions& options) {
    bytes += utf8.size();
    if (!keep_ids_) return context.count(utf8, options);
    const std::size_t count = context.prepare(utf8, options);
    context.write(group.ids.room(count));
    group.ids.advance(count);
    return count;
  };
  item = group.begin;
  if (item == group.end) {
    EncodeOptions bare = options_;
    bare.post_process = false;
    bare.continued = group.continued;
    if (item <= fault_item_.load(std::memory_order_relaxed)) group.count = encode(group.part, bare);
    return;
  }
  for (; item < group.end; ++item) {
    if (item > fault_item_.load(std::memory_order_relaxed)) break;  // an earlier text failed: this one cannot matter
    std::string_view utf8;
    TextFault fault{};
    if (!utf8_of(PyTuple_GET_ITEM(texts_, Py_ssize_t(item)), owner_.transcode(), buffer, utf8, fault)) {
      fail(item, &fault, nullptr);
      break;
    }
    lengths_[item] = encode(utf8, options_);
  }
}

void BatchCall::fail(std::size_t item, const TextFault* fault, std::exception_ptr error) {
  const std::lock_guard<std::mutex> lock(guard_);
  if (item >= fault_item_.load()) return;
  fault_item_.store(item);
  is_text_fault_ = fault != nullptr;
  if (fault != nullptr) fault_ = *fault;
  error_ = std::move(error);
}

void BatchCall::set_error(bool single) const {
  const Py_ssize_t item = single ? -1 : Py_ssize_t(fault_item_.load());
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
  std::size_t last = SIZE_MAX;  // text of the last part
  std::uint32_t* out = ids;
  for (const Group& group : groups_) {
    if (group.begin == group.end) {
      if (group.begin != last) out = std::copy_n(around_.before, around_.n_before, ids + row_splits[last = group.begin]);
      out = std::copy_n(group.ids.data(), group.ids.size(), out);
      const bool is_last = &group == &groups_.back() || (&group + 1)->begin != last || (&group + 1)->end != last;
      if (is_last) std::copy_n(around_.after, around_.n_after, out);
      continue;
    }
    out = ids + row_splits[group.begin];
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
