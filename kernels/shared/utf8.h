// Decoding of valid UTF-8, forwards and backwards. The bytes were validated before: nothing here checks.
#pragma once
#include "target.h"

TT_HD bool tt_is_continuation(tt_u8 byte) { return (byte & 0xC0) == 0x80; }

// Length in bytes of the character that starts with `lead`.
TT_HD tt_u32 tt_utf8_length(tt_u8 lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

TT_HD tt_u8 tt_lead_byte(tt_u32 cp) {
  return static_cast<tt_u8>(cp < 0x80 ? cp : cp < 0x800 ? 0xC0 | cp >> 6 : cp < 0x10000 ? 0xE0 | cp >> 12 : 0xF0 | cp >> 18);
}
TT_HD tt_u8 tt_last_byte(tt_u32 cp) { return static_cast<tt_u8>(cp < 0x80 ? cp : 0x80 | (cp & 0x3F)); }

// Code point at p; `length` receives its bytes.
TT_HD tt_u32 tt_utf8_next(const tt_u8* p, tt_u32& length) {
  const tt_u32 b0 = p[0];
  if (b0 < 0x80) {
    length = 1;
    return b0;
  }
  if (b0 < 0xE0) {
    length = 2;
    return (b0 & 0x1F) << 6 | (p[1] & 0x3Fu);
  }
  if (b0 < 0xF0) {
    length = 3;
    return (b0 & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  }
  length = 4;
  return (b0 & 0x07) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

// Code point that ends right before p (there is one); `length` receives its bytes.
TT_HD tt_u32 tt_utf8_previous(const tt_u8* p, tt_u32& length) {
  tt_u32 n = 1;
  while (n < 4 && tt_is_continuation(p[-static_cast<tt_i32>(n)])) ++n;
  return tt_utf8_next(p - n, length);
}

// Writes cp, returns the bytes written (1 to 4).
TT_HD tt_u32 tt_utf8_write(tt_u32 cp, tt_u8* out) {
  if (cp < 0x80) {
    out[0] = static_cast<tt_u8>(cp);
    return 1;
  }
  if (cp < 0x800) {
    out[0] = static_cast<tt_u8>(0xC0 | cp >> 6);
    out[1] = static_cast<tt_u8>(0x80 | (cp & 0x3F));
    return 2;
  }
  if (cp < 0x10000) {
    out[0] = static_cast<tt_u8>(0xE0 | cp >> 12);
    out[1] = static_cast<tt_u8>(0x80 | (cp >> 6 & 0x3F));
    out[2] = static_cast<tt_u8>(0x80 | (cp & 0x3F));
    return 3;
  }
  out[0] = static_cast<tt_u8>(0xF0 | cp >> 18);
  out[1] = static_cast<tt_u8>(0x80 | (cp >> 12 & 0x3F));
  out[2] = static_cast<tt_u8>(0x80 | (cp >> 6 & 0x3F));
  out[3] = static_cast<tt_u8>(0x80 | (cp & 0x3F));
  return 4;
}
