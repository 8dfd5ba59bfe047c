#include "tests/service/store/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"

namespace tidepool::service {
namespace {

constexpr char kBinary[] = "/usr/bin/redis-server";
constexpr absl::Duration kStartTimeout = absl::Seconds(20);
constexpr int kPortsTried = 10;

// Returns a port that was free a moment ago.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size = sizeof(address);
  CHECK_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace

RedisServer::RedisServer(Settings settings) {
  settings_ = {{"appendonly", "yes"}, {"appendfsync", "everysec"}, {"save", ""}};
  for (auto& [name, value] : settings) settings_[name] = value;
  std::string folder = absl::StrCat(testing::TempDir(), "/redis_XXXXXX");
  folder_ = mkdtemp(folder.data());
  address_.host = "127.0.0.1";
  for (int i = 0; i < kPortsTried; ++i) {
    address_.port = FreePort();
    if (TryStart()) return;
  }
  CHECK(false) << "redis-server does not start; see " << folder_.string();
}

RedisServer::~RedisServer() {
  if (pid_ != 0) Kill();
  std::filesystem::remove_all(folder_);
}

void RedisServer::Start() { CHECK(TryStart()) << "redis-server does not start again"; }

bool RedisServer::TryStart() {
  CHECK_EQ(pid_, 0);
  std::vector<std::string> words = {kBinary,          "--port",    absl::StrCat(address_.port),
                                    "--bind",         "127.0.0.1", "--dir",
                                    folder_.string(), "--logfile", (folder_ / "log").string()};
  for (const auto& [name, value] : settings_) {
    words.push_back(absl::StrCat("--", name));
    words.push_back(value);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(kBinary, arguments.data());
    _exit(127);
  }
  // The server's log says when it serves. Until then, the only thing to wait for is the process
  // itself.
  const absl::Duration give_up = base::Clock::Real().Monotonic() + kStartTimeout;
  while (base::Clock::Real().Monotonic() < give_up) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = 0;
      return false;
    }
    auto link = RedisLink::Connect({.address = address_});
    if (link.ok() && (*link)->Call({"PING"}).ok()) return true;
  }
  Kill();
  return false;
}

void RedisServer::Kill() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void RedisServer::Signal(int signal) { kill(pid_, signal); }

std::unique_ptr<RedisLink> RedisServer::Link() {
  auto link = RedisLink::Connect({.address = address_});
  CHECK(link.ok()) << link.status().ToString();
  return *std::move(link);
}

std::string RedisServer::Ask(const std::vector<std::string>& command) {
  const auto reply = Link()->Call(command);
  CHECK(reply.ok()) << reply.status().ToString();
  return std::string(reply->value().text());
}

}  // namespace tidepool::service
