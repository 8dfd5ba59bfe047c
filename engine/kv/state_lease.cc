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
      prompt_boundary_(std::max<int64_t>(0, prompt_tokens - kPromptEndTokens) / kBlockTokens) {}

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

bool StateLease::IsKnown(int64_t boundary) const {
  return boundary == prompt_boundary_ ||
         std::find(known_.begin(), known_.end(), boundary) != known_.end();
}

void StateLease::AddBoundary(int64_t boundary) {
  if (boundary > 0 && !IsKnown(boundary)) known_.push_back(boundary);
}

bool StateLease::Allocate(std::vector<int32_t>* state) {
  if (blocks_->pool().free() < groups_.count) return false;
  for (int part = 0; part < groups_.count; ++part) state->push_back(blocks_->Allocate());
  return true;
}

bool StateLease::Reserve() {
  if (groups_.count == 0 || !out_.empty()) return true;
  return Allocate(&out_);
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
    CHECK(Allocate(&snapshot.blocks));
    snapshots_.push_back(std::move(snapshot));
  }
  std::sort(snapshots_.begin(), snapshots_.end(),
            [](const Snapshot& a, const Snapshot& b) { return a.boundary < b.boundary; });
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
    blocks_->pool().Index(state[part], KeyOf(hashed.HashBefore(boundary), part),
                          hashed.TokensBefore(boundary));
  }
}

void StateLease::Commit(int64_t slots, const HashedTokens& hashed) {
  if (groups_.count == 0 || slots == slots_) return;
  CHECK(!out_.empty()) << "a pass without a state";
  const int64_t last = slots / kBlockTokens;
  const auto value_of = [this](int64_t boundary) {
    return IsKnown(boundary) ? BlockValue::kBoundary : BlockValue::kNone;
  };
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
  for (Snapshot& snapshot : snapshots_) Drop(&snapshot.blocks, value_of(snapshot.boundary));
  snapshots_.clear();
  Drop(&in_, slots_ % kBlockTokens == 0 ? value_of(slots_ / kBlockTokens) : BlockValue::kNone);
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
