// KvDisk: KV blocks on a disk, for prefixes that memory has no room for and for processes that
// start again. A cache: what is lost or damaged is computed again.
//
//   disk->Write(key, tokens, bytes);            // copied; written by a thread of its own
//   disk->StartRead(key, tokens, ticket);       // of what Has() knows
//   for (KvDisk::Read& read : disk->TakeReads()) ...
//
// New blocks replace the least recently used ones (KvDiskIndex), also after a restart: the file
// learns of uses within a minute and at the end.
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
  int64_t limit_bytes = 0;  // of the file
  int64_t block_bytes = 0;
  std::string identity;  // of whatever makes KV of equal keys equal
};

// Thread-safe, but for the file, which is its own thread's.
class KvDisk {
 public:
  // For blocks on their way, there and back; four of them where those take more.
  static constexpr int64_t kStagingBytes = int64_t{64} << 20;
  // At most, for what is known of each block.
  static constexpr int64_t kIndexBytes = 320;
  // Takes over what an earlier process left in the file; a file of another identity or size is
  // emptied. `clock` outlives it. Errors: PlanKvDisk's, RESOURCE_EXHAUSTED (no memory for staging),
  // and those of a file that can be neither read nor emptied.
  static absl::StatusOr<std::unique_ptr<KvDisk>> Open(std::unique_ptr<KvDiskFile> file,
                                                      const KvDiskOptions& options,
                                                      const base::Clock* clock);
  // Waits for the read or write in progress, and writes the latest uses to the file; other pending
  // writes are dropped.
  ~KvDisk();
  KvDisk(const KvDisk&) = delete;
  KvDisk& operator=(const KvDisk&) = delete;

  // Whether a block can be read: it is there, or is about to be.
  bool Has(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  // Whether one of whatever tokens can be.
  bool Knows(const BlockKey& key) const;

  struct WriteTerms {
    absl::Duration patience;  // to wait for staging memory
    // If blocks are written in another order than that of their use, as before an end: how many
    // others are newer. -1: written in order.
    int64_t newer = -1;
  };
  // Takes a copy, to be written soon; a block that is there already is replaced last. False: the
  // block is dropped. Requires: block_bytes bytes.
  bool Write(const BlockKey& key, absl::Span<const int32_t> tokens,
             absl::Span<const std::byte> bytes, const WriteTerms& terms);
  // Blocks were used in memory; the last one named is replaced last. Unknown ones are skipped.
  void NoteUse(absl::Span<const BlockKey> keys);
  // Waits up to `patience` until all blocks are written. Returns whether they are.
  bool Flush(absl::Duration patience);

  // Called from the disk's thread when TakeReads has something. Set once, before the first read.
  void OnRead(std::function<void()> callback) { on_read_ = std::move(callback); }
  // Begins to read a block, which is not replaced until that is done. False: it is not there.
  bool StartRead(const BlockKey& key, absl::Span<const int32_t> tokens, uint64_t ticket);
  // Takes back the reads of a ticket that have not begun.
  void Withdraw(uint64_t ticket);

  // A finished read. It holds staging memory that other reads wait for, and must not outlive the
  // disk. Movable.
  class Read {
   public:
    Read(Read&& other) noexcept;
    Read& operator=(Read&&) = delete;
    ~Read();
    uint64_t ticket() const { return ticket_; }
    const BlockKey& key() const { return key_; }
    bool ok() const { return ok_; }
    absl::Span<const std::byte> bytes() const { return bytes_; }  // when ok

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
  // In the order in which they were started.
  std::vector<Read> TakeReads();

  KvDiskStats stats() const;
  // Of the latest reads; 0: none in the latest half a minute.
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
  // What the thread has to do, and has done.
  struct Jobs {
    std::deque<WriteJob> writes;
    bool writing = false;  // one of them, now
    std::deque<ReadJob> reads;
    std::vector<Read> done;
  };
  // Staging buffers that nobody uses.
  struct FreeBuffers {
    std::vector<int> write;
    std::vector<int> read;
  };
  // When trouble is over: before that time the file does not grow, nothing is written, or nobody
  // waits to write.
  struct RetryTimes {
    absl::Duration grow = -absl::InfiniteDuration();
    absl::Duration write = -absl::InfiniteDuration();
    absl::Duration wait = -absl::InfiniteDuration();
  };
  // Of the latest reads; `at` is the end of the last one.
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

  const std::unique_ptr<KvDiskFile> file_;  // its thread's, once that runs
  const KvDiskLayout layout_;
  const base::Clock* const clock_;
  const moe::MappedMemory staging_;
  std::function<void()> on_read_;

  mutable base::Mutex mutex_;
  base::CondVar work_;     // for the thread
  base::CondVar written_;  // for Write and Flush
  KvDiskIndex index_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Duration write_stamps_at_ TIDEPOOL_GUARDED_BY(mutex_);  // if index_.has_stale()
  FreeBuffers free_buffers_ TIDEPOOL_GUARDED_BY(mutex_);
  Jobs jobs_ TIDEPOOL_GUARDED_BY(mutex_);
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  RetryTimes retry_ TIDEPOOL_GUARDED_BY(mutex_);
  ReadRate read_rate_ TIDEPOOL_GUARDED_BY(mutex_);
  KvDiskStats stats_ TIDEPOOL_GUARDED_BY(mutex_);
  std::thread thread_;  // last
};

// Memory that a disk of this layout takes once its file is full.
int64_t KvDiskMemoryBytes(const KvDiskLayout& layout);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_H_
