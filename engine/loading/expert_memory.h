// How much of a model's experts is kept in memory: --expert-memory as numbers.
#ifndef TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_
#define TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

namespace tidepool::engine {

enum class ExpertMemoryKind : uint8_t {
  kAuto,   // all if they fit into what is free, else as many as do
  kBytes,  // for slots and staging records together
  kShare,  // the same as a share of all experts' bytes; of 1, a slot for every expert
};

struct ExpertMemory {
  ExpertMemoryKind kind = ExpertMemoryKind::kAuto;
  int64_t bytes = 0;  // kBytes
  double share = 0;   // kShare
};

// What the rest of the process takes, for kAuto.
struct MemoryLimits {
  // That this process may still take; none: cannot be told, and all is taken to fit.
  std::optional<int64_t> available_bytes;
  // To be left free; -1: 1.5 GiB, or a quarter of what is available where that is less.
  int64_t reserve_bytes = -1;
  int64_t kv_bytes = 0;
  int64_t kv_tokens = 0;      // whose KV counts too, where bytes are not known yet
  int64_t kv_disk_bytes = 0;  // of --kv-disk; what that takes of memory counts too
};

// Bytes that `limits` leave free. Requires: known reserve_bytes or available_bytes.
int64_t ReserveBytes(const MemoryLimits& limits);

// Of the KV cache where nobody says how much: 1 GiB, or a quarter of what is available where that
// is less, and a KiB at least.
int64_t DefaultKvBytes(std::optional<int64_t> available_bytes);

struct ExpertSizes {
  int64_t experts = 0;       // of all layers
  int64_t record_bytes = 0;  // the largest expert's
  int64_t total_bytes = 0;   // of all experts
  int64_t dense_bytes = 0;   // of all other weights
  int top_k = 0;
  int staging = 0;  // records beside the slots that hold what passes through
};

// Slots for experts; 0: no tiers, all experts are packed into memory as the other weights are.
// A slot takes record_bytes, whichever expert lies in it. Explicit memory always has slots, of all
// experts where it is enough; the staging records are beyond a share of 1, as is what slots take
// more than smaller experts. INVALID_ARGUMENT (explicit memory) or RESOURCE_EXHAUSTED (kAuto) names
// the least that is needed: the staging records and the experts of one token's layer.
absl::StatusOr<int64_t> PlanExpertSlots(const ExpertMemory& memory, const MemoryLimits& limits,
                                        const ExpertSizes& sizes);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_EXPERT_MEMORY_H_
