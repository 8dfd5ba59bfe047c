#include "moe/policy/residency.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"

namespace tidepool::moe {

absl::Status PoolShape::Validate() const {
  if (layers < 1 || layers > kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the number of MoE layers is %d; it must be 1 to %d", layers, kMaxLayers));
  }
  if (experts < 1 || experts > kMaxExperts) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the number of experts per layer is %d; it must be 1 to %d", experts, kMaxExperts));
  }
  if (all_experts() > kMaxAllExperts) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d layers of %d experts exceed the limit of %d experts", layers, experts, kMaxAllExperts));
  }
  if (top_k < 1 || top_k > experts) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "top_k is %d; it must be 1 to %d, the number of experts of a layer", top_k, experts));
  }
  if (slots < 1 || slots > all_experts()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the number of slots is %d; it must be 1 to %d for %d layers of %d experts",
                        slots, all_experts(), layers, experts));
  }
  if (!miss_cost.empty() && static_cast<int>(miss_cost.size()) != layers) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "there are %d miss costs; there must be %d, one for each layer", miss_cost.size(), layers));
  }
  for (const float cost : miss_cost) {
    if (!std::isfinite(cost) || cost <= 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("a miss cost is %g; it must be greater than 0", cost));
    }
  }
  return absl::OkStatus();
}

std::vector<float> MissCosts(absl::Span<const int64_t> expert_bytes) {
  const auto differs = [&](int64_t bytes) { return bytes != expert_bytes.front(); };
  if (std::none_of(expert_bytes.begin(), expert_bytes.end(), differs)) return {};
  const double mean = std::accumulate(expert_bytes.begin(), expert_bytes.end(), 0.0) /
                      static_cast<double>(expert_bytes.size());
  std::vector<float> costs;
  for (const int64_t bytes : expert_bytes) {
    costs.push_back(static_cast<float>(static_cast<double>(bytes) / mean));
  }
  return costs;
}

Residency::Residency(const PoolShape& shape)
    : shape_(shape),
      resident_(shape.all_experts(), 0),
      pins_(shape.all_experts(), 0),
      residents_of_(shape.layers, 0) {
  CHECK_OK(shape.Validate());
}

void Residency::Insert(ExpertRef ref) {
  CHECK(!IsResident(ref) && free_slots() > 0);
  resident_[IndexOf(ref)] = 1;
  ++residents_;
  ++residents_of_[ref.layer];
}

void Residency::Remove(ExpertRef ref) {
  CHECK(IsResident(ref) && !IsPinned(ref)) << "layer " << ref.layer << " expert " << ref.expert;
  resident_[IndexOf(ref)] = 0;
  --residents_;
  --residents_of_[ref.layer];
}

void Residency::Replace(ExpertRef victim, ExpertRef newcomer) {
  Remove(victim);
  Insert(newcomer);
}

void Residency::Pin(ExpertRef ref) {
  CHECK(IsResident(ref));
  if (pins_[IndexOf(ref)]++ == 0) ++pinned_;
}

void Residency::Unpin(ExpertRef ref) {
  CHECK(IsPinned(ref));
  if (--pins_[IndexOf(ref)] == 0) --pinned_;
}

void Residency::Resize(int64_t slots) {
  CHECK_LE(residents_, slots);
  shape_.slots = slots;
}

}  // namespace tidepool::moe
