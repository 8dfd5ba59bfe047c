// Where a Redis server is: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB].
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
  std::string user;      // empty: the default one
  std::string password;  // empty: none

  // What logs and people see: without user and password.
  std::string Name() const;
};

// Whether a store is one on Redis rather than a file.
bool IsRedisUrl(absl::string_view store);

// Bytes that would end a part are written as %XX. An IPv6 host is in brackets.
// INVALID_ARGUMENT: the reason, without the text, which may contain a password.
absl::StatusOr<RedisAddress> ParseRedisUrl(absl::string_view url);

// A store's name for people: a file as it is, a URL without its password.
std::string StoreName(absl::string_view store);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_REDIS_ADDRESS_H_
