// One thread's loop over blocks, and how a long span is shared: every share begins at a cut, so that the ids of the shares, one
// after the other, are those of the whole.
#include "session/span_encoder.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/cuts.h"
#include "engine/faults.h"
#include "shared/utf8.h"

namespace toktier {

namespace {

EncodeOptions core_options(bool continued) {
  EncodeOptions options;
  options.post_process = false;
  options.continued = continued;
  return options;
}

std::size_t block_end(const Program& program, std::string_view text, std::size_t from) {
  if (!TOKTIER_FAULT(session_block)) return next_cut(program, text, from, true);
  while (tt_is_continuation(static_cast<std::uint8_t>(text[from]))) ++from;
  return from;
}

// `rest`: bytes of the span behind this share.
void encode_share(const Program& program, Context& context, std::string_view text, bool continued, std::size_t rest, Span& out) {
  Position at;
  while (at.bytes < text.size()) {
    const std::size_t left = text.size() - at.bytes;
    const std::size_t block = left + rest > near_end ? block_before : block_near_end;
    // What is left behind a block of nearly all is not worth one of its own.
    std::size_t end = text.size();
    if (left > block + block / 2) end = block_end(program, text, at.bytes + block);
    const std::string_view part = text.substr(at.bytes, end - at.bytes);
    const std::size_t count = context.prepare(part, core_options(continued || at.bytes > 0));
    context.write(out.ids.room(count));
    out.ids.advance(count);
    at = {end, at.code_points + count_code_points(part), out.ids.size()};
    out.marks.push(at);
  }
}

}  // namespace

std::size_t count_code_points(std::string_view text) {
  std::size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

void encode_span(const Program& program, ContextPool& contexts, Context& context, std::string_view text, bool continued,
                 unsigned workers, Span& out) {
  out.ids.clear();
  out.marks.clear();
  const std::size_t threads = std::min<std::size_t>(workers, text.size() / (worth_a_thread / 2));
  if (threads < 2) return encode_share(program, context, text, continued, 0, out);

  // About four shares a thread, so that the last to finish is not late.
  std::vector<std::size_t> begin = share_cuts(program, text, std::min(threads * 4, text.size() / near_end));
  begin.insert(begin.begin(), 0);
  std::vector<Span> shares(begin.size());
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex guard;
  const auto work = [&](Context& own) {
    try {
      for (std::size_t k; (k = next.fetch_add(1)) < shares.size();) {
        const std::size_t end = k + 1 < begin.size() ? begin[k + 1] : text.size();
        encode_share(program, own, text.substr(begin[k], end - begin[k]), continued || k > 0, text.size() - end, shares[k]);
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard);
      error = std::current_exception();
      next = shares.size();
    }
  };
  std::vector<std::thread> others;
  try {
    others.reserve(threads);
    for (std::size_t k = 1; k < threads; ++k)
      others.emplace_back([&] {
        try {
          const ContextPool::Lease lease = contexts.acquire();
          work(*lease);
        } catch (const std::exception&) {
          // No memory for another context: the others do the work.
        }
      });
  } catch (const std::exception&) {
    // The host gives no more threads.
  }
  work(context);
  for (std::thread& thread : others) thread.join();
  if (error) std::rethrow_exception(error);

  std::size_t total = 0;
  for (const Span& share : shares) total += share.ids.size();
  out.ids.reserve(total);
  Position base;
  for (const Span& share : shares) {
    for (std::size_t i = 0; i < share.marks.size(); ++i) {
      const Position& mark = share.marks.data()[i];
      out.marks.push({base.bytes + mark.bytes, base.code_points + mark.code_points, base.tokens + mark.tokens});
    }
    out.ids.append(share.ids.data(), share.ids.size());
    if (!TOKTIER_FAULT(session_shares)) base = out.marks.data()[out.marks.size() - 1];
  }
}

}  // namespace toktier
