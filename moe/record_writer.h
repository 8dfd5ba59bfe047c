// RecordWriter: writes repaired records back to their file, on its own thread.
//
// A record is overwritten in place. If a crash interrupts the write, the record's checksum does not
// match, and the next read detects this.
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
  // `path` is the file that has the records now. If another file replaces it later, that file is
  // not changed. If a write fails, `failed` is called with the error on the writer's thread, but
  // only for the first failure. The message names the file.
  RecordWriter(const std::string& path, std::function<void(const absl::Status&)> failed);
  // Waits for the current write, and drops all waiting writes.
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Copies read.into, and writes the copy to the record's place in the file. Does not wait for the
  // disk. If kMaxWaiting records wait already, drops the write.
  void Write(const RecordRead& read);

  int64_t failures() const { return failures_; }

  // Maximum number of records that wait.
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
  std::thread thread_;  // started by the first Write
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_RECORD_WRITER_H_
