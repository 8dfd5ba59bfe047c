#include "engine/kv_disk.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

// After a write failed, as on a full disk: so long the file does not grow.
constexpr absl::Duration kGrowAgain = absl::Seconds(10);
// After a wait for staging memory that was in vain: so long nobody waits.
constexpr absl::Duration kWaitAgain = absl::Seconds(1);
// A rate that would have nobody read any more is forgotten.
constexpr absl::Duration kRateHolds = absl::Seconds(30);
// Of the newest read in the measured rate.
constexpr double kNewShare = 0.2;

// What was used last before a kill is forgotten; what was used all the time is not.
constexpr absl::Duration kStampsApart = absl::Minutes(1);

// Entries of the file's table. Between stamps that are written somebody may want a block.
constexpr int64_t kLoadedAtOnce = 4096;
constexpr size_t kStampsAtOnce = 64;
// Room for the stamps of a last spill above all others.
constexpr uint64_t kLastStamps = uint64_t{1} << 32;

// Half of them for each direction.
int StagingBuffers(int64_t slot_bytes) {
  return static_cast<int>(std::clamp<int64_t>(KvDisk::kStagingBytes / slot_bytes, 4, 128) / 2 * 2);
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
  disk_->read_buffers_.push_back(buffer_);
  disk_->work_.NotifyOne();
}

int64_t KvDisk::MemoryBytes(const KvDiskLayout& layout) {
  return StagingBuffers(layout.slot_bytes()) * layout.slot_bytes() + layout.slots * kIndexBytes;
}

absl::StatusOr<std::unique_ptr<KvDisk>> KvDisk::Open(std::unique_ptr<KvDiskFile> file,
                                                     const KvDiskOptions& options,
                                                     const base::Clock* clock) {
  ASSIGN_OR_RETURN(const KvDiskLayout layout, PlanKvDisk(options.limit_bytes, options.block_bytes));
  const int buffers = StagingBuffers(layout.slot_bytes());
  ASSIGN_OR_RETURN(moe::MappedMemory staging,
                   moe::MappedMemory::Create(buffers * layout.slot_bytes()));
  std::unique_ptr<KvDisk> disk(
      new KvDisk(std::move(file), layout, clock, std::move(staging), buffers));
  RETURN_IF_ERROR(disk->Load(options));
  disk->thread_ = std::thread([disk = disk.get()] { disk->Run(); });
  return disk;
}

KvDisk::KvDisk(std::unique_ptr<KvDiskFile> file, const KvDiskLayout& layout,
               const base::Clock* clock, moe::MappedMemory staging, int buffers)
    : file_(std::move(file)), layout_(layout), clock_(clock), staging_(std::move(staging)) {
  slots_.resize(layout.slots);
  for (int buffer = 0; buffer < buffers; ++buffer) {
    (buffer < buffers / 2 ? write_buffers_ : read_buffers_).push_back(buffer);
  }
  grow_from_ = write_from_ = wait_from_ = read_at_ = -absl::InfiniteDuration();
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
  std::vector<std::pair<uint64_t, int32_t>> stamped;
  ASSIGN_OR_RETURN(const std::string header, file_->ReadSmall(0, kKvDiskPage));
  if (!IsKvDiskHeader(header, layout_, options.identity)) {
    RETURN_IF_ERROR(file_->Clear());
    RETURN_IF_ERROR(file_->WriteSmall(0, EncodeKvDiskHeader(layout_, options.identity)));
    RestockLocked({});
    return absl::OkStatus();
  }
  std::string table;  // a piece of it
  for (int64_t slot = 0; slot < layout_.slots; ++slot) {
    const int64_t in_piece = slot % kLoadedAtOnce;
    if (in_piece == 0) {
      ASSIGN_OR_RETURN(
          table, file_->ReadSmall(layout_.entry_offset(slot), kLoadedAtOnce * kKvDiskEntryBytes));
    }
    const size_t begin = std::min<size_t>(in_piece * kKvDiskEntryBytes, table.size());
    const std::optional<KvDiskEntry> entry =
        ParseKvDiskEntry(absl::string_view(table).substr(begin, kKvDiskEntryBytes), slot);
    if (!entry.has_value()) continue;
    slots_[slot].used = true;
    slots_[slot].entry = *entry;
    stamped.push_back({entry->stamp, static_cast<int32_t>(slot)});
  }
  RestockLocked(std::move(stamped));
  return absl::OkStatus();
}

// Takes over what the file held, by (stamp, slot).
void KvDisk::RestockLocked(std::vector<std::pair<uint64_t, int32_t>> stamped) {
  std::sort(stamped.begin(), stamped.end());
  for (const auto& [stamp, slot] : stamped) {
    // Two slots with one content are the work of no version of ours, but it may be read so.
    if (!index_.emplace(slots_[slot].entry.key, slot).second) continue;
    StoreLocked(slot);
    stamp_ = stamp;
  }
  // The file grows from its front.
  for (auto slot = static_cast<int32_t>(layout_.slots - 1); slot >= 0; --slot) {
    if (slots_[slot].state == State::kFree) free_.push_back(slot);
  }
}

absl::Span<std::byte> KvDisk::Buffer(int buffer) const {
  const auto bytes = static_cast<size_t>(layout_.slot_bytes());
  return {staging_.data() + buffer * bytes, bytes};
}

int32_t KvDisk::FindLocked(const BlockKey& key, absl::Span<const int32_t> tokens) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return kNoBlock;
  return absl::MakeConstSpan(slots_[found->second].entry.tokens) == tokens ? found->second
                                                                           : kNoBlock;
}

bool KvDisk::Has(const BlockKey& key, absl::Span<const int32_t> tokens) const {
  base::MutexLock lock(&mutex_);
  return FindLocked(key, tokens) != kNoBlock;
}

bool KvDisk::Knows(const BlockKey& key) const {
  base::MutexLock lock(&mutex_);
  return index_.contains(key);
}

// As what was used last.
void KvDisk::StoreLocked(int32_t slot) {
  slots_[slot].state = State::kStored;
  recent_.push_front(slot);
  slots_[slot].place = recent_.begin();
  ++stats_.blocks;
}

uint64_t KvDisk::StampLocked(int64_t newer) {
  return newer < 0 ? ++stamp_ : stamp_ + kLastStamps - static_cast<uint64_t>(newer);
}

// What is stored becomes the last to give way; what is still being written nearly is.
void KvDisk::RenewLocked(int32_t slot, uint64_t stamp) {
  Slot& renewed = slots_[slot];
  if (renewed.state != State::kStored) return;
  recent_.splice(recent_.begin(), recent_, renewed.place);
  renewed.entry.stamp = stamp;
  if (std::exchange(renewed.stale, true)) return;
  if (stale_.empty()) {
    write_stamps_at_ = clock_->Monotonic() + kStampsApart;
    work_.NotifyOne();
  }
  stale_.push_back(slot);
}

void KvDisk::ForgetLocked(int32_t slot) {
  index_.erase(slots_[slot].entry.key);
  if (slots_[slot].state == State::kStored) {
    recent_.erase(slots_[slot].place);
    --stats_.blocks;
  }
  slots_[slot].state = State::kFree;
}

// Once nobody reads it, a forgotten slot can be taken again.
void KvDisk::FreeLocked(int32_t slot) {
  if (slots_[slot].state == State::kFree && slots_[slot].readers == 0) free_.push_back(slot);
}

// A free one, else that of the least recently used block which nobody reads; kNoBlock: none.
int32_t KvDisk::TakeSlotLocked() {
  if (!free_.empty() && clock_->Monotonic() >= grow_from_) {
    const int32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  for (auto it = recent_.rbegin(); it != recent_.rend(); ++it) {
    const int32_t slot = *it;
    if (slots_[slot].readers > 0) continue;
    ForgetLocked(slot);
    return slot;
  }
  return kNoBlock;
}

bool KvDisk::Write(const BlockKey& key, absl::Span<const int32_t> tokens,
                   absl::Span<const std::byte> bytes, const WriteTerms& terms) {
  CHECK_EQ(static_cast<int64_t>(bytes.size()), layout_.block_bytes);
  const absl::Duration end = clock_->Monotonic() + terms.patience;
  WriteJob job;
  {
    base::MutexLock lock(&mutex_);
    if (index_.contains(key)) {
      const int32_t slot = FindLocked(key, tokens);
      if (slot == kNoBlock) return false;  // other tokens have this hash
      RenewLocked(slot, StampLocked(terms.newer));
      return true;
    }
    const absl::Duration begun = clock_->Monotonic();
    // What is written before an end has no other time.
    const bool waits = begun < end && (terms.newer >= 0 || begun >= wait_from_);
    while (write_buffers_.empty() && waits && clock_->Monotonic() < end) {
      written_.WaitFor(&mutex_, end - clock_->Monotonic());
    }
    if (write_buffers_.empty() && waits) wait_from_ = begun + kWaitAgain;
    const bool refuses = write_buffers_.empty() || begun < write_from_;
    job.slot = refuses ? kNoBlock : TakeSlotLocked();
    if (job.slot == kNoBlock) {
      ++stats_.dropped_blocks;
      return false;
    }
    job.buffer = write_buffers_.back();
    write_buffers_.pop_back();
    Slot& slot = slots_[job.slot];
    slot.state = State::kWriting;
    slot.entry.key = key;
    std::copy(tokens.begin(), tokens.end(), slot.entry.tokens.begin());
    slot.entry.stamp = StampLocked(terms.newer);
    index_.emplace(key, job.slot);
  }
  std::memcpy(Buffer(job.buffer).data(), bytes.data(), bytes.size());
  base::MutexLock lock(&mutex_);
  writes_.push_back(job);
  work_.NotifyOne();
  return true;
}

void KvDisk::NoteUse(absl::Span<const BlockKey> keys) {
  base::MutexLock lock(&mutex_);
  for (const BlockKey& key : keys) {
    const auto found = index_.find(key);
    if (found != index_.end()) RenewLocked(found->second, StampLocked(/*newer=*/-1));
  }
}

bool KvDisk::Flush(absl::Duration patience) {
  const absl::Duration end = clock_->Monotonic() + patience;
  base::MutexLock lock(&mutex_);
  while (writing_ || !writes_.empty()) {
    const absl::Duration left = end - clock_->Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    written_.WaitFor(&mutex_, left);
  }
  return true;
}

bool KvDisk::StartRead(const BlockKey& key, absl::Span<const int32_t> tokens, uint64_t ticket) {
  base::MutexLock lock(&mutex_);
  const int32_t slot = FindLocked(key, tokens);
  if (slot == kNoBlock) return false;
  ++slots_[slot].readers;
  RenewLocked(slot, StampLocked(/*newer=*/-1));
  reads_.push_back({slot, ticket});
  work_.NotifyOne();
  return true;
}

void KvDisk::Withdraw(uint64_t ticket) {
  base::MutexLock lock(&mutex_);
  std::deque<ReadJob> others;
  for (const ReadJob& job : reads_) {
    if (job.ticket != ticket) {
      others.push_back(job);
      continue;
    }
    --slots_[job.slot].readers;
    FreeLocked(job.slot);
  }
  reads_.swap(others);
}

std::vector<KvDisk::Read> KvDisk::TakeReads() {
  base::MutexLock lock(&mutex_);
  return std::exchange(done_, {});
}

KvDiskStats KvDisk::stats() const {
  base::MutexLock lock(&mutex_);
  KvDiskStats stats = stats_;
  stats.bytes = stats.blocks * layout_.slot_bytes();
  return stats;
}

double KvDisk::read_bytes_per_second() const {
  base::MutexLock lock(&mutex_);
  return clock_->Monotonic() - read_at_ > kRateHolds ? 0 : read_rate_;
}

// Of a block that is still to be written it can begin when it is.
bool KvDisk::CanReadLocked() const {
  return !reads_.empty() && !read_buffers_.empty() &&
         slots_[reads_.front().slot].state != State::kWriting;
}

bool KvDisk::StampsAreDueLocked() const {
  return !stale_.empty() && clock_->Monotonic() >= write_stamps_at_;
}

// False: stop.
bool KvDisk::AwaitWorkLocked() {
  while (!stop_ && !CanReadLocked() && writes_.empty() && !StampsAreDueLocked()) {
    if (stale_.empty()) {
      work_.Wait(&mutex_);
    } else {
      work_.WaitFor(&mutex_, write_stamps_at_ - clock_->Monotonic());
    }
  }
  return !stop_;
}

// Reads first: somebody waits for them. Stamps are soon written, blocks may be many.
void KvDisk::Run() {
  while (true) {
    std::optional<ReadJob> read;
    std::optional<WriteJob> write;
    int buffer = 0;
    {
      base::MutexLock lock(&mutex_);
      if (!AwaitWorkLocked()) break;
      if (CanReadLocked()) {
        read = reads_.front();
        reads_.pop_front();
        buffer = read_buffers_.back();
        read_buffers_.pop_back();
      } else if (!StampsAreDueLocked()) {
        write = writes_.front();
        writes_.pop_front();
        writing_ = true;
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

// Some of what the file does not know yet. False: it knows all, or takes nothing; what it did not
// take is written with the next ones.
bool KvDisk::WriteStamps() {
  std::vector<std::pair<int32_t, KvDiskEntry>> entries;
  {
    base::MutexLock lock(&mutex_);
    while (!stale_.empty() && entries.size() < kStampsAtOnce) {
      const int32_t slot = stale_.back();
      stale_.pop_back();
      slots_[slot].stale = false;
      // Another block that takes the place has its stamp with it.
      if (slots_[slot].state == State::kStored) entries.push_back({slot, slots_[slot].entry});
    }
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [slot, entry] = entries[i];
    const std::string bytes = EncodeKvDiskEntry(entry, slot);
    if (file_->WriteSmall(layout_.entry_offset(slot), bytes).ok()) continue;
    base::MutexLock lock(&mutex_);
    ++stats_.failed_writes;
    write_stamps_at_ = clock_->Monotonic() + kStampsApart;
    for (size_t left = entries.size(); left-- > i;) {
      const int32_t unwritten = entries[left].first;
      if (!std::exchange(slots_[unwritten].stale, true)) stale_.push_back(unwritten);
    }
    return false;
  }
  return !entries.empty();
}

void KvDisk::WriteBlock(const WriteJob& job) {
  KvDiskEntry entry;
  bool used = false;
  {
    base::MutexLock lock(&mutex_);
    entry = slots_[job.slot].entry;
    used = slots_[job.slot].used;
  }
  entry.checksum = KvDiskChecksum(Buffer(job.buffer).first(layout_.block_bytes));
  const absl::Status status = WriteSlot(job.slot, entry, used, job.buffer);
  base::MutexLock lock(&mutex_);
  slots_[job.slot].entry.checksum = entry.checksum;
  if (status.ok()) {
    slots_[job.slot].used = true;
    StoreLocked(job.slot);
    ++stats_.written_blocks;
  } else {
    ForgetLocked(job.slot);
    FreeLocked(job.slot);
    grow_from_ = clock_->Monotonic() + kGrowAgain;
    // What cannot even be written in the place of another must not cost that other one.
    if (used) write_from_ = grow_from_;
    ++stats_.failed_writes;
  }
  write_buffers_.push_back(job.buffer);
  writing_ = false;
  written_.NotifyAll();
}

// An old entry goes before its block does: after a kill in between the slot is empty.
absl::Status KvDisk::WriteSlot(int32_t slot, const KvDiskEntry& entry, bool used, int buffer) {
  const int64_t at = layout_.entry_offset(slot);
  if (used) RETURN_IF_ERROR(file_->WriteSmall(at, std::string(kKvDiskEntryBytes, '\0')));
  RETURN_IF_ERROR(file_->Write(layout_.slot_offset(slot), Buffer(buffer)));
  return file_->WriteSmall(at, EncodeKvDiskEntry(entry, slot));
}

void KvDisk::ReadBlock(const ReadJob& job, int buffer) {
  KvDiskEntry entry;
  bool stored = false;  // else its write failed, or another reader found it damaged
  {
    base::MutexLock lock(&mutex_);
    entry = slots_[job.slot].entry;  // a reader keeps it as it is
    stored = slots_[job.slot].state == State::kStored;
  }
  const absl::Duration start = clock_->Monotonic();
  const absl::Status status = stored ? file_->Read(layout_.slot_offset(job.slot), Buffer(buffer))
                                     : absl::NotFoundError("it is not there any more");
  const absl::Span<const std::byte> block = Buffer(buffer).first(layout_.block_bytes);
  const bool whole = status.ok() && KvDiskChecksum(block) == entry.checksum;
  const absl::Duration took = clock_->Monotonic() - start;

  Read read(this, buffer);
  read.ticket_ = job.ticket;
  read.key_ = entry.key;
  read.ok_ = whole;
  read.bytes_ = block;
  base::MutexLock lock(&mutex_);
  --slots_[job.slot].readers;
  if (whole) {
    ++stats_.read_blocks;
    read_at_ = start + took;
    if (took > absl::ZeroDuration()) {
      const double rate = static_cast<double>(block.size()) / absl::ToDoubleSeconds(took);
      read_rate_ = read_rate_ > 0 ? (1 - kNewShare) * read_rate_ + kNewShare * rate : rate;
    }
  } else {
    if (stored) {
      ++(status.ok() || absl::IsDataLoss(status) ? stats_.damaged_blocks : stats_.failed_reads);
      ForgetLocked(job.slot);
    }
    FreeLocked(job.slot);
  }
  done_.push_back(std::move(read));
}

}  // namespace tidepool::engine
