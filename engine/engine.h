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
#include "engine/kv_disk_stats.h"
#include "engine/model/model.h"
#include "engine/request.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"

namespace tidepool::engine {

struct EngineOptions {
  int64_t context_length = 0;           // slots of one sequence, prompt and output
  size_t kv_memory_bytes = 1 << 30;     // of the KV arena
  int64_t max_sequences = 64;           // in one step
  int64_t max_queued = 1024;            // waiting beyond those
  BatchLimits limits;                   // rows of one step
  int64_t prefill_chunk = 512;          // most prompt rows of one sequence in one step
  int64_t max_concurrent_prefills = 4;  // prompts that hold KV and are computed in part
  // The same while not all of the model's experts have a place in memory: a step reads each that it
  // needs once, however many rows need it. 0: as prefill_chunk.
  int64_t offload_prefill_chunk = 0;
  std::string cache_seed;  // model digest, KV type: what makes KV of equal tokens equal
  // A file of at most so many bytes, for KV that memory has no room for and that is to outlive the
  // process; no path: none.
  std::string kv_disk_path;
  int64_t kv_disk_bytes = 0;

  // INVALID_ARGUMENT names the field, its value and the accepted range.
  absl::Status Validate() const;
};

// Rows of logits that a step has beside one of each sequence, for the log-probabilities of prompts:
// as many as 32 MiB hold, at most 128.
int64_t PromptLogitRows(int64_t vocab_size);

struct EngineStats {
  int64_t sequences_running = 0;
  int64_t sequences_waiting = 0;
  int64_t places = 0;        // requests that may run and wait before more are refused
  absl::Duration room_wait;  // when to come back where none is free
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_free = 0;    // unused or holding only reusable cache
  int64_t kv_blocks_cached = 0;  // reusable by a later request with the same prefix
  int64_t kv_block_tokens = kernels::kKvBlockTokens;
  std::optional<KvDiskStats> kv_disk;  // where there is one
  KvRestoreStats kv_restores;
  int64_t queued_prompt_tokens = 0;      // that wait, or are being computed
  double prefill_tokens_per_second = 0;  // over the latest prefills; 0: none yet
  double admissions_per_second = 0;      // to a place, while others wait; 0: not known
  int64_t prompt_tokens = 0;             // totals since start
  int64_t cached_prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t requests_failed = 0;
  int64_t preemptions = 0;
  int64_t deadline_refusals = 0;  // whose deadlines could not be met
  int64_t steps = 0;
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  // Of a model whose experts do not all lie in memory: totals, and what of them came in the latest
  // offload_window.
  std::optional<moe::OffloadStats> offload;
  moe::OffloadStats offload_recent;
  absl::Duration offload_window;
  absl::Duration offload_read_at;  // on the engine's monotonic clock
  bool computing = false;          // a forward pass runs; of experts, its layers so far show
  bool work_pending = false;       // the step thread has something to do, or is at it
  uint64_t progress = 0;           // moves whenever work is done, also within a forward pass
  size_t workspace_high_water_bytes = 0;
  // Of KV and workspace: set aside, and not taken from the machine yet.
  int64_t untouched_bytes = 0;
};

// Who lies in memory of a model whose experts do not all do, and how often each was needed: in all,
// and in the latest `window`.
struct ExpertPlacement {
  moe::ExpertMap map;
  std::vector<int64_t> recent_uses;  // [layers, experts]
  absl::Duration window;
};

// The caller's end of one generation. Thread-safe. Destruction cancels; it waits for a callback
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
