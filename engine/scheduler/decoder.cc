#include "engine/scheduler/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

class AutoregressiveDecoder final : public Decoder {
 public:
  explicit AutoregressiveDecoder(int vocab_size) : vocab_size_(vocab_size) {}

  int64_t PendingRows(const Sequence& sequence) const override {
    return static_cast<int64_t>(sequence.tokens.size()) - sequence.lease.slots();
  }

  RowSpan NextSpan(const Sequence& sequence, int64_t max_rows) const override {
    CHECK_GE(max_rows, 1);
    const int64_t pending = PendingRows(sequence);
    const int64_t rows = std::min(max_rows, pending);
    CHECK_GE(rows, 1);
    RowSpan span;
    span.first_slot = sequence.lease.slots();
    span.slot_limit = sequence.slot_limit();
    const auto begin = sequence.tokens.begin() + span.first_slot;
    span.token_ids.assign(begin, begin + rows);
    span.request = static_cast<int64_t>(sequence.arrival);
    const bool is_prompt = span.first_slot < sequence.request.prompt_length;
    const bool decodes = !is_prompt && (rows == 1 || sequence.decodes(pending));
    span.phase = decodes ? moe::Phase::kDecode : moe::Phase::kPrefill;
    for (int64_t row = 0; sequence.scores_prompt() && row < rows; ++row) {
      if (ScoresRow(sequence, span.first_slot + row)) {
        span.logit_rows.push_back(static_cast<int32_t>(row));
      }
    }
    const bool scores = !span.logit_rows.empty();
    if (rows < pending) return span;
    span.logit_rows.push_back(static_cast<int32_t>(rows - 1));
    const GenerationRequest& request = sequence.request;
    const bool is_free = sequence.constraint == nullptr || sequence.constraint->allows_all();
    const bool best_only =
        NeedsOnlyArgMax(request.sampling) && !request.logprobs && !sequence.must_go_on() && is_free;
    if (best_only && !scores) span.argmax_vocab = vocab_size_;
    return span;
  }

  int64_t RowsWithin(const Sequence& sequence, int64_t logit_rows) const override {
    CHECK_GE(logit_rows, 1);
    if (!sequence.scores_prompt()) return PendingRows(sequence);
    const int64_t unscored =
        std::max<int64_t>(0, sequence.first_scored_slot() - sequence.lease.slots());
    return unscored + logit_rows;
  }

  absl::StatusOr<SpanOutput> Accept(const Sequence& sequence, const RowSpan& span,
                                    OutputCursor* output) override {
    const int64_t rows = span.argmax_vocab > 0 ? 0 : static_cast<int64_t>(span.logit_rows.size());
    const int64_t next_row = output->logit_row() + rows;
    absl::StatusOr<SpanOutput> accepted = AcceptRows(sequence, span, output);
    // After an error, some rows may not have been read. Go to the rows of the next span.
    output->GoToLogits(next_row);
    return accepted;
  }

 private:
  absl::StatusOr<SpanOutput> AcceptRows(const Sequence& sequence, const RowSpan& span,
                                        OutputCursor* output) {
    SpanOutput accepted;
    const bool ends = span.first_slot + span.rows() == static_cast<int64_t>(sequence.tokens.size());
    if (ends && sequence.constraint != nullptr && !sequence.constraint->ready()) {
      accepted.deferred = true;
      return accepted;
    }
    if (sequence.scores_prompt()) {
      ASSIGN_OR_RETURN(accepted.prompt, Score(sequence, span, output));
    }
    if (!ends) return accepted;
    if (span.argmax_vocab > 0) {
      ASSIGN_OR_RETURN(const int32_t best, ArgMaxToken(output->NextArgMax()));
      accepted.tokens.push_back({best, std::nullopt});
      return accepted;
    }
    const GenerationRequest& request = sequence.request;
    // A constraint's mask already excludes the forbidden tokens, unless no other tokens are
    // possible.
    const grammar::TokenMask* mask =
        sequence.constraint == nullptr ? nullptr : sequence.constraint->mask();
    const SampleInput input = {
        .params = &request.sampling,
        .state = &sequence.sampler,
        .tokens = sequence.tokens,
        .choice = request.choice,
        .position = sequence.outputs(),
        .forbidden = mask == nullptr ? sequence.forbidden_next() : absl::Span<const int32_t>(),
        .allowed = mask,
        .top_logprobs =
            request.logprobs ? std::optional<int32_t>(request.top_logprobs) : std::nullopt,
        .processed_logprobs = request.processed_logprobs,
    };
    ASSIGN_OR_RETURN(SampledToken token, sampler_.Sample(NextLogits(output), input));
    accepted.tokens.push_back(std::move(token));
    return accepted;
  }

  // Returns whether the row of this slot predicts a prompt token whose log-probability must be
  // reported.
  static bool ScoresRow(const Sequence& sequence, int64_t slot) {
    return slot >= sequence.first_scored_slot() && slot + 1 < sequence.request.prompt_length;
  }

  absl::Span<const float> NextLogits(OutputCursor* output) const {
    const absl::Span<const float> logits = output->NextLogits();
    CHECK_GE(logits.size(), static_cast<size_t>(vocab_size_));
    return logits.first(vocab_size_);
  }

  absl::StatusOr<std::vector<TokenLogprob>> Score(const Sequence& sequence, const RowSpan& span,
                                                  OutputCursor* output) {
    std::vector<TokenLogprob> scored;
    // The first token is not predicted, because there is no token before it.
    if (sequence.prompt_reported == 0) scored.push_back({.token_id = sequence.tokens[0]});
    for (int64_t slot = span.first_slot; slot < span.first_slot + span.rows(); ++slot) {
      if (!ScoresRow(sequence, slot)) continue;
      ASSIGN_OR_RETURN(TokenLogprob token,
                       sampler_.Score(NextLogits(output), sequence.tokens[slot + 1],
                                      *sequence.request.prompt_logprobs));
      scored.push_back(std::move(token));
    }
    return scored;
  }

  const int vocab_size_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Decoder> MakeAutoregressiveDecoder(int vocab_size) {
  return std::make_unique<AutoregressiveDecoder>(vocab_size);
}

}  // namespace tidepool::engine
