// ContiguousKv: KV memory for a few sequences of known length. It has no sharing and no eviction.
// `tidepool logits` and tests use it instead of the engine's KvCache.
//
//   ContiguousKv kv(model->kv_specs(), /*sequences=*/1, /*slots=*/tokens.size());
//   span.blocks = kv.blocks(0);
//   model->Forward(batch, kv.view(), &workspace);
#ifndef TIDEPOOL_ENGINE_MODEL_CONTIGUOUS_KV_H_
#define TIDEPOOL_ENGINE_MODEL_CONTIGUOUS_KV_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/model/kv_spec.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// Thread-compatible. All layers are one group. The memory is not initialised.
class ContiguousKv {
 public:
  ContiguousKv(const std::vector<KvSpec>& specs, int sequences, int64_t slots);

  const KvView& view() const { return view_; }
  // The block table of sequence number `sequence`, for RowSpan::blocks.
  std::vector<absl::Span<const int32_t>> blocks(int sequence) const;
  // All of the memory. Tests write to it.
  absl::Span<std::byte> bytes() const { return absl::MakeSpan(arena_.data(), arena_.size()); }

  // Bytes of one block of all layers together.
  static size_t BlockBytes(const std::vector<KvSpec>& specs);

 private:
  int64_t blocks_per_sequence_;
  kernels::Buffer arena_;
  std::vector<int32_t> table_;  // the tables of all sequences, one after the other
  KvView view_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_CONTIGUOUS_KV_H_
