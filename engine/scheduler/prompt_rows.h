// PromptRows: how many rows of a step each prompt in prefill gets, and whether one more may begin.
//
// - Higher priorities go first. Lower ones share the rest.
// - Principals of one priority get equal shares. Rows that one does not need go to the others.
// - Of a principal's prompts, the one with the fewest rows left goes first (shortest remaining
//   time). But its oldest prompt always gets a quarter of its rows, so that shorter ones never
//   starve it.
// - A prompt that ends in this step waits for the whole pass before its first token. So in such a
//   step, the other prompts share only `beside_ending` rows, or a third of the ending prompts' rows
//   if that is more.
// - At most `unfinished` prompts hold KV without ending in the step. The last of these slots is for
//   a prompt with fewer rows left than the others.
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
  uint64_t arrival = 0;  // increases with time; identifies the prompt
  int32_t priority = 0;
  absl::string_view principal;  // outlives the step's plan
  int64_t left = 0;             // rows to compute before its first token; at least 1
  int64_t depth = 0;            // tokens before these rows
};

PromptInPrefill PromptOf(const Sequence& sequence, int64_t left);

struct PromptRowLimits {
  int64_t step = 0;    // maximum rows of all prompts in the step
  int64_t prompt = 0;  // maximum rows of one prompt in the step, at its beginning
  // The depth, in tokens, at which a row's attention costs as much as the rest of the row. There a
  // prompt gets half of `prompt`, so that its last steps take no longer than its first one. 0: all
  // rows cost the same.
  int64_t attention_depth = 0;
  int64_t beside_ending = 0;  // rows; see above
  int64_t unfinished = 1;     // prompts; see above
};

// Maximum rows per step of a prompt at this depth.
int64_t RowsAtDepth(int64_t depth, const PromptRowLimits& limits);

// Pure. Returns the rows of each prompt, in the order of `prompts`. Their sum is at most
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
  // Does nothing if the prompt was not added.
  void Remove(uint64_t arrival);
  bool Has(uint64_t arrival) const;

  enum class Turn : uint8_t {
    kNow,
    kNoRows,  // all rows of this step are used
    kNoSlot,  // too many prompts would hold KV without ending
  };
  // Whether one more prompt may begin in this step.
  Turn Judge(const PromptInPrefill& prompt) const;

  // Returns the rows of all added prompts, by arrival.
  absl::flat_hash_map<uint64_t, int64_t> Share() const;

 private:
  PromptRowLimits limits_;
  std::vector<PromptInPrefill> prompts_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_PROMPT_ROWS_H_
