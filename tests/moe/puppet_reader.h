// PuppetReader: a RecordReader for bytes in memory. Reads end in random order, with results that
// the test chooses.
#ifndef TIDEPOOL_TESTS_MOE_PUPPET_READER_H_
#define TIDEPOOL_TESTS_MOE_PUPPET_READER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "moe/record_reader.h"

namespace tidepool::moe {

// Thread-safe. Its own thread ends the reads.
class PuppetReader final : public RecordReader {
 public:
  // Returns the result of a read, and may change the bytes.
  using Fate = std::function<absl::Status(const RecordRead& read)>;

  // Returns true for reads that must not end yet.
  using Held = std::function<bool(const RecordRead& read)>;

  // `file` outlives the reader.
  PuppetReader(const std::vector<std::byte>* file, int seed) : file_(*file), random_(seed) {}
  ~PuppetReader() override {
    {
      base::MutexLock lock(&mutex_);
      stop_ = true;
      changed_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }

  void set_fate(Fate fate) {
    base::MutexLock lock(&mutex_);
    fate_ = std::move(fate);
  }

  // Applies to new reads and to the held ones.
  void set_held(Held held) {
    base::MutexLock lock(&mutex_);
    is_held_ = std::move(held);
    for (const RecordRead& read : std::exchange(held_, {})) {
      (is_held_ && is_held_(read) ? held_ : demand_).push_back(read);
    }
    changed_.NotifyAll();
  }
  // Number of held reads.
  int64_t held() const {
    base::MutexLock lock(&mutex_);
    return static_cast<int64_t>(held_.size());
  }
  // True if only held reads are left.
  bool idle() const {
    base::MutexLock lock(&mutex_);
    return !busy_ && demand_.empty() && speculative_.empty();
  }

  void Start(Done done) override {
    done_ = std::move(done);
    thread_ = std::thread([this] { Run(); });
  }

  void Read(const RecordRead& read, ReadPriority priority) override {
    base::MutexLock lock(&mutex_);
    ++reads_;
    if (is_held_ && is_held_(read)) return held_.push_back(read);
    (priority == ReadPriority::kDemand ? demand_ : speculative_).push_back(read);
    changed_.NotifyAll();
  }

  std::vector<RecordRead> Withdraw() override {
    base::MutexLock lock(&mutex_);
    return std::exchange(speculative_, {});
  }

  std::string Description() const override { return "puppet"; }

  // Returns when every read has ended or is held.
  void WaitIdle() {
    base::MutexLock lock(&mutex_);
    while (busy_ || !demand_.empty() || !speculative_.empty()) idle_.Wait(&mutex_);
  }

  int64_t reads() const {
    base::MutexLock lock(&mutex_);
    return reads_;
  }

 private:
  void Run() {
    while (true) {
      RecordRead read;
      Fate fate;
      {
        base::MutexLock lock(&mutex_);
        while (!stop_ && demand_.empty() && speculative_.empty()) changed_.Wait(&mutex_);
        if (stop_) return;
        const bool speculate = demand_.empty() || (!speculative_.empty() && random_() % 2 == 0);
        std::vector<RecordRead>& reads = speculate ? speculative_ : demand_;
        std::swap(reads[random_() % reads.size()], reads.back());
        read = reads.back();
        reads.pop_back();
        fate = fate_;
        busy_ = true;
      }
      std::memcpy(read.into, file_.data() + read.offset, static_cast<size_t>(read.bytes));
      done_(read, fate ? fate(read) : absl::OkStatus());
      base::MutexLock lock(&mutex_);
      busy_ = false;
      idle_.NotifyAll();
    }
  }

  const std::vector<std::byte>& file_;
  Done done_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  base::CondVar idle_;
  std::mt19937 random_ TIDEPOOL_GUARDED_BY(mutex_);
  Fate fate_ TIDEPOOL_GUARDED_BY(mutex_);
  Held is_held_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<RecordRead> held_ TIDEPOOL_GUARDED_BY(mutex_);
  int64_t reads_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool busy_ TIDEPOOL_GUARDED_BY(mutex_) = false;  // a read is in work
  std::vector<RecordRead> demand_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<RecordRead> speculative_ TIDEPOOL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_PUPPET_READER_H_
