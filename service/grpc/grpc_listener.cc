#include "service/grpc/grpc_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "service/base/fd_headroom.h"

namespace tidepool::service {
namespace {

// Time to wait after accept has failed. The reason is probably a lack of file descriptors or
// memory. During this time, connections stay in the kernel's queue.
constexpr int kPauseMs = 100;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  return Addresses(found);
}

void SetPort(int port, sockaddr_storage* address) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address->ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  if (address->ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
}

sockaddr_storage AddressOf(const OwnedFd& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  CHECK(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return address;
}

std::vector<sockaddr_storage> AddressesOf(const std::vector<OwnedFd>& sockets) {
  std::vector<sockaddr_storage> addresses;
  for (const OwnedFd& socket : sockets) addresses.push_back(AddressOf(socket));
  return addresses;
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in*>(&address)->sin_port
                   : reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
}

absl::Status LastError() { return absl::UnavailableError(std::strerror(errno)); }

absl::StatusOr<OwnedFd> ListenOn(const addrinfo& address, int port) {
  OwnedFd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return LastError();
  // Accepted connections inherit TCP_NODELAY from this socket.
  const int on = 1, off = 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (address.ai_family == AF_INET6) {
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  sockaddr_storage bound = {};
  std::memcpy(&bound, address.ai_addr, address.ai_addrlen);
  SetPort(port, &bound);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&bound), address.ai_addrlen) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    return LastError();
  }
  return socket;
}

// Returns one listening socket for each address. If the status is OK, there is at least one socket.
absl::StatusOr<std::vector<OwnedFd>> ListenOnAll(const std::string& host, int port) {
  absl::StatusOr<Addresses> addresses = Resolve(host, port);
  if (!addresses.ok()) return addresses.status();
  std::vector<OwnedFd> sockets;
  absl::Status reason;
  for (const addrinfo* address = addresses->get(); address != nullptr; address = address->ai_next) {
    absl::StatusOr<OwnedFd> socket = ListenOn(*address, port);
    if (!socket.ok()) {
      reason = socket.status();
      continue;
    }
    // all addresses use the same port, even if the system chose it
    port = PortOf(AddressOf(*socket));
    sockets.push_back(*std::move(socket));
  }
  if (sockets.empty()) return reason;
  return sockets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Listen(const std::string& host,
                                                                   int port) {
  absl::StatusOr<std::vector<OwnedFd>> found;
  if (host == "0.0.0.0" || host == "::") {
    // If this machine has no IPv6, listen on IPv4 only.
    found = ListenOnAll("::", port);
    if (!found.ok()) found = ListenOnAll("0.0.0.0", port);
  } else {
    found = ListenOnAll(host, port);
  }
  if (!found.ok()) return found.status();
  std::vector<OwnedFd> sockets = *std::move(found);
  OwnedFd wake(eventfd(0, EFD_CLOEXEC));
  if (wake.get() < 0) return LastError();
  return std::unique_ptr<GrpcListener>(new GrpcListener(std::move(sockets), std::move(wake)));
}

GrpcListener::GrpcListener(std::vector<OwnedFd> sockets, OwnedFd wake)
    : sockets_(std::move(sockets)),
      wake_(std::move(wake)),
      addresses_(AddressesOf(sockets_)),
      port_(PortOf(addresses_.front())) {}

GrpcListener::~GrpcListener() { Stop(); }

void GrpcListener::Start(std::unique_ptr<Acceptor> acceptor) {
  base::MutexLock lock(&mutex_);
  CHECK(acceptor_ == nullptr);
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { Run(); });
}

void GrpcListener::Stop() {
  base::MutexLock lock(&mutex_);
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
}

void GrpcListener::Run() {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  for (const OwnedFd& socket : sockets_) polled.push_back({socket.get(), POLLIN, 0});
  int pause_ms = 0;
  while (true) {
    // During a pause, wait only for the signal to end.
    const nfds_t count = pause_ms > 0 ? 1 : polled.size();
    poll(polled.data(), count, pause_ms > 0 ? pause_ms : -1);
    if (polled[0].revents != 0) break;
    pause_ms = 0;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (AcceptFrom(polled[i].fd) == Accepted::kFailed) pause_ms = kPauseMs;
    }
  }
  sockets_.clear();
}

GrpcListener::Accepted GrpcListener::AcceptFrom(int socket) {
  while (true) {
    const int fd = accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return errno == EAGAIN ? Accepted::kAll : Accepted::kFailed;
    }
    if (!LeavesFdHeadroom(fd)) {
      close(fd);
      continue;
    }
    Acceptor::NewConnectionParameters connection;
    connection.listener_fd = socket;
    connection.fd = fd;
    acceptor_->HandleNewConnection(&connection);
  }
}

}  // namespace tidepool::service
