// Sequence: the state of one generation in the engine.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_SEQUENCE_H_
#define TIDEPOOL_ENGINE_SCHEDULER_SEQUENCE_H_

#include <algorithm>
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

// Thread-safe. Values that a generation's caller may change while it runs. The scheduler reads
// them.
struct SequenceControl {
  std::atomic<bool> cancelled{false};
  std::atomic<int64_t> credit{0};  // tokens that may be generated
};

class StreamSink;

// The scheduler's state of a sequence. Plain data.
struct AdmissionState {
  bool judged = false;         // its deadline was checked, which happens once
  bool charged = false;        // its prompt was charged to its principal
  bool restore_tried = false;  // KV was restored from disk; not again while it stays in the queue
  bool owed_place = false;     // others were preempted for it, and it waits for its KV from a disk
  std::optional<int64_t> cached_tokens;  // set at the first admission
  // At the latest admission: outputs generated before it, and tokens still to compute.
  int64_t outputs_before = 0;
  int64_t left_to_compute = 0;
};

// Plain data. Engine thread only.
struct Sequence {
  // Requires: a valid request. Moves its token ids to `tokens`.
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

  // RowSpan::slot_limit. The last output token has no KV.
  int64_t slot_limit() const {
    return request.prompt_length + std::max<int64_t>(request.stopping.max_tokens, 1) - 1;
  }

  // True if log-probabilities of prompt tokens must still be reported.
  bool scores_prompt() const { return prompt_told < request.prompt_length; }
  // The first slot whose row must be computed for these reports. KV before it may come from a
  // cache.
  int64_t first_scored_slot() const { return prompt_told > 0 ? prompt_told - 1 : 0; }
  // The tokens whose KV may come from a cache: all except the last one, and limited by prompt
  // reports.
  absl::Span<const int32_t> reusable() const {
    const absl::Span<const int32_t> all = absl::MakeConstSpan(tokens);
    return scores_prompt() ? all.first(first_scored_slot() + 1) : all;
  }
  // True if the next output token must not end the generation.
  bool must_go_on() const { return outputs() < request.stopping.min_tokens; }

  const uint64_t arrival;  // increases over the engine's life; gives order and identity
  GenerationRequest request;
  std::vector<int32_t> tokens;  // prompt and output; the last one has no KV yet
  KvLease lease;                // managed by the scheduler; empty while waiting
  bool admitted = false;        // running
  bool has_credit = false;      // as of the beginning of the current plan
  AdmissionState admission;
  // prompt tokens whose log-probabilities were reported; all if none are requested
  int64_t prompt_told = 0;
  std::vector<int32_t> end_tokens;  // forbidden while must_go_on(); only set with min_tokens
  TokenCounts counts;               // only used with penalties
  OutputText text;
  Usage usage;
  absl::Duration submitted_at;  // on the engine's monotonic clock
  std::optional<absl::Duration> planned_at;
  std::optional<absl::Duration> first_token_at;
  std::shared_ptr<SequenceControl> control = std::make_shared<SequenceControl>();
  std::shared_ptr<StreamSink> sink;
  std::shared_ptr<void> place;  // a slot of AdmissionSlots
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_SEQUENCE_H_
