#include "service/base/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace tidepool::service {

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  struct Close {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };
  const std::unique_ptr<std::FILE, Close> file(path == "-" ? stdin
                                                           : std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  std::string text;
  char buffer[1 << 16];
  size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof(buffer), file.get())) > 0) {
    text.append(buffer, got);
    if (text.size() > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot read ", path, ": it exceeds the limit of ", max_bytes >> 20, " MiB"));
    }
  }
  if (std::ferror(file.get()) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  return text;
}

}  // namespace tidepool::service
