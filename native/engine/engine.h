// The engine: executes a program (docs/program-format.md) on text. No Python, no globals, no allocation per call once a
// context is warm. Not here: building tables (native/compile), Python types (native/bind), sessions, threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/level.h"

namespace toktier {

// A program file that cannot be executed. `where` names the section, `what` the fault.
struct ProgramError {
  std::string where, what;
};

// A fault of the input text: malformed UTF-8 at byte `position`.
struct TextError {
  std::size_t position;
  std::string what;
};

// What the tokenizer's settings refuse, as the reference refuses it: a text longer than the stored length when the stored
// stride is not below that length, or the strategy truncates only the second text; strip flags of added tokens that collide.
struct SettingsError {
  std::string what;
};

struct Program;  // read-only view over a validated program file; shared by every thread

// Validates every table (bounds of every index that the engine follows) and returns the view. The memory must outlive it.
// Throws ProgramError. Work and memory are linear in `size`.
std::shared_ptr<const Program> open_program(const std::uint8_t* data, std::size_t size);

struct Offset {  // in code points of the original text
  std::uint32_t begin, end;
};

struct EncodeOptions {
  bool add_special_tokens = false;
  bool plain = false;       // special added tokens are ordinary text (the reference's encode_special_tokens)
  bool offsets = false;     // fill Result::offsets
  bool surfaces = false;    // fill Result::surfaces
  bool post_process = true; // truncation, special tokens, trimmed offsets, padding; false: the core stream only
  bool continued = false;   // a later part of a text (cuts.h): its first segment gets neither prefix space nor Prepend
};

// The text that an added token matched: white space that it stripped included, normalized where it matches normalized text.
struct Surface {
  std::size_t index;  // in Result::ids
  std::string text;
};

// Growable output owned by a context and reused: `ids` is valid until the next call on that context.
struct Result {
  std::vector<std::uint32_t> ids;
  std::vector<Offset> offsets;    // empty unless asked for
  std::vector<Surface> surfaces;  // ascending; empty unless asked for
};

// Scratch memory of one running call: never shared by two threads at once. Bounded: grows with the longest text seen, and
// shrinks back to at most 1 MiB of text-sized buffers after a longer one.
class Context {
 public:
  // `cache_lines`: of the word cache, fixed; a power of two from 2 to 2^17. 0: it grows as it needs. Ids do not depend on it.
  explicit Context(std::shared_ptr<const Program> program, Level level = best_level(), std::uint32_t cache_lines = 0);
  ~Context();
  // Valid UTF-8 only (validate_utf8 first for foreign bytes). Throws SettingsError, and TextError for 4 GiB or more.
  void encode(std::string_view text, const EncodeOptions& options, Result& out);
  // Number of ids that encode() would give.
  std::size_t count(std::string_view text, const EncodeOptions& options);
  // encode() in two steps, ids only and without a Result between: how many they are, and then, once, where they go. The text is
  // not needed any more for the second step, nor is the context shared by then: another call on it ends what prepare() began.
  std::size_t prepare(std::string_view text, const EncodeOptions& options);
  void write(std::uint32_t* ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Contexts of one program for any number of threads: acquire() takes an idle one or makes one, the lease gives it back.
// No lock: a child forked while other threads encode finds the pool usable (their contexts are lost to it, nothing else).
class ContextPool {
 public:
  explicit ContextPool(std::shared_ptr<const Program> program, Level level = best_level(), std::uint32_t cache_lines = 0);
  ~ContextPool();  // no lease may be alive
  ContextPool(const ContextPool&) = delete;
  ContextPool& operator=(const ContextPool&) = delete;

  class Lease {
   public:
    Lease(Lease&& other) noexcept;
    ~Lease();
    Context* operator->() const { return context_.get(); }
    Context& operator*() const { return *context_; }

   private:
    friend class ContextPool;
    Lease(ContextPool* pool, std::unique_ptr<Context> context);
    ContextPool* pool_;
    std::unique_ptr<Context> context_;
  };
  Lease acquire();

 private:
  struct Slots;
  std::shared_ptr<const Program> program_;
  const Level level_;
  const std::uint32_t cache_lines_;
  std::unique_ptr<Slots> slots_;
};

// Stored settings that a caller needs beyond one text (padding of a batch), and sizes to report.
struct ProgramFacts {
  std::uint32_t n_ids, n_class, n_left, n_right, n_token, n_added, n_pair_slots;
  std::uint32_t pad_mode, pad_fixed, pad_multiple, pad_id, pad_left;  // as CONF; pad_mode 1 is "longest of the batch"
  bool has_normalizer, has_pre_tokenizer;
};
ProgramFacts program_facts(const Program& program);

// True where the parts of a text between cuts (cuts.h) have the ids of the whole, `around` apart: nothing is stored that looks at
// the whole, as truncation and padding do.
bool is_sum_of_parts(const Program& program);
struct IdsAround {  // what encode() puts before and after a text with add_special_tokens
  const std::uint32_t* before;
  const std::uint32_t* after;
  std::size_t n_before, n_after;
};
IdsAround ids_around(const Program& program);

// Token string of an id and back, added tokens included; `std::nullopt` when there is none. The view lives with the program.
std::optional<std::string_view> token_string(const Program& program, std::uint32_t id);
std::optional<std::uint32_t> token_id(const Program& program, std::string_view token);
bool is_special(const Program& program, std::uint32_t id);

// First malformed byte, or `npos`. Surrogates (ED A0..BF), overlong forms and > U+10FFFF are malformed.
std::size_t validate_utf8(std::string_view bytes);

// Text of ids as the reference's decode(); ids without a token are skipped as it skips them. Output is valid UTF-8.
std::string decode(const Program& program, const std::uint32_t* ids, std::size_t n, bool skip_special_tokens);

// Piece boundaries (byte positions, ascending, without 0 and text.size()) by the token automaton, and by LEFT/RGHT/BMAT in two
// passes: the second is the oracle of the first. `dropped[k]` is 1 where piece k (of boundaries.size()+1) is dropped.
enum class SplitForm { token_automaton, two_pass, windows };  // windows: as encoding splits
void split(const Program& program, std::string_view segment, SplitForm form, Level level, std::vector<std::uint32_t>& boundaries,
           std::vector<std::uint8_t>& dropped);

#ifdef TOKTIER_COUNTERS
// Operation counts of a build with -DTOKTIER_COUNTERS=ON: steps that must stay linear in the text.
struct Counters {
  std::uint64_t automaton_steps, matcher_steps, normalizer_steps, merge_steps, pair_probes, piece_probes, bytes_copied;
  std::uint64_t session_steps;  // positions and places looked at, bytes and ids copied, beside what the engine does
};
Counters take_counters();  // of this thread, and resets them
void add_counters(const Counters& of_another);  // to those of this thread: it let another one work for it
#endif

}  // namespace toktier
