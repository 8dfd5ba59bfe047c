// Engine: generates tokens for sequences. It owns the KV cache, the scheduler, and the only thread
// that runs the model (the step thread).
//
//   ASSIGN_OR_RETURN(auto engine, Engine::Create(model, tokenizer, &base::Clock::Real(), options));
//   ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, engine->Submit(request));
//   while (true) {
//     absl::StatusOr<StreamChunk> chunk = stream->Next();    // blocks
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

// Thread-safe. The model runs only on the engine's own step thread.
class Engine {
 public:
  // `model`, `tokenizer` and `clock` must outlive the engine. Returns INVALID_ARGUMENT if an option
  // is invalid, if the KV memory or the KV disk is smaller than one block, or if the KV file cannot
  // be created. Returns FAILED_PRECONDITION if another process uses the KV file, and
  // RESOURCE_EXHAUSTED if the KV or the workspace does not fit into the model's memory.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Model* model, const Tokenizer* tokenizer,
                                                        const base::Clock* clock,
                                                        const EngineOptions& options);
  // Waits for the current forward pass, and ends all sequences with UNAVAILABLE. If there is a KV
  // disk, writes the cached KV to it.
  virtual ~Engine() = default;

  // Adds a request and returns its stream. Returns INVALID_ARGUMENT for a wrong field, for an id
  // outside the vocabulary, or if the prompt is longer than the context; RESOURCE_EXHAUSTED if the
  // queue is full (with a base::RetryAfterOf hint), or if the prompt can never fit into
  // --kv-memory; UNAVAILABLE while draining.
  virtual absl::StatusOr<std::unique_ptr<Stream>> Submit(GenerationRequest request) = 0;

  // Returns the stats of the last step. Does not wait for the current step.
  virtual EngineStats Stats() const = 0;
  // The next three functions read or change the settings of offloaded experts. The step thread does
  // this between two steps, even if nothing runs. Running generations continue with the same
  // tokens. `done` is called once, and must not block. When it is called, Stats() already shows the
  // change. It may be called before the function returns. Errors: FAILED_PRECONDITION if no experts
  // are offloaded, UNAVAILABLE if the engine stops, RESOURCE_EXHAUSTED if too many changes are
  // waiting, and those of moe::OffloadControl.
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  // `done` receives the settings after the change.
  virtual void SetOffload(const moe::OffloadChange& change, Done<moe::OffloadSettings> done) = 0;
  virtual void RefreshExperts(Done<moe::OffloadSettings> done) = 0;
  virtual void GetPlacement(Done<ExpertPlacement> done) = 0;

  // Returns the digests of at most 256 cached prefixes. The prefix that was released last is the
  // first. A prefix is identified by the digest of its last block, as in BlockDigests
  // (block_hash.h).
  virtual std::vector<uint64_t> PrefixDigests() const = 0;
  // Changes EngineOptions::max_queued for new requests. Requires: max_queued is not negative.
  virtual void SetMaxQueued(int64_t max_queued) = 0;
  // Refuses new requests. Requests that were accepted continue.
  virtual void StopAccepting() = 0;
  // Waits until no request runs or waits. Returns false if `timeout` passes first.
  virtual bool WaitIdle(absl::Duration timeout) = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_H_
