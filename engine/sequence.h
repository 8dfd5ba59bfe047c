// Sequence: everything the engine knows of one generation.
#ifndef TIDEPOOL_ENGINE_SEQUENCE_H_
#define TIDEPOOL_ENGINE_SEQUENCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/kv_cache.h"
#include "engine/output_text.h"
#include "engine/request.h"
#include "engine/sampler.h"

namespace tidepool::engine {

// What the caller of a generation may change while it runs. Thread-safe; the scheduler reads it.
struct SequenceControl {
  std::atomic<bool> cancelled{false};
  std::atomic<int64_t> credit{0};  // tokens that may be made
};

class StreamSink;

// Plain data, engine thread only.
struct Sequence {
  // Requires: a valid request. Its token ids are moved to `tokens`.
  Sequence(uint64_t arrival_number, GenerationRequest generation, OutputText output)
      : arrival(arrival_number),
        request(std::move(generation)),
        tokens(std::move(request.token_ids)),
        text(std::move(output)) {
    control->credit = request.credit;
    prompt_told =
        request.prompt_logprobs.has_value() ? request.prompt_logprobs_from : request.prompt_length;
    if (!NeedsTokenCounts(request.sampling)) return;
    for (int64_t i = 0; i < static_cast<int64_t>(tokens.size()); ++i) {
      i < request.prompt_length ? counts.AddPrompt(tokens[i]) : counts.AddOutput(tokens[i]);
    }
  }

  int64_t outputs() const { return static_cast<int64_t>(tokens.size()) - request.prompt_length; }

  // Whether log-probabilities of prompt tokens are still to be told.
  bool scores_prompt() const { return prompt_told < request.prompt_length; }
  // The first slot whose row must be computed for them: KV in front of it may be found in a cache.
  int64_t first_scored_slot() const { return prompt_told > 0 ? prompt_told - 1 : 0; }
  // The tokens whose KV, short of the last one's, may be found in a cache.
  absl::Span<const int32_t> reusable() const {
    const absl::Span<const int32_t> all = absl::MakeConstSpan(tokens);
    return scores_prompt() ? all.first(first_scored_slot() + 1) : all;
  }
  // Whether the next output token may not end the generation.
  bool must_go_on() const { return outputs() < request.stopping.min_tokens; }

  const uint64_t arrival;  // ascending over the engine's life: order, and identity
  GenerationRequest request;
  std::vector<int32_t> tokens;  // prompt and output; the last one's KV is never there yet
  KvLease lease;                // the scheduler's; empty while it waits
  bool admitted = false;        // running
  bool has_credit = false;      // when the current plan began
  bool seen = false;            // by the scheduler, which judged its deadline then
  bool charged = false;         // its prompt, to its principal
  bool restore_tried = false;   // of what KV the disk has; not again in this stay in the queue
  bool owed_place = false;      // others were preempted for it; it waits for its KV from a disk
  int64_t prompt_told = 0;      // prompt tokens whose log-probabilities were told; all: none is due
  std::vector<int32_t> end_tokens;  // that must_go_on() forbids; kept only with min_tokens
  TokenCounts counts;               // kept only when penalties are on
  OutputText text;
  Usage usage;
  absl::Duration submitted_at;  // of the engine's monotonic clock
  std::optional<absl::Duration> planned_at;
  std::optional<absl::Duration> first_token_at;
  std::optional<int64_t> cached_at_admission;  // tokens found when first admitted
  // Of the latest admission: outputs made before it, and tokens that were left to compute.
  int64_t outputs_at_admission = 0;
  int64_t computed_at_admission = 0;
  std::shared_ptr<SequenceControl> control = std::make_shared<SequenceControl>();
  std::shared_ptr<StreamSink> sink;
  std::shared_ptr<void> place;  // among those that run or wait
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SEQUENCE_H_
