// RowGate: KernelBackend::Gate for one row at a time.
#ifndef TIDEPOOL_KERNELS_CPU_GATE_H_
#define TIDEPOOL_KERNELS_CPU_GATE_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernel_table.h"

namespace tidepool::kernels {

// Thread-compatible. Uses the same scratch memory for every row.
class RowGate {
 public:
  // `kernels` and `spec` must outlive this object.
  RowGate(const KernelTable& kernels, const GateSpec& spec);

  // Chooses the experts of a row: reads logits [experts], and writes ids and weights, each [top_k].
  void Choose(const float* logits, int32_t* ids, float* weights);

 private:
  void Score(const float* logits);
  void KeepBestGroups();
  void ChooseIds(int32_t* ids);
  void Weigh(const int32_t* ids, float* weights);

  const KernelTable& kernels_;
  const GateSpec& spec_;
  std::vector<float> scores_;     // [experts]
  std::vector<float> selection_;  // [experts]
  std::vector<int32_t> ranks_;    // [experts]
  std::vector<int32_t> group_ranks_;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_GATE_H_
