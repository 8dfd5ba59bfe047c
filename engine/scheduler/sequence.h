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
#include "engine/sampling/sampler_state.h"
#include "engine/scheduler/constraint.h"

namespace tidepool::engine {

// Thread-safe. Values that the caller of a generation may change while it runs. The scheduler reads
// them.
struct SequenceControl {
  std::atomic<bool> cancelled{false};
  std::atomic<int64_t> credit{0};  // number of tokens that may still be generated
};

class StreamSink;

// The scheduler's state of a sequence. Plain data.
struct AdmissionState {
  bool judged = false;   // its deadline was checked; each deadline is checked once
  bool charged = false;  // its principal was charged for its prompt
  // a restore from the disk was tried; not tried again while it stays in the queue
  bool restore_tried = false;
  // others were preempted for it, and now it waits for its KV to be read from a disk
  bool owed_place = false;
  std::optional<int64_t> cached_tokens;  // set when the sequence is admitted for the first time
  // The state at the latest admission. `outputs_before` is the number of output tokens before it,
  // and `left_to_compute` is the number of tokens that had to be computed after it.
  int64_t outputs_before = 0;
  int64_t left_to_compute = 0;
};

// Plain data. Engine thread only.
struct Sequence {
  // Requires: the request is valid. Moves the request's token ids to `tokens`.
  Sequence(uint64_t arrival_number, GenerationRequest generation, OutputText output)
      : arrival(arrival_number),
        request(std::move(generation)),
        tokens(std::move(request.token_ids)),
        text(std::move(output)) {
    control->credit = request.credit;
    prompt_reported =
        request.prompt_logprobs.has_value() ? request.prompt_logprobs_from : request.prompt_length;
  }

  int64_t outputs() const { return static_cast<int64_t>(tokens.size()) - request.prompt_length; }

  // The value for RowSpan::slot_limit. The last output token needs no slot, because its KV is never
  // computed.
  int64_t slot_limit() const {
    return request.prompt_length + std::max<int64_t>(request.stopping.max_tokens, 1) - 1;
  }

  // Returns whether the next `pending` rows are only those of the last sampled token and of the
  // forced tokens after it. The sequence then decodes.
  bool decodes(int64_t pending) const { return pending <= 1 + forced; }

  // Returns whether log-probabilities of prompt tokens must still be reported.
  bool scores_prompt() const { return prompt_reported < request.prompt_length; }
  // The first slot whose logits these reports need. The logits of slot i give the log-probability
  // of token i + 1. KV of earlier slots may be taken from a cache.
  int64_t first_scored_slot() const { return prompt_reported > 0 ? prompt_reported - 1 : 0; }
  // The argument of KvLease::FindPrefix and KvLease::AttachPrefix. The KV of these tokens, except
  // for the last one, may be taken from a cache.
  absl::Span<const int32_t> reusable() const {
    const absl::Span<const int32_t> all = absl::MakeConstSpan(tokens);
    return scores_prompt() ? all.first(first_scored_slot() + 1) : all;
  }
  // Returns whether the next output token must not end the generation.
  bool must_go_on() const { return outputs() < request.stopping.min_tokens; }
  // The tokens that must not be the next output token.
  absl::Span<const int32_t> forbidden_next() const {
    return must_go_on() ? absl::MakeConstSpan(end_tokens) : absl::Span<const int32_t>();
  }

  // increases over the engine's life; determines the order, and identifies the sequence
  const uint64_t arrival;
  GenerationRequest request;
  std::vector<int32_t> tokens;  // prompt and output; the last token has no KV yet
  KvLease lease;  // managed by the scheduler; holds no blocks while the sequence waits
  // number of output tokens that were added after the last sampled token, because no other token
  // could follow
  int64_t forced = 0;
  bool admitted = false;  // whether the sequence is running
  // whether the sequence could continue at the start of the current plan: it had credit, and its
  // constraint was not computing a mask
  bool has_credit = false;
  AdmissionState admission;
  // number of prompt tokens that were already reported; the length of the prompt if no
  // log-probabilities are requested
  int64_t prompt_reported = 0;
  // tokens that are forbidden while must_go_on(); only set if min_tokens is above 0
  std::vector<int32_t> end_tokens;
  std::shared_ptr<SequenceConstraint> constraint;  // null: none
  // the state after `tokens`, for the request's parameters
  SamplerState sampler;
  OutputText text;
  Usage usage;
  absl::Duration submitted_at;  // time of submission, on the engine's monotonic clock
  std::optional<absl::Duration> planned_at;
  std::optional<absl::Duration> first_token_at;
  std::shared_ptr<SequenceControl> control = std::make_shared<SequenceControl>();
  std::shared_ptr<StreamSink> sink;
  std::shared_ptr<void> place;  // its slot of the AdmissionSlots
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_SEQUENCE_H_
