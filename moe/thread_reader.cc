// The RecordReader that uses blocking reads on its own threads.
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"
#include "moe/record_file.h"

namespace tidepool::moe {
namespace {

// Enough threads for small records. With large records, in_flight_bytes limits the number of reads.
constexpr int kThreads = 16;

// Thread-safe.
class ThreadReader final : public RecordReader {
 public:
  ThreadReader(RecordFile file, int64_t in_flight_bytes)
      : file_(std::move(file)), max_in_flight_(in_flight_bytes) {}

  ~ThreadReader() override {
    {
      base::MutexLock lock(&mutex_);
      stop_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Start(Done done) override {
    done_ = std::move(done);
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Run(); });
  }

  void Read(const RecordRead& read, ReadPriority priority) override {
    base::MutexLock lock(&mutex_);
    waiting_.Push(read, priority);
    changed_.NotifyOne();
  }

  std::vector<RecordRead> Withdraw() override {
    base::MutexLock lock(&mutex_);
    return waiting_.Withdraw();
  }

  std::string Description() const override {
    return file_.direct() ? "threads" : "threads, buffered";
  }

 private:
  void Run() {
    while (true) {
      RecordRead read;
      {
        base::MutexLock lock(&mutex_);
        while (!stop_ && (waiting_.empty() || in_flight_ >= max_in_flight_)) {
          changed_.Wait(&mutex_);
        }
        if (stop_) return;
        read = waiting_.Pop();
        in_flight_ += read.bytes;
        // This thread was notified once, but there may be room for another read.
        if (!waiting_.empty() && in_flight_ < max_in_flight_) changed_.NotifyOne();
      }
      const absl::Status status = ReadWhole(read);
      {
        base::MutexLock lock(&mutex_);
        in_flight_ -= read.bytes;
        changed_.NotifyOne();
      }
      done_(read, status);
    }
  }

  absl::Status ReadWhole(const RecordRead& read) const {
    int64_t done = 0;
    while (done < read.bytes) {
      const ssize_t got = pread(file_.file(), read.into + done, read.bytes - done,
                                static_cast<off_t>(read.offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return FailedRead(errno);
      if (done + got == read.bytes) break;
      const int64_t next = NextBlock(done, got);
      if (next == done) return ShortRead();
      done = next;
    }
    return absl::OkStatus();
  }

  const RecordFile file_;
  const int64_t max_in_flight_;
  Done done_;  // set before the threads start
  base::Mutex mutex_;
  base::CondVar changed_;
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  int64_t in_flight_ TIDEPOOL_GUARDED_BY(mutex_) = 0;  // bytes in flight
  WaitingReads waiting_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<RecordReader> MakeThreadReader(RecordFile file, int64_t in_flight_bytes) {
  return std::make_unique<ThreadReader>(std::move(file), in_flight_bytes);
}

}  // namespace tidepool::moe
