// CpuLane: computes experts of a layer on the CPU while a device computes others, and copies the
// results to the device.
#ifndef TIDEPOOL_MOE_CPU_LANE_H_
#define TIDEPOOL_MOE_CPU_LANE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "moe/expert_plan.h"
#include "moe/expert_source.h"

namespace tidepool::moe {

// Engine thread only. The backends have the same precision, so the results have the same bits as
// those of the device. The lane's own memory grows to the size of the largest layer that it has
// computed, which has at most kHostLaneRows rows.
class CpuLane {
 public:
  // The arguments must outlive the lane.
  CpuLane(kernels::KernelBackend* cpu, kernels::KernelBackend* device, const base::Clock* clock);

  // Begins a layer. `plan` and the memory of x, which is in the host's memory, must be valid
  // until End. `call_bytes` limits the scratch memory of one GroupedFfn call.
  void Begin(const ExpertPlan* plan, kernels::ConstMatrixView x, int64_t call_bytes);
  void End() { plan_ = nullptr; }
  // Computes the experts with Place::kHost, if there are any. Copies the results of their pairs
  // into `expert_out`, which is in the device's memory and has a row for each pair of the plan.
  // Reports the time to `source`. Requires: Begin was called, or there are no such experts.
  void Compute(absl::Span<const ReadyExpert> wave, kernels::MatrixView expert_out,
               ExpertSource* source);

 private:
  void Allocate(const kernels::FfnWeights& expert);
  void CopyRows(absl::Span<const size_t> experts, kernels::MatrixView expert_out);

  kernels::KernelBackend* const cpu_;
  kernels::KernelBackend* const device_;
  const base::Clock* const clock_;
  const std::unique_ptr<kernels::KernelBackend> counting_;
  const ExpertPlan* plan_ = nullptr;  // null if no layer has begun
  kernels::ConstMatrixView x_;
  int64_t call_bytes_ = 0;
  int64_t call_rows_ = 0;  // maximum rows of one GroupedFfn call; set for the layer's first expert
  std::optional<kernels::Arena> arena_;
  bool is_empty_ = true;  // true until the layer's first expert
  // the activation of x_; its memory and that of out_ come from arena_
  kernels::Activation activation_;
  kernels::MatrixView out_;  // [pairs, hidden]: the results of the lane's experts
};

// Divides the groups into calls of at most `most` rows. A group with more rows is split.
std::vector<std::vector<kernels::ExpertGroup>> InCalls(
    absl::Span<const kernels::ExpertGroup> groups, int64_t most);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_CPU_LANE_H_
