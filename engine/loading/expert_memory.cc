#include "engine/loading/expert_memory.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

// Explains the least memory.
std::string WhyLeast(const ExpertSizes& sizes) {
  return absl::StrCat("experts need at least ", Mib(LeastBytes(sizes)), ": ", sizes.staging,
                      " staging records and the ", LeastSlots(sizes),
                      " experts of one token in one layer, ", Mib(sizes.record_bytes), " each");
}

int64_t ShareBytes(const ExpertMemory& memory, const ExpertSizes& sizes) {
  return static_cast<int64_t>(memory.share * static_cast<double>(sizes.total_bytes));
}

}  // namespace

int64_t ReserveBytes(const MemoryLimits& limits) {
  constexpr int64_t kReserve = int64_t{3} << 29;
  if (limits.reserve_bytes >= 0) return limits.reserve_bytes;
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
    if (!limits.available_bytes.has_value()) return 0;
    const int64_t reserve = ReserveBytes(limits);
    budget = *limits.available_bytes - reserve - limits.kv_bytes - sizes.dense_bytes;
    if (budget >= sizes.total_bytes) return 0;
    if (budget < least) {
      return absl::ResourceExhaustedError(absl::StrCat(
          WhyLeast(sizes), "; of ", Mib(*limits.available_bytes), " of free memory, ", Mib(reserve),
          " are the reserve, ", Mib(limits.kv_bytes), " are KV and ", Mib(sizes.dense_bytes),
          " other weights; lower --kv-memory", limits.kv_disk_bytes > 0 ? ", --kv-disk" : "",
          " or --reserve-memory, or set --expert-memory"));
    }
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
          absl::StrCat("--expert-memory is ", Mib(budget), ", and ", WhyLeast(sizes)));
    }
  }
  return std::min(sizes.experts, budget / sizes.record_bytes - sizes.staging);
}

std::string RaisedShareNote(const ExpertMemory& memory, const ExpertSizes& sizes) {
  if (memory.kind != ExpertMemoryKind::kShare || memory.share >= 1) return "";
  const int64_t budget = ShareBytes(memory, sizes);
  if (budget >= LeastBytes(sizes)) return "";
  return absl::StrCat("--expert-memory ", absl::StrFormat("%g", 100 * memory.share), "% is ",
                      Mib(budget), ", but ", WhyLeast(sizes), "; this minimum is used");
}

}  // namespace tidepool::engine
