// SocketPair: the two ends of a connection, for tests of the classes that use a socket.
#ifndef TIDEPOOL_TESTS_SERVICE_HTTP_SOCKET_PAIR_H_
#define TIDEPOOL_TESTS_SERVICE_HTTP_SOCKET_PAIR_H_

#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>  // in front of Asio, which needs and does not include it

#include "service/http/http_deadline.h"
#include "service/http/http_socket.h"

namespace tidepool::service {

// Use it on the test's thread only.
class SocketPair {
 public:
  SocketPair() : client_(io_) {
    using boost::asio::ip::tcp;
    tcp::acceptor acceptor(io_, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
    client_.connect(acceptor.local_endpoint());
    socket_.emplace(acceptor.accept(), nullptr);
    deadline_.emplace(socket_->get_executor());
  }

  HttpSocket* socket() { return &*socket_; }
  HttpDeadline* deadline() { return &*deadline_; }

  // Runs handlers until `done` returns true. Waits for the kernel if there is none.
  void RunUntil(const std::function<bool()>& done) {
    while (!done()) {
      io_.restart();
      if (io_.run_one() > 0) continue;
      ADD_FAILURE() << "nothing is pending";
      return;
    }
  }

  void Send(const std::string& bytes) { boost::asio::write(client_, boost::asio::buffer(bytes)); }
  // Reads at the client's end until `end` has arrived. Returns all bytes that were read.
  std::string ReceiveUntil(const std::string& end) {
    const size_t size =
        boost::asio::read_until(client_, boost::asio::dynamic_buffer(received_), end);
    std::string taken = received_.substr(0, size);
    received_.erase(0, size);
    return taken;
  }
  void CloseClient() { client_.close(); }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket client_;
  std::string received_;
  std::optional<HttpSocket> socket_;
  std::optional<HttpDeadline> deadline_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_HTTP_SOCKET_PAIR_H_
