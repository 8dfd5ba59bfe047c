#include "engine/loading/expert_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

std::string Mib(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

// The number of slots that one token in one layer needs.
int64_t LeastSlots(const ExpertSizes& sizes) {
  return std::min<int64_t>(sizes.top_k, sizes.experts);
}

int64_t LeastBytes(const ExpertSizes& sizes) {
  return (sizes.staging + LeastSlots(sizes)) * sizes.record_bytes;
}

// Explains the minimum memory for experts.
std::string WhyLeast(const ExpertSizes& sizes) {
  return absl::StrCat("experts need at least ", Mib(LeastBytes(sizes)), ": ", sizes.staging,
                      " staging records and the ", LeastSlots(sizes),
                      " experts of one token in one layer, ", Mib(sizes.record_bytes), " each");
}

int64_t ShareBytes(const ExpertMemory& memory, const ExpertSizes& sizes) {
  return static_cast<int64_t>(memory.share * static_cast<double>(sizes.total_bytes));
}

absl::string_view FlagOf(MemoryLevel level) {
  return level == MemoryLevel::kBelowDevice ? "--host-expert-memory" : "--expert-memory";
}

// The error for memory that is too small for kAuto.
absl::Status TooSmall(const MemoryLimits& limits, const ExpertSizes& sizes) {
  std::vector<std::string> uses = {absl::StrCat(Mib(ReserveBytes(limits)), " are the reserve"),
                                   absl::StrCat(Mib(limits.kv_bytes), " are KV")};
  if (limits.workspace_bytes > 0) {
    uses.push_back(absl::StrCat(Mib(limits.workspace_bytes), " workspace"));
  }
  std::vector<absl::string_view> flags = {"--kv-memory"};
  if (limits.level == MemoryLevel::kBelowDevice) flags.clear();  // the KV is on the device
  if (limits.kv_disk_bytes > 0) flags.emplace_back("--kv-disk");
  const std::string others = flags.empty() ? "" : absl::StrCat(absl::StrJoin(flags, ", "), " or ");
  return absl::ResourceExhaustedError(absl::StrCat(
      WhyLeast(sizes), "; of ", Mib(*limits.available_bytes), " of free memory",
      limits.level == MemoryLevel::kDevice ? " of the GPU, " : ", ", absl::StrJoin(uses, ", "),
      " and ", Mib(sizes.dense_bytes), " other weights; lower ", others,
      "--reserve-memory, or set ", FlagOf(limits.level)));
}

}  // namespace

int64_t ReserveBytes(const MemoryLimits& limits) {
  constexpr int64_t kReserve = int64_t{3} << 29;
  if (limits.reserve_bytes >= 0) return limits.reserve_bytes;
  if (limits.level == MemoryLevel::kDevice) {
    return std::max(kReserve, limits.available_bytes.value() / 10);
  }
  return std::min(kReserve, limits.available_bytes.value() / 4);
}

int64_t DefaultKvBytes(std::optional<int64_t> available_bytes) {
  constexpr int64_t kMax = int64_t{1} << 30;
  constexpr int64_t kMin = int64_t{1} << 10;
  if (!available_bytes.has_value()) return kMax;
  return std::clamp(*available_bytes / 4, kMin, kMax);
}

absl::StatusOr<int64_t> PlanExpertSlots(const ExpertMemory& memory, const MemoryLimits& limits,
                                        const ExpertSizes& sizes) {
  CHECK(sizes.experts > 0 && sizes.record_bytes > 0 && sizes.top_k > 0 && sizes.staging > 0);
  const int64_t least = LeastBytes(sizes);
  int64_t budget = 0;
  if (memory.kind == ExpertMemoryKind::kAuto) {
    const int64_t all = limits.level == MemoryLevel::kBelowDevice ? sizes.experts : 0;
    if (!limits.available_bytes.has_value()) return all;
    budget = *limits.available_bytes - ReserveBytes(limits) - limits.kv_bytes -
             limits.workspace_bytes - sizes.dense_bytes;
    if (budget >= sizes.total_bytes && all == 0) return 0;
    if (budget < least) return TooSmall(limits, sizes);
  } else if (memory.kind == ExpertMemoryKind::kShare && memory.share >= 1) {
    // The user requested all experts in memory, so no expert may be read while the model runs. The
    // budget is not checked.
    return sizes.experts;
  } else if (memory.kind == ExpertMemoryKind::kShare) {
    budget = std::max(ShareBytes(memory, sizes), least);
  } else {
    budget = memory.bytes;
    if (budget < least) {
      return absl::InvalidArgumentError(
          absl::StrCat(FlagOf(limits.level), " is ", Mib(budget), ", and ", WhyLeast(sizes)));
    }
  }
  return std::min(sizes.experts, budget / sizes.record_bytes - sizes.staging);
}

std::string RaisedShareNote(const ExpertMemory& memory, const ExpertSizes& sizes,
                            MemoryLevel level) {
  if (memory.kind != ExpertMemoryKind::kShare || memory.share >= 1) return "";
  const int64_t budget = ShareBytes(memory, sizes);
  if (budget >= LeastBytes(sizes)) return "";
  return absl::StrCat(FlagOf(level), " ", absl::StrFormat("%g", 100 * memory.share), "% is ",
                      Mib(budget), ", but ", WhyLeast(sizes), "; this minimum is used");
}

}  // namespace tidepool::engine
