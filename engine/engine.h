// Engine: sequences in, tokens out. Owns the KV cache, the scheduler and the only thread that runs
// the model.
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
  // `model`, `tokenizer` and `clock` outlive the engine. INVALID_ARGUMENT: an option, or KV memory
  // or a KV disk that holds not one block, or a file for that which cannot be made;
  // FAILED_PRECONDITION: another process has it.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Model* model, const Tokenizer* tokenizer,
                                                        const base::Clock* clock,
                                                        const EngineOptions& options);
  // Ends what still runs with UNAVAILABLE, after the forward pass in progress. Then cached KV goes
  // to the disk, where there is one.
  virtual ~Engine() = default;

  // Errors: INVALID_ARGUMENT (a field, an id outside the vocabulary, a prompt past the context),
  // RESOURCE_EXHAUSTED (the queue is full, with a base::RetryAfterOf hint; or the prompt can never
  // fit --kv-memory), UNAVAILABLE (draining).
  virtual absl::StatusOr<std::unique_ptr<Stream>> Submit(GenerationRequest request) = 0;

  // As of the last step; never waits for one.
  virtual EngineStats Stats() const = 0;
  // What operators ask of experts under a memory budget. The step thread does it between two steps,
  // also when nothing runs, and calls `done` once; it must not block. Generations that run go on
  // with the same tokens. Errors: FAILED_PRECONDITION (no experts are offloaded), UNAVAILABLE (the
  // engine stops), RESOURCE_EXHAUSTED (too many of these wait; `done` may then be called here), and
  // those of moe::OffloadControl. The stats tell of the change by the time `done` is called.
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  // The settings in force afterwards.
  virtual void SetOffload(const moe::OffloadChange& change, Done<moe::OffloadSettings> done) = 0;
  virtual void RefreshExperts(Done<moe::OffloadSettings> done) = 0;
  virtual void GetPlacement(Done<ExpertPlacement> done) = 0;

  // Of the most recently released prefixes that are cached, the latest first, at most 256: the
  // digest of their last block, as BlockDigests (block_hash.h) gives it.
  virtual std::vector<uint64_t> PrefixDigests() const = 0;
  // As EngineOptions.max_queued, for what comes from now on. Requires: not negative.
  virtual void SetMaxQueued(int64_t max_queued) = 0;
  // Refuses new work; running work goes on.
  virtual void StopAccepting() = 0;
  // Returns when nothing runs or waits any more, or false when `timeout` passed first.
  virtual bool WaitIdle(absl::Duration timeout) = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_H_
