#include "moe/replay/tier_costs.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace tidepool::moe {
namespace {

using Json = nlohmann::json;

constexpr double kMaxMicroseconds = 1e9;
constexpr double kMaxExpertBytes = 1e12;
constexpr double kMaxBytesPerSecond = 1e15;

struct Field {
  const char* name;
  double TierCosts::*value;
};

constexpr Field kTimes[] = {
    {"device_step_us", &TierCosts::device_step_us},
    {"device_layer_us", &TierCosts::device_layer_us},
    {"device_call_us", &TierCosts::device_call_us},
    {"device_expert_us", &TierCosts::device_expert_us},
    {"device_expert_row_us", &TierCosts::device_expert_row_us},
    {"copy_latency_us", &TierCosts::copy_latency_us},
    {"cpu_call_us", &TierCosts::cpu_call_us},
    {"cpu_expert_us", &TierCosts::cpu_expert_us},
    {"cpu_expert_row_us", &TierCosts::cpu_expert_row_us},
};
constexpr char kAbout[] = "about";
constexpr char kExpertBytes[] = "expert_bytes";
constexpr char kBandwidth[] = "copy_bytes_per_s";

absl::Status Wrong(const std::string& name, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", what, "; moe/replay/tier_costs.h describes a costs file"));
}

// Removes the field from `json` and returns its value.
absl::StatusOr<double> Take(const std::string& name, const char* field, double least, double most,
                            Json* json) {
  const auto found = json->find(field);
  if (found == json->end()) return Wrong(name, absl::StrCat("\"", field, "\" is missing"));
  const std::optional<double> value =
      found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
  if (!value.has_value() || !(*value >= least && *value <= most)) {
    return Wrong(name, absl::StrCat("\"", field, "\" must be a number from ", least, " to ", most));
  }
  json->erase(found);
  return *value;
}

}  // namespace

absl::StatusOr<TierCosts> ParseTierCosts(const std::string& name, absl::string_view text) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong(name, "the file is not a JSON object");
  TierCosts costs;
  for (const Field& field : kTimes) {
    ASSIGN_OR_RETURN(costs.*field.value, Take(name, field.name, 0, kMaxMicroseconds, &json));
  }
  ASSIGN_OR_RETURN(const double bytes, Take(name, kExpertBytes, 1, kMaxExpertBytes, &json));
  costs.expert_bytes = static_cast<int64_t>(bytes);
  ASSIGN_OR_RETURN(costs.copy_bytes_per_s, Take(name, kBandwidth, 1, kMaxBytesPerSecond, &json));
  json.erase(kAbout);
  if (json.empty()) return costs;
  return Wrong(name, absl::StrCat("unknown field \"", json.begin().key(), "\""));
}

}  // namespace tidepool::moe
