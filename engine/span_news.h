// What a step reports about a sequence besides its tokens: the prompt's log-probabilities and
// progress, and the usage at the end.
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

// Engine thread only. Reports `scored`, the next log-probabilities of the prompt, each of which
// uses one credit. Also reports the progress, if the sequence requested it and its last span was in
// the prompt. `now` is on the engine's clock.
void TellPrompt(std::vector<TokenLogprob> scored, absl::Duration now, Sequence* sequence,
                StreamChunk* chunk);

// True if the chunk contains anything.
bool HasNews(const StreamChunk& chunk);

// The usage of a sequence that ends now. Requires: it has generated a token, or all of its prompt
// is computed.
Usage FinalUsage(const Sequence& sequence, absl::Duration now);

// Sets the tokens that the sequence's min_tokens forbid. INVALID_ARGUMENT if that is the whole
// vocabulary.
absl::Status ForbidEnds(const Tokenizer& tokenizer, int vocab_size, Sequence* sequence);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SPAN_NEWS_H_
