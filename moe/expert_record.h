// ExpertRecord: one expert's weights as a run of bytes in a file, and where in it each matrix lies.
#ifndef TIDEPOOL_MOE_EXPERT_RECORD_H_
#define TIDEPOOL_MOE_EXPERT_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace tidepool::moe {

// Records begin at multiples of it and are multiples of it long: what unbuffered reads ask for.
inline constexpr int64_t kRecordAlignment = 4096;

// gate, up and down one behind the other, each at a multiple of kernels::kAlignment, and zeros up
// to the record's end.
class ExpertLayout {
 public:
  ExpertLayout() = default;
  // The matrices' types and shapes; their data is ignored.
  explicit ExpertLayout(const kernels::FfnWeights& shapes);

  // The weights of the record at `record`, aligned to kernels::kAlignment.
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
  uint64_t hash = 0;  // XXH3-64 of its bytes
};

// The records of all experts of a model. layers[m][e]: expert e of MoE layer m; every layer has as
// many.
struct ExpertRecords {
  std::string path;
  std::vector<std::vector<ExpertRecord>> layers;

  int64_t largest_bytes() const;
  // [layers]: of each layer's largest, as a trace's header has them.
  std::vector<int64_t> layer_bytes() const;
  int64_t total_bytes() const;
};

// What ExpertRecord::hash holds.
uint64_t RecordHash(const std::byte* record, int64_t bytes);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_RECORD_H_
