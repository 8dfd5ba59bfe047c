// Model: the engine's interface to a forward pass over a batch.
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

// Number of experts that one forward computed, summed over layers: those in memory when the routing
// became known, and those that had to be read.
struct ExpertCounts {
  int64_t hits = 0;
  int64_t misses = 0;
};

// Const after load, except for Forward, which one thread may call at a time (the engine's step
// thread), because the backend is thread-compatible.
class Model {
 public:
  virtual ~Model() = default;

  virtual int vocab_size() const = 0;
  virtual int hidden_size() const = 0;
  // One per layer: the KV that the KvCache must store.
  virtual const std::vector<KvSpec>& kv_specs() const = 0;
  // The KV of sequences with a RowSpan::slot_limit of 1 to this number differs from that of others
  // with the same tokens, because some models rotate them differently. 0: no such difference.
  virtual int64_t short_slots() const { return 0; }
  // Arena bytes that a Forward within `limits` needs.
  virtual size_t WorkspaceBytes(const BatchLimits& limits) const = 0;

  // Computes the batch: writes each row's KV and returns the requested logits. Resets `workspace`
  // first, and returns a result inside it. Errors: DATA_LOSS (an expert's record is damaged) and
  // UNAVAILABLE (it cannot be read), which name file, layer and expert; INTERNAL (a key or value
  // that the KV type cannot represent), which names the layer; and the error of writing a trace.
  // After an error, the KV of the batch's rows is undefined, and earlier KV is unchanged.
  virtual absl::StatusOr<StepOutput> Forward(const Batch& batch, const KvView& kv,
                                             kernels::Arena* workspace) = 0;

  // Increases during a Forward: with each layer, and when experts arrive. Thread-safe.
  virtual uint64_t heartbeat() const { return 0; }

  // `callback` is called on Forward's thread after each layer. It may call the functions below,
  // which then cover the layers so far. May be empty. Set it only between two Forwards.
  virtual void OnLayerEnd(std::function<void()> callback) = 0;

  // Expert counts of the last Forward.
  virtual ExpertCounts last_expert_counts() const = 0;

  // No Forward is expected for a while, so buffered output may be written.
  virtual void Idle() {}

  // Set if not all experts are in memory.
  virtual std::optional<moe::OffloadStats> offload_stats() const { return std::nullopt; }
  // Null if all experts are in memory. Change settings only between two Forwards.
  virtual moe::OffloadControl* offload_control() { return nullptr; }
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MODEL_H_
