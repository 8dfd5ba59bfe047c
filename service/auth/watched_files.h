// WatchedFiles: a value that is read from files, and reloaded when they change.
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

// The result of reloading files.
enum class Rereading : uint8_t { kSame, kChanged };

// Thread-safe. Compares the contents of the files, which are small. File times are unreliable.
template <typename Value>
class WatchedFiles {
 public:
  // Creates the value from the files' contents, in the order of their paths. Errors name the file.
  using Make = std::function<absl::StatusOr<Value>(const std::vector<std::string>& contents)>;

  // Errors as in ReadFile and `make`.
  static absl::StatusOr<std::unique_ptr<WatchedFiles>> Open(std::vector<std::string> paths,
                                                            size_t most_bytes, Make make) {
    auto files = std::unique_ptr<WatchedFiles>(
        new WatchedFiles(std::move(paths), most_bytes, std::move(make)));
    RETURN_IF_ERROR(files->Reread().status());
    return files;
  }

  // Never returns null.
  std::shared_ptr<const Value> Get() const {
    base::MutexLock lock(&mutex_);
    return value_;
  }

  // Reads the files. If this fails, the previous value stays; an error is returned once per change
  // of the files. One thread at a time.
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
  WatchedFiles(std::vector<std::string> paths, size_t most_bytes, Make make)
      : paths_(std::move(paths)), most_bytes_(most_bytes), make_(std::move(make)) {}

  absl::StatusOr<std::vector<std::string>> Read() const {
    std::vector<std::string> contents;
    for (const std::string& path : paths_) {
      ASSIGN_OR_RETURN(contents.emplace_back(), ReadFile(path, most_bytes_));
    }
    return contents;
  }

  const std::vector<std::string> paths_;
  const size_t most_bytes_;
  const Make make_;
  std::vector<std::string> contents_;  // as last read
  absl::Status read_fault_;            // of the last read
  mutable base::Mutex mutex_;
  std::shared_ptr<const Value> value_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_WATCHED_FILES_H_
