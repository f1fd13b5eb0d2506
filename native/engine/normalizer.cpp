// Replace, Prepend, Lowercase and Strip, and the order of operations. What each does to alignment is the reference's: a
// character that takes another's place has its origin, an inserted one the origin of the character before it.
#include "normalizer.h"

#include <algorithm>
#include <cstring>

#include "counters.h"
#include "faults.h"

namespace toktier {

namespace {

const std::uint8_t* bytes_of(std::string_view s) { return reinterpret_cast<const std::uint8_t*>(s.data()); }

void check_size(std::uint64_t size) {
  if (size > longest_text) throw TextError{0, "the normalized text is longer than 4 GiB"};
}

// One byte by two to four, as SentencePiece has it for the blank; where origins are wanted, the loop below does it.
bool replace_byte(const NormalizerOp& op, const ScanLanes& lanes, const Segment& in, Rewriter& out) {
  const bool fits = op.a.size() == 1 && op.b.size() >= 2 && op.b.size() <= 4;
  if (!fits || in.origin != nullptr || TOKTIER_FAULT(replace_at_end)) return false;
  const auto byte = static_cast<std::uint8_t>(op.a[0]);
  const std::uint32_t count = lanes.count_byte(in.text, in.size, byte);
  if (count == 0) return true;
  const std::uint64_t size = in.size + std::uint64_t{count} * (op.b.size() - 1);
  lanes.replace_byte(in.text, in.size, byte, bytes_of(op.b), static_cast<std::uint32_t>(op.b.size()), out.replace_all(size));
  return true;
}

void replace_literal(const NormalizerOp& op, const ScanLanes& lanes, const Segment& in, Rewriter& out) {
  if (replace_byte(op, lanes, in, out)) return;
  const std::size_t length = op.a.size();
  for (std::uint32_t i = 0; i < in.size;) {
    const void* hit = length == 1 ? std::memchr(in.text + i, op.a[0], in.size - i)
                                  : memmem(in.text + i, in.size - i, op.a.data(), length);
    if (hit == nullptr) break;
    const auto begin = static_cast<std::uint32_t>(static_cast<const std::uint8_t*>(hit) - in.text);
    const auto end = static_cast<std::uint32_t>(begin + length);
    if (TOKTIER_FAULT(replace_at_end) && end == in.size) break;
    // The reference removes the match and inserts after it, so the origin is that of the match's last character.
    out.replace(begin, end, bytes_of(op.b), static_cast<std::uint32_t>(op.b.size()),
                in.origin == nullptr ? 0 : in.origin[end - 1]);
    i = end;
  }
}

void lowercase(const Program& p, const Segment& in, Rewriter& out) {
  const std::uint32_t* const rows = p.lower.data;
  const std::size_t count = p.lower.size / 3;
  for (std::uint32_t i = 0; i < in.size;) {
    if (in.origin == nullptr) {  // a stretch of ASCII by the table, in one go
      std::uint8_t lowered[256];
      std::uint32_t n = 0, different = 0;
      for (; n < sizeof lowered && i + n < in.size && in.text[i + n] < 0x80; ++n) {
        lowered[n] = p.ascii_lower[in.text[i + n]];
        if (lowered[n] == 0xFF) break;
        different |= lowered[n] ^ in.text[i + n];
      }
      if (different != 0) out.replace(i, i + n, lowered, n, std::uint32_t{0});
      i += n;
      if (n == sizeof lowered) continue;
      if (i == in.size) break;
    }
    const std::uint8_t byte = in.text[i];
    if (byte < 0x80 && p.ascii_lower[byte] != 0xFF) {
      if (p.ascii_lower[byte] != byte) out.replace(i, i + 1, p.ascii_lower + byte, 1, in.origin == nullptr ? 0 : in.origin[i]);
      ++i;
      continue;
    }
    std::uint32_t length;
    const std::uint32_t cp = tt_utf8_next(in.text + i, length);
    std::size_t low = 0, high = count;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (rows[middle * 3] < cp)
        low = middle + 1;
      else
        high = middle;
    }
    if (low < count && rows[low * 3] == cp) {
      std::uint8_t text[4 * 64];  // the reader bounds one mapping to 64 code points
      std::uint32_t size = 0;
      for (std::uint32_t k = 0; k < rows[low * 3 + 2]; ++k)
        size += tt_utf8_write(p.lower_text[rows[low * 3 + 1] + k], text + size);
      out.replace(i, i + length, text, size, in.origin == nullptr ? 0 : in.origin[i]);
    }
    i += length;
  }
}

Segment strip(const Program& p, const NormalizerOp& op, const Segment& in) {
  std::uint32_t begin = 0, end = in.size, length;
  if (op.strip_left)
    while (begin < end && (p.char_bits(tt_utf8_next(in.text + begin, length)) & TT_CHAR_SPACE) != 0) begin += length;
  if (op.strip_right)
    while (end > begin && (p.char_bits(tt_utf8_previous(in.text + end, length)) & TT_CHAR_SPACE) != 0) end -= length;
  return in.part(begin, end);
}

}  // namespace

void Rewriter::keep_until(std::uint32_t position) {
  if (!changed_) {
    changed_ = true;
    out_.text.clear();
    out_.origin.clear();
  }
  out_.text.append(in_.text + copied_, position - copied_);
  if (in_.origin != nullptr) out_.origin.append(in_.origin + copied_, position - copied_);
  TOKTIER_COUNT(bytes_copied, position - copied_);
  copied_ = position;
}

void Rewriter::replace(std::uint32_t begin, std::uint32_t end, const std::uint8_t* text, std::uint32_t size,
                       std::uint32_t origin) {
  keep_until(begin);
  out_.text.append(text, size);
  if (in_.origin != nullptr) {
    std::fill_n(out_.origin.room(size), size, origin);
    out_.origin.advance(size);
  }
  TOKTIER_COUNT(bytes_copied, size);
  copied_ = end;
  check_size(out_.text.size());
}

void Rewriter::replace(std::uint32_t begin, std::uint32_t end, const std::uint8_t* text, std::uint32_t size,
                       const std::uint32_t* origins) {
  keep_until(begin);
  out_.text.append(text, size);
  if (in_.origin != nullptr) out_.origin.append(origins, size);
  TOKTIER_COUNT(bytes_copied, size);
  copied_ = end;
  check_size(out_.text.size());
}

std::uint8_t* Rewriter::replace_all(std::size_t size) {
  check_size(size);
  changed_ = true;
  copied_ = in_.size;
  out_.text.clear();
  std::uint8_t* const made = out_.text.room(size + replace_slack);
  out_.text.advance(size);
  TOKTIER_COUNT(bytes_copied, size);
  return made;
}

Segment Rewriter::finish() {
  if (!changed_) return in_;
  keep_until(in_.size);
  check_size(out_.text.size());
  return out_.view(in_.origin != nullptr);
}

const Segment& NormalizerRun::run(const Program& program, const ScanLanes& lanes, const Segment& given, bool continued) {
  const Segment* segment = &given;
  int buffer = 0;
  for (const NormalizerOp& op : program.normalizer) {
    if (segment->size == 0) break;
    TOKTIER_COUNT(normalizer_steps, segment->size);
    if (op.kind == TT_NORMALIZER_STRIP) {
      result_ = strip(program, op, *segment);
      segment = &result_;
      continue;
    }
    Rewriter out(*segment, buffers_[buffer]);
    switch (op.kind) {
      case TT_NORMALIZER_REPLACE:
        replace_literal(op, lanes, *segment, out);
        break;
      case TT_NORMALIZER_PREPEND:
        if (continued) break;
        out.replace(0, 0, bytes_of(op.a), static_cast<std::uint32_t>(op.a.size()),
                    segment->origin == nullptr ? 0 : segment->origin[0]);
        break;
      case TT_NORMALIZER_LOWERCASE:
        lowercase(program, *segment, out);
        break;
      default:
        rewrite_form(program, lanes, op.kind == TT_NORMALIZER_NFC || op.kind == TT_NORMALIZER_NFKC, *segment, form_, out);
    }
    if (!out.changed()) continue;
    result_ = out.finish();
    segment = &result_;
    buffer ^= 1;  // the other buffer is free: the segment now lives in this one
  }
  return *segment;
}

std::size_t NormalizerRun::bytes() const {
  std::size_t total = form_.items.bytes() + form_.sorted.bytes() + form_.positions.bytes();
  for (const SegmentBuffer* b : {&buffers_[0], &buffers_[1], &form_.rewritten}) total += b->text.bytes() + b->origin.bytes();
  return total;
}

void NormalizerRun::release() {
  for (SegmentBuffer* b : {&buffers_[0], &buffers_[1], &form_.rewritten}) {
    b->text.release();
    b->origin.release();
  }
  form_.items.release();
  form_.sorted.release();
  form_.positions.release();
}

}  // namespace toktier
