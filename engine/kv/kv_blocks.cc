#include "engine/kv/kv_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/allocate.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory.h"

namespace tidepool::engine {
namespace {

// The maximum time that the engine waits until the disk accepts a block.
constexpr absl::Duration kWritePatience = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<std::unique_ptr<KvBlocks>> KvBlocks::Create(const KvBlocksOptions& options) {
  std::unique_ptr<KvBlocks> made(new KvBlocks(options));
  const size_t bytes = options.blocks * options.block_bytes;
  if (made->device_ == nullptr) {
    RETURN_IF_ERROR(made->Map(bytes));
    return made;
  }
  ASSIGN_OR_RETURN(made->device_memory_,
                   kernels::AllocateBuffer(bytes, {"the KV cache", "give a smaller --kv-memory"},
                                           made->device_->memory()));
  made->memory_ = made->device_memory_.data();
  made->copy_.resize(options.block_bytes);
  return made;
}

KvBlocks::KvBlocks(const KvBlocksOptions& options)
    : pool_(options.blocks),
      block_bytes_(options.block_bytes),
      state_group_(options.state_group),
      device_(options.backend == nullptr || options.backend->memory()->on_host()
                  ? nullptr
                  : options.backend) {}

absl::Status KvBlocks::Map(size_t bytes) {
  // Reserves address space. A page uses memory only after its first write.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", bytes, " bytes for the KV cache; give a smaller --kv-memory"));
  }
  memory_ = static_cast<std::byte*>(memory);
  mapped_bytes_ = bytes;
  return absl::OkStatus();
}

KvBlocks::~KvBlocks() {
  if (mapped_bytes_ > 0) munmap(memory_, mapped_bytes_);
}

int32_t KvBlocks::Allocate(BlockUse use) {
  const int32_t evicted = disk_ == nullptr ? kNoBlock : pool_.NextEvicted(use);
  if (evicted != kNoBlock && IsWorthWriting(evicted)) {
    // A chunk of a prompt can evict more blocks at once than there are buffers for. Waiting for a
    // buffer costs little: a working disk writes one block in less time than it takes to compute
    // the first row of the chunk.
    Write(evicted, {.patience = kWritePatience});
  }
  return pool_.Allocate(use);
}

int32_t KvBlocks::Put(const BlockKey& key, absl::Span<const int32_t> tokens,
                      absl::Span<const std::byte> bytes) {
  CHECK_EQ(bytes.size(), block_bytes_);
  const int32_t block = Allocate();
  if (block == kNoBlock) return kNoBlock;
  std::byte* const memory = memory_ + block * block_bytes_;
  if (device_ == nullptr) {
    std::memcpy(memory, bytes.data(), bytes.size());
  } else {
    device_->CopyIn(bytes, memory);
  }
  pool_.Index(block, key, tokens);
  return block;
}

bool KvBlocks::Has(const BlockKey& key, absl::Span<const int32_t> tokens, KvPlaces places) const {
  if (pool_.Find(key, tokens) != kNoBlock) return true;
  return places == KvPlaces::kMemoryAndDisk && disk_ != nullptr && disk_->Has(key, tokens);
}

bool KvBlocks::Knows(const BlockKey& key, KvPlaces places) const {
  return pool_.Knows(key) ||
         (places == KvPlaces::kMemoryAndDisk && disk_ != nullptr && disk_->Knows(key));
}

void KvBlocks::SpillCached(absl::Duration patience) {
  CHECK(disk_ != nullptr);
  const base::Clock& clock = disk_->clock();
  const absl::Duration end = clock.Monotonic() + patience;
  std::vector<int32_t> blocks = pool_.CachedBlocks();
  std::erase_if(blocks, [this](int32_t block) { return !IsWorthWriting(block); });
  // Write at most as many blocks as the disk has slots. If it wrote more blocks, a block would
  // replace a block that this call wrote, or one of these blocks that was already on the disk.
  const int64_t most = std::min<int64_t>(blocks.size(), disk_->slots());
  blocks.resize(most);
  std::vector<BlockKey> keys;
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) keys.push_back(pool_.KeyOf(*it));
  disk_->NoteUse(keys);
  for (int64_t i = 0; i < most; ++i) {
    const absl::Duration left = end - clock.Monotonic();
    if (left <= absl::ZeroDuration()) return;
    Write(blocks[i], {.patience = left, .newer = i});
  }
  disk_->Flush(end - clock.Monotonic());
}

// Returns the contents of the block in the host's memory. Valid until the next call.
absl::StatusOr<absl::Span<const std::byte>> KvBlocks::BytesOf(int32_t block) {
  const absl::Span<const std::byte> bytes = {memory_ + block * block_bytes_, block_bytes_};
  if (device_ == nullptr) return bytes;
  RETURN_IF_ERROR(device_->CopyOut(bytes.data(), absl::MakeSpan(copy_)));
  return copy_;
}

// A block that cannot be copied is not written. The next forward pass returns the same error.
void KvBlocks::Write(int32_t block, const KvDisk::WriteTerms& terms) {
  const absl::StatusOr<absl::Span<const std::byte>> bytes = BytesOf(block);
  if (bytes.ok()) disk_->Write(pool_.KeyOf(block), pool_.TokensOf(block), *bytes, terms);
}

// A state is large, and the next one of the same sequence replaces it after a few tokens. So only
// the states of known boundaries are written.
bool KvBlocks::IsWorthWriting(int32_t block) const {
  return pool_.KeyOf(block).group < state_group_ || pool_.ValueOf(block) == BlockValue::kBoundary;
}

}  // namespace tidepool::engine
