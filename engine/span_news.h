// What a step tells of a sequence beside its tokens: the prompt's log-probabilities and progress,
// and the usage at the end.
#ifndef TIDEPOOL_ENGINE_SPAN_NEWS_H_
#define TIDEPOOL_ENGINE_SPAN_NEWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/sampling/request.h"
#include "engine/scheduler/sequence.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Engine thread only. `scored` comes next of the sequence's prompt, and takes one credit each; with
// the progress, where the sequence asks for that and its last span was of the prompt. Times are of
// the engine's clock.
void TellPrompt(std::vector<TokenLogprob> scored, absl::Duration now, Sequence* sequence,
                StreamChunk* chunk);

// Whether the chunk is worth sending.
bool HasNews(const StreamChunk& chunk);

// Of a sequence that ends now. Requires: it made a token, or has all of its prompt computed.
Usage FinalUsage(const Sequence& sequence, absl::Duration now);

// Has the sequence know the tokens that its min_tokens forbid. INVALID_ARGUMENT: these are all of
// the vocabulary.
absl::Status ForbidEnds(const Tokenizer& tokenizer, int vocab_size, Sequence* sequence);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SPAN_NEWS_H_
