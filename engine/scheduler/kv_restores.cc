#include "engine/scheduler/kv_restores.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "kernels/backend.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;
// Where computing takes less, or how long it takes is not known.
constexpr absl::Duration kMinPatience = absl::Milliseconds(100);
constexpr absl::Duration kUnknownPatience = absl::Seconds(10);
// Without a block in so long the disk does not answer; then nothing is asked of it for a while.
constexpr absl::Duration kSilence = absl::Seconds(5);
constexpr absl::Duration kLetBe = absl::Seconds(30);

absl::Duration ComputeTime(const KvPrefix& prefix, double rows_per_second) {
  return absl::Seconds(static_cast<double>(prefix.tokens - prefix.memory_tokens) / rows_per_second);
}

// Of the sequence that begins with `tokens`.
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

// One of a restore that has ended is too late.
void KvRestores::TakeIn(const KvDisk::Read& read, absl::Duration now) {
  // They are read one after the other.
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
  // Should others take it before its turn comes, it is read again.
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

// It waits where the next block that some restore waits for is one of its own, too, before the one
// with its last token, which is computed in any case.
std::optional<int64_t> KvRestores::CoveredBlocks(Sequence* sequence) {
  const int64_t usable = (static_cast<int64_t>(sequence->tokens.size()) - 1) / kBlockTokens;
  for (Restore& restore : restores_) {
    const KvPrefix::Block& next = restore.prefix.on_disk[restore.arrived];
    if (next.index >= usable) continue;
    if (sequence->lease.HashOf(sequence->tokens, next.index) != next.key.hash) continue;
    const Sequence* owner = restore.owner;
    restore.priority = std::max(restore.priority, sequence->request.priority);
    const auto held = static_cast<int64_t>(restore.held.size());
    // Nobody has cared for what is to come when it is the turn of one that goes before the owner.
    if (owner == sequence || sequence->request.priority > owner->request.priority) return held;
    return held + static_cast<int64_t>(restore.prefix.on_disk.size() - restore.arrived);
  }
  return std::nullopt;
}

// By what the disk has to read before, too. A disk that nobody has read from yet is tried.
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
  // What is in memory already must not give way to what comes behind it.
  for (const int32_t block : prefix.in_memory) {
    cache_->Hold(block);
    restore.held.push_back(block);
  }
  for (size_t i = 0; i < prefix.on_disk.size(); ++i) {
    const KvPrefix::Block& block = prefix.on_disk[i];
    if (disk_->StartRead(block.key, TokensOf(restore.tokens, block), restore.ticket)) continue;
    // Found damaged since: what is before it is still of use.
    prefix.tokens = block.index * kBlockTokens;
    prefix.on_disk.resize(i);
  }
  restore.prefix = std::move(prefix);
  restores_.push_back(std::move(restore));
  ++stats_.restores;
  if (restores_.back().prefix.on_disk.empty()) End(restores_.size() - 1);
}

// From the back, so that a prefix's end gives way before its beginning.
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

bool KvRestores::GiveBack(int64_t most_priority) {
  size_t last = restores_.size();
  for (size_t i = 0; i < restores_.size(); ++i) {
    if (restores_[i].priority > most_priority) continue;
    if (last == restores_.size() || restores_[i].priority <= restores_[last].priority) last = i;
  }
  if (last == restores_.size()) return false;
  restores_[last].owner->admission.restore_tried = false;
  End(last);
  return true;
}

// Sequences that run may have attached what has come, as they may hold what was in memory before;
// so may other restores.
int64_t KvRestores::BlocksBelow(int32_t priority) const {
  absl::flat_hash_map<int32_t, int32_t> held;  // how often, by block
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
