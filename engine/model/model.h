// Model: the forward pass over a batch, as the engine sees it.
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
#include "kernels/tensor.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"

namespace tidepool::engine {

// The largest batch that a Workspace must hold.
struct BatchLimits {
  int64_t rows = 512;
  int64_t logit_rows = 64;
};

// Experts computed by one forward, summed over layers: (layer, expert) pairs that were ready when
// the routing became known, and those that had to be fetched.
struct ExpertCounts {
  int64_t hits = 0;
  int64_t misses = 0;
};

// Const after load; Forward is called from one thread at a time (the engine's step thread), because
// the backend beneath it is thread-compatible.
class Model {
 public:
  virtual ~Model() = default;

  virtual int vocab_size() const = 0;
  virtual int hidden_size() const = 0;
  // One per layer; what the KvCache must keep.
  virtual const std::vector<KvSpec>& kv_specs() const = 0;
  // Bytes of arena that a Forward within `limits` needs.
  virtual size_t WorkspaceBytes(const BatchLimits& limits) const = 0;

  // Computes the batch: writes each row's KV, returns the wanted logits. Resets `workspace` first;
  // the result lives there. Errors: DATA_LOSS (an expert's record is damaged), UNAVAILABLE (it
  // could not be read), each naming file, layer and expert; INTERNAL (a key or value that the KV
  // type cannot hold), naming the layer; and that of a trace which cannot be written. Afterwards
  // the KV of the batch's rows is undefined, everything before it is untouched.
  virtual absl::StatusOr<StepOutput> Forward(const Batch& batch, const KvView& kv,
                                             kernels::Arena* workspace) = 0;

  // Moves while a Forward gets on: with each layer, and whenever experts come. Thread-safe.
  virtual uint64_t heartbeat() const { return 0; }

  // `callback` is called on Forward's thread when a layer has been computed; the functions below
  // may be used in it, and tell of the layers so far. Empty: nothing is. Set between two Forwards.
  virtual void OnLayerEnd(std::function<void()> callback) = 0;

  // Experts of the last Forward.
  virtual ExpertCounts last_expert_counts() const = 0;

  // No Forward comes for a while: what was only noted so far is written.
  virtual void Idle() {}

  // Of a model whose experts do not all lie in memory.
  virtual std::optional<moe::OffloadStats> offload_stats() const { return std::nullopt; }
  // The same; null for others. Changed between two Forwards alone.
  virtual moe::OffloadControl* offload_control() { return nullptr; }
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MODEL_H_
