// StaticPolicy: keeps the experts with the most uses in a profile.
#ifndef TIDEPOOL_MOE_POLICY_STATIC_POLICY_H_
#define TIDEPOOL_MOE_POLICY_STATIC_POLICY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "moe/policy/placement_policy.h"
#include "moe/policy/ranking.h"

namespace tidepool::moe {

// Thread-compatible. If experts have equal uses, the lower expert number, then the lower layer, is
// preferred. So without a profile, all layers get equal shares of the slots. If slots become free
// because the pool grew or a read failed, misses fill them. If a missing expert has more uses in
// the profile than a resident, it replaces that resident.
class StaticPolicy final : public PlacementPolicy {
 public:
  // `profile` is the number of uses, [layers, experts], or empty.
  StaticPolicy(const PoolShape& shape, std::vector<int64_t> profile,
               absl::string_view name = "static")
      : name_(name), uses_(std::move(profile)) {
    uses_.resize(shape.all_experts(), 0);
  }

  absl::string_view name() const override { return name_; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;

 private:
  const std::string name_;
  std::vector<int64_t> uses_;  // [layers, experts]
  std::vector<Ranked<int64_t>> missing_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_STATIC_POLICY_H_
