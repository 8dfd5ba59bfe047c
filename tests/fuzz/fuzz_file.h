// Stores a fuzzer's bytes as an in-memory file that has a path.
#ifndef TIDEPOOL_TESTS_FUZZ_FUZZ_FILE_H_
#define TIDEPOOL_TESTS_FUZZ_FUZZ_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::fuzz {

// The file exists as long as this object.
class FuzzFile {
 public:
  FuzzFile(const void* data, size_t size) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    CHECK(fd_ >= 0);
    CHECK(write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  FuzzFile(const FuzzFile&) = delete;
  FuzzFile& operator=(const FuzzFile&) = delete;
  ~FuzzFile() { close(fd_); }

  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

}  // namespace tidepool::fuzz

#endif  // TIDEPOOL_TESTS_FUZZ_FUZZ_FILE_H_
