#include "service/cut_connections.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "service/owned_fd.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(2);  // between two

// Of this end; -1: it is no TCP socket.
int OwnPort(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  switch (address.ss_family) {
    case AF_INET:
      return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
    case AF_INET6:
      return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
    default:
      return -1;
  }
}

// Duplicates of them. Connections that a process takes have their listener's port, and none of its
// others does.
std::vector<OwnedFd> ConnectionsOf(int port) {
  std::vector<OwnedFd> connections;
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(files->path().filename().string(), &fd) || OwnPort(fd) != port) continue;
    // Its owner may close it at any moment, and the number be another file's: a duplicate stays.
    OwnedFd connection(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (connection.get() >= 0 && OwnPort(connection.get()) == port) {
      connections.push_back(std::move(connection));
    }
  }
  return connections;
}

// The peer's kernel has acknowledged every byte.
bool HasArrived(int fd) {
  int unacknowledged = 0;
  return ioctl(fd, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

}  // namespace

int CutConnections(int port, absl::Duration patience) {
  const std::vector<OwnedFd> connections = ConnectionsOf(port);
  // Before the cut: behind it the kernel answers whatever still comes with a reset, and forgets what
  // the peer has not got.
  const base::Clock& clock = base::Clock::Real();
  const absl::Duration end = clock.Monotonic() + patience;
  for (const OwnedFd& connection : connections) {
    while (!HasArrived(connection.get()) && clock.Monotonic() < end) absl::SleepFor(kLook);
  }
  for (const OwnedFd& connection : connections) shutdown(connection.get(), SHUT_RDWR);
  return static_cast<int>(connections.size());
}

}  // namespace tidepool::service
