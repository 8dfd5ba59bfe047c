#include "engine/kv/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/tensor.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;

absl::Span<const int32_t> TokensOfBlock(absl::Span<const int32_t> tokens, int64_t block) {
  return tokens.subspan(block * kBlockTokens, kBlockTokens);
}

// The maximum time that the engine waits until the disk accepts a block.
constexpr absl::Duration kWritePatience = absl::Milliseconds(20);

// Prompts with the same beginning often differ in their last message. So all boundaries in the last
// kPromptEndBlocks blocks of a prompt are treated as known.
constexpr int64_t kPromptEndBlocks = 4;

}  // namespace

KvReservation::KvReservation(KvReservation&& other) noexcept
    : lease_(std::exchange(other.lease_, nullptr)), blocks_(other.blocks_) {}

KvReservation::~KvReservation() {
  if (lease_ != nullptr) lease_->ShrinkTables(blocks_);
}

KvLease::KvLease(KvCache* cache, const BlockHash& root, int64_t prompt_blocks)
    : cache_(cache), root_(root), prompt_blocks_(prompt_blocks), tables_(cache->groups()) {}

KvLease& KvLease::operator=(KvLease&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  cache_ = std::exchange(other.cache_, nullptr);
  root_ = other.root_;
  prompt_blocks_ = other.prompt_blocks_;
  tails_ = std::exchange(other.tails_, {});
  slots_ = std::exchange(other.slots_, 0);
  hashes_ = std::exchange(other.hashes_, {});
  tables_ = std::exchange(other.tables_, {});
  return *this;
}

int64_t KvLease::blocks_held() const {
  int64_t held = 0;
  for (const std::vector<int32_t>& table : tables_) {
    held += static_cast<int64_t>(table.size()) - std::count(table.begin(), table.end(), kNoBlock);
  }
  return held;
}

int64_t KvLease::blocks_held_alone() const {
  int64_t held = 0;
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

// Finds the longest prefix that can be reused. For this, each full group must have all blocks of
// the prefix, and each window group must have the blocks that the next token needs.
KvLease::Match KvLease::FindBlocks(absl::Span<const int32_t> tokens, bool with_disk) {
  Match match;
  if (tokens.empty()) return match;
  const int64_t limit = (static_cast<int64_t>(tokens.size()) - 1) / kBlockTokens;
  // number of consecutive cached blocks up to the current one
  std::vector<int64_t> run(tables_.size(), 0);
  for (int64_t block = 0; block < limit; ++block) {
    const BlockHash hash = HashOf(tokens, block);
    const absl::Span<const int32_t> own = TokensOfBlock(tokens, block);
    bool usable = true;
    for (int group = 0; group < cache_->groups(); ++group) {
      const bool found = cache_->IsThere({hash, group}, own, with_disk);
      // A block with the same key has other tokens. The blocks after it may also belong to other
      // tokens, although their own tokens are equal. So stop here.
      if (!found && cache_->IsKnown({hash, group}, with_disk)) return match;
      run[group] = found ? run[group] + 1 : 0;
      if (block + 1 - run[group] <= cache_->FirstOfTail(group, block + 1)) continue;
      usable = false;
      // If a full group lacks this block, it also lacks a part of every longer prefix.
      if (cache_->specs_[group].kind == KvKind::kFull) return match;
    }
    if (usable) match.usable = block + 1;
    match.full = cache_->has_full_group_ ? block + 1 : match.usable;
  }
  return match;
}

int64_t KvLease::CachedTokens(absl::Span<const int32_t> tokens) {
  CHECK(cache_ != nullptr && slots_ == 0) << slots_ << " slots are attached";
  return FindBlocks(tokens, /*with_disk=*/false).usable * kBlockTokens;
}

KvPrefix KvLease::FindPrefix(absl::Span<const int32_t> tokens) {
  KvPrefix prefix;
  prefix.memory_tokens = prefix.tokens = CachedTokens(tokens);
  if (cache_->disk_ == nullptr) return prefix;
  const int64_t blocks = FindBlocks(tokens, /*with_disk=*/true).usable;
  prefix.tokens = blocks * kBlockTokens;
  if (prefix.tokens == prefix.memory_tokens) return prefix;
  for (int64_t block = 0; block < blocks; ++block) {
    for (int group = 0; group < cache_->groups(); ++group) {
      if (block < cache_->FirstOfTail(group, blocks)) continue;
      const BlockKey key = {hashes_[block], group};
      const int32_t id = cache_->pool_.Find(key, TokensOfBlock(tokens, block));
      if (id == kNoBlock) {
        prefix.on_disk.push_back({key, block});
      } else {
        prefix.in_memory.push_back(id);
      }
    }
  }
  return prefix;
}

int64_t KvLease::AttachPrefix(absl::Span<const int32_t> tokens) {
  CHECK(cache_ != nullptr && slots_ == 0 && table_blocks() == 0) << slots_ << " slots are attached";
  const Match match = FindBlocks(tokens, /*with_disk=*/false);
  const int64_t blocks = match.usable;
  for (int group = 0; group < cache_->groups(); ++group) {
    const int64_t first = cache_->FirstOfTail(group, blocks);
    for (int64_t block = 0; block < blocks; ++block) {
      const int32_t id =
          block < first ? kNoBlock
                        : cache_->pool_.Find({hashes_[block], group}, TokensOfBlock(tokens, block));
      if (id != kNoBlock) cache_->pool_.AddHolder(id);
      tables_[group].push_back(id);
    }
  }
  slots_ = blocks * kBlockTokens;
  WantTail({blocks, blocks});
  // The tokens after this boundary are not cached, so at least two sequences continue differently
  // here. More sequences will probably do so.
  if (match.full > blocks) WantTail({match.full, match.full});
  return slots_;
}

void KvLease::NoteUse() const {
  if (cache_->disk_ == nullptr) return;
  std::vector<BlockKey> keys;
  // Mark the blocks as used from the last to the first, so that the end of a prefix is evicted
  // before its beginning.
  for (int64_t block = slots_ / kBlockTokens - 1; block >= 0; --block) {
    for (int group = 0; group < cache_->groups(); ++group) {
      if (tables_[group][block] != kNoBlock) keys.push_back({hashes_[block], group});
    }
  }
  if (!keys.empty()) cache_->disk_->NoteUse(keys);
}

std::optional<KvReservation> KvLease::Reserve(int64_t slots) {
  CHECK(cache_ != nullptr);
  const int64_t before = table_blocks();
  const int64_t wanted = std::max(before, KvBlocksOf(slots));
  if ((wanted - before) * cache_->groups() > cache_->pool_.free()) return std::nullopt;
  for (std::vector<int32_t>& table : tables_) {
    while (static_cast<int64_t>(table.size()) < wanted) table.push_back(cache_->Allocate());
  }
  return KvReservation(this, before);
}

void KvLease::Commit(absl::Span<const int32_t> tokens) {
  const int64_t slots = tokens.size();
  CHECK(slots >= slots_ && slots <= table_blocks() * kBlockTokens) << slots << " slots";
  for (int64_t block = slots_ / kBlockTokens; block < slots / kBlockTokens; ++block) {
    const BlockHash& hash = HashOf(tokens, block);
    for (int group = 0; group < cache_->groups(); ++group) {
      cache_->pool_.Index(tables_[group][block], {hash, group}, TokensOfBlock(tokens, block));
    }
  }
  if (slots_ / kBlockTokens < prompt_blocks_ && slots / kBlockTokens >= prompt_blocks_) {
    WantTail({std::max<int64_t>(0, prompt_blocks_ - kPromptEndBlocks), prompt_blocks_});
  }
  slots_ = slots;
  FreeBlocksOutOfReach();
}

void KvLease::FreeBlocksOutOfReach() {
  for (int group = 0; group < cache_->groups(); ++group) {
    std::vector<int32_t>& table = tables_[group];
    // Keeps the blocks that are needed to continue after the last full block, because other
    // sequences can attach there.
    const int64_t first = cache_->FirstOfTail(group, slots_ / kBlockTokens);
    // Earlier commits have already released the blocks before `begin`.
    int64_t begin = first;
    while (begin > 0 && table[begin - 1] != kNoBlock) --begin;
    for (int64_t block = begin; block < first; ++block) {
      cache_->pool_.Release(std::exchange(table[block], kNoBlock), block < prompt_blocks_
                                                                       ? BlockValue::kPassed
                                                                       : BlockValue::kPassedOutput);
    }
  }
}

void KvLease::WantTail(const Tail& tail) {
  if (tail.last_boundary == 0) return;
  for (int group = 0; group < cache_->groups(); ++group) {
    if (cache_->specs_[group].kind == KvKind::kFull) continue;
    for (int64_t block = cache_->FirstOfTail(group, tail.first_boundary);
         block < tail.last_boundary; ++block) {
      cache_->pool_.Want({hashes_[block], group});
    }
  }
  tails_.push_back(tail);
}

void KvLease::UnwantTails(int64_t block) {
  for (const Tail& tail : tails_) {
    for (int group = 0; group < cache_->groups(); ++group) {
      if (cache_->specs_[group].kind == KvKind::kFull || block >= tail.last_boundary ||
          block < cache_->FirstOfTail(group, tail.first_boundary)) {
        continue;
      }
      cache_->pool_.Unwant({hashes_[block], group});
    }
  }
}

std::vector<absl::Span<const int32_t>> KvLease::Tables(int64_t slots) const {
  const int64_t blocks = KvBlocksOf(slots);
  CHECK_LE(blocks, table_blocks());
  std::vector<absl::Span<const int32_t>> spans;
  for (const std::vector<int32_t>& table : tables_) {
    spans.push_back(absl::MakeConstSpan(table).first(blocks));
  }
  return spans;
}

void KvLease::ShrinkTables(int64_t blocks) {
  // Release the blocks from the last to the first, so that the end of a prefix is evicted before
  // its beginning.
  for (int64_t block = table_blocks() - 1; block >= blocks; --block) {
    for (std::vector<int32_t>& table : tables_) {
      if (table[block] != kNoBlock) cache_->pool_.Release(table[block]);
      table.pop_back();
    }
  }
}

void KvLease::Reset() {
  if (cache_ == nullptr) return;
  if (slots_ >= kBlockTokens) cache_->NoteReleased(hashes_[slots_ / kBlockTokens - 1]);
  int64_t blocks = table_blocks();
  for (const Tail& tail : tails_) blocks = std::max(blocks, tail.last_boundary);
  for (int64_t block = blocks - 1; block >= 0; --block) {
    ShrinkTables(block);
    UnwantTails(block);
  }
  tails_.clear();
  slots_ = 0;
}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(const std::vector<KvSpec>& layers,
                                                         const KvCacheOptions& options) {
  CHECK(!layers.empty()) << "a model without layers";
  KvLayout layout = MakeKvLayout(layers);
  const size_t least = layout.block_bytes * layout.specs.size();
  if (options.memory_bytes < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-memory of ", options.memory_bytes,
                     " bytes cannot hold a KV block; this model needs at least ", least,
                     " bytes for ", kBlockTokens, " tokens"));
  }
  const int64_t blocks = KvBlocksIn(options.memory_bytes, layout);
  const size_t bytes = blocks * layout.block_bytes;
  // Reserves address space. A page uses memory only after its first write.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", bytes, " bytes for the KV cache; give a smaller --kv-memory"));
  }
  std::unique_ptr<KvCache> cache(new KvCache(std::move(layout.specs), std::move(layout.view),
                                             layout.block_bytes, static_cast<int32_t>(blocks)));
  cache->seed_ = options.seed;
  cache->memory_ = static_cast<std::byte*>(memory);
  cache->memory_bytes_ = bytes;
  for (kernels::KvLayer& layer : cache->view_.layers) layer.arena = cache->memory_;
  return cache;
}

KvCache::KvCache(std::vector<KvSpec> specs, KvView view, size_t block_bytes, int32_t blocks)
    : specs_(std::move(specs)), view_(std::move(view)), block_bytes_(block_bytes), pool_(blocks) {
  has_full_group_ = std::any_of(specs_.begin(), specs_.end(),
                                [](const KvSpec& spec) { return spec.kind == KvKind::kFull; });
}

KvCache::~KvCache() {
  CHECK_EQ(pool_.free(), pool_.total()) << "a lease outlives its KvCache";
  munmap(memory_, memory_bytes_);
}

KvLease KvCache::NewLease(absl::string_view salt, int64_t prompt_tokens) {
  return KvLease(this, HashRoot(seed_, salt), prompt_tokens / kBlockTokens);
}

int64_t KvCache::FirstVisible(int group, int64_t slot) const {
  const KvSpec& spec = specs_[group];
  return spec.kind == KvKind::kFull ? 0 : std::max<int64_t>(0, slot - spec.window + 1);
}

int64_t KvCache::BlocksFor(int64_t slots, int64_t step) const {
  int64_t blocks = 0;
  for (const KvSpec& spec : specs_) blocks += KvBlocksFor(spec, slots, step);
  return blocks;
}

bool KvCache::IsThere(const BlockKey& key, absl::Span<const int32_t> tokens, bool with_disk) const {
  if (pool_.Find(key, tokens) != kNoBlock) return true;
  return with_disk && disk_ != nullptr && disk_->Has(key, tokens);
}

bool KvCache::IsKnown(const BlockKey& key, bool with_disk) const {
  return pool_.Knows(key) || (with_disk && disk_ != nullptr && disk_->Knows(key));
}

absl::Span<const std::byte> KvCache::BytesOf(int32_t block) const {
  return {memory_ + block * block_bytes_, block_bytes_};
}

// Before a cached block is reused, its contents are written to the disk.
int32_t KvCache::Allocate() {
  const int32_t evicted = disk_ == nullptr ? kNoBlock : pool_.NextEvicted();
  if (evicted != kNoBlock) {
    // A chunk of a prompt can evict more blocks at once than there are buffers for. Waiting for a
    // buffer costs little: a working disk writes one block in less time than it takes to compute
    // the first row of the chunk.
    disk_->Write(pool_.KeyOf(evicted), pool_.TokensOf(evicted), BytesOf(evicted),
                 {.patience = kWritePatience});
  }
  return pool_.Allocate();
}

int32_t KvCache::Put(const BlockKey& key, absl::Span<const int32_t> tokens,
                     absl::Span<const std::byte> bytes) {
  CHECK_EQ(bytes.size(), block_bytes_);
  const int32_t block = Allocate();
  if (block == kNoBlock) return kNoBlock;
  std::memcpy(memory_ + block * block_bytes_, bytes.data(), bytes.size());
  pool_.Index(block, key, tokens);
  return block;
}

void KvCache::SpillCached(absl::Duration patience) {
  CHECK(disk_ != nullptr);
  const base::Clock& clock = disk_->clock();
  const absl::Duration end = clock.Monotonic() + patience;
  std::vector<int32_t> blocks = pool_.CachedBlocks();
  // Write at most as many blocks as the disk has slots. With more, a block would replace one that
  // this function wrote before, or one of these blocks that was on the disk already.
  const int64_t most = std::min<int64_t>(blocks.size(), disk_->slots());
  blocks.resize(most);
  std::vector<BlockKey> keys;
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) keys.push_back(pool_.KeyOf(*it));
  disk_->NoteUse(keys);
  for (int64_t i = 0; i < most; ++i) {
    const absl::Duration left = end - clock.Monotonic();
    if (left <= absl::ZeroDuration()) return;
    disk_->Write(pool_.KeyOf(blocks[i]), pool_.TokensOf(blocks[i]), BytesOf(blocks[i]),
                 {.patience = left, .newer = i});
  }
  disk_->Flush(end - clock.Monotonic());
}

void KvCache::NoteReleased(const BlockHash& last) {
  const auto found = std::find(recent_.begin(), recent_.end(), last);
  if (found != recent_.end()) recent_.erase(found);
  recent_.push_front(last);
  if (recent_.size() > kRecentPrefixes) recent_.pop_back();
}

std::vector<uint64_t> KvCache::RecentPrefixes(size_t limit) const {
  std::vector<uint64_t> digests;
  for (const BlockHash& hash : recent_) {
    if (digests.size() >= limit) break;
    const BlockKey key = {hash, 0};
    if (pool_.Knows(key) || (disk_ != nullptr && disk_->Knows(key))) digests.push_back(hash.low);
  }
  return digests;
}

}  // namespace tidepool::engine
