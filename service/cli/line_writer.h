// LineWriter: writes lines to a file descriptor whose reader may be slow, stuck or closed.
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

// Thread-safe. Its own thread writes the lines in order, so callers never block. At most max_lines
// and max_bytes are queued. When the queue is full, the oldest lines are dropped. Dropped lines and
// failed writes (a full disk, a closed pipe) are counted. A note in the place of the missing lines
// gives their number.
//
// LineWriter does not set O_NONBLOCK, because the flag would affect other processes that share the
// file. So a write can block. If a write still blocks when the object is destroyed, the thread is
// detached.
class LineWriter {
 public:
  struct Options {
    size_t max_lines = 2048;
    size_t max_bytes = size_t{8} << 20;
    // How long the destructor waits for queued lines.
    absl::Duration flush_timeout = absl::Seconds(2);
    // Returns the note for `count` missing lines, with its newline. Called only by the writer's
    // thread, and never after the destructor has returned. Null: no notes are written.
    std::function<std::string(int64_t count)> dropped_note = nullptr;
  };

  // Does not own `fd`, which must stay open until the process or the writer's thread ends. The
  // thread blocks all signals.
  LineWriter(int fd, Options options);
  // Returns when all lines are written, or after flush_timeout, or at once after Hurry.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // `line` ends with a newline, or is a part of a line.
  void Write(std::string line);

  // Returns true if all queued lines were written or dropped within `timeout`.
  bool Flush(absl::Duration timeout);

  // Makes the destructor return without waiting for queued lines.
  void Hurry();

  // Number of lines that were dropped or could not be written.
  int64_t dropped() const;
  // errno of the latest failed write. 0 if none failed.
  int last_error() const;

 private:
  struct State;

  // Shared with the thread, which can outlive this object.
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LINE_WRITER_H_
