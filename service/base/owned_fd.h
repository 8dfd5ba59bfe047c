// OwnedFd: owns a file descriptor and closes it.
#ifndef TIDEPOOL_SERVICE_BASE_OWNED_FD_H_
#define TIDEPOOL_SERVICE_BASE_OWNED_FD_H_

#include <unistd.h>

#include <utility>

namespace tidepool::service {

// Thread-compatible.
class OwnedFd {
 public:
  // A negative `fd` means that there is no file.
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;

  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_OWNED_FD_H_
