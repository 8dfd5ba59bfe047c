// Decides how many of a model's experts are kept in memory (--expert-memory).
#ifndef TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_
#define TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

namespace tidepool::engine {

enum class ExpertMemoryKind : uint8_t {
  kAuto,   // all if they fit into free memory, else as many as fit
  kBytes,  // bytes of slots and staging records together
  kShare,  // the same as a share of all experts' bytes; 1 gives every expert a slot
};

struct ExpertMemory {
  ExpertMemoryKind kind = ExpertMemoryKind::kAuto;
  int64_t bytes = 0;  // for kBytes
  double share = 0;   // for kShare
};

// Memory of the rest of the process, used by kAuto.
struct MemoryLimits {
  // Bytes that this process can still allocate. nullopt: unknown, and everything is assumed to fit.
  std::optional<int64_t> available_bytes;
  // Bytes to leave free. -1: 1.5 GiB, or a quarter of the available bytes if that is less.
  int64_t reserve_bytes = -1;
  int64_t kv_bytes = 0;
  int64_t kv_tokens = 0;      // tokens whose KV counts too, if kv_bytes is unset
  int64_t kv_disk_bytes = 0;  // size of --kv-disk, whose memory counts too
};

// The bytes that `limits` leave free. Requires: reserve_bytes or available_bytes is set.
int64_t ReserveBytes(const MemoryLimits& limits);

// The default size of the KV cache: 1 GiB, or a quarter of the available bytes if that is less, but
// at least 1 KiB.
int64_t DefaultKvBytes(std::optional<int64_t> available_bytes);

struct ExpertSizes {
  int64_t experts = 0;       // in all layers
  int64_t record_bytes = 0;  // bytes of the largest expert
  int64_t total_bytes = 0;   // bytes of all experts
  int64_t dense_bytes = 0;   // bytes of all other weights
  int top_k = 0;
  int staging = 0;  // more records, for experts that are used once and dropped
};

// Returns the number of slots for experts. 0 means no offloading: all experts are packed into
// memory like other weights. A slot takes record_bytes, whatever the size of its expert. With an
// explicit setting there are always slots, even if all experts fit. A share of 1 does not count the
// staging records, nor the unused part of slots with smaller experts. If the memory is too small,
// INVALID_ARGUMENT (explicit setting) or RESOURCE_EXHAUSTED (kAuto) names the minimum: the staging
// records and the experts of one token in one layer.
absl::StatusOr<int64_t> PlanExpertSlots(const ExpertMemory& memory, const MemoryLimits& limits,
                                        const ExpertSizes& sizes);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_
