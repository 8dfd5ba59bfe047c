// What a step reports about a sequence besides its sampled tokens: the prompt's log-probabilities,
// the prompt's progress, the tokens that must follow, and, at the end, the usage.
#ifndef TIDEPOOL_ENGINE_SPAN_NEWS_H_
#define TIDEPOOL_ENGINE_SPAN_NEWS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/engine_stats.h"
#include "engine/sampling/dry_breakers.h"
#include "engine/sampling/request.h"
#include "engine/scheduler/batch_scheduler.h"
#include "engine/scheduler/sequence.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Engine thread only. Records the start of each sequence that is in a plan for the first time, and
// adds its prompt to `stats`.
void NoteStarted(const StepPlan& plan, absl::Duration now, EngineStats* stats);

// Engine thread only. Writes reports about the prompt into `chunk`. `scored` are the next
// log-probabilities of the prompt, each of which uses one credit. The progress is reported if the
// sequence requested it and its last span was in the prompt. `now` is on the engine's clock.
void TellPrompt(std::vector<TokenLogprob> scored, absl::Duration now, Sequence* sequence,
                StreamChunk* chunk);

// Returns whether the chunk contains anything.
bool HasNews(const StreamChunk& chunk);

// Returns the usage of a sequence that ends now. Requires: the sequence has generated a token, or
// its whole prompt is computed.
Usage FinalUsage(const Sequence& sequence, absl::Duration now);

// Returns the next token if the sequence's constraint allows no other, so that no logits are needed
// to sample it. Computes the mask, unless the sequence's latest mask took more than `max_time` or
// `give_up` returns true. In these two cases, returns nullopt. Also returns nullopt if the sequence
// has no credit, or if the request has logprobs, bad_words or allowed_token_ids.
std::optional<int32_t> ForcedToken(absl::Duration max_time, absl::FunctionRef<bool()> give_up,
                                   Sequence* sequence);

// Returns whether the sequence's constraint allows only an end token, which then need not be
// generated. Returns false if the request has logprobs, because the end token's log-probability
// must then be computed.
bool OnlyEndFollows(const Sequence& sequence);
// Ends the response in `chunk` if the constraint ended with the last token, or if only an end token
// can follow. The response can then have fewer than min_tokens tokens.
void EndByConstraint(Sequence* sequence, StreamChunk* chunk);

// Prepares the sequence for sampling. Sets `end_tokens` to the tokens that its min_tokens forbid,
// sets up `sampler` with all tokens of the sequence, and computes the first mask of the constraint.
// Returns INVALID_ARGUMENT if all tokens are forbidden, or if a bad word has no tokens.
absl::Status SetUpSampling(const Tokenizer& tokenizer, int vocab_size, DryBreakerCache* breakers,
                           Sequence* sequence);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SPAN_NEWS_H_
