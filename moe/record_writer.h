// RecordWriter: puts records back into their file, on a thread of its own.
//
// A record is written in place. A crash in between leaves a record whose checksum does not match,
// which the next read finds.
#ifndef TIDEPOOL_MOE_RECORD_WRITER_H_
#define TIDEPOOL_MOE_RECORD_WRITER_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "moe/record_reader.h"

namespace tidepool::moe {

// Thread-safe.
class RecordWriter {
 public:
  // `path` is as it is now: what takes its name later is not written to. `failed` is called with
  // the first error, on the writer's thread; the message names the file.
  RecordWriter(const std::string& path, std::function<void(const absl::Status&)> failed);
  // Waits for the write under way, and forgets the others.
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Copies read.into, and writes it to where it was read from. At once, without waiting for the
  // disk; forgotten if too many wait.
  void Write(const RecordRead& read);

  int64_t failures() const { return failures_; }

  // Records that wait at most.
  static constexpr size_t kMaxWaiting = 4;

 private:
  struct Record {
    int64_t offset = 0;
    std::vector<std::byte> bytes;
  };

  void Run();
  absl::Status WriteNow(const Record& record) const;

  const std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  const std::function<void(const absl::Status&)> failed_;
  std::atomic<int64_t> failures_ = 0;
  base::Mutex mutex_;
  base::CondVar changed_;
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::deque<Record> waiting_ TIDEPOOL_GUARDED_BY(mutex_);
  std::thread thread_;  // from the first write on
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_WRITER_H_
