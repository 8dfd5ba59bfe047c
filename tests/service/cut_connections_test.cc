#include "service/cut_connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "kernels/base/check.h"
#include "service/owned_fd.h"

namespace tidepool::service {
namespace {

sockaddr* Raw(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

// A port of this process, and a connection that it has taken.
class Port {
 public:
  Port() {
    std::optional<OwnedFd> listener(std::in_place, socket(AF_INET, SOCK_STREAM, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener->get(), Raw(&address_), sizeof(address_)) == 0);
    CHECK(listen(listener->get(), 1) == 0);
    socklen_t size = sizeof(address_);
    CHECK(getsockname(listener->get(), Raw(&address_), &size) == 0);
    CHECK(connect(peer_.get(), Raw(&address_), sizeof(address_)) == 0);
    taken_.emplace(accept(listener->get(), nullptr, nullptr));
    CHECK(taken_->get() >= 0);
  }

  int number() const { return ntohs(address_.sin_port); }
  bool Write(const std::string& text) {
    return send(taken_->get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // As much as fits while the peer does not read.
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
  // As its owner does.
  void Close() { taken_.reset(); }
  // Up to the end, whatever that is.
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

TEST(CutConnectionsTest, WhatWasWrittenArrivesAndNothingElse) {
  Port port;
  ASSERT_TRUE(port.Write("before"));
  EXPECT_EQ(CutConnections(port.number(), absl::Minutes(1)), 1);
  EXPECT_FALSE(port.Write("after"));
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(port.PeerReadsAll(), "before");
}

// An owner that closes a connection on which something unread has come resets it, as the kernel does
// when more comes.
TEST(CutConnectionsTest, WhatIsOnItsWayIsNotLostToAReset) {
  Port port;
  const std::string text = port.Fill();
  port.PeerWrites("unread");
  std::string received;
  std::thread reader([&] { received = port.PeerReadsAll(); });
  CutConnections(port.number(), absl::Minutes(1));
  port.Close();
  reader.join();
  EXPECT_EQ(received.size(), text.size());
}

TEST(CutConnectionsTest, APeerThatDoesNotReadIsWaitedForNoLongerThanAsked) {
  Port port;
  EXPECT_FALSE(port.Fill().empty());
  EXPECT_EQ(CutConnections(port.number(), absl::Milliseconds(20)), 1);
  EXPECT_FALSE(port.Write("after"));
}

TEST(CutConnectionsTest, OtherPortsStay) {
  Port cut, other;
  EXPECT_EQ(CutConnections(cut.number(), absl::Minutes(1)), 1);
  EXPECT_TRUE(other.Write("still there"));
  other.Close();
  EXPECT_EQ(other.PeerReadsAll(), "still there");
}

}  // namespace
}  // namespace tidepool::service
