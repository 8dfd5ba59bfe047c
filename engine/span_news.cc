#include "engine/span_news.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

void NoteStarted(const StepPlan& plan, absl::Duration now, EngineStats* stats) {
  for (const PlanItem& item : plan.items) {
    Sequence& sequence = *item.sequence;
    if (sequence.planned_at.has_value()) continue;
    sequence.planned_at = now;
    const int64_t prompt = sequence.request.prompt_length;
    sequence.usage.prompt_tokens = prompt;
    sequence.usage.cached_tokens = std::min(prompt, *sequence.admission.cached_tokens);
    stats->prompt_tokens += prompt;
    stats->cached_prompt_tokens += sequence.usage.cached_tokens;
  }
}

void TellPrompt(std::vector<TokenLogprob> scored, absl::Duration now, Sequence* sequence,
                StreamChunk* chunk) {
  const int64_t prompt = sequence->request.prompt_length;
  const auto count = static_cast<int64_t>(scored.size());
  chunk->prompt_position = sequence->prompt_reported;
  chunk->prompt_logprobs = std::move(scored);
  sequence->prompt_reported += count;
  sequence->control->credit.fetch_sub(count);
  if (!sequence->request.progress || sequence->outputs() > 0) return;
  chunk->progress = {.total = prompt,
                     .cached = sequence->usage.cached_tokens,
                     .processed = std::min(prompt, sequence->lease.slots()),
                     .since_start = now - *sequence->planned_at};
}

bool HasNews(const StreamChunk& chunk) {
  return !chunk.token_ids.empty() || !chunk.prompt_logprobs.empty() || chunk.progress.has_value();
}

Usage FinalUsage(const Sequence& sequence, absl::Duration now) {
  Usage usage = sequence.usage;
  usage.completion_tokens = sequence.outputs();
  usage.queue_time = *sequence.planned_at - sequence.submitted_at;
  usage.prefill_time = *sequence.first_token_at - *sequence.planned_at;
  usage.decode_time = now - *sequence.first_token_at;
  return usage;
}

std::optional<int32_t> ForcedToken(absl::Duration max_time, absl::FunctionRef<bool()> give_up,
                                   Sequence* sequence) {
  const std::shared_ptr<SequenceConstraint>& constraint = sequence->constraint;
  if (constraint == nullptr || constraint->allows_all()) return std::nullopt;
  // The mask of one state can take long to compute, and the other streams would wait for it.
  if (constraint->mask_time() > max_time) return std::nullopt;
  if (sequence->request.logprobs || sequence->control->credit.load() <= 0) return std::nullopt;
  // bad_words or allowed_token_ids may exclude the token, which is an error.
  if (sequence->sampler.filter.has_value()) return std::nullopt;
  const bool known =
      constraint->ready() ||
      (!give_up() && constraint->TryComputeMask(sequence->forbidden_next(), give_up));
  return known ? constraint->only() : std::nullopt;
}

bool OnlyEndFollows(const Sequence& sequence) {
  return sequence.constraint != nullptr && sequence.constraint->complete() &&
         !sequence.request.logprobs;
}

void EndByConstraint(Sequence* sequence, StreamChunk* chunk) {
  if (sequence->constraint == nullptr || chunk->finish.has_value()) return;
  if (sequence->constraint->ended()) {
    chunk->finish = FinishReason::kStop;
  } else if (OnlyEndFollows(*sequence)) {
    chunk->finish = FinishReason::kStop;
    chunk->text += sequence->text.End();
  }
}

namespace {

// Sets sequence->end_tokens to the tokens that its min_tokens forbid.
absl::Status ForbidEnds(const Tokenizer& tokenizer, int vocab_size, Sequence* sequence) {
  const StoppingParams& stopping = sequence->request.stopping;
  if (stopping.min_tokens == 0) return absl::OkStatus();
  std::vector<int32_t>& ids = sequence->end_tokens;
  ids = stopping.stop_token_ids;
  if (!stopping.ignore_eos) {
    ids.insert(ids.end(), tokenizer.stop_ids().begin(), tokenizer.stop_ids().end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (static_cast<int64_t>(ids.size()) < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("min_tokens is ", stopping.min_tokens, " and stop_token_ids has all ",
                   vocab_size, " tokens, so no token can be sampled; unset one of the two fields"));
}

}  // namespace

absl::Status SetUpSampling(const Tokenizer& tokenizer, int vocab_size, DryBreakerCache* breakers,
                           Sequence* sequence) {
  RETURN_IF_ERROR(ForbidEnds(tokenizer, vocab_size, sequence));
  const GenerationRequest& request = sequence->request;
  ASSIGN_OR_RETURN(sequence->sampler,
                   SamplerState::Create(request.sampling, tokenizer, vocab_size, breakers));
  const absl::Span<const int32_t> tokens = sequence->tokens;
  sequence->sampler.AddPrompt(tokens.first(request.prompt_length));
  for (const int32_t token : tokens.subspan(request.prompt_length)) {
    sequence->sampler.AddOutput(token);
  }
  // The first mask is often the slowest one, and must not delay a step.
  if (sequence->constraint != nullptr) {
    sequence->constraint->ComputeMask(sequence->forbidden_next());
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine
