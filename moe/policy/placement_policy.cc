#include "moe/policy/placement_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/policy/adaptive_policy.h"
#include "moe/policy/lru_policy.h"
#include "moe/policy/static_policy.h"
#include "moe/policy/tide_policy.h"

namespace tidepool::moe {
namespace {

constexpr PolicyKind kKinds[] = {PolicyKind::kAdaptive, PolicyKind::kTide, PolicyKind::kLru,
                                 PolicyKind::kStatic};

}  // namespace

absl::Status PolicyOptions::Validate(const PoolShape& shape) const {
  if (refresh_interval < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the refresh interval is %d steps; it must be 1 or more", refresh_interval));
  }
  if (!profile.empty() && static_cast<int64_t>(profile.size()) != shape.all_experts()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the profile has %d experts, but the model has %d layers of %d experts; "
                        "use a trace of this "
                        "model",
                        profile.size(), shape.layers, shape.experts));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePolicy(const PolicyOptions& options,
                                                            const PoolShape& shape) {
  RETURN_IF_ERROR(options.Validate(shape));
  std::unique_ptr<PlacementPolicy> policy;
  switch (options.kind) {
    case PolicyKind::kAdaptive:
      policy = std::make_unique<AdaptivePolicy>(shape);
      break;
    case PolicyKind::kTide:
      policy = std::make_unique<TidePolicy>(shape, options.refresh_interval);
      break;
    case PolicyKind::kLru:
      policy = std::make_unique<LruPolicy>(shape);
      break;
    case PolicyKind::kStatic:
      policy = std::make_unique<StaticPolicy>(shape, options.profile);
      break;
  }
  CHECK(policy != nullptr);
  return policy;
}

absl::string_view PolicyName(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kAdaptive:
      return "adaptive";
    case PolicyKind::kTide:
      return "tide";
    case PolicyKind::kLru:
      return "lru";
    case PolicyKind::kStatic:
      return "static";
  }
  return "";
}

absl::StatusOr<PolicyKind> ParsePolicyKind(absl::string_view name) {
  std::string names;
  for (const PolicyKind kind : kKinds) {
    if (PolicyName(kind) == name) return kind;
    absl::StrAppend(&names, names.empty() ? "" : ", ", PolicyName(kind));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown offload policy \"", name, "\"; expected one of: ", names));
}

}  // namespace tidepool::moe
