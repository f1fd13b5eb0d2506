// What help() shows of the methods of EncoderBase. The first lines are the text signatures; the stub has the types.
#pragma once

namespace toktier::bind {

constexpr char encode_doc[] =
    R"(encode($self, text, add_special_tokens=False, *, session=None, lookup=None, plain=False, offsets=False)
--

Ids of one text, as an Encoding.

text: str, or bytes, bytearray or memoryview of UTF-8.
add_special_tokens: add the tokens that the file's post-processor puts around a text.
session: the name of a session, or a Session, whose whole text this is: only what differs from what it holds is encoded.
lookup: whether a stored prefix of the text may answer, "auto" or "off"; None: as the tokenizer was loaded.
plain: special added tokens in the text are ordinary text, as in what a user wrote.
offsets: compute the offsets in the same pass, not when Encoding.offsets is first read.

A text that takes 256 KiB or more is shared among threads where the process may use several processors, unless offsets
are asked for or truncation or padding is stored; they end with the call.

Raises InvalidText for a lone surrogate (details["position"]: its code point) and for malformed UTF-8 (its byte);
UnsupportedConfig where the reference cannot apply the stored truncation either; ConfigInvalid for another `lookup`;
TypeError for what is no text, and for flags that are not True or False.)";
constexpr char encode_batch_doc[] = R"(encode_batch($self, texts, add_special_tokens=False, *, workers=None, plain=False)
--

Ids of many texts, as an EncodingBatch: row i is what encode(texts[i]) gives, but that padding to the longest, where the
file stores it, goes over all.

texts: an iterable of texts as encode takes them.
add_special_tokens, plain: as for encode.
workers: threads, at least 1; None: as many as pay. The reference, where it serves, has its own pool and ignores this.

Raises what encode raises, InvalidText with details["item"] and details["position"] of the first bad text; TypeError for
one text in place of several; ValueError for fewer than 1 workers.)";
constexpr char count_doc[] = R"(count($self, text, add_special_tokens=False, *, plain=False)
--

Number of ids of one text: len(encode(text, ...)), without keeping them.

Arguments and errors are those of encode.)";
constexpr char count_batch_doc[] = R"(count_batch($self, texts, add_special_tokens=False, *, workers=None, plain=False)
--

Numbers of ids of many texts, as a list of int: the lengths of the rows of encode_batch, without keeping them.

Arguments and errors are those of encode_batch.)";

}  // namespace toktier::bind
