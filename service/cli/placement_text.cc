#include "service/cli/placement_text.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "service/base/units.h"

namespace tidepool::service {
namespace {

using engine::MemoryPlan;

std::string Size(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

std::string Slots(const MemoryPlan& plan, int64_t slots) {
  return absl::StrFormat("%d of %d experts in %s", slots, plan.sizes.experts,
                         Size(plan.ExpertBytes(slots)));
}

// Describes the memory that the model runs in.
std::string OwnMemory(const MemoryPlan& plan) {
  std::vector<std::string> parts = {absl::StrCat(Size(plan.sizes.dense_bytes), " of weights")};
  if (plan.kv_bytes > 0) parts.push_back(absl::StrCat(Size(plan.kv_bytes), " of KV"));
  if (plan.workspace_bytes > 0) {
    parts.push_back(absl::StrCat(Size(plan.workspace_bytes), " of workspace"));
  }
  if (plan.offloads()) {
    parts.push_back(Slots(plan, plan.slots));
  } else if (plan.sizes.experts > 0) {
    parts.push_back(
        absl::StrFormat("all %d experts in %s", plan.sizes.experts, Size(plan.sizes.total_bytes)));
  }
  std::string text =
      absl::StrCat(plan.on_device ? "GPU memory: " : "memory: ", absl::StrJoin(parts, ", "));
  if (plan.available_bytes.has_value()) {
    absl::StrAppend(&text, " (", Size(*plan.available_bytes), " are free, ",
                    Size(plan.reserve_bytes), " of them reserved)");
  }
  return text;
}

Json NumberOrNull(std::optional<int64_t> number) {
  return number.has_value() ? Json(*number) : Json(nullptr);
}

}  // namespace

std::vector<std::string> PlacementLines(const MemoryPlan& plan) {
  std::vector<std::string> lines = {OwnMemory(plan)};
  if (plan.host_slots > 0) {
    lines.push_back(absl::StrCat("host memory: ", Slots(plan, plan.host_slots), ", pinned"));
  }
  if (plan.offloads()) {
    lines.push_back(absl::StrFormat("disk: all %d experts, in the pack file", plan.sizes.experts));
  }
  return lines;
}

Json PlacementJson(const MemoryPlan& plan) {
  Json json;
  json["device"] = plan.on_device ? "cuda" : "cpu";
  json["available_bytes"] = NumberOrNull(plan.available_bytes);
  json["reserve_bytes"] = plan.reserve_bytes;
  json["weight_bytes"] = plan.sizes.dense_bytes;  // without routed experts
  json["kv_bytes"] = plan.kv_bytes;
  json["workspace_bytes"] = plan.on_device ? Json(plan.workspace_bytes) : Json(nullptr);
  json["experts"] = plan.offloads() ? plan.slots : plan.sizes.experts;
  json["expert_bytes"] = plan.offloads() ? plan.ExpertBytes(plan.slots) : plan.sizes.total_bytes;
  json["host"] = nullptr;
  if (plan.host_slots > 0) {
    json["host"] = {{"available_bytes", NumberOrNull(plan.host_available_bytes)},
                    {"experts", plan.host_slots},
                    {"expert_bytes", plan.ExpertBytes(plan.host_slots)}};
  }
  json["disk"] = nullptr;
  if (plan.offloads()) json["disk"] = {{"experts", plan.sizes.experts}};
  return json;
}

}  // namespace tidepool::service
