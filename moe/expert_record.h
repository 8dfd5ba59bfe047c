// ExpertRecord: one expert's weights as a byte range of a file, and the position of each matrix in
// it.
#ifndef TIDEPOOL_MOE_EXPERT_RECORD_H_
#define TIDEPOOL_MOE_EXPERT_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::moe {

// Offset and size of each record are multiples of this, as unbuffered reads require.
inline constexpr int64_t kRecordAlignment = 4096;

// The biases in a record that is being written. Empty if the expert has none.
struct ExpertBiases {
  absl::Span<float> gate;
  absl::Span<float> up;
  absl::Span<float> down;
};

// The layout of a record: gate, up and down, then those of their biases that the expert has, as
// float32. Each is aligned to kernels::kAlignment. Then come zeros up to the record's end.
class ExpertLayout {
 public:
  ExpertLayout() = default;
  // Uses the matrices' types and shapes, the sizes of the biases and the form, and ignores all
  // data.
  explicit ExpertLayout(const kernels::FfnWeights& shapes);

  // Returns the weights of the record at `record`. Requires: `record` is aligned to
  // kernels::kAlignment.
  kernels::FfnWeights At(const std::byte* record) const;
  // The same record's biases, to be filled in.
  ExpertBiases BiasesAt(std::byte* record) const;

  const kernels::FfnWeights& shapes() const { return shapes_; }  // without data
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

  int64_t largest_bytes() const;
  // [layers]: bytes of each layer's largest record, as in a trace's header.
  std::vector<int64_t> layer_bytes() const;
  int64_t total_bytes() const;
};

// Computes ExpertRecord::hash.
uint64_t RecordHash(const std::byte* record, int64_t bytes);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_RECORD_H_
