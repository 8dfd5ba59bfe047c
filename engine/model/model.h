// Model: the interface through which the engine computes forward passes over batches.
#ifndef TIDEPOOL_ENGINE_MODEL_MODEL_H_
#define TIDEPOOL_ENGINE_MODEL_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/batch.h"
#include "engine/model/kv_spec.h"
#include "kernels/backend.h"
#include "kernels/memory.h"
#include "kernels/tensor.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"

namespace tidepool::engine {

// The largest batch for which a workspace must have room.
struct BatchLimits {
  int64_t rows = 512;
  int64_t logit_rows = 64;
};

// The experts that one forward pass computed, summed over layers. An expert is a hit if it was in
// memory when the routing became known, and a miss if it had to be read.
struct ExpertCounts {
  int64_t hits = 0;
  int64_t misses = 0;
};

// Constant after loading, except for Forward. Only one thread may call Forward at a time (the
// engine's step thread), because the backend is thread-compatible.
class Model {
 public:
  virtual ~Model() = default;

  virtual int vocab_size() const = 0;
  virtual int hidden_size() const = 0;
  // The KV settings of each layer, for the KvCache.
  virtual const std::vector<KvSpec>& kv_specs() const = 0;
  // Some models rotate short sequences differently (LongRoPE). If short_slots() is above 0, a
  // sequence is short if its RowSpan::slot_limit is from 1 to short_slots(). A short and a long
  // sequence with the same tokens have different KV. 0: there is no such difference.
  virtual int64_t short_slots() const { return 0; }
  // The bytes of workspace that a Forward needs for a batch within `limits`.
  virtual size_t WorkspaceBytes(const BatchLimits& limits) const = 0;
  // The backend whose memory holds the workspace and the KV. Null: they are in the host's memory.
  virtual kernels::KernelBackend* backend() const { return nullptr; }
  kernels::Memory* memory() const {
    return backend() == nullptr ? kernels::HostMemory() : backend()->memory();
  }

  // Computes the batch: writes the KV of each row, and returns the requested logits. First resets
  // `workspace`, which is in memory(). The result is in the host's memory, and may point into the
  // workspace. Errors: DATA_LOSS if an expert's record is damaged, and UNAVAILABLE if it cannot be
  // read, both with file, layer and expert; INTERNAL with the layer if the KV type cannot represent
  // a key or value; the error of writing a trace; and the error of KernelBackend::Sync. After an
  // error, the KV of the batch's rows is undefined. Earlier KV is unchanged.
  virtual absl::StatusOr<StepOutput> Forward(const Batch& batch, const KvView& kv,
                                             kernels::Arena* workspace) = 0;

  // A counter that increases during a Forward, with each layer and when experts become ready.
  // Thread-safe.
  virtual uint64_t heartbeat() const { return 0; }

  // Sets a function that is called on Forward's thread after each layer. It may call the functions
  // below. Their results then cover the layers that were computed so far. May be empty. Must not be
  // set during a Forward.
  virtual void OnLayerEnd(std::function<void()> callback) = 0;

  // The expert counts of the last Forward.
  virtual ExpertCounts last_expert_counts() const = 0;

  // Called when no Forward is expected for a while, so that buffered output may be written.
  virtual void Idle() {}

  // Returns a value if not all experts are in memory.
  virtual std::optional<moe::OffloadStats> offload_stats() const { return std::nullopt; }
  // Null if all experts are in memory. Settings may only be changed between two Forwards.
  virtual moe::OffloadControl* offload_control() { return nullptr; }
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MODEL_H_
