#include "engine/kv/kv_disk_index.h"

#include <algorithm>

namespace tidepool::engine {
namespace {

// The highest stamps are reserved for the blocks that are written at shutdown.
constexpr uint64_t kLastStamps = uint64_t{1} << 32;

}  // namespace

void KvDiskIndex::Restore(int32_t slot, const KvDiskEntry& entry) {
  slots_[slot].in_file = true;
  slots_[slot].entry = entry;
  restored_.emplace_back(entry.stamp, slot);
}

void KvDiskIndex::EndRestore() {
  std::sort(restored_.begin(), restored_.end());
  for (const auto& [stamp, slot] : std::exchange(restored_, {})) {
    // Two slots never have the same content, except in a damaged file.
    if (!index_.emplace(slots_[slot].entry.key, slot).second) continue;
    Store(slot);
    stamp_ = stamp;
  }
  // Free slots at the start of the file are used first.
  for (auto slot = static_cast<int32_t>(slots_.size()) - 1; slot >= 0; --slot) {
    if (slots_[slot].state == State::kFree) free_.push_back(slot);
  }
}

int32_t KvDiskIndex::Find(const BlockKey& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? kNoBlock : found->second;
}

int32_t KvDiskIndex::Find(const BlockKey& key, absl::Span<const int32_t> tokens) const {
  const int32_t slot = Find(key);
  if (slot == kNoBlock) return kNoBlock;
  return absl::MakeConstSpan(slots_[slot].entry.tokens) == tokens ? slot : kNoBlock;
}

int32_t KvDiskIndex::Take(Growth growth) {
  if (!free_.empty() && growth == Growth::kAllowed) {
    const int32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  for (auto it = recent_.rbegin(); it != recent_.rend(); ++it) {
    const int32_t slot = *it;
    if (slots_[slot].readers > 0) continue;
    Forget(slot);
    return slot;
  }
  return kNoBlock;
}

void KvDiskIndex::BeginWrite(int32_t slot, const BlockKey& key, absl::Span<const int32_t> tokens,
                             int64_t newer) {
  Slot& written = slots_[slot];
  written.state = State::kWriting;
  written.entry.key = key;
  std::copy(tokens.begin(), tokens.end(), written.entry.tokens.begin());
  written.entry.stamp = NextStamp(newer);
  index_.emplace(key, slot);
}

void KvDiskIndex::EndWrite(int32_t slot, uint64_t checksum) {
  slots_[slot].entry.checksum = checksum;
  slots_[slot].in_file = true;
  Store(slot);
}

void KvDiskIndex::FailWrite(int32_t slot) {
  Forget(slot);
  FreeIfUnread(slot);
}

void KvDiskIndex::Store(int32_t slot) {
  slots_[slot].state = State::kStored;
  recent_.push_front(slot);
  slots_[slot].place = recent_.begin();
}

uint64_t KvDiskIndex::NextStamp(int64_t newer) {
  return newer < 0 ? ++stamp_ : stamp_ + kLastStamps - static_cast<uint64_t>(newer);
}

bool KvDiskIndex::NoteUse(int32_t slot, int64_t newer) {
  const uint64_t stamp = NextStamp(newer);
  Slot& used = slots_[slot];
  // A block that is being written is already one of the most recent.
  if (used.state != State::kStored) return false;
  recent_.splice(recent_.begin(), recent_, used.place);
  used.entry.stamp = stamp;
  if (std::exchange(used.stale, true)) return false;
  stale_.push_back(slot);
  return stale_.size() == 1;
}

void KvDiskIndex::EndRead(int32_t slot) {
  --slots_[slot].readers;
  FreeIfUnread(slot);
}

void KvDiskIndex::Forget(int32_t slot) {
  index_.erase(slots_[slot].entry.key);
  if (slots_[slot].state == State::kStored) recent_.erase(slots_[slot].place);
  slots_[slot].state = State::kFree;
}

// Makes the slot available if its block was forgotten and no read of the slot is in progress.
void KvDiskIndex::FreeIfUnread(int32_t slot) {
  if (slots_[slot].state == State::kFree && slots_[slot].readers == 0) free_.push_back(slot);
}

std::vector<KvDiskIndex::StaleEntry> KvDiskIndex::TakeStale(size_t most) {
  std::vector<StaleEntry> entries;
  while (!stale_.empty() && entries.size() < most) {
    const int32_t slot = stale_.back();
    stale_.pop_back();
    slots_[slot].stale = false;
    // If the slot is being written again, the new block gets its own stamp.
    if (slots_[slot].state == State::kStored) entries.emplace_back(slot, slots_[slot].entry);
  }
  return entries;
}

void KvDiskIndex::ReturnStale(absl::Span<const StaleEntry> entries) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!std::exchange(slots_[entry->first].stale, true)) stale_.push_back(entry->first);
  }
}

}  // namespace tidepool::engine
