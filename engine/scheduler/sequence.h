// Sequence: everything that the engine knows of one generation.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_SEQUENCE_H_
#define TIDEPOOL_ENGINE_SCHEDULER_SEQUENCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/kv/kv_cache.h"
#include "engine/sampling/output_text.h"
#include "engine/sampling/request.h"
#include "engine/sampling/sampler.h"

namespace tidepool::engine {

// What the caller of a generation may change while it runs. Thread-safe; the scheduler reads it.
struct SequenceControl {
  std::atomic<bool> cancelled{false};
  std::atomic<int64_t> credit{0};  // tokens that may be made
};

class StreamSink;

// What the scheduler notes of a sequence. Plain data.
struct AdmissionState {
  bool judged = false;         // whether its deadline can be met; once
  bool charged = false;        // its prompt, to its principal
  bool restore_tried = false;  // of KV from the disk; not again in this stay in the queue
  bool owed_place = false;     // others were preempted for it; it waits for its KV from a disk
  std::optional<int64_t> cached_tokens;  // found at the first admission
  // At the latest admission: outputs made before it, and tokens that were left to compute.
  int64_t outputs_before = 0;
  int64_t left_to_compute = 0;
};

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

  // Whether log-probabilities of prompt tokens are still to be reported.
  bool scores_prompt() const { return prompt_told < request.prompt_length; }
  // The first slot whose row must be computed for them: KV before it may come from a cache.
  int64_t first_scored_slot() const { return prompt_told > 0 ? prompt_told - 1 : 0; }
  // The tokens whose KV may come from a cache, except for the last one's.
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
  AdmissionState admission;
  int64_t prompt_told = 0;  // prompt tokens whose log-probabilities were told; all: none is due
  std::vector<int32_t> end_tokens;  // that must_go_on() forbids; kept only with min_tokens
  TokenCounts counts;               // kept only when penalties are on
  OutputText text;
  Usage usage;
  absl::Duration submitted_at;  // of the engine's monotonic clock
  std::optional<absl::Duration> planned_at;
  std::optional<absl::Duration> first_token_at;
  std::shared_ptr<SequenceControl> control = std::make_shared<SequenceControl>();
  std::shared_ptr<StreamSink> sink;
  std::shared_ptr<void> place;  // among those that run or wait
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_SEQUENCE_H_
