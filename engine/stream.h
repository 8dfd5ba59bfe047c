// Stream: the object through which a caller receives one generation.
#ifndef TIDEPOOL_ENGINE_STREAM_H_
#define TIDEPOOL_ENGINE_STREAM_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/sampling/request.h"

namespace tidepool::engine {

// Thread-safe. May outlive the engine. The destructor cancels the generation and waits for a
// running callback. So do not destroy a stream while you hold a lock that its callback takes.
//
// Text is returned together with the token after which it is final. That is the token that
// completes a character, or the token after which text that was held back cannot be a stop string.
// A stream that resumes after k output tokens begins at position k. Its text is the part of the
// original stream's text that belongs to tokens at positions k and above. This includes text that
// was held back at position k. If the earlier tokens already end the generation (by a stop token, a
// stop string, max_tokens or the context), there is only one chunk. It has position k and the
// finish, but no tokens and no text.
class Stream {
 public:
  virtual ~Stream() = default;

  // Returns everything that arrived since the last call as one chunk. Returns nullopt if nothing
  // arrived, or if the last chunk was taken. An error ends the stream, and later calls return it
  // again. Tokens that were generated before the error are returned before it. Errors: CANCELLED;
  // DEADLINE_EXCEEDED (the deadline has passed, or even an idle engine would take longer to the
  // first token); RESOURCE_EXHAUSTED (the sequence needs more than the KV memory, or the queue is
  // too long for its deadline); INTERNAL; DATA_LOSS (an expert that the sequence needs is damaged);
  // UNAVAILABLE (the engine stopped, or an expert cannot be read).
  virtual std::optional<absl::StatusOr<StreamChunk>> TryNext() = 0;
  // Like TryNext, but waits until there is something to return. Returns OUT_OF_RANGE after the last
  // chunk.
  virtual absl::StatusOr<StreamChunk> Next() = 0;
  // Sets a callback that is called whenever TryNext would return something new. The step thread
  // calls it. If there is something already, OnReady itself calls it. The callback must not block
  // or destroy the stream. It may call the other functions of the stream. TryNext may then return
  // nothing, because another thread has taken everything. OnReady must be called once, before the
  // first TryNext.
  virtual void OnReady(std::function<void()> callback) = 0;
  // Allows `tokens` more tokens. Does nothing if `tokens` <= 0.
  virtual void AddCredit(int64_t tokens) = 0;
  // Cancels the generation from the next plan on, so at most one more token is computed. Then the
  // stream ends with CANCELLED, unless it had finished before.
  virtual void Cancel() = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_STREAM_H_
