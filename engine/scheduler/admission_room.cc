#include "engine/scheduler/admission_room.h"

#include <algorithm>

namespace tidepool::engine {

bool AdmissionRoom::KeepForRestored(Sequence* sequence) {
  if (parts_.restores == nullptr) return false;
  const std::optional<int64_t> covered = parts_.restores->CoveredBlocks(sequence);
  if (!covered.has_value()) return false;
  restoring_.push_back(sequence);
  kept_blocks_ += std::max<int64_t>(0, BlocksFor(*sequence) - *covered);
  return true;
}

int64_t AdmissionRoom::places_left() const {
  return parts_.max_sequences - parts_.running->size() - static_cast<int64_t>(restoring_.size());
}

bool AdmissionRoom::HasPlace() const { return places_left() > 0; }

int64_t AdmissionRoom::BlocksFor(const Sequence& sequence) const {
  return parts_.cache->BlocksFor(sequence.tokens.size(), parts_.prefill_chunk);
}

// Returns the number of blocks for the rest of the sequence's prompt, plus one for each group of
// the cache. Without these, the next step would have to preempt a sequence.
int64_t AdmissionRoom::BlocksStillNeeded(const Sequence& running) const {
  return std::max<int64_t>(0, BlocksFor(running) - running.lease.blocks_held()) +
         parts_.cache->groups();
}

int64_t AdmissionRoom::BlocksSpokenFor() const {
  int64_t blocks = kept_blocks_;
  for (const auto& running : parts_.running->sequences()) blocks += BlocksStillNeeded(*running);
  return blocks;
}

bool AdmissionRoom::FitsInPlaceOfLower(const Sequence& sequence) const {
  int64_t places = places_left();
  int64_t blocks = parts_.cache->blocks_free() - kept_blocks_;
  if (parts_.restores != nullptr) {
    blocks += parts_.restores->BlocksBelow(sequence.request.priority);
  }
  for (const auto& other : parts_.running->sequences()) {
    if (other->request.priority < sequence.request.priority) {
      ++places;
      blocks += other->lease.blocks_held();
    } else {
      blocks -= BlocksStillNeeded(*other);
    }
  }
  return places > 0 && BlocksFor(sequence) <= blocks;
}

std::optional<size_t> AdmissionRoom::VictimsNeeded(const Sequence& sequence,
                                                   absl::Span<Sequence* const> victims) const {
  int64_t places = places_left();
  int64_t blocks = parts_.cache->blocks_free() - BlocksSpokenFor() - BlocksFor(sequence);
  for (size_t gone = 0; gone <= victims.size(); ++gone) {
    if (gone > 0) {
      const Sequence& victim = *victims[gone - 1];
      ++places;
      blocks += BlocksStillNeeded(victim) + victim.lease.blocks_held_alone();
    }
    if (places > 0 && blocks >= 0) return gone;
  }
  return std::nullopt;
}

}  // namespace tidepool::engine
