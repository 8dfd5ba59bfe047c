// Stream: the caller's end of one generation.
#ifndef TIDEPOOL_ENGINE_STREAM_H_
#define TIDEPOOL_ENGINE_STREAM_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/sampling/request.h"

namespace tidepool::engine {

// Thread-safe. Destruction cancels; it waits for a callback
// that runs, so destroy no stream while holding a lock that its callback takes. May outlive the
// engine.
//
// Text comes with the token that decides it: the token that completes a character, or that shows a
// held-back text to be no stop string. A stream resumed behind k output tokens begins at position
// k, and its text is what the undisturbed stream gives with tokens at positions k and above:
// nothing that was given before, and first of all what was held back at the cut. If the earlier
// tokens end the generation already (a stop token, a stop string, max_tokens, the context), the
// only chunk has no tokens and no text: position k and the finish.
class Stream {
 public:
  virtual ~Stream() = default;

  // All that came since the last call, as one chunk. Empty: nothing yet, or the last chunk was
  // taken. An error ends the stream and is given again to whoever asks again: CANCELLED,
  // DEADLINE_EXCEEDED (it passed, or an idle engine would not make a token before it),
  // RESOURCE_EXHAUSTED (it outgrew the KV memory, or the queue is too long for its deadline),
  // INTERNAL, DATA_LOSS (an expert that it needs is damaged), UNAVAILABLE (engine stopped, or such
  // an expert cannot be read). Tokens that came before it are given first.
  virtual std::optional<absl::StatusOr<StreamChunk>> TryNext() = 0;
  // The same, blocking. OUT_OF_RANGE behind the last chunk.
  virtual absl::StatusOr<StreamChunk> Next() = 0;
  // Called after each change that makes TryNext answer, from the step thread (and from OnReady
  // itself when something is there already): must not block, must not destroy the stream, may call
  // its other functions, and may find that another thread took everything. Set once, before the
  // first TryNext.
  virtual void OnReady(std::function<void()> callback) = 0;
  // Grants more tokens; nothing when `tokens` is not above 0.
  virtual void AddCredit(int64_t tokens) = 0;
  // Takes effect at the next plan: at most one more token is computed. The stream then ends with
  // CANCELLED, unless it had finished.
  virtual void Cancel() = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_STREAM_H_
