// A real redis-server of a test's own, in a scratch folder, on a free port of this machine.
#ifndef TIDEPOOL_TESTS_SERVICE_STORE_REDIS_SERVER_H_
#define TIDEPOOL_TESTS_SERVICE_STORE_REDIS_SERVER_H_

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "service/store/redis_address.h"
#include "service/store/redis_link.h"

namespace tidepool::service {

// Thread-compatible. The process and its folder go with it.
class RedisServer {
 public:
  using Settings = std::map<std::string, std::string>;

  // Settings in addition to, or instead of, those of a safe server.
  explicit RedisServer(Settings settings = {});
  ~RedisServer();

  const RedisAddress& address() const { return address_; }
  // Settings of the next Start.
  Settings& settings() { return settings_; }

  // On the port of before, returning when it answers. Requires: it does not run.
  void Start();
  // False: it ended instead, or does not answer. Requires: it does not run.
  bool TryStart();
  // Its data.
  const std::filesystem::path& folder() const { return folder_; }
  void Kill();              // -9
  void Signal(int signal);  // such as SIGSTOP
  // A connection beside the store's.
  std::unique_ptr<RedisLink> Link();
  // The answer's text.
  std::string Ask(const std::vector<std::string>& command);

 private:
  Settings settings_;
  std::filesystem::path folder_;
  RedisAddress address_;
  pid_t pid_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_STORE_REDIS_SERVER_H_
