// LineWriter: lines for a file descriptor whose reader may be slow, stuck or gone.
#ifndef TIDEPOOL_SERVICE_CLI_LINE_WRITER_H_
#define TIDEPOOL_SERVICE_CLI_LINE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"

namespace tidepool::service {

// Thread-safe. A thread of its own writes the lines in order, so that callers never wait. At most
// max_lines and max_bytes are queued; past that the oldest are dropped. Dropped lines are counted,
// as are those that could not be written (a full disk, a closed pipe). A note of how many are
// missing is written in their place.
//
// The file descriptor stays as it is: O_NONBLOCK would also hold for other processes that share it.
// A write can therefore block, and the thread is abandoned if it still does at the end.
class LineWriter {
 public:
  struct Options {
    size_t max_lines = 2048;
    size_t max_bytes = size_t{8} << 20;
    // How long the destructor waits for queued lines.
    absl::Duration flush_timeout = absl::Seconds(2);
    // Makes the note, with its newline, for `count` missing lines. Called by the thread, and by no
    // one after the destructor has returned. Null: nothing is written.
    std::function<std::string(int64_t count)> dropped_note = nullptr;
  };

  // Does not own `fd`, which stays open at least until the process ends or the thread does. The
  // thread blocks all signals.
  LineWriter(int fd, Options options);
  // Returns when all lines are written, or after flush_timeout; after Hurry, at once.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // `line` ends with a newline, or is a part of one.
  void Write(std::string line);

  // Whether all lines so far were written or dropped within `timeout`.
  bool Flush(absl::Duration timeout);

  // From now on the destructor does not wait for queued lines.
  void Hurry();

  // Lines that were dropped or could not be written.
  int64_t dropped() const;
  // errno of the latest write that failed; 0: none did.
  int last_error() const;

 private:
  struct State;

  // Shared with the thread, which can outlive this.
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LINE_WRITER_H_
