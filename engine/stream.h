// Stream: the caller's handle of one generation.
#ifndef TIDEPOOL_ENGINE_STREAM_H_
#define TIDEPOOL_ENGINE_STREAM_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/sampling/request.h"

namespace tidepool::engine {

// Thread-safe. The destructor cancels and waits for a running callback. So do not destroy a stream
// while you hold a lock that its callback takes. May outlive the engine.
//
// Text comes with the token that decides it: the token that completes a character, or that shows
// that held-back text is not a stop string. A stream that resumes after k output tokens begins at
// position k. Its text is the part of the original stream's text that belongs to tokens at
// positions k and above, including text that was held back at position k. If the earlier tokens
// already end the generation (a stop token, a stop string, max_tokens, the context), the only chunk
// has position k and the finish, but no tokens and no text.
class Stream {
 public:
  virtual ~Stream() = default;

  // Returns everything that arrived since the last call as one chunk. nullopt if there is nothing
  // yet, or if the last chunk was taken. An error ends the stream, and is returned again by later
  // calls. Tokens that came before the error are returned first. Errors: CANCELLED,
  // DEADLINE_EXCEEDED (it passed, or even an idle engine could not make a token before it),
  // RESOURCE_EXHAUSTED (it outgrew the KV memory, or the queue is too long for its deadline),
  // INTERNAL, DATA_LOSS (an expert that it needs is damaged), UNAVAILABLE (the engine stopped, or
  // an expert cannot be read).
  virtual std::optional<absl::StatusOr<StreamChunk>> TryNext() = 0;
  // Same, but blocks. OUT_OF_RANGE after the last chunk.
  virtual absl::StatusOr<StreamChunk> Next() = 0;
  // Sets a function that is called whenever TryNext would return something new. It is called on the
  // step thread, or by OnReady itself if something is already there. It must not block or destroy
  // the stream. It may call its other functions, and may find that another thread took everything.
  // Set it once, before the first TryNext.
  virtual void OnReady(std::function<void()> callback) = 0;
  // Allows more tokens. Does nothing if `tokens` <= 0.
  virtual void AddCredit(int64_t tokens) = 0;
  // Takes effect at the next plan, so at most one more token is computed. Then the stream ends with
  // CANCELLED, unless it had finished.
  virtual void Cancel() = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_STREAM_H_
