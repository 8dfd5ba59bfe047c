#include "engine/sampling/sampler_state.h"

#include "absl/types/span.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

bool NeedsTokenCounts(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0;
}

absl::StatusOr<SamplerState> SamplerState::Create(const GenerationRequest& request,
                                                  const Tokenizer& tokenizer, int vocab_size,
                                                  DryBreakerCache* breakers) {
  const SamplingParams& params = request.sampling;
  SamplerState state;
  if (!params.allowed_token_ids.empty() || !params.bad_words.empty()) {
    ASSIGN_OR_RETURN(state.filter, TokenFilter::Create(params, tokenizer, vocab_size));
  }
  if (UsesDry(params)) {
    ASSIGN_OR_RETURN(auto found, breakers->Get(params.dry_sequence_breakers));
    state.dry.emplace(std::move(found));
  }
  if (NeedsTokenCounts(params)) state.counts.emplace();
  if (!state.dry.has_value() && !state.counts.has_value()) return state;
  const absl::Span<const int32_t> tokens = request.token_ids;
  for (const int32_t token : tokens.first(request.prompt_length)) {
    if (state.counts.has_value()) state.counts->AddPrompt(token);
    if (state.dry.has_value()) state.dry->Add(token);
  }
  for (const int32_t token : tokens.subspan(request.prompt_length)) state.AddOutput(token);
  return state;
}

void SamplerState::AddOutput(int32_t token) {
  if (counts.has_value()) counts->AddOutput(token);
  if (dry.has_value()) dry->Add(token);
}

}  // namespace tidepool::engine
