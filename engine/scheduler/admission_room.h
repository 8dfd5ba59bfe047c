// AdmissionRoom: the places and KV blocks that a plan can give to waiting sequences. The plan first
// subtracts what two kinds of sequences need: running ones, which still need blocks for their
// prompts, and waiting ones whose KV is being read from a disk.
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

// Engine thread only. Valid for one pass over the queue.
class AdmissionRoom {
 public:
  struct Parts {
    int64_t max_sequences = 0;  // maximum number of running sequences
    int64_t prefill_chunk = 0;  // maximum number of rows of a sequence per step
    const KvCache* cache = nullptr;
    const RunningSequences* running = nullptr;
    KvRestores* restores = nullptr;  // null if there is no disk
  };
  // All parts must outlive this object.
  explicit AdmissionRoom(const Parts& parts) : parts_(parts) {}

  // If the sequence waits for its KV to be read from a disk, reserves a place and the KV blocks
  // that the sequence needs, and returns true.
  bool KeepForRestored(Sequence* sequence);
  // The sequences for which places are reserved.
  absl::Span<const Sequence* const> restoring() const { return restoring_; }

  bool HasPlace() const;
  // The maximum number of blocks that the sequence holds until all of its tokens are computed.
  int64_t BlocksFor(const Sequence& sequence) const;
  // Number of free blocks that running sequences and restores still need.
  int64_t BlocksSpokenFor() const;

  // Returns whether the sequence would fit if no sequence with a lower priority ran.
  bool FitsInPlaceOfLower(const Sequence& sequence) const;
  // Returns how many of the running `victims` must be preempted, beginning with the first, until
  // the sequence fits. Returns nullopt if all of them are not enough.
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
