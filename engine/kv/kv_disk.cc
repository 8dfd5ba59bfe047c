#include "engine/kv/kv_disk.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

// After a failed write, for example because the disk is full, the file does not grow for this time.
constexpr absl::Duration kGrowAgain = absl::Seconds(10);
// After a caller has waited too long for a buffer, no caller waits for this time.
constexpr absl::Duration kWaitAgain = absl::Seconds(1);
// If there were no reads for this time, the measured rate is forgotten. Otherwise a low rate would
// prevent all reads, and would never be measured again.
constexpr absl::Duration kRateHolds = absl::Seconds(30);
// The weight of the latest read in the measured rate.
constexpr double kNewShare = 0.2;

// Time between two writes of changed stamps. If the process is killed, uses since the last write
// are lost.
constexpr absl::Duration kStampsApart = absl::Minutes(1);

// Number of table entries that are loaded at a time. In between, requests for blocks are served.
constexpr int64_t kLoadedAtOnce = 4096;
constexpr size_t kStampsAtOnce = 64;

// Half of the buffers are for reads, and half are for writes.
int StagingBuffers(int64_t slot_bytes) {
  return static_cast<int>(std::clamp<int64_t>(KvDisk::kStagingBytes / slot_bytes, 4, 128) / 2 * 2);
}

struct SlotWrite {
  int32_t slot = 0;
  KvDiskEntry entry;
  bool replaces = false;              // whether the file already has an entry for the slot
  absl::Span<const std::byte> bytes;  // contents of the slot
};

// Clears the old entry before the block is written. So if the process is killed in between, the
// slot is empty.
absl::Status WriteSlot(KvDiskFile* file, const KvDiskLayout& layout, const SlotWrite& write) {
  const int64_t at = layout.entry_offset(write.slot);
  if (write.replaces) {
    RETURN_IF_ERROR(file->WriteSmall(at, std::string(kKvDiskEntryBytes, '\0')));
  }
  RETURN_IF_ERROR(file->Write(layout.slot_offset(write.slot), write.bytes));
  return file->WriteSmall(at, EncodeKvDiskEntry(write.entry, write.slot));
}

}  // namespace

KvDisk::Read::Read(Read&& other) noexcept
    : disk_(std::exchange(other.disk_, nullptr)),
      buffer_(other.buffer_),
      ticket_(other.ticket_),
      key_(other.key_),
      ok_(other.ok_),
      bytes_(other.bytes_) {}

KvDisk::Read::~Read() {
  if (disk_ == nullptr) return;
  base::MutexLock lock(&disk_->mutex_);
  disk_->free_buffers_.read.push_back(buffer_);
  disk_->work_.NotifyOne();
}

int64_t KvDiskMemoryBytes(const KvDiskLayout& layout) {
  return StagingBuffers(layout.slot_bytes()) * layout.slot_bytes() +
         layout.slots * KvDisk::kIndexBytes;
}

absl::StatusOr<std::unique_ptr<KvDisk>> KvDisk::Open(std::unique_ptr<KvDiskFile> file,
                                                     const KvDiskOptions& options,
                                                     const base::Clock* clock) {
  ASSIGN_OR_RETURN(const KvDiskLayout layout, PlanKvDisk(options.limit_bytes, options.block_bytes));
  const int buffers = StagingBuffers(layout.slot_bytes());
  ASSIGN_OR_RETURN(moe::MappedMemory staging,
                   moe::MappedMemory::Create(buffers * layout.slot_bytes()));
  std::unique_ptr<KvDisk> disk(new KvDisk(std::move(file), layout, clock, std::move(staging)));
  RETURN_IF_ERROR(disk->Load(options));
  disk->thread_ = std::thread([disk = disk.get()] { disk->Run(); });
  return disk;
}

KvDisk::KvDisk(std::unique_ptr<KvDiskFile> file, const KvDiskLayout& layout,
               const base::Clock* clock, moe::MappedMemory staging)
    : file_(std::move(file)),
      layout_(layout),
      clock_(clock),
      staging_(std::move(staging)),
      index_(layout.slots) {
  const int buffers = StagingBuffers(layout.slot_bytes());
  for (int buffer = 0; buffer < buffers; ++buffer) {
    (buffer < buffers / 2 ? free_buffers_.write : free_buffers_.read).push_back(buffer);
  }
}

KvDisk::~KvDisk() {
  {
    base::MutexLock lock(&mutex_);
    stop_ = true;
    work_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status KvDisk::Load(const KvDiskOptions& options) {
  base::MutexLock lock(&mutex_);
  stats_.limit_bytes = options.limit_bytes;
  ASSIGN_OR_RETURN(const std::string header, file_->ReadSmall(0, kKvDiskPage));
  if (!IsKvDiskHeader(header, layout_, options.identity)) {
    RETURN_IF_ERROR(file_->Clear());
    RETURN_IF_ERROR(file_->WriteSmall(0, EncodeKvDiskHeader(layout_, options.identity)));
    index_.EndRestore();
    return absl::OkStatus();
  }
  std::string table;  // one part of the table
  for (int64_t slot = 0; slot < layout_.slots; ++slot) {
    const int64_t in_piece = slot % kLoadedAtOnce;
    if (in_piece == 0) {
      ASSIGN_OR_RETURN(
          table, file_->ReadSmall(layout_.entry_offset(slot), kLoadedAtOnce * kKvDiskEntryBytes));
    }
    const size_t begin = std::min<size_t>(in_piece * kKvDiskEntryBytes, table.size());
    const std::optional<KvDiskEntry> entry =
        ParseKvDiskEntry(absl::string_view(table).substr(begin, kKvDiskEntryBytes), slot);
    if (entry.has_value()) index_.Restore(static_cast<int32_t>(slot), *entry);
  }
  index_.EndRestore();
  return absl::OkStatus();
}

absl::Span<std::byte> KvDisk::Buffer(int buffer) const {
  const auto bytes = static_cast<size_t>(layout_.slot_bytes());
  return {staging_.data() + buffer * bytes, bytes};
}

bool KvDisk::Has(const BlockKey& key, absl::Span<const int32_t> tokens) const {
  base::MutexLock lock(&mutex_);
  return index_.Find(key, tokens) != kNoBlock;
}

bool KvDisk::Knows(const BlockKey& key) const {
  base::MutexLock lock(&mutex_);
  return index_.Find(key) != kNoBlock;
}

void KvDisk::NoteUseLocked(int32_t slot, int64_t newer) {
  if (!index_.NoteUse(slot, newer)) return;
  write_stamps_at_ = clock_->Monotonic() + kStampsApart;
  work_.NotifyOne();
}

bool KvDisk::Write(const BlockKey& key, absl::Span<const int32_t> tokens,
                   absl::Span<const std::byte> bytes, const WriteTerms& terms) {
  CHECK_EQ(static_cast<int64_t>(bytes.size()), layout_.block_bytes);
  const absl::Duration end = clock_->Monotonic() + terms.patience;
  WriteJob job;
  {
    base::MutexLock lock(&mutex_);
    if (index_.Find(key) != kNoBlock) {
      const int32_t slot = index_.Find(key, tokens);
      if (slot == kNoBlock) return false;  // other tokens have the same hash
      NoteUseLocked(slot, terms.newer);
      return true;
    }
    const absl::Duration begun = clock_->Monotonic();
    // At shutdown (newer >= 0), always wait, because a block that is dropped now cannot be written
    // later.
    const bool waits = begun < end && (terms.newer >= 0 || begun >= retry_.wait);
    while (free_buffers_.write.empty() && waits && clock_->Monotonic() < end) {
      written_.WaitFor(&mutex_, end - clock_->Monotonic());
    }
    if (free_buffers_.write.empty() && waits) retry_.wait = begun + kWaitAgain;
    const bool refuses = free_buffers_.write.empty() || begun < retry_.write;
    const auto growth = clock_->Monotonic() >= retry_.grow ? KvDiskIndex::Growth::kAllowed
                                                           : KvDiskIndex::Growth::kForbidden;
    job.slot = refuses ? kNoBlock : index_.Take(growth);
    if (job.slot == kNoBlock) {
      ++stats_.dropped_blocks;
      return false;
    }
    job.buffer = free_buffers_.write.back();
    free_buffers_.write.pop_back();
    index_.BeginWrite(job.slot, key, tokens, terms.newer);
  }
  std::memcpy(Buffer(job.buffer).data(), bytes.data(), bytes.size());
  base::MutexLock lock(&mutex_);
  jobs_.writes.push_back(job);
  work_.NotifyOne();
  return true;
}

void KvDisk::NoteUse(absl::Span<const BlockKey> keys) {
  base::MutexLock lock(&mutex_);
  for (const BlockKey& key : keys) {
    const int32_t slot = index_.Find(key);
    if (slot != kNoBlock) NoteUseLocked(slot, /*newer=*/-1);
  }
}

bool KvDisk::Flush(absl::Duration patience) {
  const absl::Duration end = clock_->Monotonic() + patience;
  base::MutexLock lock(&mutex_);
  while (jobs_.writing || !jobs_.writes.empty()) {
    const absl::Duration left = end - clock_->Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    written_.WaitFor(&mutex_, left);
  }
  return true;
}

bool KvDisk::StartRead(const BlockKey& key, absl::Span<const int32_t> tokens, uint64_t ticket) {
  base::MutexLock lock(&mutex_);
  const int32_t slot = index_.Find(key, tokens);
  if (slot == kNoBlock) return false;
  index_.BeginRead(slot);
  NoteUseLocked(slot, /*newer=*/-1);
  jobs_.reads.push_back({slot, ticket});
  work_.NotifyOne();
  return true;
}

void KvDisk::Withdraw(uint64_t ticket) {
  base::MutexLock lock(&mutex_);
  std::deque<ReadJob> others;
  for (const ReadJob& job : jobs_.reads) {
    if (job.ticket == ticket) {
      index_.EndRead(job.slot);
    } else {
      others.push_back(job);
    }
  }
  jobs_.reads.swap(others);
}

std::vector<KvDisk::Read> KvDisk::TakeReads() {
  base::MutexLock lock(&mutex_);
  return std::exchange(jobs_.done, {});
}

KvDiskStats KvDisk::stats() const {
  base::MutexLock lock(&mutex_);
  KvDiskStats stats = stats_;
  stats.blocks = index_.stored();
  stats.bytes = stats.blocks * layout_.slot_bytes();
  return stats;
}

void KvDisk::ReadRate::Add(absl::Duration end, absl::Duration took, size_t bytes) {
  at = end;
  if (took <= absl::ZeroDuration()) return;
  const double rate = static_cast<double>(bytes) / absl::ToDoubleSeconds(took);
  bytes_per_second =
      bytes_per_second > 0 ? (1 - kNewShare) * bytes_per_second + kNewShare * rate : rate;
}

double KvDisk::read_bytes_per_second() const {
  base::MutexLock lock(&mutex_);
  return clock_->Monotonic() - read_rate_.at > kRateHolds ? 0 : read_rate_.bytes_per_second;
}

// Returns whether the next read can begin. A block that is still being written can be read after
// the write.
bool KvDisk::CanReadLocked() const {
  return !jobs_.reads.empty() && !free_buffers_.read.empty() &&
         !index_.IsWriting(jobs_.reads.front().slot);
}

bool KvDisk::StampsAreDueLocked() const {
  return index_.has_stale() && clock_->Monotonic() >= write_stamps_at_;
}

// Waits for work. Returns false if the thread must stop.
bool KvDisk::AwaitWorkLocked() {
  while (!stop_ && !CanReadLocked() && jobs_.writes.empty() && !StampsAreDueLocked()) {
    if (!index_.has_stale()) {
      work_.Wait(&mutex_);
    } else {
      work_.WaitFor(&mutex_, write_stamps_at_ - clock_->Monotonic());
    }
  }
  return !stop_;
}

// Does reads first, because requests wait for them. Then writes stamps, which is quick, and then
// blocks.
void KvDisk::Run() {
  while (true) {
    std::optional<ReadJob> read;
    std::optional<WriteJob> write;
    int buffer = 0;
    {
      base::MutexLock lock(&mutex_);
      if (!AwaitWorkLocked()) break;
      if (CanReadLocked()) {
        read = jobs_.reads.front();
        jobs_.reads.pop_front();
        buffer = free_buffers_.read.back();
        free_buffers_.read.pop_back();
      } else if (!StampsAreDueLocked()) {
        write = jobs_.writes.front();
        jobs_.writes.pop_front();
        jobs_.writing = true;
      }
    }
    if (read.has_value()) {
      ReadBlock(*read, buffer);
      if (on_read_) on_read_();
    } else if (write.has_value()) {
      WriteBlock(*write);
    } else {
      WriteStamps();
    }
  }
  while (WriteStamps()) {
  }
}

// Writes some stale entries. Returns false if there are none, or if the write failed. In that case,
// the entries are stale again and are written later.
bool KvDisk::WriteStamps() {
  std::vector<KvDiskIndex::StaleEntry> entries;
  {
    base::MutexLock lock(&mutex_);
    entries = index_.TakeStale(kStampsAtOnce);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [slot, entry] = entries[i];
    const std::string bytes = EncodeKvDiskEntry(entry, slot);
    if (file_->WriteSmall(layout_.entry_offset(slot), bytes).ok()) continue;
    base::MutexLock lock(&mutex_);
    ++stats_.failed_writes;
    write_stamps_at_ = clock_->Monotonic() + kStampsApart;
    index_.ReturnStale(absl::MakeConstSpan(entries).subspan(i));
    return false;
  }
  return !entries.empty();
}

void KvDisk::WriteBlock(const WriteJob& job) {
  SlotWrite write = {.slot = job.slot, .bytes = Buffer(job.buffer)};
  {
    base::MutexLock lock(&mutex_);
    write.entry = index_.entry(job.slot);
    write.replaces = index_.InFile(job.slot);
  }
  write.entry.checksum = KvDiskChecksum(write.bytes.first(layout_.block_bytes));
  const absl::Status status = WriteSlot(file_.get(), layout_, write);
  base::MutexLock lock(&mutex_);
  if (status.ok()) {
    index_.EndWrite(job.slot, write.entry.checksum);
    ++stats_.written_blocks;
  } else {
    index_.FailWrite(job.slot);
    retry_.grow = clock_->Monotonic() + kGrowAgain;
    // If even replacing a block fails, stop writing for a while, so that no more blocks are lost.
    if (write.replaces) retry_.write = retry_.grow;
    ++stats_.failed_writes;
  }
  free_buffers_.write.push_back(job.buffer);
  jobs_.writing = false;
  written_.NotifyAll();
}

void KvDisk::ReadBlock(const ReadJob& job, int buffer) {
  KvDiskEntry entry;
  bool stored = false;  // false if its write failed, or if another read found it damaged
  {
    base::MutexLock lock(&mutex_);
    entry = index_.entry(job.slot);  // the entry does not change while it is being read
    stored = index_.IsStored(job.slot);
  }
  const absl::Duration start = clock_->Monotonic();
  const absl::Status status = stored ? file_->Read(layout_.slot_offset(job.slot), Buffer(buffer))
                                     : absl::NotFoundError("it no longer exists");
  const absl::Span<const std::byte> block = Buffer(buffer).first(layout_.block_bytes);
  const bool whole = status.ok() && KvDiskChecksum(block) == entry.checksum;
  const absl::Duration took = clock_->Monotonic() - start;

  Read read(this, buffer);
  read.ticket_ = job.ticket;
  read.key_ = entry.key;
  read.ok_ = whole;
  read.bytes_ = block;
  base::MutexLock lock(&mutex_);
  if (whole) {
    ++stats_.read_blocks;
    read_rate_.Add(start + took, took, block.size());
  } else if (stored) {
    ++(status.ok() || absl::IsDataLoss(status) ? stats_.damaged_blocks : stats_.failed_reads);
    index_.Forget(job.slot);
  }
  index_.EndRead(job.slot);
  jobs_.done.push_back(std::move(read));
}

}  // namespace tidepool::engine
