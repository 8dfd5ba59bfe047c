// The RecordReader over io_uring: one thread that hands reads to the kernel and takes them back.
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/mutex.h"
#include "moe/record_file.h"

namespace tidepool::moe {
namespace {

// A record goes to the disk in pieces, so that even a lone one keeps several of its queues busy.
constexpr int64_t kPieceBytes = int64_t{512} << 10;
constexpr unsigned kRingEntries = 256;
constexpr uint64_t kWakeTag = ~uint64_t{0};

// Thread-safe.
class UringReader final : public RecordReader {
 public:
  UringReader(RecordFile file, int depth) : file_(std::move(file)), active_(depth) {}

  ~UringReader() override {
    {
      base::MutexLock lock(&mutex_);
      stop_ = true;
    }
    if (thread_.joinable()) {
      Wake();
      thread_.join();
    }
    if (event_ >= 0) close(event_);
    if (open_) io_uring_queue_exit(&ring_);
  }

  absl::Status Open() {
    const int error = -io_uring_queue_init(kRingEntries, &ring_, 0);
    if (error != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("io_uring is not to be had here: ", std::strerror(error)));
    }
    open_ = true;
    event_ = eventfd(0, EFD_CLOEXEC);
    if (event_ < 0) return absl::ErrnoToStatus(errno, "cannot make an eventfd");
    return absl::OkStatus();
  }

  void Start(Done done) override {
    done_ = std::move(done);
    thread_ = std::thread([this] { Run(); });
  }

  void Read(const RecordRead& read, ReadPriority priority) override {
    {
      base::MutexLock lock(&mutex_);
      waiting_.Push(read, priority);
    }
    Wake();
  }

  std::vector<RecordRead> Withdraw() override {
    base::MutexLock lock(&mutex_);
    return waiting_.Withdraw();
  }

  std::string Description() const override {
    return file_.direct() ? "io_uring" : "io_uring, buffered";
  }

 private:
  // A record in work.
  struct Active {
    RecordRead read;
    int pieces = 0;  // with the kernel; 0: the place is free
    absl::Status status;
  };
  // Part of a record.
  struct Piece {
    int active = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  void Wake() {
    const uint64_t one = 1;
    CHECK_EQ(write(event_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

  void Run() {
    AwaitWake();
    while (true) {
      const bool stop = Begin();
      if (stop && in_kernel_ == 0) return;
      io_uring_submit_and_wait(&ring_, 1);
      io_uring_cqe* entry = nullptr;
      while (io_uring_peek_cqe(&ring_, &entry) == 0) {
        const uint64_t tag = entry->user_data;
        const int result = entry->res;
        io_uring_cqe_seen(&ring_, entry);
        if (tag == kWakeTag) {
          AwaitWake();
        } else {
          --in_kernel_;
          Finish(static_cast<int>(tag), result);
        }
      }
    }
  }

  io_uring_sqe* NextEntry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      io_uring_submit(&ring_);
      entry = io_uring_get_sqe(&ring_);
    }
    CHECK(entry != nullptr);
    return entry;
  }

  void AwaitWake() {
    io_uring_sqe* entry = NextEntry();
    io_uring_prep_read(entry, event_, &wakes_, sizeof(wakes_), 0);
    io_uring_sqe_set_data64(entry, kWakeTag);
  }

  // Hands waiting records to the kernel while there are places; true: the end has come.
  bool Begin() {
    for (int i = 0; i < static_cast<int>(active_.size()); ++i) {
      if (active_[i].pieces > 0) continue;
      {
        base::MutexLock lock(&mutex_);
        if (stop_) return true;
        if (waiting_.empty()) return false;
        active_[i] = {waiting_.Pop(), 0, absl::OkStatus()};
      }
      const int64_t bytes = active_[i].read.bytes;
      for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
        ++active_[i].pieces;
        Submit({i, begin, std::min(begin + kPieceBytes, bytes)});
      }
    }
    base::MutexLock lock(&mutex_);
    return stop_;
  }

  void Submit(const Piece& piece) {
    int at = 0;
    if (free_pieces_.empty()) {
      at = static_cast<int>(pieces_.size());
      pieces_.emplace_back();
    } else {
      at = free_pieces_.back();
      free_pieces_.pop_back();
    }
    pieces_[at] = piece;
    const RecordRead& read = active_[piece.active].read;
    io_uring_sqe* entry = NextEntry();
    io_uring_prep_read(entry, file_.file(), read.into + piece.begin,
                       static_cast<unsigned>(piece.end - piece.begin), read.offset + piece.begin);
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(at));
    ++in_kernel_;
  }

  void Finish(int at, int result) {
    const Piece piece = pieces_[at];
    free_pieces_.push_back(at);
    Active& active = active_[piece.active];
    if (result == -EINTR || result == -EAGAIN) return Submit(piece);
    if (result > 0 && piece.begin + result < piece.end) {
      return Submit({piece.active, piece.begin + result, piece.end});
    }
    if (active.status.ok() && result < 0) active.status = FailedRead(-result);
    if (active.status.ok() && result == 0) active.status = ShortRead();
    if (--active.pieces > 0) return;
    const RecordRead read = active.read;
    const absl::Status status = active.status;
    // The kernel has the next ones to do while this one is looked at.
    Begin();
    io_uring_submit(&ring_);
    done_(read, status);
  }

  const RecordFile file_;
  io_uring ring_;
  bool open_ = false;
  int event_ = -1;
  Done done_;  // set before the thread starts
  base::Mutex mutex_;
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  WaitingReads waiting_ TIDEPOOL_GUARDED_BY(mutex_);

  // The thread's own.
  std::vector<Active> active_;
  std::vector<Piece> pieces_;
  std::vector<int> free_pieces_;
  int in_kernel_ = 0;  // pieces
  uint64_t wakes_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RecordReader>> MakeUringReader(RecordFile file, int depth) {
  auto reader = std::make_unique<UringReader>(std::move(file), depth);
  const absl::Status status = reader->Open();
  if (!status.ok()) return status;
  return reader;
}

}  // namespace tidepool::moe
