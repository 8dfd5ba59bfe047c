// The address of a Redis server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB].
#ifndef TIDEPOOL_SERVICE_STORE_REDIS_ADDRESS_H_
#define TIDEPOOL_SERVICE_STORE_REDIS_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

struct RedisAddress {
  std::string host;
  int port = 6379;
  int database = 0;
  std::string user;      // empty: the default user
  std::string password;  // empty: no password

  // Returns the address for logs and messages, without user and password.
  std::string Name() const;
};

// Returns whether `store` is the address of a Redis server. Otherwise `store` is the name of a
// file.
bool IsRedisUrl(absl::string_view store);

// Parses a URL. A byte of a name or password that has a meaning in a URL, such as '@', must be
// written as %XX. An IPv6 host must be in brackets. The error INVALID_ARGUMENT says what is wrong,
// but does not quote the text, because it may contain a password.
absl::StatusOr<RedisAddress> ParseRedisUrl(absl::string_view url);

// Returns the name of a store for messages: the name of a file, or a URL without its password.
std::string StoreName(absl::string_view store);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_ADDRESS_H_
