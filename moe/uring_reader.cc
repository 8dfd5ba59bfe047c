// The RecordReader that uses io_uring. One thread submits reads to the kernel and receives their
// results. If the kernel permanently refuses new reads, this thread uses blocking reads from then
// on.
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/mutex.h"
#include "moe/record_file.h"

namespace tidepool::moe {
namespace {

// Maximum size of one read. Larger records are read in pieces.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr unsigned kRingEntries = 256;
// Maximum number of reads in flight, even if they are small. Each read needs an entry of the ring.
constexpr int kMaxPieces = 128;
constexpr uint64_t kWakeTag = ~uint64_t{0};
// After this number of consecutive EAGAIN or EBUSY results, stop using the ring. There is a pause
// after each result, so this takes half a second.
constexpr int kMaxRefusals = 50;
constexpr absl::Duration kRefusalPause = absl::Milliseconds(10);
// When the ring is no longer used: time between two checks for reads that were submitted before.
constexpr absl::Duration kLook = absl::Milliseconds(10);

// A ring, and an eventfd that wakes the thread that waits for the ring. Thread-compatible; Wake is
// thread-safe.
class Ring {
 public:
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (event_ >= 0) close(event_);
    if (open_) io_uring_queue_exit(&ring_);
  }

  // Returns FAILED_PRECONDITION if the kernel or the container does not allow io_uring, or if the
  // kernel has no IORING_OP_READ.
  absl::Status Open() {
    const int error = -io_uring_queue_init(kRingEntries, &ring_, 0);
    if (error != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("io_uring is unavailable: ", std::strerror(error)));
    }
    open_ = true;
    // Kernels from 5.1 to 5.5 have io_uring, but neither IORING_OP_READ nor the probe.
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool reads = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
    io_uring_free_probe(probe);
    if (!reads) {
      return absl::FailedPreconditionError(
          "io_uring is unavailable: the kernel is older than 5.6 and has no IORING_OP_READ");
    }
    event_ = eventfd(0, EFD_CLOEXEC);
    if (event_ < 0) return absl::ErrnoToStatus(errno, "cannot create an eventfd");
    return absl::OkStatus();
  }

  void Wake() const {
    const uint64_t one = 1;
    CHECK_EQ(write(event_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

  io_uring* get() { return &ring_; }
  int event() const { return event_; }

 private:
  io_uring ring_;
  bool open_ = false;
  int event_ = -1;
};

// Thread-safe.
class UringReader final : public RecordReader {
 public:
  UringReader(RecordFile file, const ReaderOptions& options)
      : file_(std::move(file)), max_in_flight_(options.in_flight_bytes), note_(options.note) {}

  ~UringReader() override {
    {
      base::MutexLock lock(&mutex_);
      stop_ = true;
      changed_.NotifyAll();
    }
    if (thread_.joinable()) {
      ring_.Wake();
      thread_.join();
    }
  }

  absl::Status Open() { return ring_.Open(); }

  void Start(Done done) override {
    done_ = std::move(done);
    thread_ = std::thread([this] { Run(); });
  }

  void Read(const RecordRead& read, ReadPriority priority) override {
    {
      base::MutexLock lock(&mutex_);
      waiting_.Push(read, priority);
      changed_.NotifyAll();
    }
    ring_.Wake();
  }

  std::vector<RecordRead> Withdraw() override {
    base::MutexLock lock(&mutex_);
    return waiting_.Withdraw();
  }

  std::string Description() const override {
    return file_.direct() ? "io_uring" : "io_uring, buffered";
  }

 private:
  // A record that is being read.
  struct Active {
    RecordRead read;
    int64_t begun = 0;  // number of bytes for which pieces were created
    int pieces = 0;     // number of pieces in flight
    absl::Status status;
  };
  // A part of a record.
  struct Piece {
    int active = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  // A vector whose free elements are used again.
  template <typename T>
  class Places {
   public:
    int Take(T value) {
      int at = static_cast<int>(all_.size());
      if (free_.empty()) {
        all_.emplace_back();
      } else {
        at = free_.back();
        free_.pop_back();
      }
      all_[at] = std::move(value);
      return at;
    }
    void GiveBack(int at) { free_.push_back(at); }
    T& operator[](int at) { return all_[at]; }

   private:
    std::vector<T> all_;
    std::vector<int> free_;
  };

  void Run() {
    AwaitWake();
    std::vector<int> ended;
    while (true) {
      const bool stop = Begin();
      if (stop && in_flight_.pieces == 0) return;
      if (given_up_) {
        AwaitWork();
      } else {
        TakeSubmitted(io_uring_submit_and_wait(ring_.get(), 1));
      }
      TakeCompletions(&ended);
      ReadBlocking(&ended);
      // New reads are submitted first, so that the kernel works while this thread handles results.
      Begin();
      if (!given_up_) TakeSubmitted(io_uring_submit(ring_.get()));
      for (const int active : ended) {
        const Active record = active_[active];
        active_.GiveBack(active);
        done_(record.read, record.status);
      }
      ended.clear();
    }
  }

  void TakeCompletions(std::vector<int>* ended) {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(ring_.get(), &entry) == 0) {
      const uint64_t tag = entry->user_data;
      const int result = entry->res;
      io_uring_cqe_seen(ring_.get(), entry);
      if (tag == kWakeTag) {
        AwaitWake();
      } else {
        Finish(static_cast<int>(tag), result, ended);
      }
    }
  }

  // Handles the result of submitting, which is the number of entries that the kernel accepted, or
  // -errno.
  void TakeSubmitted(int result) {
    if (result >= 0) {
      refusals_ = 0;
      queued_.erase(queued_.begin(), queued_.begin() + std::min<size_t>(result, queued_.size()));
      return;
    }
    if (result == -EINTR) return;
    const bool may_pass = result == -EAGAIN || result == -EBUSY;
    if (!may_pass || ++refusals_ >= kMaxRefusals) return GiveUpRing(-result);
    base::MutexLock lock(&mutex_);
    if (!stop_) changed_.WaitFor(&mutex_, kRefusalPause);
  }

  void GiveUpRing(int error) {
    given_up_ = true;
    for (const uint64_t tag : std::exchange(queued_, {})) {
      if (tag != kWakeTag) blocking_.push_back(static_cast<int>(tag));
    }
    if (note_) {
      note_(absl::StrCat("io_uring accepts no more reads (", std::strerror(error),
                         "): until the next start, one thread reads the experts, which is slower"));
    }
  }

  // Called only when the ring is no longer used. Returns when there may be work.
  void AwaitWork() {
    if (!blocking_.empty()) return;
    base::MutexLock lock(&mutex_);
    if (!stop_ && !waiting_.empty() && in_flight_.bytes < max_in_flight_) return;
    if (in_flight_.pieces > 0) {
      changed_.WaitFor(&mutex_, kLook);
    } else if (!stop_) {
      changed_.Wait(&mutex_);
    }
  }

  // Reads the pieces that the kernel did not accept.
  void ReadBlocking(std::vector<int>* ended) {
    while (!blocking_.empty()) {
      const int at = blocking_.front();
      blocking_.pop_front();
      const Piece piece = pieces_[at];
      const RecordRead& read = active_[piece.active].read;
      const ssize_t got = pread(file_.file(), read.into + piece.begin, piece.end - piece.begin,
                                static_cast<off_t>(read.offset + piece.begin));
      Finish(at, got < 0 ? -errno : static_cast<int>(got), ended);
    }
  }

  // Returns null if the ring is no longer used.
  io_uring_sqe* NextEntry(uint64_t tag) {
    if (given_up_) return nullptr;
    io_uring_sqe* entry = io_uring_get_sqe(ring_.get());
    while (entry == nullptr && !given_up_) {
      TakeSubmitted(io_uring_submit(ring_.get()));
      entry = io_uring_get_sqe(ring_.get());
    }
    if (given_up_) return nullptr;
    queued_.push_back(tag);
    return entry;
  }

  void AwaitWake() {
    io_uring_sqe* entry = NextEntry(kWakeTag);
    if (entry == nullptr) return;
    io_uring_prep_read(entry, ring_.event(), &wakes_, sizeof(wakes_), 0);
    io_uring_sqe_set_data64(entry, kWakeTag);
  }

  // Submits reads until the maximum number is in flight. Returns true if the reader must stop.
  bool Begin() {
    while (in_flight_.bytes < max_in_flight_ && in_flight_.pieces < kMaxPieces) {
      if (current_ < 0) {
        base::MutexLock lock(&mutex_);
        if (stop_) return true;
        if (waiting_.empty()) return false;
        current_ = active_.Take({.read = waiting_.Pop()});
      }
      const int active = current_;
      Active& record = active_[active];
      const int64_t begin = record.begun;
      record.begun = std::min(begin + kPieceBytes, record.read.bytes);
      if (record.begun == record.read.bytes) current_ = -1;
      ++record.pieces;
      Submit({active, begin, record.begun});
    }
    base::MutexLock lock(&mutex_);
    return stop_;
  }

  void Submit(const Piece& piece) {
    const int at = pieces_.Take(piece);
    ++in_flight_.pieces;
    in_flight_.bytes += piece.end - piece.begin;
    const auto tag = static_cast<uint64_t>(at);
    io_uring_sqe* entry = NextEntry(tag);
    if (entry == nullptr) return blocking_.push_back(at);
    const RecordRead& read = active_[piece.active].read;
    io_uring_prep_read(entry, file_.file(), read.into + piece.begin,
                       static_cast<unsigned>(piece.end - piece.begin), read.offset + piece.begin);
    io_uring_sqe_set_data64(entry, tag);
  }

  // Handles a piece that has ended. If it was the last piece of a record, adds the record to
  // `ended`.
  void Finish(int at, int result, std::vector<int>* ended) {
    const Piece piece = pieces_[at];
    pieces_.GiveBack(at);
    --in_flight_.pieces;
    in_flight_.bytes -= piece.end - piece.begin;
    Active& active = active_[piece.active];
    if (result == -EINTR || result == -EAGAIN) return Submit(piece);
    if (result >= 0 && piece.begin + result < piece.end) {
      const int64_t next = NextBlock(piece.begin, result);
      if (next > piece.begin) return Submit({piece.active, next, piece.end});
      if (active.status.ok()) active.status = ShortRead();
    }
    if (active.status.ok() && result < 0) active.status = FailedRead(-result);
    if (--active.pieces == 0 && active.begun == active.read.bytes) ended->push_back(piece.active);
  }

  const RecordFile file_;
  const int64_t max_in_flight_;
  const std::function<void(absl::string_view line)> note_;
  Ring ring_;
  Done done_;  // set before the thread starts
  base::Mutex mutex_;
  base::CondVar changed_;  // used when the ring is no longer used
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  WaitingReads waiting_ TIDEPOOL_GUARDED_BY(mutex_);

  // Only the reader's thread uses the next members.
  Places<Active> active_;
  Places<Piece> pieces_;
  int current_ = -1;  // the record whose bytes are not all submitted yet; -1 if there is none
  // Numbers of pieces and bytes that the kernel has or will get soon.
  struct {
    int pieces = 0;
    int64_t bytes = 0;
  } in_flight_;
  uint64_t wakes_ = 0;
  // tags of the entries that the kernel has not accepted yet, in order
  std::deque<uint64_t> queued_;
  int refusals_ = 0;          // number of consecutive refusals
  bool given_up_ = false;     // whether the ring is no longer used
  std::deque<int> blocking_;  // pieces that this thread reads itself
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RecordReader>> MakeUringReader(RecordFile file,
                                                              const ReaderOptions& options) {
  auto reader = std::make_unique<UringReader>(std::move(file), options);
  const absl::Status status = reader->Open();
  if (!status.ok()) return status;
  return reader;
}

}  // namespace tidepool::moe
