// Engine: generates tokens for sequences. Owns the KV cache, the scheduler and the only thread that
// runs the model.
//
//   ASSIGN_OR_RETURN(auto engine, Engine::Create(model, tokenizer, &base::Clock::Real(), options));
//   ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, engine->Submit(request));
//   while (true) {
//     absl::StatusOr<StreamChunk> chunk = stream->Next();   // blocks
//     if (!chunk.ok() || chunk->finish) break;
//     stream->AddCredit(chunk->token_ids.size());
//   }
#ifndef TIDEPOOL_ENGINE_ENGINE_H_
#define TIDEPOOL_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine_options.h"
#include "engine/engine_stats.h"
#include "engine/model/model.h"
#include "engine/sampling/request.h"
#include "engine/stream.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/clock.h"
#include "moe/offload_control.h"

namespace tidepool::engine {

// Thread-safe. The model runs on the engine's own step thread only.
class Engine {
 public:
  // `model`, `tokenizer` and `clock` outlive the engine. INVALID_ARGUMENT for an invalid option,
  // for KV memory or a KV disk smaller than one block, or if the KV file cannot be created.
  // FAILED_PRECONDITION if another process uses the KV file.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Model* model, const Tokenizer* tokenizer,
                                                        const base::Clock* clock,
                                                        const EngineOptions& options);
  // Waits for the current forward pass, and ends all sequences with UNAVAILABLE. Then writes cached
  // KV to the KV disk, if there is one.
  virtual ~Engine() = default;

  // INVALID_ARGUMENT for a wrong field, an id outside the vocabulary, or a prompt longer than the
  // context. RESOURCE_EXHAUSTED if the queue is full (with a base::RetryAfterOf hint), or if the
  // prompt can never fit into --kv-memory. UNAVAILABLE while draining.
  virtual absl::StatusOr<std::unique_ptr<Stream>> Submit(GenerationRequest request) = 0;

  // The stats of the last step. Does not wait for a step.
  virtual EngineStats Stats() const = 0;
  // Change the settings of offloaded experts. The step thread does this between two steps, even if
  // nothing runs, and calls `done` once, which must not block. Running generations continue with
  // the same tokens. Errors: FAILED_PRECONDITION (no experts are offloaded), UNAVAILABLE (the
  // engine stops), RESOURCE_EXHAUSTED (too many changes are waiting; `done` may be called before
  // this returns), and those of moe::OffloadControl. When `done` is called, Stats() already shows
  // the change.
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  // `done` receives the resulting settings.
  virtual void SetOffload(const moe::OffloadChange& change, Done<moe::OffloadSettings> done) = 0;
  virtual void RefreshExperts(Done<moe::OffloadSettings> done) = 0;
  virtual void GetPlacement(Done<ExpertPlacement> done) = 0;

  // The digests of at most 256 cached prefixes, the most recently released first. Each is the
  // digest of the prefix's last block, as in BlockDigests (block_hash.h).
  virtual std::vector<uint64_t> PrefixDigests() const = 0;
  // Sets EngineOptions.max_queued for new requests. Requires: not negative.
  virtual void SetMaxQueued(int64_t max_queued) = 0;
  // Refuses new work. Running work continues.
  virtual void StopAccepting() = 0;
  // Waits until nothing runs or waits. Returns false if `timeout` passes first.
  virtual bool WaitIdle(absl::Duration timeout) = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_H_
