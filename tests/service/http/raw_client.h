// RawClient: sends raw bytes on a socket, so that a test can act like any HTTP client.
#ifndef TIDEPOOL_TESTS_SERVICE_HTTP_RAW_CLIENT_H_
#define TIDEPOOL_TESTS_SERVICE_HTTP_RAW_CLIENT_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

struct RawResponse {
  int status = 0;
  std::string head;
  std::string body;  // the chunks, joined
};

// Thread-compatible. A read blocks until the server sends something or closes the connection.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int connected =
        connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    EXPECT_EQ(connected, 0);
  }
  ~RawClient() { Close(); }

  void Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      // the server has closed the connection, but its response can still be read
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void EndSending() { shutdown(socket_, SHUT_WR); }
  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  // Returns false if the server has closed the connection.
  bool ReadMore() {
    char bytes[4096];
    const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
    if (got > 0) received_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }
  std::string ReadToEnd() {
    while (ReadMore()) {
    }
    return received_;
  }
  // Reads up to and including `mark`. Later bytes stay in the buffer.
  std::string ReadUntil(absl::string_view mark) {
    size_t at = std::string::npos;
    while ((at = received_.find(mark.data(), 0, mark.size())) == std::string::npos) {
      if (!ReadMore()) return std::exchange(received_, "");
    }
    std::string taken = received_.substr(0, at + mark.size());
    received_.erase(0, taken.size());
    return taken;
  }

  RawResponse ReadResponse(bool has_body = true) {
    RawResponse response;
    response.head = ReadUntil("\r\n\r\n");
    EXPECT_TRUE(absl::SimpleAtoi(absl::string_view(response.head).substr(9, 3), &response.status))
        << response.head;
    if (!has_body) return response;
    if (absl::StrContains(response.head, "Transfer-Encoding: chunked")) {
      while (true) {
        const size_t size = std::stoul(ReadUntil("\r\n"), nullptr, 16);
        response.body += Take(size);
        Take(2);
        if (size == 0) return response;
      }
    }
    const size_t at = response.head.find("Content-Length: ");
    if (at == std::string::npos) return response;
    response.body = Take(std::stoul(response.head.substr(at + 16)));
    return response;
  }

  RawResponse Get(absl::string_view path) {
    Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    return ReadResponse();
  }
  void SendPost(absl::string_view path, absl::string_view body) {
    Send(absl::StrCat("POST ", path,
                      " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
                      "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  RawResponse Post(absl::string_view path, absl::string_view body) {
    SendPost(path, body);
    return ReadResponse();
  }

 private:
  std::string Take(size_t size) {
    while (received_.size() < size && ReadMore()) {
    }
    std::string taken = received_.substr(0, size);
    received_.erase(0, size);
    return taken;
  }

  int socket_;
  std::string received_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_HTTP_RAW_CLIENT_H_
