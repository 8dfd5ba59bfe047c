#include "service/base/shutdown_accepted_sockets.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "kernels/base/check.h"
#include "service/base/owned_fd.h"

namespace tidepool::service {
namespace {

sockaddr* Raw(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

struct Place {
  const char* ip = "127.0.0.1";
  int port = 0;  // 0: any free port
};

// A listener of this process, and a connection that it has accepted.
class Port {
 public:
  explicit Port(const Place& place = {}) {
    OwnedFd listener = Bind(SOCK_STREAM, place);
    CHECK(listen(listener.get(), 1) == 0);
    socklen_t size = sizeof(address_);
    CHECK(getsockname(listener.get(), Raw(&address_), &size) == 0);
    CHECK(connect(peer_.get(), Raw(&address_), sizeof(address_)) == 0);
    taken_.emplace(accept(listener.get(), nullptr, nullptr));
    CHECK(taken_->get() >= 0);
  }
  static OwnedFd Bind(int type, const Place& place) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(place.port));
    CHECK(inet_pton(AF_INET, place.ip, &address.sin_addr) == 1);
    OwnedFd bound(socket(AF_INET, type, 0));
    const int on = 1;
    CHECK(setsockopt(bound.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
    CHECK(bind(bound.get(), Raw(&address), sizeof(address)) == 0);
    return bound;
  }

  int number() const { return ntohs(address_.sin_port); }
  int Cut(absl::Duration patience) const {
    sockaddr_storage listened = {};
    std::memcpy(&listened, &address_, sizeof(address_));
    return ShutdownAcceptedSockets({&listened, 1}, patience);
  }
  bool Write(const std::string& text) {
    return send(taken_->get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // Writes until the buffers are full, because the peer does not read.
  std::string Fill() {
    const std::string part(4096, 'x');
    std::string all;
    while (true) {
      const ssize_t count =
          send(taken_->get(), part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0) return all;
      all.append(part, 0, count);
    }
  }
  void PeerWrites(const std::string& text) {
    CHECK(send(peer_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(text.size()));
  }
  // Closes the connection, as the owner of the socket does.
  void Close() { taken_.reset(); }
  // Reads to the end, which may be a close or a reset.
  std::string PeerReadsAll() {
    std::string all;
    char part[4096];
    while (true) {
      const ssize_t count = recv(peer_.get(), part, sizeof(part), 0);
      if (count <= 0) return all;
      all.append(part, count);
    }
  }

 private:
  sockaddr_in address_ = {};
  OwnedFd peer_{socket(AF_INET, SOCK_STREAM, 0)};
  std::optional<OwnedFd> taken_;
};

TEST(ShutdownAcceptedSocketsTest, OnlyTheWrittenBytesArrive) {
  Port port;
  ASSERT_TRUE(port.Write("before"));
  EXPECT_EQ(port.Cut(absl::Minutes(1)), 1);
  EXPECT_FALSE(port.Write("after"));
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(port.PeerReadsAll(), "before");
}

// If the owner closes a connection that has unread data, the kernel resets it. The kernel also
// resets a closed connection when more data arrives.
TEST(ShutdownAcceptedSocketsTest, BytesInFlightAreNotLostToAReset) {
  Port port;
  const std::string text = port.Fill();
  port.PeerWrites("unread");
  std::string received;
  std::thread reader([&] { received = port.PeerReadsAll(); });
  port.Cut(absl::Minutes(1));
  port.Close();
  reader.join();
  EXPECT_EQ(received.size(), text.size());
}

TEST(ShutdownAcceptedSocketsTest, APeerThatDoesNotReadIsWaitedForNoLongerThanAsked) {
  Port port;
  EXPECT_FALSE(port.Fill().empty());
  EXPECT_EQ(port.Cut(absl::Milliseconds(20)), 1);
  EXPECT_FALSE(port.Write("after"));
}

TEST(ShutdownAcceptedSocketsTest, OtherPortsStay) {
  Port cut, other;
  EXPECT_EQ(cut.Cut(absl::Minutes(1)), 1);
  EXPECT_TRUE(other.Write("still there"));
  other.Close();
  EXPECT_EQ(other.PeerReadsAll(), "still there");
}

// The port is the same, but another server of this process listens on another address.
TEST(ShutdownAcceptedSocketsTest, OtherAddressesOfThePortStay) {
  Port cut;
  Port other({.ip = "127.0.0.2", .port = cut.number()});
  const OwnedFd listener = Port::Bind(SOCK_STREAM, {.ip = "127.0.0.3", .port = cut.number()});
  ASSERT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(cut.Cut(absl::Minutes(1)), 1);
  EXPECT_FALSE(cut.Write("after"));
  EXPECT_TRUE(other.Write("still there"));
  other.Close();
  EXPECT_EQ(other.PeerReadsAll(), "still there");
}

// Datagram sockets and listening sockets are not shut down, even if all addresses are given.
TEST(ShutdownAcceptedSocketsTest, OnlyConnectionsAreCut) {
  Port first;
  Port second({.ip = "127.0.0.2", .port = first.number()});
  const OwnedFd datagrams = Port::Bind(SOCK_DGRAM, {.port = first.number()});
  const OwnedFd listener = Port::Bind(SOCK_STREAM, {.ip = "127.0.0.3", .port = first.number()});
  ASSERT_EQ(listen(listener.get(), 1), 0);
  sockaddr_storage all = {};
  auto& address = reinterpret_cast<sockaddr_in&>(all);
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(first.number()));
  EXPECT_EQ(ShutdownAcceptedSockets({&all, 1}, absl::Minutes(1)), 2);
  EXPECT_FALSE(first.Write("after"));
  EXPECT_FALSE(second.Write("after"));
  int listens = 0;
  socklen_t size = sizeof(listens);
  ASSERT_EQ(getsockopt(listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size), 0);
  EXPECT_EQ(listens, 1);
}

}  // namespace
}  // namespace tidepool::service
