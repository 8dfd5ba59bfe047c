// KvDisk: stores KV blocks on a disk. It extends the memory for cached prefixes, and its blocks
// survive a restart of the process. It is only a cache: lost or damaged blocks are computed again.
//
//   disk->Write(key, tokens, bytes);            // copied, and written by the disk's thread
//   disk->StartRead(key, tokens, ticket);       // if Has() returns true
//   for (KvDisk::Read& read : disk->TakeReads()) ...
//
// New blocks replace the least recently used ones (KvDiskIndex). This also works after a restart,
// because the order of use is written to the file within a minute and at shutdown.
#ifndef TIDEPOOL_ENGINE_KV_KV_DISK_H_
#define TIDEPOOL_ENGINE_KV_KV_DISK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/kv_disk_file.h"
#include "engine/kv/kv_disk_format.h"
#include "engine/kv/kv_disk_index.h"
#include "engine/kv/kv_disk_stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "moe/mapped_memory.h"

namespace tidepool::engine {

struct KvDiskOptions {
  int64_t limit_bytes = 0;  // maximum size of the file
  int64_t block_bytes = 0;
  std::string identity;  // identifies everything else that the KV depends on
};

// Thread-safe. Only the disk's own thread uses the file.
class KvDisk {
 public:
  // Memory for blocks that are being read or written. There are at least four buffers, even if they
  // need more memory than this.
  static constexpr int64_t kStagingBytes = int64_t{64} << 20;
  // Maximum memory that the index needs for each block.
  static constexpr int64_t kIndexBytes = 320;
  // Loads the index of the blocks that an earlier process left in the file. If the file has another
  // identity or size, it is cleared. `clock` must outlive the disk. Returns the errors of
  // PlanKvDisk, RESOURCE_EXHAUSTED if there is no memory for buffers, and the errors of a file that
  // can be neither read nor cleared.
  static absl::StatusOr<std::unique_ptr<KvDisk>> Open(std::unique_ptr<KvDiskFile> file,
                                                      const KvDiskOptions& options,
                                                      const base::Clock* clock);
  // Waits for the current read or write. Writes the changed stamps to the file, and drops all other
  // pending writes.
  ~KvDisk();
  KvDisk(const KvDisk&) = delete;
  KvDisk& operator=(const KvDisk&) = delete;

  // Returns whether the block can be read, because it is stored already or is being written.
  bool Has(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  // Returns whether a block with this key can be read. Its tokens may differ.
  bool Knows(const BlockKey& key) const;

  struct WriteTerms {
    absl::Duration patience;  // maximum time to wait for a free buffer
    // Set this if blocks are not written in the order of their use, as at shutdown. It is the
    // number of blocks, among those written later, that were used more recently than this one. -1:
    // blocks are written in the order of their use.
    int64_t newer = -1;
  };
  // Copies the block, and writes the copy soon. If the block is stored already, only marks it as
  // used. Returns false if the block was dropped. Requires: `bytes` has block_bytes() bytes.
  bool Write(const BlockKey& key, absl::Span<const int32_t> tokens,
             absl::Span<const std::byte> bytes, const WriteTerms& terms);
  // Marks blocks as used, in this order. Call this function when cached blocks were used in memory.
  // Unknown blocks are skipped.
  void NoteUse(absl::Span<const BlockKey> keys);
  // Waits up to `patience` until all blocks are written. Returns whether all blocks are written.
  bool Flush(absl::Duration patience);

  // Sets a callback that is called on the disk's thread when TakeReads has something to return.
  // Must be called once, before the first read.
  void OnRead(std::function<void()> callback) { on_read_ = std::move(callback); }
  // Begins to read a block. The block is not replaced until the read ends. Returns false if the
  // block is not stored.
  bool StartRead(const BlockKey& key, absl::Span<const int32_t> tokens, uint64_t ticket);
  // Cancels the reads with this ticket that have not begun.
  void Withdraw(uint64_t ticket);

  // A finished read. Movable. It holds a buffer that other reads need, so destroy it soon, and
  // before the disk.
  class Read {
   public:
    Read(Read&& other) noexcept;
    Read& operator=(Read&&) = delete;
    ~Read();
    uint64_t ticket() const { return ticket_; }
    const BlockKey& key() const { return key_; }
    bool ok() const { return ok_; }
    absl::Span<const std::byte> bytes() const { return bytes_; }  // valid if ok()

   private:
    friend class KvDisk;
    Read(KvDisk* disk, int buffer) : disk_(disk), buffer_(buffer) {}

    KvDisk* disk_;
    int buffer_;
    uint64_t ticket_ = 0;
    BlockKey key_;
    bool ok_ = false;
    absl::Span<const std::byte> bytes_;
  };
  // Returns the finished reads, in the order in which they were started.
  std::vector<Read> TakeReads();

  KvDiskStats stats() const;
  // The speed of the latest reads. 0 if there was no read in the last half minute.
  double read_bytes_per_second() const;
  int64_t block_bytes() const { return layout_.block_bytes; }
  int64_t slots() const { return layout_.slots; }
  const base::Clock& clock() const { return *clock_; }

 private:
  struct WriteJob {
    int32_t slot = 0;
    int buffer = 0;
  };
  struct ReadJob {
    int32_t slot = 0;
    uint64_t ticket = 0;
  };
  // The work of the disk's thread, and its results.
  struct Jobs {
    std::deque<WriteJob> writes;
    bool writing = false;  // whether the thread writes one of `writes` now
    std::deque<ReadJob> reads;
    std::vector<Read> done;
  };
  // Unused staging buffers.
  struct FreeBuffers {
    std::vector<int> write;
    std::vector<int> read;
  };
  // The earliest times at which the file may grow again, writes are tried again, and callers may
  // wait for a buffer again.
  struct RetryTimes {
    absl::Duration grow = -absl::InfiniteDuration();
    absl::Duration write = -absl::InfiniteDuration();
    absl::Duration wait = -absl::InfiniteDuration();
  };
  // The speed of the latest reads. `at` is the end of the latest read.
  struct ReadRate {
    void Add(absl::Duration end, absl::Duration took, size_t bytes);
    absl::Duration at = -absl::InfiniteDuration();
    double bytes_per_second = 0;
  };

  KvDisk(std::unique_ptr<KvDiskFile> file, const KvDiskLayout& layout, const base::Clock* clock,
         moe::MappedMemory staging);

  absl::Status Load(const KvDiskOptions& options);
  absl::Span<std::byte> Buffer(int buffer) const;
  void NoteUseLocked(int32_t slot, int64_t newer) TIDEPOOL_REQUIRES(mutex_);
  bool CanReadLocked() const TIDEPOOL_REQUIRES(mutex_);
  bool StampsAreDueLocked() const TIDEPOOL_REQUIRES(mutex_);
  bool AwaitWorkLocked() TIDEPOOL_REQUIRES(mutex_);
  void Run();
  bool WriteStamps();
  void WriteBlock(const WriteJob& job);
  void ReadBlock(const ReadJob& job, int buffer);

  const std::unique_ptr<KvDiskFile> file_;  // only used by the thread, once the thread runs
  const KvDiskLayout layout_;
  const base::Clock* const clock_;
  const moe::MappedMemory staging_;
  std::function<void()> on_read_;

  mutable base::Mutex mutex_;
  base::CondVar work_;     // notified if there is work for the thread
  base::CondVar written_;  // notified if Write and Flush may continue
  KvDiskIndex index_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Duration write_stamps_at_ TIDEPOOL_GUARDED_BY(mutex_);  // only valid if index_.has_stale()
  FreeBuffers free_buffers_ TIDEPOOL_GUARDED_BY(mutex_);
  Jobs jobs_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  RetryTimes retry_ TIDEPOOL_GUARDED_BY(mutex_);
  ReadRate read_rate_ TIDEPOOL_GUARDED_BY(mutex_);
  KvDiskStats stats_ TIDEPOOL_GUARDED_BY(mutex_);
  std::thread thread_;  // must be the last member, because it uses all others
};

// The memory that a disk with this layout needs when its file is full.
int64_t KvDiskMemoryBytes(const KvDiskLayout& layout);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_H_
