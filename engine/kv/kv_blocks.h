// KvBlocks: the blocks of a KvCache. It has their memory, the BlockPool that counts their holders,
// and the disk that extends the memory. It writes a block to the disk before the block is evicted.
#ifndef TIDEPOOL_ENGINE_KV_KV_BLOCKS_H_
#define TIDEPOOL_ENGINE_KV_KV_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/kv_disk.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// Where to search for a block.
enum class KvPlaces : uint8_t { kMemory, kMemoryAndDisk };

struct KvBlocksOptions {
  int32_t blocks = 0;
  size_t block_bytes = 0;
  // The lowest value of BlockKey::group that is used for recurrent states.
  int state_group = 0;
  // The blocks are in the memory of this backend, which must outlive them. Null: they are in the
  // host's memory.
  kernels::KernelBackend* backend = nullptr;
};

// Engine thread only. In the host's memory, a block is only reserved address space until something
// is written to it.
class KvBlocks {
 public:
  // Returns RESOURCE_EXHAUSTED if the memory has no room.
  static absl::StatusOr<std::unique_ptr<KvBlocks>> Create(const KvBlocksOptions& options);
  ~KvBlocks();
  KvBlocks(const KvBlocks&) = delete;
  KvBlocks& operator=(const KvBlocks&) = delete;

  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  // May be a device's memory.
  std::byte* memory() const { return memory_; }
  size_t block_bytes() const { return block_bytes_; }
  // Null if there is no disk.
  KvDisk* disk() const { return disk_; }
  void SetDisk(KvDisk* disk) { disk_ = disk; }

  // Returns a block with one holder, or kNoBlock if all are held. If there is a disk, the contents
  // of a cached block are written to it before the block is reused, except for states whose
  // boundary is not known. `use` is the same as for BlockPool::Allocate.
  int32_t Allocate(BlockUse use = BlockUse::kNeeded);
  // Adds a block with these contents to the index, with one holder. Returns kNoBlock if no block is
  // free.
  int32_t Put(const BlockKey& key, absl::Span<const int32_t> tokens,
              absl::Span<const std::byte> bytes);
  // Returns whether there is a block with this key and these tokens.
  bool Has(const BlockKey& key, absl::Span<const int32_t> tokens, KvPlaces places) const;
  // Returns whether there is a block with this key. Its tokens may differ.
  bool Knows(const BlockKey& key, KvPlaces places) const;
  // Writes cached blocks to the disk until all are written or `patience` has passed, the most
  // valuable ones first (BlockPool::CachedBlocks). Requires: there is a disk.
  void SpillCached(absl::Duration patience);

 private:
  explicit KvBlocks(const KvBlocksOptions& options);
  absl::Status Map(size_t bytes);
  absl::StatusOr<absl::Span<const std::byte>> BytesOf(int32_t block);
  void Write(int32_t block, const KvDisk::WriteTerms& terms);
  bool IsWorthWriting(int32_t block) const;

  BlockPool pool_;
  const size_t block_bytes_;
  const int state_group_;
  KvDisk* disk_ = nullptr;
  kernels::KernelBackend* const device_;  // null if the memory is the host's
  std::byte* memory_ = nullptr;
  size_t mapped_bytes_ = 0;        // of the host's memory
  kernels::Buffer device_memory_;  // owns memory_ if it is a device's
  std::vector<std::byte> copy_;    // contents of one block of a device's memory
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_BLOCKS_H_
