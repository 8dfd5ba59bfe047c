// RedisServer: a real redis-server for one test, in a scratch folder, on a free port of this
// machine.
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

// Thread-compatible. The destructor ends the process and deletes the folder.
class RedisServer {
 public:
  using Settings = std::map<std::string, std::string>;

  // `settings` are added to the settings of a safe server, or replace them.
  explicit RedisServer(Settings settings = {});
  ~RedisServer();

  const RedisAddress& address() const { return address_; }
  // The settings for the next call of Start.
  Settings& settings() { return settings_; }

  // Starts the server on the same port as before. Returns when the server responds. Requires: it is
  // not running.
  void Start();
  // Returns false if the server has ended or does not respond. Requires: it is not running.
  bool TryStart();
  // The folder with its data.
  const std::filesystem::path& folder() const { return folder_; }
  void Kill();              // sends SIGKILL
  void Signal(int signal);  // such as SIGSTOP
  // Opens a connection that the store does not use.
  std::unique_ptr<RedisLink> Link();
  // Sends a command and returns the text of the response.
  std::string Ask(const std::vector<std::string>& command);

 private:
  Settings settings_;
  std::filesystem::path folder_;
  RedisAddress address_;
  pid_t pid_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_STORE_REDIS_SERVER_H_
