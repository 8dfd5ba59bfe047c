// KvDisk: KV blocks on a disk, for prefixes that memory has no room for any more and for processes
// that start again. A cache: what is lost or damaged is computed anew.
//
//   disk->Write(key, tokens, bytes);            // copied; written by a thread of its own
//   disk->StartRead(key, tokens, ticket);       // of what Has() knows
//   for (KvDisk::Read& read : disk->TakeReads()) ...
//
// The least recently used blocks give way to new ones, also over a restart: the file learns of uses
// some at a time, within a minute and at the end.
#ifndef TIDEPOOL_ENGINE_KV_DISK_H_
#define TIDEPOOL_ENGINE_KV_DISK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/block_pool.h"
#include "engine/kv_disk_file.h"
#include "engine/kv_disk_format.h"
#include "engine/kv_disk_stats.h"
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
  // That a disk takes in all, once its file is full.
  static int64_t MemoryBytes(const KvDiskLayout& layout);

  // Goes on with what an earlier process left in the file; of another identity or size it begins
  // anew. `clock` outlives it. Errors: PlanKvDisk's, RESOURCE_EXHAUSTED (no memory for staging),
  // and those of a file that can be neither read nor emptied.
  static absl::StatusOr<std::unique_ptr<KvDisk>> Open(std::unique_ptr<KvDiskFile> file,
                                                      const KvDiskOptions& options,
                                                      const base::Clock* clock);
  // Waits for the read or write under way, and tells the file of the latest uses; what else was to
  // be written is dropped.
  ~KvDisk();
  KvDisk(const KvDisk&) = delete;
  KvDisk& operator=(const KvDisk&) = delete;

  // Whether a block can be read: it is there, or is about to be.
  bool Has(const BlockKey& key, absl::Span<const int32_t> tokens) const;
  // Whether one of whatever tokens can be.
  bool Knows(const BlockKey& key) const;

  struct WriteTerms {
    absl::Duration patience;  // to wait for staging memory
    // Where blocks are written in another order than that of their use, as before an end: how many
    // of those are newer. -1: written in order.
    int64_t newer = -1;
  };
  // Takes a copy, to be written soon; what is there already becomes the last to give way. False:
  // dropped. Requires: block_bytes bytes.
  bool Write(const BlockKey& key, absl::Span<const int32_t> tokens,
             absl::Span<const std::byte> bytes, const WriteTerms& terms);
  // Tells that blocks are used again, in memory; the last named is the last to give way. What is
  // not there is passed over. Costs no more than to look for them.
  void NoteUse(absl::Span<const BlockKey> keys);
  // Whether all is written that was taken, within `patience`.
  bool Flush(absl::Duration patience);

  // Called from the disk's thread when TakeReads has something. Set once, before the first read.
  void OnRead(std::function<void()> callback) { on_read_ = std::move(callback); }
  // Has a block read; it cannot give way until that is done. False: Has() is.
  bool StartRead(const BlockKey& key, absl::Span<const int32_t> tokens, uint64_t ticket);
  // Takes back what was not begun of a ticket.
  void Withdraw(uint64_t ticket);

  // A read that is done. Holds staging memory, which other reads wait for. Must not outlive the
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
  enum class State : uint8_t { kFree, kWriting, kStored };
  struct Slot {
    State state = State::kFree;
    bool used = false;   // the file holds an entry for it
    bool stale = false;  // in stale_
    int readers = 0;
    KvDiskEntry entry;
    std::list<int32_t>::iterator place;  // in recent_, when stored
  };
  struct WriteJob {
    int32_t slot = 0;
    int buffer = 0;
  };
  struct ReadJob {
    int32_t slot = 0;
    uint64_t ticket = 0;
  };

  KvDisk(std::unique_ptr<KvDiskFile> file, const KvDiskLayout& layout, const base::Clock* clock,
         moe::MappedMemory staging, int buffers);

  absl::Status Load(const KvDiskOptions& options);
  void RestockLocked(std::vector<std::pair<uint64_t, int32_t>> stamped) TIDEPOOL_REQUIRES(mutex_);
  absl::Span<std::byte> Buffer(int buffer) const;
  int32_t FindLocked(const BlockKey& key, absl::Span<const int32_t> tokens) const
      TIDEPOOL_REQUIRES(mutex_);
  int32_t TakeSlotLocked() TIDEPOOL_REQUIRES(mutex_);
  void StoreLocked(int32_t slot) TIDEPOOL_REQUIRES(mutex_);
  uint64_t StampLocked(int64_t newer) TIDEPOOL_REQUIRES(mutex_);
  void RenewLocked(int32_t slot, uint64_t stamp) TIDEPOOL_REQUIRES(mutex_);
  void ForgetLocked(int32_t slot) TIDEPOOL_REQUIRES(mutex_);
  void FreeLocked(int32_t slot) TIDEPOOL_REQUIRES(mutex_);
  bool CanReadLocked() const TIDEPOOL_REQUIRES(mutex_);
  bool StampsAreDueLocked() const TIDEPOOL_REQUIRES(mutex_);
  bool AwaitWorkLocked() TIDEPOOL_REQUIRES(mutex_);
  void Run();
  bool WriteStamps();
  void WriteBlock(const WriteJob& job);
  absl::Status WriteSlot(int32_t slot, const KvDiskEntry& entry, bool used, int buffer);
  void ReadBlock(const ReadJob& job, int buffer);

  const std::unique_ptr<KvDiskFile> file_;  // its thread's, once that runs
  const KvDiskLayout layout_;
  const base::Clock* const clock_;
  const moe::MappedMemory staging_;
  std::function<void()> on_read_;

  mutable base::Mutex mutex_;
  base::CondVar work_;     // for the thread
  base::CondVar written_;  // for Write and Flush
  std::vector<Slot> slots_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::flat_hash_map<BlockKey, int32_t> index_ TIDEPOOL_GUARDED_BY(mutex_);  // writing or stored
  std::list<int32_t> recent_ TIDEPOOL_GUARDED_BY(mutex_);  // stored, the latest used first
  std::vector<int32_t> free_ TIDEPOOL_GUARDED_BY(mutex_);  // a stack
  // Whose entries in the file have older stamps; to be written at write_stamps_at_.
  std::vector<int32_t> stale_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Duration write_stamps_at_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<int> write_buffers_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<int> read_buffers_ TIDEPOOL_GUARDED_BY(mutex_);
  std::deque<WriteJob> writes_ TIDEPOOL_GUARDED_BY(mutex_);
  std::deque<ReadJob> reads_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<Read> done_ TIDEPOOL_GUARDED_BY(mutex_);
  bool writing_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  uint64_t stamp_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  absl::Duration grow_from_ TIDEPOOL_GUARDED_BY(mutex_);   // no new slots before
  absl::Duration write_from_ TIDEPOOL_GUARDED_BY(mutex_);  // nothing is written before
  absl::Duration wait_from_ TIDEPOOL_GUARDED_BY(mutex_);   // nobody waits to write before
  absl::Duration read_at_ TIDEPOOL_GUARDED_BY(mutex_);     // the latest that read_rate_ knows
  double read_rate_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  KvDiskStats stats_ TIDEPOOL_GUARDED_BY(mutex_);
  std::thread thread_;  // last
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_DISK_H_
