// ExpertRecord: the position of one expert's weights in a file, and the layout of the matrices in
// that range.
#ifndef TIDEPOOL_MOE_EXPERT_RECORD_H_
#define TIDEPOOL_MOE_EXPERT_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::moe {

// The offset and the size of each record are multiples of this. Reads that bypass the page cache
// require it.
inline constexpr int64_t kRecordAlignment = 4096;

// The biases in a record that is being written. A span is empty if the expert has no such bias.
struct ExpertBiases {
  absl::Span<float> gate;
  absl::Span<float> up;
  absl::Span<float> down;
};

// The layout of a record: the matrices gate, up and down, followed by the expert's biases of these
// matrices as float32. Each part is aligned to kernels::kAlignment. Zeros fill the rest of the
// record.
class ExpertLayout {
 public:
  ExpertLayout() = default;
  // Uses the types and shapes of the matrices, the sizes of the biases, and the form. Ignores all
  // data.
  explicit ExpertLayout(const kernels::FfnWeights& shapes);

  // Returns the weights that are stored in the record at `record`. Requires: `record` is aligned to
  // kernels::kAlignment.
  kernels::FfnWeights At(const std::byte* record) const;
  // Returns the biases in the record at `record`, so that the caller can write them.
  ExpertBiases BiasesAt(std::byte* record) const;

  const kernels::FfnWeights& shapes() const { return shapes_; }  // the data is not set
  int64_t bytes() const { return bytes_; }

 private:
  kernels::FfnWeights shapes_;
  int64_t up_at_ = 0;
  int64_t down_at_ = 0;
  int64_t gate_bias_at_ = 0;
  int64_t up_bias_at_ = 0;
  int64_t down_bias_at_ = 0;
  int64_t bytes_ = 0;
};

struct ExpertRecord {
  ExpertLayout layout;
  int64_t offset = 0;
  uint64_t hash = 0;  // XXH3-64 of the record's bytes
};

// The records of all experts of a model. layers[m][e] is expert e of MoE layer m. All layers have
// the same number of experts.
struct ExpertRecords {
  std::string path;
  std::vector<std::vector<ExpertRecord>> layers;

  // The record of an expert, whose number counts over all layers.
  const ExpertRecord& At(int64_t expert) const;
  int64_t largest_bytes() const;
  // [layers]: bytes of each layer's largest record, as in the header of a trace.
  std::vector<int64_t> layer_bytes() const;
  int64_t total_bytes() const;
};

// Computes ExpertRecord::hash.
uint64_t RecordHash(const std::byte* record, int64_t bytes);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_RECORD_H_
