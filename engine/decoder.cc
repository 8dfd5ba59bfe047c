#include "engine/decoder.h"

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

  Span NextSpan(const Sequence& sequence, int64_t max_rows) const override {
    CHECK_GE(max_rows, 1);
    const int64_t rows = std::min(max_rows, PendingRows(sequence));
    CHECK_GE(rows, 1);
    Span span;
    span.first_slot = sequence.lease.slots();
    const auto begin = sequence.tokens.begin() + span.first_slot;
    span.token_ids.assign(begin, begin + rows);
    span.request = static_cast<int64_t>(sequence.arrival);
    const bool is_prompt = span.first_slot < sequence.request.prompt_length;
    span.phase = is_prompt || rows > 1 ? moe::Phase::kPrefill : moe::Phase::kDecode;
    if (rows < PendingRows(sequence)) return span;
    span.logit_rows.push_back(static_cast<int32_t>(rows - 1));
    const GenerationRequest& request = sequence.request;
    if (NeedsOnlyBest(request.sampling) && !request.logprobs) span.best_of = vocab_size_;
    return span;
  }

  absl::StatusOr<std::vector<SampledToken>> Accept(const Sequence& sequence, const Span& span,
                                                   OutputCursor* output) override {
    std::vector<SampledToken> tokens;
    if (span.logit_rows.empty()) return tokens;
    if (span.best_of > 0) {
      ASSIGN_OR_RETURN(const int32_t best, BestToken(output->NextBest()));
      tokens.push_back({best, std::nullopt});
      return tokens;
    }
    const absl::Span<const float> logits = output->NextLogits();
    CHECK_GE(logits.size(), static_cast<size_t>(vocab_size_));
    const GenerationRequest& request = sequence.request;
    const SampleInput input = {
        .params = &request.sampling,
        .counts = &sequence.counts,
        .choice = request.choice,
        .position = sequence.outputs(),
        .top_logprobs =
            request.logprobs ? std::optional<int32_t>(request.top_logprobs) : std::nullopt,
    };
    ASSIGN_OR_RETURN(SampledToken token, sampler_.Sample(logits.first(vocab_size_), input));
    tokens.push_back(std::move(token));
    return tokens;
  }

 private:
  const int vocab_size_;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Decoder> MakeAutoregressiveDecoder(int vocab_size) {
  return std::make_unique<AutoregressiveDecoder>(vocab_size);
}

}  // namespace tidepool::engine
