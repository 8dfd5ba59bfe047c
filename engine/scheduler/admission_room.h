// AdmissionRoom: the room for waiting sequences in one plan: places among those that run, and KV
// blocks. Two others come first: running sequences, which still need blocks for their prompts, and
// waiting ones whose KV is being read from a disk.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_ROOM_H_
#define TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_ROOM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "engine/kv/kv_cache.h"
#include "engine/scheduler/kv_restores.h"
#include "engine/scheduler/running_sequences.h"
#include "engine/scheduler/sequence.h"

namespace tidepool::engine {

// Engine thread only; of one pass over the queue.
class AdmissionRoom {
 public:
  struct Parts {
    int64_t max_sequences = 0;  // places
    int64_t prefill_chunk = 0;  // most rows of a sequence in one step
    const KvCache* cache = nullptr;
    const RunningSequences* running = nullptr;
    KvRestores* restores = nullptr;  // may be null
  };
  // All outlive it.
  explicit AdmissionRoom(const Parts& parts) : parts_(parts) {}

  // If the sequence waits for KV from a disk: keeps a place and blocks for it, and returns true.
  bool KeepForRestored(Sequence* sequence);
  // For which sequences places are kept.
  absl::Span<const Sequence* const> restoring() const { return restoring_; }

  bool HasPlace() const;
  // Most blocks that the sequence holds while its tokens are computed.
  int64_t BlocksFor(const Sequence& sequence) const;
  // Blocks, free now, that running sequences and restores still need.
  int64_t BlocksSpokenFor() const;

  // Whether the sequence fits once all running ones of lower priority are gone.
  bool FitsInPlaceOfLower(const Sequence& sequence) const;
  // How many of the running `victims` must go before the sequence fits, the first ones first.
  // nullopt: all of them are not enough.
  std::optional<size_t> VictimsNeeded(const Sequence& sequence,
                                      absl::Span<Sequence* const> victims) const;

 private:
  int64_t places_left() const;
  int64_t BlocksStillNeeded(const Sequence& running) const;

  const Parts parts_;
  std::vector<const Sequence*> restoring_;
  int64_t kept_blocks_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_ROOM_H_
