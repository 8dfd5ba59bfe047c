#include "service/cli/line_writer.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"

namespace tidepool::service {
namespace {

// The file may be full, and another process may have made it non-blocking. Then a write is repeated
// after this time.
constexpr absl::Duration kRetry = absl::Milliseconds(10);

absl::Duration Now() { return base::Clock::Real().Monotonic(); }

int PollMillis(absl::Duration wait) {
  return static_cast<int>(absl::ToInt64Milliseconds(
      absl::Ceil(std::clamp(wait, absl::ZeroDuration(), absl::Hours(1)), absl::Milliseconds(1))));
}

}  // namespace

struct LineWriter::State {
  State(int file, Options how) : fd(file), options(std::move(how)), wake(eventfd(0, EFD_CLOEXEC)) {
    CHECK(wake >= 0) << "eventfd";
  }
  ~State() { close(wake); }

  void Run();
  // The next line, and the number of lines lost before it. nullopt after the last one.
  struct Next {
    std::string line;
    int64_t missing = 0;
  };
  std::optional<Next> Take();
  void CountMissing(int64_t count);
  // Returns false if `text` was not written completely.
  bool Put(absl::string_view text);
  // Waits until the file can be written. Returns false if the time to flush is over.
  bool AwaitWritable();
  std::optional<absl::Duration> deadline();

  const int fd;
  const Options options;
  const int wake;     // readable once the destructor has begun
  bool torn = false;  // the last line was written only in part; used by the thread only

  base::Mutex mutex;
  base::CondVar changed;
  std::deque<std::string> lines TIDEPOOL_GUARDED_BY(mutex);
  size_t bytes TIDEPOOL_GUARDED_BY(mutex) = 0;
  bool busy TIDEPOOL_GUARDED_BY(mutex) = false;  // writing a line that is no longer in `lines`
  bool done TIDEPOOL_GUARDED_BY(mutex) = false;
  int64_t missing TIDEPOOL_GUARDED_BY(mutex) = 0;  // lost lines that no note has reported yet
  int64_t dropped TIDEPOOL_GUARDED_BY(mutex) = 0;
  int last_error TIDEPOOL_GUARDED_BY(mutex) = 0;
  bool hurry TIDEPOOL_GUARDED_BY(mutex) = false;
  // The time at which the thread stops writing. Set by the destructor.
  std::optional<absl::Duration> end TIDEPOOL_GUARDED_BY(mutex);
};

std::optional<LineWriter::State::Next> LineWriter::State::Take() {
  base::MutexLock lock(&mutex);
  busy = false;
  changed.NotifyAll();
  while (lines.empty() && !end.has_value()) changed.Wait(&mutex);
  if (end.has_value() && Now() >= *end) return std::nullopt;
  Next next;
  next.missing = std::exchange(missing, 0);
  if (lines.empty() && next.missing == 0) return std::nullopt;
  if (!lines.empty()) {
    next.line = std::move(lines.front());
    lines.pop_front();
    bytes -= next.line.size();
  }
  busy = true;
  return next;
}

void LineWriter::State::CountMissing(int64_t count) {
  base::MutexLock lock(&mutex);
  missing += count;
}

std::optional<absl::Duration> LineWriter::State::deadline() {
  base::MutexLock lock(&mutex);
  return end;
}

bool LineWriter::State::AwaitWritable() {
  while (true) {
    const std::optional<absl::Duration> until = deadline();
    pollfd fds[] = {{fd, POLLOUT, 0}, {wake, POLLIN, 0}};
    // Ignore poll errors here, because the write reports what is wrong with the file.
    if (poll(fds, until.has_value() ? 1 : 2, until.has_value() ? PollMillis(*until - Now()) : -1) <
        0) {
      continue;
    }
    if (fds[0].revents != 0) return true;
    if (until.has_value() && Now() >= *until) return false;
  }
}

bool LineWriter::State::Put(absl::string_view text) {
  std::string repaired;
  if (torn) {
    repaired = absl::StrCat("\n", text);
    text = repaired;
  }
  const size_t size = text.size();
  while (!text.empty()) {
    if (!AwaitWritable()) return false;
    // A pipe that is writable for poll has room for PIPE_BUF bytes.
    const ssize_t written = write(fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    const int error = written < 0 ? errno : written == 0 ? EIO : 0;
    if (error == EINTR) continue;
    if (error == EAGAIN) {
      pollfd ending = {wake, POLLIN, 0};
      poll(&ending, 1, PollMillis(kRetry));
      if (const auto until = deadline(); until.has_value() && Now() >= *until) return false;
      continue;
    }
    if (error != 0) {
      torn = torn || text.size() < size;
      base::MutexLock lock(&mutex);
      last_error = error;
      return false;
    }
    torn = false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void LineWriter::State::Run() {
  while (const std::optional<Next> next = Take()) {
    const bool note = next->missing > 0 && options.dropped_note != nullptr;
    // The note could not be written, so the next note has to include its count.
    if (note && !Put(options.dropped_note(next->missing))) CountMissing(next->missing);
    if (next->line.empty()) break;
    if (Put(next->line)) continue;
    CountMissing(1);
    base::MutexLock lock(&mutex);
    ++dropped;
  }
  base::MutexLock lock(&mutex);
  busy = false;
  done = true;
  changed.NotifyAll();
}

LineWriter::LineWriter(int fd, Options options)
    : state_(std::make_shared<State>(fd, std::move(options))) {
  sigset_t all, before;
  sigfillset(&all);
  CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
  thread_ = std::thread([state = state_] { state->Run(); });
  CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
}

LineWriter::~LineWriter() {
  bool done = false;
  {
    base::MutexLock lock(&state_->mutex);
    const absl::Duration until =
        Now() + (state_->hurry ? absl::ZeroDuration() : state_->options.flush_timeout);
    state_->end = until;
    state_->changed.NotifyAll();
    const uint64_t one = 1;
    CHECK_EQ(write(state_->wake, &one, sizeof(one)), ssize_t{sizeof(one)});
    // The thread stops at `until`, unless a write blocks. Wait a little longer than that.
    const absl::Duration last = until + absl::Milliseconds(200);
    for (absl::Duration now = Now(); !state_->done && now < last; now = Now()) {
      state_->changed.WaitFor(&state_->mutex, last - now);
    }
    done = state_->done;
  }
  done ? thread_.join() : thread_.detach();
}

void LineWriter::Write(std::string line) {
  if (line.empty()) return;
  base::MutexLock lock(&state_->mutex);
  state_->bytes += line.size();
  state_->lines.push_back(std::move(line));
  while (state_->lines.size() > 1 && (state_->lines.size() > state_->options.max_lines ||
                                      state_->bytes > state_->options.max_bytes)) {
    state_->bytes -= state_->lines.front().size();
    state_->lines.pop_front();
    ++state_->missing;
    ++state_->dropped;
  }
  state_->changed.NotifyAll();
}

void LineWriter::Hurry() {
  base::MutexLock lock(&state_->mutex);
  state_->hurry = true;
}

bool LineWriter::Flush(absl::Duration timeout) {
  const absl::Duration until = Now() + timeout;
  base::MutexLock lock(&state_->mutex);
  while (!state_->lines.empty() || state_->busy) {
    const absl::Duration now = Now();
    if (now >= until) return false;
    state_->changed.WaitFor(&state_->mutex, until - now);
  }
  return true;
}

int64_t LineWriter::dropped() const {
  base::MutexLock lock(&state_->mutex);
  return state_->dropped;
}

int LineWriter::last_error() const {
  base::MutexLock lock(&state_->mutex);
  return state_->last_error;
}

}  // namespace tidepool::service
