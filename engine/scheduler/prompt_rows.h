// PromptRows: decides how many rows of a step each prompt in prefill gets, and whether one more
// prompt may begin.
//
// - Prompts with a higher priority get rows first. The others share the rest.
// - Principals with the same priority get equal shares. If a principal does not need all of its
//   share, the others get the rest.
// - Of a principal's prompts, the one with the fewest rows left comes first (shortest remaining
//   time). But the principal's oldest prompt always gets a quarter of its rows, so that it does not
//   starve.
// - A prompt that ends in this step must wait for the whole pass before it has its first token. So
//   if a prompt ends, the other prompts of the step share only `beside_ending` rows, or a third of
//   the ending prompts' rows if that is more.
// - At most `unfinished` prompts may hold KV without ending in the step. The last of these slots is
//   only for a prompt that has fewer rows left than the others.
//
// Shortest remaining time: L. Schrage, "A Proof of the Optimality of the Shortest Remaining
// Processing Time Discipline" (Operations Research, 1968).
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
  uint64_t arrival = 0;  // increases with time; also identifies the prompt
  int32_t priority = 0;
  absl::string_view principal;  // must be valid until the step is planned
  int64_t left = 0;             // number of rows to compute before its first token; at least 1
  int64_t depth = 0;            // number of tokens before these rows
};

PromptInPrefill PromptOf(const Sequence& sequence, int64_t left);

struct PromptRowLimits {
  int64_t step = 0;    // maximum rows of all prompts together in the step
  int64_t prompt = 0;  // maximum rows of one prompt in the step, at the start of the prompt
  // The depth, in tokens, at which the attention of a row costs as much as the rest of the row. At
  // this depth, a prompt gets half of `prompt` rows, so that its last steps take no longer than its
  // first ones. 0: all rows cost the same.
  int64_t attention_depth = 0;
  int64_t beside_ending = 0;  // number of rows; see the top of this file
  int64_t unfinished = 1;     // number of prompts; see the top of this file
};

// Returns the maximum rows per step of a prompt at this depth.
int64_t RowsAtDepth(int64_t depth, const PromptRowLimits& limits);

// Pure. Returns the number of rows of each prompt, in the order of `prompts`. The sum is at most
// limits.step.
std::vector<int64_t> SharePromptRows(absl::Span<const PromptInPrefill> prompts,
                                     const PromptRowLimits& limits);

// Engine thread only. The prompts of one step.
class PromptRows {
 public:
  // Removes the prompts of the previous step.
  void Begin(const PromptRowLimits& limits);
  // Changes limits.step.
  void SetStepRows(int64_t rows) { limits_.step = rows; }

  void Add(const PromptInPrefill& prompt) { prompts_.push_back(prompt); }
  // Removes a prompt, if it was added.
  void Remove(uint64_t arrival);
  bool Has(uint64_t arrival) const;

  enum class Turn : uint8_t {
    kNow,
    kNoRows,  // all rows of this step are used
    kNoSlot,  // too many prompts would hold KV without ending in this step
  };
  // Returns whether one more prompt may begin in this step.
  Turn Judge(const PromptInPrefill& prompt) const;

  // Returns the number of rows of each added prompt. The key is the prompt's `arrival`.
  absl::flat_hash_map<uint64_t, int64_t> Share() const;

 private:
  PromptRowLimits limits_;
  std::vector<PromptInPrefill> prompts_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_PROMPT_ROWS_H_
