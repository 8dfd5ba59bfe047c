// Engine: sequences in, tokens out. Owns the KV cache, the scheduler and the only thread that runs
// the model.
//
//   auto engine = Engine::Create(std::move(deps), options);
//   std::unique_ptr<Stream> stream = engine.value()->Submit(request).value();
//   while (true) {
//     absl::StatusOr<StreamChunk> chunk = stream->Next();   // blocks
//     if (!chunk.ok() || chunk->finish) break;
//     stream->AddCredit(chunk->token_ids.size());
//   }
#ifndef TIDEPOOL_ENGINE_ENGINE_H_
#define TIDEPOOL_ENGINE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/model/model.h"
#include "engine/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/clock.h"

namespace tidepool::engine {

struct EngineOptions {
  int64_t context_length = 0;       // slots of one sequence, prompt and output
  size_t kv_memory_bytes = 1 << 30; // of the KV arena
  int64_t max_sequences = 64;       // in one step
  int64_t max_queued = 1024;        // waiting beyond those
  BatchLimits limits;               // rows of one step
  int64_t prefill_chunk = 512;      // most prompt rows of one sequence in one step
  std::string cache_seed;           // model digest, KV type: what makes KV of equal tokens equal

  absl::Status Validate() const;
};

struct EngineStats {
  int64_t sequences_running = 0;
  int64_t sequences_waiting = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_free = 0;    // unused or holding only reusable cache
  int64_t kv_blocks_cached = 0;  // reusable by a later request with the same prefix
  int64_t prompt_tokens = 0;     // totals since start
  int64_t cached_prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t requests_failed = 0;
  int64_t preemptions = 0;
  int64_t steps = 0;
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  uint64_t progress = 0;  // moves whenever work is done
  size_t workspace_high_water_bytes = 0;
};

// The caller's end of one generation. Thread-safe. Destruction cancels.
class Stream {
 public:
  virtual ~Stream() = default;

  // The next chunk if there is one. Empty: nothing yet. An error ends the stream: CANCELLED,
  // DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED (KV can never fit), INTERNAL, UNAVAILABLE (engine stopped).
  virtual std::optional<absl::StatusOr<StreamChunk>> TryNext() = 0;
  // The same, blocking.
  virtual absl::StatusOr<StreamChunk> Next() = 0;
  // Called after each change that makes TryNext answer, from the step thread: must not block and
  // must not destroy the stream. Set once, before the first TryNext.
  virtual void OnReady(std::function<void()> callback) = 0;
  virtual void AddCredit(int64_t tokens) = 0;
  // Takes effect at the next plan: at most one more token is computed.
  virtual void Cancel() = 0;
};

// Thread-safe. The model runs on the engine's own step thread only.
class Engine {
 public:
  // `model`, `tokenizer` and `clock` outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Model* model, const Tokenizer* tokenizer,
                                                        const base::Clock* clock,
                                                        const EngineOptions& options);
  virtual ~Engine() = default;

  // Errors: INVALID_ARGUMENT (a field, an id outside the vocabulary, a prompt past the context),
  // RESOURCE_EXHAUSTED (the queue is full), UNAVAILABLE (draining).
  virtual absl::StatusOr<std::unique_ptr<Stream>> Submit(GenerationRequest request) = 0;

  virtual EngineStats Stats() const = 0;
  // Refuses new work; running work goes on.
  virtual void StopAccepting() = 0;
  // Returns when nothing runs or waits any more, or false when `timeout` passed first.
  virtual bool WaitIdle(absl::Duration timeout) = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_H_
