// Decides how many of a model's experts are kept in memory (--expert-memory, --host-expert-memory).
#ifndef TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_
#define TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tidepool::engine {

enum class ExpertMemoryKind : uint8_t {
  kAuto,   // all experts if they fit into free memory, otherwise as many as fit
  kBytes,  // a number of bytes, for slots and staging records together
  kShare,  // a share of all experts' bytes, used like kBytes; 1 gives every expert a slot
};

struct ExpertMemory {
  ExpertMemoryKind kind = ExpertMemoryKind::kAuto;
  int64_t bytes = 0;  // for kBytes
  double share = 0;   // for kShare
};

// The memory that a plan is for.
enum class MemoryLevel : uint8_t {
  kHost,         // the host's memory, for a model that runs on the CPU
  kDevice,       // a GPU's memory, for a model that runs there
  kBelowDevice,  // the host's memory, for experts that a GPU computes
};

// Memory that the rest of the process needs. Used by kAuto.
struct MemoryLimits {
  // Bytes that this process can still allocate. If it is unknown (nullopt), everything is assumed
  // to fit.
  std::optional<int64_t> available_bytes;
  // Bytes that must stay free. -1: the default. In the host's memory, it is the smaller of 1.5 GiB
  // and a quarter of the available bytes. In a GPU's memory, it is the larger of 1.5 GiB and 10 %
  // of the available bytes.
  int64_t reserve_bytes = -1;
  int64_t kv_bytes = 0;       // -1: DefaultKvBytes; not accepted by PlanExpertSlots
  int64_t kv_tokens = 0;      // number of tokens whose KV is counted in addition to kv_bytes
  int64_t kv_disk_bytes = 0;  // size of --kv-disk; the memory that it needs is counted, too
  int64_t workspace_bytes = 0;
  MemoryLevel level = MemoryLevel::kHost;
};

// The number of bytes that must stay free according to `limits`. Requires: reserve_bytes or
// available_bytes is set.
int64_t ReserveBytes(const MemoryLimits& limits);

// Returns the default size of the KV cache. It is 1 GiB, or a quarter of the available bytes if
// that is less, but at least 1 KiB.
int64_t DefaultKvBytes(std::optional<int64_t> available_bytes);

struct ExpertSizes {
  int64_t experts = 0;       // number of experts in all layers
  int64_t record_bytes = 0;  // bytes of the largest expert
  int64_t total_bytes = 0;   // bytes of all experts
  int64_t dense_bytes = 0;   // bytes of all other weights
  int top_k = 0;
  int staging = 0;  // records besides the slots, for experts that are used once and then dropped
};

// Returns the number of slots for experts. 0 means no offloading: all experts are packed into
// memory like other weights. With kBelowDevice, all experts need slots, so 0 is not returned. Every
// slot has record_bytes bytes, even if its expert is smaller. With kBytes or kShare there are
// always slots, even if all experts fit. A share of 1 counts neither the staging records nor the
// unused part of slots with smaller experts. The minimum is the staging records and the experts of
// one token in one layer. A smaller share is raised to it. If the memory is too small, returns
// INVALID_ARGUMENT (kBytes) or RESOURCE_EXHAUSTED (kAuto) with the minimum.
absl::StatusOr<int64_t> PlanExpertSlots(const ExpertMemory& memory, const MemoryLimits& limits,
                                        const ExpertSizes& sizes);

// If PlanExpertSlots raises the share, returns a line for the user that says so. Otherwise returns
// an empty string.
std::string RaisedShareNote(const ExpertMemory& memory, const ExpertSizes& sizes,
                            MemoryLevel level = MemoryLevel::kHost);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_
