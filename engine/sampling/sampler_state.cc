#include "engine/sampling/sampler_state.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace tidepool::engine {

bool NeedsTokenCounts(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0;
}

absl::StatusOr<SamplerState> SamplerState::Create(const SamplingParams& params,
                                                  const Tokenizer& tokenizer, int vocab_size,
                                                  DryBreakerCache* breakers) {
  SamplerState state;
  if (!params.allowed_token_ids.empty() || !params.bad_words.empty()) {
    ASSIGN_OR_RETURN(state.filter, TokenFilter::Create(params, tokenizer, vocab_size));
  }
  if (UsesDry(params)) {
    ASSIGN_OR_RETURN(auto found, breakers->Get(params.dry_sequence_breakers));
    state.dry.emplace(std::move(found));
  }
  if (NeedsTokenCounts(params)) state.counts.emplace();
  return state;
}

void SamplerState::AddPrompt(absl::Span<const int32_t> tokens) {
  if (!counts.has_value() && !dry.has_value()) return;
  for (const int32_t token : tokens) {
    if (counts.has_value()) counts->AddPrompt(token);
    if (dry.has_value()) dry->Add(token);
  }
}

void SamplerState::AddOutput(int32_t token) {
  if (counts.has_value()) counts->AddOutput(token);
  if (dry.has_value()) dry->Add(token);
}

}  // namespace tidepool::engine
