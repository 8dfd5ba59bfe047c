// Caller: who asks, as a token or a certificate has told, and what the roles may do.
#ifndef TIDEPOOL_SERVICE_AUTH_CALLER_H_
#define TIDEPOOL_SERVICE_AUTH_CALLER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

enum class Role : uint8_t {
  kUser,   // generates, and has sessions
  kAdmin,  // a user who may also watch and steer the server
  kFront,  // a front, which speaks to workers for the users
};

// "user", "admin", "front".
absl::string_view RoleName(Role role);
std::optional<Role> ParseRole(absl::string_view name);

// What a request may give as its priority; higher goes first.
inline constexpr int32_t kLowestPriority = -100;
inline constexpr int32_t kHighestPriority = 100;
// The most that a token's requests get, where its line does not say.
inline constexpr int32_t kUsualMaxPriority = 0;

// How much one principal may ask of one front. Generations count: streams, single answers, and each
// answer of an HTTP request.
struct PrincipalLimits {
  int64_t per_minute = 0;  // 0: any number
  int64_t at_once = 0;     // 0: any number
  // A request that asks for more gets this.
  int32_t max_priority = kHighestPriority;

  friend bool operator==(const PrincipalLimits&, const PrincipalLimits&) = default;
};

struct Caller {
  // Owner of sessions, request_ids, cached prefixes and quotas. Empty without authentication.
  std::string principal;
  // None without authentication: then every call is allowed.
  std::optional<Role> role;
  PrincipalLimits limits;
};

// The purpose of a service, which determines the allowed roles.
enum class Access : uint8_t {
  kClients,           // Inference, Sessions and OpenAI's endpoints: users and admins
  kOperators,         // Admin: admins
  kFronts,            // Worker: fronts
  kOperatorsOrFronts  // a worker's Admin, which fronts pass their admins' calls on to
};

// PERMISSION_DENIED names the principal, its role and those that it takes.
absl::Status CheckAccess(const Caller& caller, Access access);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_CALLER_H_
