// ManualReader: a RecordReader for bytes in memory. Reads end when the test says so, on the test's
// thread. SteppingClock: a clock that advances with each look at it, so that no test waits.
#ifndef TIDEPOOL_TESTS_MOE_MANUAL_READER_H_
#define TIDEPOOL_TESTS_MOE_MANUAL_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "moe/record_reader.h"

namespace tidepool::moe {

// Thread-compatible.
class ManualReader final : public RecordReader {
 public:
  struct Begun {
    RecordRead read;
    ReadPriority priority;
  };

  // `file` outlives the reader.
  explicit ManualReader(const std::vector<std::byte>* file) : file_(*file) {}

  void Start(Done done) override { done_ = std::move(done); }
  void Read(const RecordRead& read, ReadPriority priority) override {
    reads_.push_back({read, priority});
  }
  std::vector<RecordRead> Withdraw() override {
    std::vector<RecordRead> withdrawn;
    for (const Begun& begun : reads_) {
      if (begun.priority == ReadPriority::kSpeculative) withdrawn.push_back(begun.read);
    }
    std::erase_if(reads_,
                  [](const Begun& begun) { return begun.priority == ReadPriority::kSpeculative; });
    return withdrawn;
  }
  std::string Description() const override { return "manual"; }

  // Ends the read of this ticket. Requires: it is in flight.
  void End(int64_t ticket, const absl::Status& status = absl::OkStatus()) {
    const auto found = std::find_if(reads_.begin(), reads_.end(), [ticket](const Begun& begun) {
      return begun.read.ticket == ticket;
    });
    CHECK(found != reads_.end()) << "ticket " << ticket << " is not being read";
    const RecordRead read = found->read;
    reads_.erase(found);
    std::memcpy(read.into, file_.data() + read.offset, static_cast<size_t>(read.bytes));
    done_(read, status);
  }
  // Returns the reads in flight, in the order in which they began.
  const std::vector<Begun>& reads() const { return reads_; }

 private:
  const std::vector<std::byte>& file_;
  Done done_;
  std::vector<Begun> reads_;
};

// Thread-compatible.
class SteppingClock final : public base::Clock {
 public:
  explicit SteppingClock(absl::Duration step) : step_(step) {}
  absl::Duration Monotonic() const override { return elapsed_ += step_; }
  absl::Time Now() const override { return absl::UnixEpoch() + Monotonic(); }

 private:
  const absl::Duration step_;
  mutable absl::Duration elapsed_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_MANUAL_READER_H_
