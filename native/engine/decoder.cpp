// decode(): ids to text as the reference does it. The decoder's operations work on the list of token strings; the commonest
// program, a byte-level decoder alone, needs only the bytes of each token.
#include <cstring>

#include "faults.h"
#include "lossy_utf8.h"
#include "program.h"

namespace toktier {

namespace {

// Byte of a character of the byte-level alphabet, or -1. The alphabet: printable Latin-1 stands for itself, the other 68 bytes
// in ascending order are U+0100 to U+0143.
int alphabet_byte(std::uint32_t cp) {
  const bool itself = (cp >= '!' && cp <= '~') || (cp >= 0xA1 && cp <= 0xAC) || (cp >= 0xAE && cp <= 0xFF);
  if (itself) return static_cast<int>(cp);
  if (cp < 0x100 || cp > 0x143) return -1;
  const auto n = static_cast<int>(cp - 0x100);
  return n <= 0x20 ? n : n <= 0x42 ? n - 0x21 + 0x7F : 0xAD;
}

bool append_alphabet_bytes(std::string& out, std::string_view token) {
  const std::size_t before = out.size();
  for (std::size_t i = 0; i < token.size();) {
    std::uint32_t length;
    const int byte = alphabet_byte(tt_utf8_next(reinterpret_cast<const std::uint8_t*>(token.data()) + i, length));
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(byte));
    i += length;
  }
  return true;
}

using Tokens = std::vector<std::string>;

void byte_level(Tokens& tokens) {
  std::string bytes, text;
  for (const std::string& token : tokens)
    if (!append_alphabet_bytes(bytes, token)) bytes += token;
  append_lossy(text, bytes);
  tokens.assign(1, std::move(text));
}

// Value of <0xNN>, or -1. The reference parses the two characters as a number, so that a sign passes: <0x+F> is 15.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const int high = token[3] == '+' ? 0 : digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void byte_fallback(Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (validate_utf8(run) == std::string_view::npos)
      out.push_back(run);
    else
      for (std::size_t i = TOKTIER_FAULT(decoder_malformed) ? run.size() - 1 : 0; i < run.size(); ++i)
        out.emplace_back("\xEF\xBF\xBD");
    run.clear();
  };
  for (std::string& token : tokens) {
    const int byte = fallback_byte(token);
    if (byte >= 0) {
      run.push_back(static_cast<char>(byte));
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(out);
}

void fuse(Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, std::move(all));
}

void replace(Tokens& tokens, const DecoderOp& op) {
  for (std::string& token : tokens) {
    std::string out;
    std::size_t from = 0;
    for (std::size_t hit; from < token.size(); from = hit + op.a.size()) {
      const void* found = memmem(token.data() + from, token.size() - from, op.a.data(), op.a.size());
      if (found == nullptr) break;
      hit = static_cast<std::size_t>(static_cast<const char*>(found) - token.data());
      out.append(token, from, hit - from);
      out.append(op.b);
    }
    if (from == 0) continue;
    out.append(token, from, std::string::npos);
    token = std::move(out);
  }
}

// Where the reference fails (a token shorter than `stop`, or cut from both ends past itself) nothing is left of the token.
void strip(Tokens& tokens, const DecoderOp& op) {
  for (std::string& token : tokens) {
    std::size_t begin = 0, end = token.size();
    for (std::uint32_t i = 0; i < op.start && std::string_view(token).substr(begin).starts_with(op.a); ++i) begin += op.a.size();
    for (std::uint32_t i = 0; i < op.stop && std::string_view(token).substr(0, end).ends_with(op.a); ++i) end -= op.a.size();
    token = begin < end ? token.substr(begin, end - begin) : std::string();
  }
}

bool skipped(const Program& p, std::uint32_t id, bool skip_special_tokens) {
  return id >= p.n_ids || (p.token_flags[id] & TT_TOKEN_EXISTS) == 0 ||
         (skip_special_tokens && !TOKTIER_FAULT(decoder_special) && (p.token_flags[id] & TT_TOKEN_SPECIAL) != 0);
}

}  // namespace

std::string decode(const Program& p, const std::uint32_t* ids, std::size_t n, bool skip_special_tokens) {
  std::string text;
  if (p.decoder.size() == 1 && p.decoder[0].kind == TT_DECODER_BYTE_LEVEL && p.decode_offset.size != 0) {
    std::string bytes;
    for (std::size_t i = 0; i < n; ++i) {
      if (skipped(p, ids[i], skip_special_tokens)) continue;
      const std::uint32_t begin = p.decode_offset[ids[i]], end = p.decode_offset[ids[i] + std::uint64_t{1}];
      bytes.append(reinterpret_cast<const char*>(p.decode_bytes.data) + begin, end - begin);
    }
    if (validate_utf8(bytes) == std::string_view::npos) return bytes;
    append_lossy(text, bytes);
    return text;
  }
  Tokens tokens;
  for (std::size_t i = 0; i < n; ++i)
    if (!skipped(p, ids[i], skip_special_tokens)) tokens.emplace_back(p.token_text(ids[i]));
  for (const DecoderOp& op : p.decoder) {
    switch (op.kind) {
      case TT_DECODER_BYTE_LEVEL:
        byte_level(tokens);
        break;
      case TT_DECODER_BYTE_FALLBACK:
        byte_fallback(tokens);
        break;
      case TT_DECODER_FUSE:
        fuse(tokens);
        break;
      case TT_DECODER_REPLACE:
        replace(tokens, op);
        break;
      default:
        strip(tokens, op);
    }
  }
  const bool blanks = p.flag(TT_FLAG_NO_DECODER);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (blanks && i > 0) text.push_back(' ');
    text += tokens[i];
  }
  return text;
}

}  // namespace toktier
