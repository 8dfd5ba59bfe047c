// ResidentExperts: the ExpertSource of a model whose experts are all in memory.
#ifndef TIDEPOOL_MOE_RESIDENT_EXPERTS_H_
#define TIDEPOOL_MOE_RESIDENT_EXPERTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/expert_source.h"

namespace tidepool::moe {

// Engine thread only. All experts of a request are ready at once, so one call of NextReady returns
// all of them. NextReady never fails.
class ResidentExperts final : public ExpertSource {
 public:
  // layers[m][e] is expert e of MoE layer m. The memory of the weights must outlive this object.
  explicit ResidentExperts(std::vector<std::vector<kernels::FfnWeights>> layers)
      : layers_(std::move(layers)) {}

  void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) override;
  absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) override;
  void Release(int32_t /*expert*/) override {}
  void Postpone(int32_t expert) override;

 private:
  const std::vector<std::vector<kernels::FfnWeights>> layers_;
  std::vector<ReadyExpert> pending_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RESIDENT_EXPERTS_H_
