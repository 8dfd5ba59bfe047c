#include "engine/scheduler/kv_restores.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "kernels/backend.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;
// The minimum of the time limit of a restore. It applies if computing takes less time, or if the
// rate of computing is unknown.
constexpr absl::Duration kMinPatience = absl::Milliseconds(100);
constexpr absl::Duration kUnknownPatience = absl::Seconds(10);
// If no block arrives in kSilence, the disk is assumed to be stuck. No reads begin for the time
// kLetBe after that.
constexpr absl::Duration kSilence = absl::Seconds(5);
constexpr absl::Duration kLetBe = absl::Seconds(30);

absl::Duration ComputeTime(const KvPrefix& prefix, double rows_per_second) {
  return absl::Seconds(static_cast<double>(prefix.tokens - prefix.memory_tokens) / rows_per_second);
}

// Returns the tokens of a block of a sequence that begins with `tokens`.
absl::Span<const int32_t> TokensOf(absl::Span<const int32_t> tokens, const KvPrefix::Block& block) {
  return tokens.subspan(block.index * kBlockTokens, kBlockTokens);
}

}  // namespace

void KvRestores::Poll(absl::Duration now) {
  for (const KvDisk::Read& read : disk_->TakeReads()) TakeIn(read, now);
  for (size_t i = restores_.size(); i-- > 0;) {
    const bool silent = restores_[i].silent_at <= now;
    if (silent) begin_from_ = now + kLetBe;
    if (silent || restores_[i].give_up_at <= now) End(i);
  }
}

// Handles a block that was read. If its restore has ended already, the block is dropped.
void KvRestores::TakeIn(const KvDisk::Read& read, absl::Duration now) {
  // The disk reads one block after the other. So each block restarts the timers of all restores.
  for (Restore& other : restores_) other.silent_at = now + kSilence;
  const auto found = std::find_if(restores_.begin(), restores_.end(),
                                  [&](const auto& one) { return one.ticket == read.ticket(); });
  if (found == restores_.end()) return;
  Restore& restore = *found;
  const KvPrefix::Block& block = restore.prefix.on_disk[restore.arrived];
  const int32_t held =
      read.ok() ? cache_->Put(block.key, TokensOf(restore.tokens, block), read.bytes()) : kNoBlock;
  if (held != kNoBlock) {
    restore.held.push_back(held);
    ++restore.arrived;
  }
  const bool whole = restore.arrived == restore.prefix.on_disk.size();
  // The blocks may be evicted for other sequences before it is this sequence's turn. Then its KV
  // may be read from the disk again.
  if (whole) restore.owner->admission.restore_tried = false;
  if (held == kNoBlock || whole) End(found - restores_.begin());
}

bool KvRestores::Begin(Sequence* sequence, const Terms& terms) {
  if (sequence->admission.restore_tried || terms.now < begin_from_) return false;
  sequence->admission.restore_tried = true;
  KvPrefix prefix = sequence->lease.FindPrefix(sequence->tokens);
  if (prefix.on_disk.empty() || !IsWorthIt(prefix, terms)) return false;
  Start(sequence, std::move(prefix), terms);
  return CoveredBlocks(sequence).has_value();
}

// The sequence waits if the next block of a restore is also one of its own blocks. The block with
// its last token does not matter, because it is always computed.
std::optional<int64_t> KvRestores::CoveredBlocks(Sequence* sequence) {
  const int64_t usable = (static_cast<int64_t>(sequence->tokens.size()) - 1) / kBlockTokens;
  for (Restore& restore : restores_) {
    const KvPrefix::Block& next = restore.prefix.on_disk[restore.arrived];
    if (next.index >= usable) continue;
    if (sequence->lease.HashOf(sequence->tokens, next.index) != next.key.hash) continue;
    const Sequence* owner = restore.owner;
    restore.priority = std::max(restore.priority, sequence->request.priority);
    const auto held = static_cast<int64_t>(restore.held.size());
    // If the sequence has a higher priority than the owner, no blocks are reserved for the rest of
    // the prefix.
    if (owner == sequence || sequence->request.priority > owner->request.priority) return held;
    return held + static_cast<int64_t>(restore.prefix.on_disk.size() - restore.arrived);
  }
  return std::nullopt;
}

// Returns whether reading takes less time than computing. The time of reading includes the reads
// that are queued before. If the speed of the disk is unknown, returns true, so that it is
// measured.
bool KvRestores::IsWorthIt(const KvPrefix& prefix, const Terms& terms) const {
  const double bytes_per_second = disk_->read_bytes_per_second();
  if (terms.prompt_rows_per_second <= 0 || bytes_per_second <= 0) return true;
  const auto blocks = BlocksToCome() + static_cast<int64_t>(prefix.on_disk.size());
  const absl::Duration read = absl::Seconds(
      static_cast<double>(blocks * static_cast<int64_t>(cache_->block_bytes())) / bytes_per_second);
  return read < ComputeTime(prefix, terms.prompt_rows_per_second);
}

void KvRestores::Start(Sequence* sequence, KvPrefix prefix, const Terms& terms) {
  Restore restore;
  restore.ticket = next_ticket_++;
  restore.owner = sequence;
  restore.priority = sequence->request.priority;
  restore.tokens.assign(sequence->tokens.begin(), sequence->tokens.begin() + prefix.tokens);
  restore.give_up_at =
      terms.now + (terms.prompt_rows_per_second <= 0
                       ? kUnknownPatience
                       : std::max(kMinPatience, ComputeTime(prefix, terms.prompt_rows_per_second)));
  restore.silent_at = terms.now + kSilence;
  // The blocks in memory must not be evicted to make room for the blocks that are read.
  for (const int32_t block : prefix.in_memory) {
    cache_->Hold(block);
    restore.held.push_back(block);
  }
  for (size_t i = 0; i < prefix.on_disk.size(); ++i) {
    const KvPrefix::Block& block = prefix.on_disk[i];
    if (disk_->StartRead(block.key, TokensOf(restore.tokens, block), restore.ticket)) continue;
    // A block is damaged. The blocks before it can still be used, unless a recurrent state is
    // needed after them.
    const bool has_state = cache_->state_parts() > 0;
    if (has_state) disk_->Withdraw(restore.ticket);
    prefix.tokens = has_state ? prefix.memory_tokens : block.index * kBlockTokens;
    prefix.on_disk.resize(has_state ? 0 : i);
  }
  restore.prefix = std::move(prefix);
  restores_.push_back(std::move(restore));
  ++stats_.restores;
  if (restores_.back().prefix.on_disk.empty()) End(restores_.size() - 1);
}

// Releases blocks from the last to the first, so that the end of a prefix is evicted before its
// beginning.
void KvRestores::End(size_t index) {
  Restore restore = std::move(restores_[index]);
  restores_.erase(restores_.begin() + index);
  if (restore.arrived < restore.prefix.on_disk.size()) {
    disk_->Withdraw(restore.ticket);
    ++stats_.given_up;
  } else {
    stats_.tokens += std::max<int64_t>(0, restore.prefix.tokens - restore.prefix.memory_tokens);
    if (restore.arrived > 0) cache_->NoteReleased(restore.prefix.on_disk.back().key.hash);
  }
  for (size_t i = restore.held.size(); i-- > 0;) cache_->Release(restore.held[i]);
}

bool KvRestores::GiveBack(int64_t max_priority) {
  size_t last = restores_.size();
  for (size_t i = 0; i < restores_.size(); ++i) {
    if (restores_[i].priority > max_priority) continue;
    if (last == restores_.size() || restores_[i].priority <= restores_[last].priority) last = i;
  }
  if (last == restores_.size()) return false;
  restores_[last].owner->admission.restore_tried = false;
  End(last);
  return true;
}

// If running sequences or other restores also hold a block of a restore, that block does not count.
int64_t KvRestores::BlocksBelow(int32_t priority) const {
  absl::flat_hash_map<int32_t, int32_t> held;  // number of holders of each block
  for (const Restore& restore : restores_) {
    if (restore.priority >= priority) continue;
    for (const int32_t block : restore.held) ++held[block];
  }
  return std::count_if(held.begin(), held.end(), [this](const auto& block) {
    return cache_->holders(block.first) == block.second;
  });
}

void KvRestores::Forget(const Sequence* sequence) {
  for (size_t i = restores_.size(); i-- > 0;) {
    if (restores_[i].owner == sequence) End(i);
  }
}

void KvRestores::EndAll() {
  while (!restores_.empty()) End(restores_.size() - 1);
}

int64_t KvRestores::BlocksToCome() const {
  int64_t blocks = 0;
  for (const Restore& restore : restores_) {
    blocks += static_cast<int64_t>(restore.prefix.on_disk.size() - restore.arrived);
  }
  return blocks;
}

absl::Duration KvRestores::NextDeadline() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const Restore& restore : restores_) {
    next = std::min({next, restore.give_up_at, restore.silent_at});
  }
  return next;
}

}  // namespace tidepool::engine
