// PromptRows: how many rows of a step each prompt in prefill gets, and whether one more may begin.
//
// - Higher priorities go first. Lower ones share what is left.
// - Principals of one priority get equal shares. What one does not need goes to the others.
// - Of a principal's prompts, the one with the least left goes first (shortest remaining time). Its
//   oldest prompt gets a quarter of its rows in any case, so that shorter ones never starve it.
// - A prompt that ends in this step waits for the whole pass before its first token. The prompts
//   that do not end share `beside_ending` rows then, or a third of the ending ones' if that is
//   more.
// - At most `unfinished` prompts hold KV without ending in the step. The last of these slots is for
//   a prompt with less left than the others.
//
// SRPT: L. Schrage, "A Proof of the Optimality of the Shortest Remaining Processing Time
// Discipline" (Operations Research, 1968).
#ifndef TIDEPOOL_ENGINE_SCHEDULER_PROMPT_ROWS_H_
#define TIDEPOOL_ENGINE_SCHEDULER_PROMPT_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

struct PromptInPrefill {
  uint64_t arrival = 0;  // ascending over time; identifies it
  int32_t priority = 0;
  absl::string_view principal;  // outlives the step's plan
  int64_t left = 0;             // rows up to its first token; at least 1
  int64_t depth = 0;            // tokens before those rows
};

PromptInPrefill PromptOf(const Sequence& sequence, int64_t left);

struct PromptRowLimits {
  int64_t step = 0;    // rows of all prompts in the step
  int64_t prompt = 0;  // rows of one prompt in the step, at its beginning
  // Tokens before a row at which its attention costs as much as all else of it: there a prompt gets
  // half of `prompt`, so that its last steps take no longer than its first one. 0: rows cost the
  // same everywhere.
  int64_t attention_depth = 0;
  int64_t beside_ending = 0;  // see above
  int64_t unfinished = 1;     // prompts; see above
};

// Most rows in one step of a prompt that has come so far.
int64_t RowsAtDepth(int64_t depth, const PromptRowLimits& limits);

// Pure. Rows of each prompt, in the order of `prompts`: their sum is at most limits.step.
std::vector<int64_t> SharePromptRows(absl::Span<const PromptInPrefill> prompts,
                                     const PromptRowLimits& limits);

// The prompts of one step. Engine thread only.
class PromptRows {
 public:
  // Forgets the prompts of the step before.
  void Begin(const PromptRowLimits& limits);
  // Changes limits.step.
  void SetStepRows(int64_t rows) { limits_.step = rows; }

  void Add(const PromptInPrefill& prompt) { prompts_.push_back(prompt); }
  // Does nothing for a prompt that was not added.
  void Remove(uint64_t arrival);
  bool Has(uint64_t arrival) const;

  enum class Turn : uint8_t {
    kNow,
    kNoRows,  // others use all rows of this step
    kNoSlot,  // too many prompts would hold KV without ending
  };
  // Whether a prompt that was not added may begin in this step.
  Turn Judge(const PromptInPrefill& prompt) const;

  // Rows by arrival, of all prompts that were added.
  absl::flat_hash_map<uint64_t, int64_t> Share() const;

 private:
  PromptRowLimits limits_;
  std::vector<PromptInPrefill> prompts_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_PROMPT_ROWS_H_
