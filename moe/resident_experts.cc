#include "moe/resident_experts.h"

#include "kernels/base/check.h"

namespace tidepool::moe {

void ResidentExperts::Request(const LayerRouting& routing, absl::Span<const int32_t> experts) {
  const int moe_layer = routing.layer;
  CHECK(pending_.empty()) << "layer " << moe_layer
                          << " was requested before the last one was drained";
  CHECK(moe_layer >= 0 && moe_layer < static_cast<int>(layers_.size()))
      << "MoE layer " << moe_layer;
  const std::vector<kernels::FfnWeights>& layer = layers_[moe_layer];
  pending_.reserve(experts.size());
  for (const int32_t expert : experts) {
    CHECK(expert >= 0 && expert < static_cast<int32_t>(layer.size())) << "expert " << expert;
    pending_.push_back({.expert = expert, .weights = &layer[expert]});
  }
}

absl::StatusOr<std::vector<ReadyExpert>> ResidentExperts::NextReady(Patience /*patience*/) {
  return std::exchange(pending_, {});
}

void ResidentExperts::Postpone(int32_t expert) {
  CHECK(false) << "expert " << expert << " is not leaving";
}

}  // namespace tidepool::moe
