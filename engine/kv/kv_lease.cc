// KvLease: the blocks of one sequence in the KV cache, and when those outside its window are freed.
#include <algorithm>
#include <utility>

#include "engine/kv/kv_cache.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;

absl::Span<const int32_t> TokensOfBlock(absl::Span<const int32_t> tokens, int64_t block) {
  return tokens.subspan(block * kBlockTokens, kBlockTokens);
}

// Prompts with the same beginning often differ in their last message. So another prompt may share a
// prefix that ends near the end of this one. The boundaries of the last kPromptEndBlocks blocks are
// therefore treated as known (kv_cache.h).
constexpr int64_t kPromptEndBlocks = 4;

}  // namespace

KvReservation::KvReservation(KvReservation&& other) noexcept
    : lease_(std::exchange(other.lease_, nullptr)), blocks_(other.blocks_) {}

KvReservation::~KvReservation() {
  if (lease_ == nullptr) return;
  lease_->state_.Unreserve();
  lease_->ShrinkTables(blocks_);
}

KvLease::KvLease(KvCache* cache, const BlockHash& root, int64_t prompt_tokens)
    : cache_(cache),
      root_(root),
      prompt_blocks_(prompt_tokens / kBlockTokens),
      tables_(cache->groups()),
      state_(cache->blocks_.get(), cache->state_groups(), prompt_tokens) {}

KvLease& KvLease::operator=(KvLease&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  cache_ = std::exchange(other.cache_, nullptr);
  root_ = other.root_;
  prompt_blocks_ = other.prompt_blocks_;
  tails_ = std::exchange(other.tails_, {});
  slots_ = std::exchange(other.slots_, 0);
  hashes_ = std::exchange(other.hashes_, {});
  table_blocks_ = std::exchange(other.table_blocks_, 0);
  tables_ = std::exchange(other.tables_, {});
  state_ = std::exchange(other.state_, StateLease());
  return *this;
}

int64_t KvLease::blocks_held() const {
  int64_t held = state_.blocks_held();
  for (const std::vector<int32_t>& table : tables_) {
    held += static_cast<int64_t>(table.size()) - std::count(table.begin(), table.end(), kNoBlock);
  }
  return held;
}

int64_t KvLease::blocks_held_alone() const {
  int64_t held = state_.blocks_held_alone();
  for (const std::vector<int32_t>& table : tables_) {
    held += std::count_if(table.begin(), table.end(), [this](int32_t block) {
      return block != kNoBlock && cache_->holders(block) == 1;
    });
  }
  return held;
}

const BlockHash& KvLease::HashOf(absl::Span<const int32_t> tokens, int64_t block) {
  CHECK_LE((block + 1) * kBlockTokens, static_cast<int64_t>(tokens.size()));
  while (static_cast<int64_t>(hashes_.size()) <= block) {
    const auto next = static_cast<int64_t>(hashes_.size());
    const BlockHash& parent = hashes_.empty() ? root_ : hashes_.back();
    hashes_.push_back(HashBlock(parent, TokensOfBlock(tokens, next)));
    ++cache_->blocks_hashed_;
  }
  return hashes_[block];
}

// Returns `tokens` with the hashes of at least their first `blocks` blocks.
HashedTokens KvLease::Hashed(absl::Span<const int32_t> tokens, int64_t blocks) {
  if (blocks > 0) HashOf(tokens, blocks - 1);
  return {.hashes = hashes_, .tokens = tokens};
}

// Finds the longest prefix that can be reused. Each full group must have all blocks of the prefix.
// Each window group must have the blocks that the next token needs. If the model has recurrent
// states, there must be a checkpoint at the end of the prefix.
KvLease::Match KvLease::FindBlocks(absl::Span<const int32_t> tokens, KvPlaces places) {
  Match match;
  if (tokens.empty()) return match;
  const KvBlocks& blocks = *cache_->blocks_;
  const StateGroups states = cache_->state_groups();
  const int64_t limit = (static_cast<int64_t>(tokens.size()) - 1) / kBlockTokens;
  // number of consecutive cached blocks up to the current one
  std::vector<int64_t> run(tables_.size(), 0);
  for (int64_t block = 0; block < limit; ++block) {
    const BlockHash hash = HashOf(tokens, block);
    const absl::Span<const int32_t> own = TokensOfBlock(tokens, block);
    bool usable = true;
    for (int group = 0; group < cache_->groups(); ++group) {
      const bool found = blocks.Has({hash, group}, own, places);
      // A cached block has the same key but other tokens. The blocks after it may also belong to
      // other tokens, although their own tokens are equal. So stop here.
      if (!found && blocks.Knows({hash, group}, places)) return match;
      run[group] = found ? run[group] + 1 : 0;
      if (block + 1 - run[group] <= cache_->FirstOfTail(group, block + 1)) continue;
      usable = false;
      // If a full group lacks this block, it also lacks a part of every longer prefix.
      if (cache_->IsFull(group)) return match;
    }
    if (usable && states.count > 0) {
      usable = HasCheckpoint(blocks, states, block + 1, Hashed(tokens, block + 1), places);
    }
    if (usable) match.usable = block + 1;
    match.full = cache_->has_full_group_ ? block + 1 : match.usable;
  }
  return match;
}

int64_t KvLease::CachedTokens(absl::Span<const int32_t> tokens) {
  CHECK(cache_ != nullptr && slots_ == 0) << slots_ << " slots are attached";
  return FindBlocks(tokens, KvPlaces::kMemory).usable * kBlockTokens;
}

KvPrefix KvLease::FindPrefix(absl::Span<const int32_t> tokens) {
  KvPrefix prefix;
  prefix.memory_tokens = prefix.tokens = CachedTokens(tokens);
  if (cache_->blocks_->disk() == nullptr) return prefix;
  const int64_t blocks = FindBlocks(tokens, KvPlaces::kMemoryAndDisk).usable;
  prefix.tokens = blocks * kBlockTokens;
  if (prefix.tokens == prefix.memory_tokens) return prefix;
  const auto add = [&](int group, int64_t block) {
    const BlockKey key = {hashes_[block], group};
    const int32_t id = cache_->pool().Find(key, TokensOfBlock(tokens, block));
    if (id == kNoBlock) {
      prefix.on_disk.push_back({key, block});
    } else {
      prefix.in_memory.push_back(id);
    }
  };
  for (int64_t block = 0; block < blocks; ++block) {
    for (int group = 0; group < cache_->groups(); ++group) {
      if (block >= cache_->FirstOfTail(group, blocks)) add(group, block);
    }
  }
  const StateGroups states = cache_->state_groups();
  for (int part = 0; part < states.count; ++part) add(states.first + part, blocks - 1);
  return prefix;
}

int64_t KvLease::AttachPrefix(absl::Span<const int32_t> tokens) {
  CHECK(cache_ != nullptr && slots_ == 0 && table_blocks_ == 0) << slots_ << " slots are attached";
  const Match match = FindBlocks(tokens, KvPlaces::kMemory);
  const int64_t blocks = match.usable;
  for (int group = 0; group < cache_->groups(); ++group) {
    const int64_t first = cache_->FirstOfTail(group, blocks);
    for (int64_t block = 0; block < blocks; ++block) {
      const int32_t id = block < first ? kNoBlock
                                       : cache_->pool().Find({hashes_[block], group},
                                                             TokensOfBlock(tokens, block));
      if (id != kNoBlock) cache_->pool().AddHolder(id);
      tables_[group].push_back(id);
    }
  }
  table_blocks_ = blocks;
  slots_ = blocks * kBlockTokens;
  if (blocks > 0 && cache_->state_parts() > 0) state_.Attach(blocks, Hashed(tokens, blocks));
  WantTail({blocks, blocks});
  WantCheckpoint(blocks);
  // The tokens after this boundary are not cached, so at least two sequences continue differently
  // here. More sequences will probably do so.
  if (match.full > blocks) {
    WantTail({match.full, match.full});
    WantCheckpoint(match.full);
  }
  return slots_;
}

void KvLease::NoteUse() const {
  KvDisk* disk = cache_->blocks_->disk();
  if (disk == nullptr || slots_ == 0) return;
  std::vector<BlockKey> keys;
  const StateGroups states = cache_->state_groups();
  keys.reserve(states.count);
  for (int part = 0; part < states.count; ++part) {
    keys.push_back({hashes_[slots_ / kBlockTokens - 1], states.first + part});
  }
  // Mark the blocks as used from the last to the first, so that the end of a prefix is evicted
  // before its beginning.
  for (int64_t block = slots_ / kBlockTokens - 1; block >= 0; --block) {
    for (int group = 0; group < cache_->groups(); ++group) {
      if (tables_[group][block] != kNoBlock) keys.push_back({hashes_[block], group});
    }
  }
  disk->NoteUse(keys);
}

void KvLease::NoteStart(absl::Span<const int32_t> tokens) {
  if (cache_->state_parts() > 0) state_.NoteStart(Hashed(tokens, slots_ / kBlockTokens));
}

std::optional<KvReservation> KvLease::Reserve(int64_t slots) {
  CHECK(cache_ != nullptr);
  const int64_t before = table_blocks_;
  const int64_t wanted = std::max(before, KvBlocksOf(slots));
  const int64_t state = state_.out().empty() ? cache_->state_parts() : 0;
  if ((wanted - before) * cache_->groups() + state > cache_->blocks_free()) return std::nullopt;
  for (std::vector<int32_t>& table : tables_) {
    while (static_cast<int64_t>(table.size()) < wanted) {
      table.push_back(cache_->blocks_->Allocate());
    }
  }
  table_blocks_ = wanted;
  CHECK(state_.Reserve());
  return KvReservation(this, before);
}

void KvLease::ReserveSnapshots(absl::Span<const int32_t> tokens, int64_t slots) {
  if (cache_->state_parts() == 0) return;
  state_.ReserveSnapshots(slots, Hashed(tokens, slots / kBlockTokens));
}

void KvLease::ReserveSpareSnapshots(absl::Span<const int32_t> tokens, int64_t slots) {
  if (cache_->state_parts() == 0) return;
  state_.ReserveSpareSnapshots(slots, Hashed(tokens, slots / kBlockTokens));
}

void KvLease::Commit(absl::Span<const int32_t> tokens) {
  const int64_t slots = tokens.size();
  CHECK(slots >= slots_ && slots <= table_blocks_ * kBlockTokens) << slots << " slots";
  for (int64_t block = slots_ / kBlockTokens; block < slots / kBlockTokens; ++block) {
    const BlockHash& hash = HashOf(tokens, block);
    for (int group = 0; group < cache_->groups(); ++group) {
      cache_->pool().Index(tables_[group][block], {hash, group}, TokensOfBlock(tokens, block));
    }
  }
  if (slots_ / kBlockTokens < prompt_blocks_ && slots / kBlockTokens >= prompt_blocks_) {
    WantTail({std::max<int64_t>(0, prompt_blocks_ - kPromptEndBlocks), prompt_blocks_});
  }
  state_.Commit(slots, Hashed(tokens, slots / kBlockTokens));
  slots_ = slots;
  FreeBlocksOutOfReach();
}

void KvLease::FreeBlocksOutOfReach() {
  for (int group = 0; group < cache_->groups(); ++group) {
    std::vector<int32_t>& table = tables_[group];
    // Keeps the blocks that are needed to continue after the last full block, because other
    // sequences can attach the prefix up to this block.
    const int64_t first = cache_->FirstOfTail(group, slots_ / kBlockTokens);
    // Earlier commits have already released the blocks before `begin`.
    int64_t begin = first;
    while (begin > 0 && table[begin - 1] != kNoBlock) --begin;
    for (int64_t block = begin; block < first; ++block) {
      cache_->pool().Release(
          std::exchange(table[block], kNoBlock),
          block < prompt_blocks_ ? BlockValue::kPassed : BlockValue::kPassedOutput);
    }
  }
}

void KvLease::WantTail(const Tail& tail) {
  if (tail.last_boundary == 0) return;
  for (int group = 0; group < cache_->groups(); ++group) {
    if (cache_->IsFull(group)) continue;
    for (int64_t block = cache_->FirstOfTail(group, tail.first_boundary);
         block < tail.last_boundary; ++block) {
      cache_->pool().Want({hashes_[block], group});
    }
  }
  tails_.push_back(tail);
}

void KvLease::UnwantTails(int64_t block) {
  for (const Tail& tail : tails_) {
    for (int group = 0; group < cache_->groups(); ++group) {
      if (cache_->IsFull(group) || block >= tail.last_boundary ||
          block < cache_->FirstOfTail(group, tail.first_boundary)) {
        continue;
      }
      cache_->pool().Unwant({hashes_[block], group});
    }
  }
}

std::vector<absl::Span<const int32_t>> KvLease::Tables(int64_t slots) const {
  const int64_t blocks = KvBlocksOf(slots);
  CHECK_LE(blocks, table_blocks_);
  std::vector<absl::Span<const int32_t>> spans;
  for (const std::vector<int32_t>& table : tables_) {
    spans.push_back(absl::MakeConstSpan(table).first(blocks));
  }
  return spans;
}

void KvLease::SetBlocks(RowSpan* span) const {
  CHECK_EQ(span->first_slot, slots_);
  span->blocks = Tables(slots_ + span->rows());
  span->state_in = state_.in();
  span->state_out = state_.out();
  span->state_snapshots = state_.Snapshots();
}

void KvLease::ShrinkTables(int64_t blocks) {
  // Release the blocks from the last to the first, so that the end of a prefix is evicted before
  // its beginning.
  for (int64_t block = table_blocks_ - 1; block >= blocks; --block) {
    for (std::vector<int32_t>& table : tables_) {
      if (table[block] != kNoBlock) cache_->pool().Release(table[block]);
      table.pop_back();
    }
  }
  table_blocks_ = std::min(table_blocks_, blocks);
}

void KvLease::Reset() {
  if (cache_ == nullptr) return;
  if (slots_ >= kBlockTokens) cache_->NoteReleased(hashes_[slots_ / kBlockTokens - 1]);
  state_.Release(hashes_);
  int64_t blocks = table_blocks_;
  for (const Tail& tail : tails_) blocks = std::max(blocks, tail.last_boundary);
  for (int64_t block = blocks - 1; block >= 0; --block) {
    ShrinkTables(block);
    UnwantTails(block);
  }
  tails_.clear();
  slots_ = 0;
}

}  // namespace tidepool::engine
