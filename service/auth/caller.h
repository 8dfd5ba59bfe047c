// Caller: the identity behind a call, and what each role may do.
#ifndef TIDEPOOL_SERVICE_AUTH_CALLER_H_
#define TIDEPOOL_SERVICE_AUTH_CALLER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

enum class Role : uint8_t {
  kUser,   // generates and owns sessions
  kAdmin,  // a user who may also monitor and control the server
  kFront,  // a front, which calls workers for its users
};

// "user", "admin", "front".
absl::string_view RoleName(Role role);
std::optional<Role> ParseRole(absl::string_view name);

// Range of a request's priority. Higher priorities are served first.
inline constexpr int32_t kLowestPriority = -100;
inline constexpr int32_t kHighestPriority = 100;
// The maximum priority of a token whose line in the token file sets none.
inline constexpr int32_t kUsualMaxPriority = 0;

// Limits of one principal at one front. They count generations: streams, unary responses, and each
// choice of an HTTP request.
struct PrincipalLimits {
  int64_t per_minute = 0;  // 0: no limit
  int64_t at_once = 0;     // 0: no limit
  // Higher priorities in requests are reduced to this.
  int32_t max_priority = kHighestPriority;

  friend bool operator==(const PrincipalLimits&, const PrincipalLimits&) = default;
};

struct Caller {
  // Owner of sessions, request_ids, cached prefixes and quotas. Empty without authentication.
  std::string principal;
  // nullopt without authentication: then every call is allowed.
  std::optional<Role> role;
  PrincipalLimits limits;
};

// The purpose of a service, which determines the allowed roles.
enum class Access : uint8_t {
  kClients,           // Inference, Sessions and OpenAI's endpoints: users and admins
  kOperators,         // Admin: admins
  kFronts,            // Worker: fronts
  kOperatorsOrFronts  // a worker's Admin, which fronts call for their admins
};

// PERMISSION_DENIED names the principal, its role and the roles that the service accepts.
absl::Status CheckAccess(const Caller& caller, Access access);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_CALLER_H_
