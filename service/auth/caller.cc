#include "service/auth/caller.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

constexpr std::pair<Role, absl::string_view> kRoles[] = {
    {Role::kUser, "user"}, {Role::kAdmin, "admin"}, {Role::kFront, "front"}};

bool IsAllowed(Role role, Access access) {
  switch (access) {
    case Access::kClients:
      return role == Role::kUser || role == Role::kAdmin;
    case Access::kOperators:
      return role == Role::kAdmin;
    case Access::kFronts:
      return role == Role::kFront;
    case Access::kOperatorsOrFronts:
      return role == Role::kAdmin || role == Role::kFront;
  }
  return false;
}

absl::string_view RolesOf(Access access) {
  switch (access) {
    case Access::kClients:
      return "user or admin";
    case Access::kOperators:
      return "admin";
    case Access::kFronts:
      return "front";
    case Access::kOperatorsOrFronts:
      return "admin or front";
  }
  return "";
}

}  // namespace

absl::string_view RoleName(Role role) {
  for (const auto& [value, name] : kRoles) {
    if (value == role) return name;
  }
  return "";
}

std::optional<Role> ParseRole(absl::string_view name) {
  for (const auto& [value, text] : kRoles) {
    if (text == name) return value;
  }
  return std::nullopt;
}

absl::Status CheckAccess(const Caller& caller, Access access) {
  if (!caller.role.has_value() || IsAllowed(*caller.role, access)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("'", caller.principal, "' has the role ",
                                                  RoleName(*caller.role),
                                                  "; this call needs the role ", RolesOf(access)));
}

}  // namespace tidepool::service
