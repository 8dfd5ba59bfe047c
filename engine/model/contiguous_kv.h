// ContiguousKv: KV memory for a few sequences of known length. It has no sharing and no eviction.
// `tidepool logits` and tests use it instead of the engine's KvCache.
//
//   ContiguousKv kv(*model, /*sequences=*/1, /*slots=*/tokens.size());
//   kv.SetBlocks(0, &span);
//   model->Forward(batch, kv.view(), &workspace);
//   kv.Commit(0);  // before the next pass of the sequence
#ifndef TIDEPOOL_ENGINE_MODEL_CONTIGUOUS_KV_H_
#define TIDEPOOL_ENGINE_MODEL_CONTIGUOUS_KV_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/batch.h"
#include "engine/model/kv_spec.h"
#include "engine/model/model.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// Thread-compatible. All layers with KV are one group. The KV is in the model's memory, and is not
// initialised. If the model has recurrent states, a sequence has two states: the state after its
// last commit, and the state that the next pass writes.
class ContiguousKv {
 public:
  // Returns RESOURCE_EXHAUSTED if the model's memory has no room. The model must outlive the KV.
  static absl::StatusOr<ContiguousKv> Create(const Model& model, int sequences, int64_t slots);
  // Ends the process if the model's memory has no room. `spare_states` is the number of additional
  // states, for snapshots.
  ContiguousKv(const Model& model, int sequences, int64_t slots, int spare_states = 0);

  const KvView& view() const { return view_; }
  // Sets the blocks and states of a span of sequence number `sequence`. A span whose first slot is
  // 0 begins with the state zero.
  void SetBlocks(int sequence, RowSpan* span) const;
  // Makes the next pass continue after the state that the last pass has written. Does nothing if
  // the model has no recurrent states.
  void Commit(int sequence);
  // The blocks of spare state number `spare`, for RowSpan::state_snapshots.
  absl::Span<const int32_t> spare_state(int spare) const { return State(2 * sequences_ + spare); }
  // Makes the next pass of the sequence begin with a copy of this spare state.
  void ContinueFrom(int spare, int sequence);

  // The block table of sequence number `sequence`, for RowSpan::blocks. Enough for models without
  // recurrent states.
  std::vector<absl::Span<const int32_t>> blocks(int sequence) const;
  // All of the memory, which may be a device's. Tests write to it.
  absl::Span<std::byte> bytes() const { return absl::MakeSpan(arena_.data(), arena_.size()); }

  // Bytes of one block of all layers together.
  static size_t BlockBytes(const std::vector<KvSpec>& specs);
  // Bytes of one recurrent state. 0 if the model has none.
  static size_t StateBytes(const std::vector<KvSpec>& specs);

 private:
  struct Shape {
    int sequences = 0;
    int64_t slots = 0;
    int spare_states = 0;
  };

  ContiguousKv(const Model& model, const Shape& shape);
  void SetMemory(kernels::Buffer memory);
  size_t MemoryBytes() const { return table_.size() * block_bytes_; }
  absl::Span<const int32_t> State(int64_t state) const;

  kernels::KernelBackend* backend_;  // null: the memory is the host's
  int sequences_;
  int64_t blocks_per_sequence_;
  size_t block_bytes_ = 0;
  int64_t parts_ = 0;  // blocks of a state
  kernels::Buffer arena_;
  // The tables of all sequences, one after the other. The states follow: two for each sequence,
  // then the spare ones.
  std::vector<int32_t> table_;
  // for each sequence: index (0 or 1) of the state after its last commit
  std::vector<int> current_;
  KvView view_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_CONTIGUOUS_KV_H_
