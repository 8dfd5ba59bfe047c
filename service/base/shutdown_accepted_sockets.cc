#include "service/base/shutdown_accepted_sockets.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "service/base/owned_fd.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(2);  // time between two checks

const sockaddr_in& Ip4(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in&>(address);
}

const sockaddr_in6& Ip6(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in6&>(address);
}

// Returns whether the connection with the local address `own` was accepted by a listener on
// `listened`. If a listener uses all addresses of the machine, no other listener can have its port.
// If such a listener accepts IPv4 and IPv6, all its connections have IPv6 addresses.
bool IsAt(const sockaddr_storage& own, const sockaddr_storage& listened) {
  if (own.ss_family != listened.ss_family) return false;
  if (own.ss_family == AF_INET) {
    const in_addr_t address = Ip4(listened).sin_addr.s_addr;
    return Ip4(own).sin_port == Ip4(listened).sin_port &&
           (address == htonl(INADDR_ANY) || address == Ip4(own).sin_addr.s_addr);
  }
  if (own.ss_family != AF_INET6 || Ip6(own).sin6_port != Ip6(listened).sin6_port) return false;
  if (IN6_IS_ADDR_UNSPECIFIED(&Ip6(listened).sin6_addr)) return true;
  // Link-local addresses on several interfaces may be equal, so compare the interface, too.
  return IN6_ARE_ADDR_EQUAL(&Ip6(listened).sin6_addr, &Ip6(own).sin6_addr) &&
         Ip6(listened).sin6_scope_id == Ip6(own).sin6_scope_id;
}

int OptionOf(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

// Returns false for a listening socket, a datagram socket, and a file that is not a socket.
bool IsConnection(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  return OptionOf(fd, SO_TYPE) == SOCK_STREAM && OptionOf(fd, SO_ACCEPTCONN) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

bool WasTakenAt(int fd, absl::Span<const sockaddr_storage> listened) {
  if (!IsConnection(fd)) return false;
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  return std::any_of(listened.begin(), listened.end(),
                     [&](const sockaddr_storage& address) { return IsAt(own, address); });
}

// Returns duplicates of the sockets that were accepted on these addresses.
std::vector<OwnedFd> ConnectionsOf(absl::Span<const sockaddr_storage> listened) {
  std::vector<OwnedFd> connections;
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(files->path().filename().string(), &fd)) continue;
    if (!WasTakenAt(fd, listened)) continue;
    // The owner may close the socket at any time, and then its number may be reused. A duplicate
    // stays valid, so check the duplicate again.
    OwnedFd connection(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (connection.get() >= 0 && WasTakenAt(connection.get(), listened)) {
      connections.push_back(std::move(connection));
    }
  }
  return connections;
}

// Returns whether the peer's kernel has acknowledged every byte.
bool HasArrived(int fd) {
  int unacknowledged = 0;
  return ioctl(fd, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

}  // namespace

int ShutdownAcceptedSockets(absl::Span<const sockaddr_storage> listened, absl::Duration patience) {
  const std::vector<OwnedFd> connections = ConnectionsOf(listened);
  // Wait before the shutdown. After it, the kernel would respond to incoming data with a reset, and
  // would drop data that the peer has not received yet.
  const base::Clock& clock = base::Clock::Real();
  const absl::Duration end = clock.Monotonic() + patience;
  for (const OwnedFd& connection : connections) {
    while (!HasArrived(connection.get()) && clock.Monotonic() < end) absl::SleepFor(kLook);
  }
  for (const OwnedFd& connection : connections) shutdown(connection.get(), SHUT_RDWR);
  return static_cast<int>(connections.size());
}

}  // namespace tidepool::service
