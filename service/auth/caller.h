// Caller: who makes a call, and what its role may do.
#ifndef TIDEPOOL_SERVICE_AUTH_CALLER_H_
#define TIDEPOOL_SERVICE_AUTH_CALLER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

enum class Role : uint8_t {
  kUser,   // may generate text and own sessions
  kAdmin,  // like a user; may also monitor and control the server
  kFront,  // a front, which calls workers on behalf of its users
};

// The names are "user", "admin" and "front".
absl::string_view RoleName(Role role);
std::optional<Role> ParseRole(absl::string_view name);

// The range of priorities. Requests with higher priorities are served first.
inline constexpr int32_t kLowestPriority = -100;
inline constexpr int32_t kHighestPriority = 100;
// The maximum priority for a token whose line in the token file does not set max_priority.
inline constexpr int32_t kUsualMaxPriority = 0;

// The limits of one principal at one front. Each limit is a number of generations. A generation is
// a stream, a unary response, or one choice of an HTTP request.
struct PrincipalLimits {
  int64_t per_minute = 0;  // generations that may begin in one minute; 0: no limit
  int64_t at_once = 0;     // generations that may run at the same time; 0: no limit
  // A request with a higher priority gets this priority.
  int32_t max_priority = kHighestPriority;

  friend bool operator==(const PrincipalLimits&, const PrincipalLimits&) = default;
};

struct Caller {
  // The owner of sessions, request_ids, cached prefixes and quotas. Empty without authentication.
  std::string principal;
  // nullopt without authentication. Then every call is allowed.
  std::optional<Role> role;
  PrincipalLimits limits;
};

// The kind of a service. It determines which roles have access.
enum class Access : uint8_t {
  kClients,    // Inference, Sessions and OpenAI's endpoints: for users and admins
  kOperators,  // Admin: for admins
  kFronts,     // Worker: for fronts
  // a worker's Admin: for admins, and for fronts, which call it for their admins
  kOperatorsOrFronts
};

// The error PERMISSION_DENIED names the principal, its role, and the roles that have access.
absl::Status CheckAccess(const Caller& caller, Access access);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_CALLER_H_
