// A KvDisk with a fake file that blocks, fails or is damaged as the test requires.
#ifndef TIDEPOOL_TESTS_ENGINE_KV_KV_DISK_FIXTURE_H_
#define TIDEPOOL_TESTS_ENGINE_KV_KV_DISK_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv/kv_disk.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"

namespace tidepool::engine {

// Thread-safe. The contents of the disk, and how it behaves. Outlives its files.
class FakeDisk {
 public:
  // From now on, each read of a slot waits for one Allow. Writes also wait until a read is allowed,
  // because the disk's thread may begin with a write or with a read.
  void Hold() {
    base::MutexLock lock(&mutex_);
    holding_ = true;
  }
  void Allow(int reads) {
    base::MutexLock lock(&mutex_);
    allowed_ += reads;
    changed_.NotifyAll();
  }
  void Release() {
    base::MutexLock lock(&mutex_);
    holding_ = false;
    changed_.NotifyAll();
  }
  void FailWrites(const absl::Status& status) {
    base::MutexLock lock(&mutex_);
    write_status_ = status;
  }
  void FailReads(const absl::Status& status) {
    base::MutexLock lock(&mutex_);
    read_status_ = status;
  }
  // Simulates a kill of the process after this number of writes has reached the disk, including
  // small writes.
  void KillAfter(int writes) {
    base::MutexLock lock(&mutex_);
    writes_left_ = writes;
  }
  void Flip(int64_t offset) {
    base::MutexLock lock(&mutex_);
    content_[offset] ^= 1;
  }
  void Cut(int64_t bytes) {
    base::MutexLock lock(&mutex_);
    content_.resize(bytes);
  }
  int64_t size() const {
    base::MutexLock lock(&mutex_);
    return static_cast<int64_t>(content_.size());
  }
  // True if a read or write is waiting.
  bool waited_for() const {
    base::MutexLock lock(&mutex_);
    return waiting_ > 0;
  }
  // Number of writes that reached the disk, including small ones.
  int writes() const {
    base::MutexLock lock(&mutex_);
    return writes_;
  }

  std::unique_ptr<KvDiskFile> Open();

 private:
  class File;

  void Wait(bool is_read) TIDEPOOL_REQUIRES(mutex_) {
    ++waiting_;
    while (holding_ && allowed_ == 0) changed_.Wait(&mutex_);
    --waiting_;
    if (holding_ && is_read) --allowed_;
  }
  std::string Get(int64_t offset, int64_t bytes) const TIDEPOOL_REQUIRES(mutex_) {
    if (offset >= static_cast<int64_t>(content_.size())) return "";
    return content_.substr(offset, bytes);
  }
  void Put(int64_t offset, absl::string_view bytes) TIDEPOOL_REQUIRES(mutex_) {
    if (writes_left_-- <= 0) return;
    ++writes_;
    if (content_.size() < offset + bytes.size()) content_.resize(offset + bytes.size());
    content_.replace(offset, bytes.size(), bytes.data(), bytes.size());
  }

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::string content_ TIDEPOOL_GUARDED_BY(mutex_);
  bool holding_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  int allowed_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int waiting_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int writes_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  int writes_left_ TIDEPOOL_GUARDED_BY(mutex_) = 1 << 30;
  absl::Status read_status_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Status write_status_ TIDEPOOL_GUARDED_BY(mutex_);
};

class FakeDisk::File final : public KvDiskFile {
 public:
  explicit File(FakeDisk* disk) : disk_(disk) {}

  absl::StatusOr<std::string> ReadSmall(int64_t offset, int64_t bytes) override {
    base::MutexLock lock(&disk_->mutex_);
    return disk_->Get(offset, bytes);
  }
  absl::Status WriteSmall(int64_t offset, absl::string_view bytes) override {
    base::MutexLock lock(&disk_->mutex_);
    if (disk_->write_status_.ok()) disk_->Put(offset, bytes);
    return disk_->write_status_;
  }
  absl::Status Read(int64_t offset, absl::Span<std::byte> into) override {
    base::MutexLock lock(&disk_->mutex_);
    disk_->Wait(/*is_read=*/true);
    if (!disk_->read_status_.ok()) return disk_->read_status_;
    const std::string content = disk_->Get(offset, into.size());
    if (content.size() < into.size()) return absl::DataLossError("truncated");
    std::memcpy(into.data(), content.data(), content.size());
    return absl::OkStatus();
  }
  absl::Status Write(int64_t offset, absl::Span<const std::byte> bytes) override {
    base::MutexLock lock(&disk_->mutex_);
    disk_->Wait(/*is_read=*/false);
    if (disk_->write_status_.ok()) {
      disk_->Put(offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return disk_->write_status_;
  }
  absl::Status Clear() override {
    base::MutexLock lock(&disk_->mutex_);
    disk_->content_.clear();
    return absl::OkStatus();
  }

 private:
  FakeDisk* const disk_;
};

inline std::unique_ptr<KvDiskFile> FakeDisk::Open() { return std::make_unique<File>(this); }

// Returns the smallest limit that allows this number of slots for blocks of this size.
inline int64_t LimitOf(int64_t slots, int64_t block_bytes) {
  return KvDiskLayout{.block_bytes = block_bytes, .slots = slots}.file_bytes();
}

// Waits until the disk's thread has done something. Returns false if it never happens.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const absl::Duration end = base::Clock::Real().Monotonic() + absl::Seconds(60);
  while (!condition()) {
    if (base::Clock::Real().Monotonic() > end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_KV_KV_DISK_FIXTURE_H_
