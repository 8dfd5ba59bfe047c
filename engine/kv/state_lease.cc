#include "engine/kv/state_lease.h"

#include <algorithm>
#include <utility>

#include "kernels/backend.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;

}  // namespace

bool HasCheckpoint(const KvBlocks& blocks, const StateGroups& groups, int64_t boundary,
                   const HashedTokens& hashed, KvPlaces places) {
  const BlockHash& hash = hashed.HashBefore(boundary);
  for (int part = 0; part < groups.count; ++part) {
    const BlockKey key = {hash, groups.first + part};
    if (!blocks.Has(key, hashed.TokensBefore(boundary), places)) return false;
  }
  return true;
}

StateLease::StateLease(KvBlocks* blocks, const StateGroups& groups, int64_t prompt_tokens)
    : blocks_(blocks),
      groups_(groups),
      prompt_boundary_(std::max<int64_t>(0, prompt_tokens - kPromptEndTokens) / kBlockTokens) {
  if (groups.count == 0) return;
  const int64_t most = blocks->pool().total() / (BlockPool::kSpareShare * groups.count);
  if (most > 0) spare_distance_ = 1 + prompt_boundary_ / most;
}

std::vector<kernels::StateSnapshot> StateLease::Snapshots() const {
  std::vector<kernels::StateSnapshot> snapshots;
  for (const Snapshot& one : snapshots_) {
    snapshots.push_back({.rows = one.boundary * kBlockTokens - slots_, .blocks = one.blocks});
  }
  return snapshots;
}

int64_t StateLease::blocks_held() const {
  return static_cast<int64_t>(in_.size() + out_.size()) +
         static_cast<int64_t>(snapshots_.size()) * groups_.count;
}

// Only `in` can be shared.
int64_t StateLease::blocks_held_alone() const {
  return blocks_held() - std::count_if(in_.begin(), in_.end(), [this](int32_t block) {
           return blocks_->pool().holders(block) > 1;
         });
}

void StateLease::Attach(int64_t boundary, const HashedTokens& hashed) {
  CHECK(slots_ == 0 && in_.empty() && out_.empty());
  for (int part = 0; part < groups_.count; ++part) {
    const int32_t block = blocks_->pool().Find(KeyOf(hashed.HashBefore(boundary), part),
                                               hashed.TokensBefore(boundary));
    CHECK_NE(block, kNoBlock);
    blocks_->pool().AddHolder(block);
    in_.push_back(block);
  }
  slots_ = boundary * kBlockTokens;
}

bool StateLease::IsBranch(int64_t boundary) const {
  return std::find(known_.begin(), known_.end(), boundary) != known_.end();
}

bool StateLease::IsKnown(int64_t boundary) const {
  return boundary == prompt_boundary_ || IsBranch(boundary);
}

void StateLease::AddBoundary(int64_t boundary) {
  if (boundary > 0 && !IsBranch(boundary)) known_.push_back(boundary);
}

void StateLease::NoteStart(const HashedTokens& hashed) {
  const int64_t attached = slots_ / kBlockTokens;
  if (groups_.count == 0 || attached == 0) return;
  for (int part = 0; part < groups_.count; ++part) {
    blocks_->pool().AddStart(KeyOf(hashed.HashBefore(attached), part));
  }
  for (int64_t boundary = 1; boundary < attached; ++boundary) {
    if (!blocks_->pool().Knows(KeyOf(hashed.HashBefore(boundary), 0))) continue;
    for (int part = 0; part < groups_.count; ++part) {
      blocks_->pool().Supersede(KeyOf(hashed.HashBefore(boundary), part));
    }
  }
}

// Allocates the blocks of a state. If there are not enough, returns false.
bool StateLease::Allocate(BlockUse use, std::vector<int32_t>* state) {
  if (blocks_->pool().free() < groups_.count) return false;
  for (int part = 0; part < groups_.count; ++part) {
    const int32_t block = blocks_->Allocate(use);
    if (block == kNoBlock) {
      Drop(state, BlockValue::kNone);
      return false;
    }
    state->push_back(block);
  }
  return true;
}

bool StateLease::Reserve() {
  if (groups_.count == 0 || !out_.empty()) return true;
  return Allocate(BlockUse::kNeeded, &out_);
}

// Returns the boundaries after `slots_` and before `slots` that should get a checkpoint, the most
// useful ones first.
std::vector<int64_t> StateLease::BoundariesWithin(int64_t slots) const {
  std::vector<int64_t> boundaries = known_;
  boundaries.push_back(prompt_boundary_);
  boundaries.push_back(slots / kBlockTokens);
  std::vector<int64_t> within;
  for (const int64_t boundary : boundaries) {
    const int64_t slot = boundary * kBlockTokens;
    if (slot <= slots_ || slot >= slots) continue;
    if (std::find(within.begin(), within.end(), boundary) == within.end()) {
      within.push_back(boundary);
    }
  }
  return within;
}

void StateLease::ReserveSnapshots(int64_t slots, const HashedTokens& hashed) {
  if (groups_.count == 0) return;
  CHECK(snapshots_.empty());
  for (const int64_t boundary : BoundariesWithin(slots)) {
    if (HasCheckpoint(*blocks_, groups_, boundary, hashed, KvPlaces::kMemory)) continue;
    if (blocks_->pool().free_unwanted() < groups_.count) break;
    Snapshot snapshot = {.boundary = boundary};
    CHECK(Allocate(BlockUse::kNeeded, &snapshot.blocks));
    snapshots_.push_back(std::move(snapshot));
  }
  std::sort(snapshots_.begin(), snapshots_.end());
}

void StateLease::ReserveSpareSnapshots(int64_t slots, const HashedTokens& hashed) {
  if (spare_distance_ == 0) return;
  const auto has_snapshot = [this](int64_t boundary) {
    return std::any_of(snapshots_.begin(), snapshots_.end(),
                       [boundary](const Snapshot& one) { return one.boundary == boundary; });
  };
  const int64_t first = (slots_ / kBlockTokens / spare_distance_ + 1) * spare_distance_;
  const int64_t end = std::min(prompt_boundary_, (slots - 1) / kBlockTokens + 1);
  for (int64_t boundary = first; boundary < end; boundary += spare_distance_) {
    if (has_snapshot(boundary) ||
        HasCheckpoint(*blocks_, groups_, boundary, hashed, KvPlaces::kMemory)) {
      continue;
    }
    Snapshot snapshot = {.boundary = boundary, .spare = true};
    if (!Allocate(BlockUse::kSpare, &snapshot.blocks)) break;
    snapshots_.push_back(std::move(snapshot));
  }
  std::sort(snapshots_.begin(), snapshots_.end());
}

void StateLease::Drop(std::vector<int32_t>* state, BlockValue value) {
  for (const int32_t block : *state) blocks_->pool().Release(block, value);
  state->clear();
}

void StateLease::Unreserve() {
  Drop(&out_, BlockValue::kNone);
  for (Snapshot& snapshot : snapshots_) Drop(&snapshot.blocks, BlockValue::kNone);
  snapshots_.clear();
}

// Does nothing if the index has the checkpoint already.
void StateLease::Index(const std::vector<int32_t>& state, int64_t boundary,
                       const HashedTokens& hashed) {
  for (int part = 0; part < groups_.count; ++part) {
    const BlockKey key = KeyOf(hashed.HashBefore(boundary), part);
    blocks_->pool().Index(state[part], key, hashed.TokensBefore(boundary));
    // Another sequence will begin at this boundary, too.
    if (IsBranch(boundary)) blocks_->pool().AddStart(key);
  }
}

void StateLease::Commit(int64_t slots, const HashedTokens& hashed) {
  if (groups_.count == 0 || slots == slots_) return;
  CHECK(!out_.empty()) << "a pass without a state";
  const int64_t last = slots / kBlockTokens;
  for (const Snapshot& snapshot : snapshots_) Index(snapshot.blocks, snapshot.boundary, hashed);
  if (last * kBlockTokens == slots) Index(out_, last, hashed);
  if (last * kBlockTokens > slots_) {
    // Another sequence may have made the checkpoint, or there was no memory for it.
    if (HasCheckpoint(*blocks_, groups_, last, hashed, KvPlaces::kMemory)) {
      Roll(last, hashed);
    } else if (!snapshots_.empty()) {
      Roll(snapshots_.back().boundary, hashed);
    }
  }
  for (Snapshot& snapshot : snapshots_) {
    const BlockValue other = snapshot.spare ? BlockValue::kSpare : BlockValue::kNone;
    Drop(&snapshot.blocks, IsKnown(snapshot.boundary) ? BlockValue::kBoundary : other);
  }
  snapshots_.clear();
  const bool known = slots_ % kBlockTokens == 0 && IsKnown(slots_ / kBlockTokens);
  Drop(&in_, known ? BlockValue::kBoundary : BlockValue::kNone);
  in_.swap(out_);
  slots_ = slots;
}

// Moves the rolling checkpoint to a later boundary.
void StateLease::Roll(int64_t boundary, const HashedTokens& hashed) {
  for (int part = 0; part < groups_.count; ++part) {
    blocks_->pool().Want(KeyOf(hashed.HashBefore(boundary), part));
  }
  if (rolling_ > 0) Unwant(hashed.HashBefore(rolling_), PassedValue(rolling_));
  rolling_ = boundary;
}

// Returns the value of a rolling checkpoint that is replaced.
BlockValue StateLease::PassedValue(int64_t boundary) {
  if (boundary > prompt_boundary_ || boundary - last_passed_ < kPassedStateBlocks) {
    return BlockValue::kNone;
  }
  last_passed_ = boundary;
  return BlockValue::kPassed;
}

void StateLease::Unwant(const BlockHash& hash, BlockValue value) {
  for (int part = 0; part < groups_.count; ++part) {
    blocks_->pool().Unwant(KeyOf(hash, part), value);
  }
}

void StateLease::Release(absl::Span<const BlockHash> hashes) {
  if (groups_.count == 0) return;
  Unreserve();
  Drop(&in_, BlockValue::kNone);
  if (rolling_ > 0) Unwant(hashes[rolling_ - 1], BlockValue::kBoundary);
  known_.clear();
  rolling_ = 0;
  slots_ = 0;
  last_passed_ = 0;
}

}  // namespace tidepool::engine
