// KvDisk: KV blocks on a disk, for prefixes that do not fit into memory and for restarted
// processes. It is only a cache: lost or damaged blocks are computed again.
//
//   disk->Write(key, tokens, bytes);            // copied, and written by the disk's thread
//   disk->StartRead(key, tokens, ticket);       // if Has() returns true
//   for (KvDisk::Read& read : disk->TakeReads()) ...
//
// New blocks replace the least recently used ones (KvDiskIndex), also after a restart: uses are
// written to the file within a minute and at shutdown.
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
  std::string identity;  // identifies everything else that KV depends on
};

// Thread-safe, except for the file, which only the disk's own thread uses.
class KvDisk {
 public:
  // Buffers for blocks being read or written. There are at least four, even if they take more
  // memory.
  static constexpr int64_t kStagingBytes = int64_t{64} << 20;
  // Maximum memory for the index, per block.
  static constexpr int64_t kIndexBytes = 320;
  // Loads the blocks that an earlier process left in the file. A file with another identity or size
  // is cleared. `clock` outlives the disk. Errors: those of PlanKvDisk, RESOURCE_EXHAUSTED (no
  // memory for staging), and errors of a file that can be neither read nor cleared.
  static absl::StatusOr<std::unique_ptr<KvDisk>> Open(std::unique_ptr<KvDiskFile> file,
                                                      const KvDiskOptions& options,
                                                      const base::Clock* clock);
  // Waits for the current read or write, writes changed stamps to the file, and drops other pending
  // writes.
  ~KvDisk();
  KvDisk(const KvDisk&) = delete;
  KvDisk& operator=(const KvDisk&) = delete;

  // True if the block can be read: it is stored or about to be.
  bool Has(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  // True if a block with this key, and any tokens, can be read.
  bool Knows(const BlockKey& key) const;

  struct WriteTerms {
    absl::Duration patience;  // maximum wait for staging memory
    // For blocks that are not written in the order of their use, as at shutdown: how many of the
    // blocks written later were used more recently. -1: blocks are written in order.
    int64_t newer = -1;
  };
  // Copies the block and writes it soon. If the block is already stored, only marks it as used.
  // Returns false if the block was dropped. Requires: block_bytes bytes.
  bool Write(const BlockKey& key, absl::Span<const int32_t> tokens,
             absl::Span<const std::byte> bytes, const WriteTerms& terms);
  // Marks blocks as used, in this order, because they were used in memory. Skips unknown ones.
  void NoteUse(absl::Span<const BlockKey> keys);
  // Waits up to `patience` until all blocks are written. Returns true if they are.
  bool Flush(absl::Duration patience);

  // Called on the disk's thread when TakeReads has something to return. Set it once, before the
  // first read.
  void OnRead(std::function<void()> callback) { on_read_ = std::move(callback); }
  // Begins to read a block. It is not replaced until the read ends. Returns false if it is not
  // stored.
  bool StartRead(const BlockKey& key, absl::Span<const int32_t> tokens, uint64_t ticket);
  // Cancels the reads of a ticket that have not begun.
  void Withdraw(uint64_t ticket);

  // A finished read. It uses staging memory that other reads need, and must not outlive the disk.
  // Movable.
  class Read {
   public:
    Read(Read&& other) noexcept;
    Read& operator=(Read&&) = delete;
    ~Read();
    uint64_t ticket() const { return ticket_; }
    const BlockKey& key() const { return key_; }
    bool ok() const { return ok_; }
    absl::Span<const std::byte> bytes() const { return bytes_; }  // valid if ok

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
  // Returns finished reads in the order in which they were started.
  std::vector<Read> TakeReads();

  KvDiskStats stats() const;
  // Rate of the latest reads. 0 if there was none in the last half minute.
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
  // The thread's work and its results.
  struct Jobs {
    std::deque<WriteJob> writes;
    bool writing = false;  // one of these is being written
    std::deque<ReadJob> reads;
    std::vector<Read> done;
  };
  // Unused staging buffers.
  struct FreeBuffers {
    std::vector<int> write;
    std::vector<int> read;
  };
  // The earliest times to grow the file again, to try writes again, and to let writers wait again.
  struct RetryTimes {
    absl::Duration grow = -absl::InfiniteDuration();
    absl::Duration write = -absl::InfiniteDuration();
    absl::Duration wait = -absl::InfiniteDuration();
  };
  // Rate of the latest reads. `at` is the end of the last one.
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

  const std::unique_ptr<KvDiskFile> file_;  // used by the thread only, once that runs
  const KvDiskLayout layout_;
  const base::Clock* const clock_;
  const moe::MappedMemory staging_;
  std::function<void()> on_read_;

  mutable base::Mutex mutex_;
  base::CondVar work_;     // wakes the thread
  base::CondVar written_;  // wakes Write and Flush
  KvDiskIndex index_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Duration write_stamps_at_ TIDEPOOL_GUARDED_BY(mutex_);  // used if index_.has_stale()
  FreeBuffers free_buffers_ TIDEPOOL_GUARDED_BY(mutex_);
  Jobs jobs_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  RetryTimes retry_ TIDEPOOL_GUARDED_BY(mutex_);
  ReadRate read_rate_ TIDEPOOL_GUARDED_BY(mutex_);
  KvDiskStats stats_ TIDEPOOL_GUARDED_BY(mutex_);
  std::thread thread_;  // last member: it uses all others
};

// Memory that a disk of this layout needs when its file is full.
int64_t KvDiskMemoryBytes(const KvDiskLayout& layout);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_H_
