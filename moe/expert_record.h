// ExpertRecord: one expert's weights as a byte range of a file, and the position of each matrix in
// it.
#ifndef TIDEPOOL_MOE_EXPERT_RECORD_H_
#define TIDEPOOL_MOE_EXPERT_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace tidepool::moe {

// Offset and size of each record are multiples of this, as unbuffered reads require.
inline constexpr int64_t kRecordAlignment = 4096;

// The layout of a record: gate, up and down, each aligned to kernels::kAlignment, then zeros up to
// the record's end.
class ExpertLayout {
 public:
  ExpertLayout() = default;
  // Uses the matrices' types and shapes, and ignores their data.
  explicit ExpertLayout(const kernels::FfnWeights& shapes);

  // Returns the weights of the record at `record`. Requires: `record` is aligned to
  // kernels::kAlignment.
  kernels::FfnWeights At(const std::byte* record) const;

  const kernels::FfnWeights& shapes() const { return shapes_; }  // without data
  int64_t bytes() const { return bytes_; }

 private:
  kernels::FfnWeights shapes_;
  int64_t up_at_ = 0;
  int64_t down_at_ = 0;
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
