// WatchedFiles: a value that is made from the contents of files. When the files change, a new value
// is made.
//
//   ASSIGN_OR_RETURN(auto tokens, WatchedFiles<TokenTable>::Open({path}, kMaxBytes, ParseTokens));
//   tokens->Get()->Find(...);
//   tokens->Reread();  // periodically
#ifndef TIDEPOOL_SERVICE_AUTH_WATCHED_FILES_H_
#define TIDEPOOL_SERVICE_AUTH_WATCHED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "service/base/files.h"

namespace tidepool::service {

// The result of reading files again.
enum class Rereading : uint8_t { kSame, kChanged };

// Thread-safe. To detect a change, it compares the contents of the files, which are small. File
// times would be unreliable.
template <typename Value>
class WatchedFiles {
 public:
  // Makes the value from the contents of the files. The contents are in the order of the paths.
  // Errors name the file.
  using Make = std::function<absl::StatusOr<Value>(const std::vector<std::string>& contents)>;

  // Errors are those of ReadFile and of `make`.
  static absl::StatusOr<std::unique_ptr<WatchedFiles>> Open(std::vector<std::string> paths,
                                                            size_t max_bytes, Make make) {
    auto files = std::unique_ptr<WatchedFiles>(
        new WatchedFiles(std::move(paths), max_bytes, std::move(make)));
    RETURN_IF_ERROR(files->Reread().status());
    return files;
  }

  // Returns the current value, which is never null.
  std::shared_ptr<const Value> Get() const {
    base::MutexLock lock(&mutex_);
    return value_;
  }

  // Reads the files and makes a new value if they have changed. On an error, the previous value
  // stays. The same error is returned only once until the files change again. Call it on one thread
  // at a time.
  absl::StatusOr<Rereading> Reread() {
    absl::StatusOr<std::vector<std::string>> contents = Read();
    const absl::Status before = std::exchange(read_fault_, contents.status());
    if (!contents.ok()) {
      if (contents.status() == before) return Rereading::kSame;
      return contents.status();
    }
    if (*contents == contents_) return Rereading::kSame;
    contents_ = *std::move(contents);
    ASSIGN_OR_RETURN(Value value, make_(contents_));
    base::MutexLock lock(&mutex_);
    value_ = std::make_shared<const Value>(std::move(value));
    return Rereading::kChanged;
  }

 private:
  WatchedFiles(std::vector<std::string> paths, size_t max_bytes, Make make)
      : paths_(std::move(paths)), max_bytes_(max_bytes), make_(std::move(make)) {}

  absl::StatusOr<std::vector<std::string>> Read() const {
    std::vector<std::string> contents;
    for (const std::string& path : paths_) {
      ASSIGN_OR_RETURN(contents.emplace_back(), ReadFile(path, max_bytes_));
    }
    return contents;
  }

  const std::vector<std::string> paths_;
  const size_t max_bytes_;
  const Make make_;
  std::vector<std::string> contents_;  // the contents that were read last
  absl::Status read_fault_;            // the status of the last read
  mutable base::Mutex mutex_;
  std::shared_ptr<const Value> value_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_WATCHED_FILES_H_
