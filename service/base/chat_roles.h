// The roles that chat messages may have.
#ifndef TIDEPOOL_SERVICE_BASE_CHAT_ROLES_H_
#define TIDEPOOL_SERVICE_BASE_CHAT_ROLES_H_

#include <algorithm>
#include <iterator>

#include "absl/strings/string_view.h"

namespace tidepool::service {

inline constexpr absl::string_view kChatRoles[] = {"system", "developer", "user", "assistant",
                                                   "tool"};

inline bool IsChatRole(absl::string_view role) {
  return std::find(std::begin(kChatRoles), std::end(kChatRoles), role) != std::end(kChatRoles);
}

// Returns the name under which chat templates know the role: "developer" is a newer name for
// "system".
inline absl::string_view TemplateRole(absl::string_view role) {
  return role == "developer" ? "system" : role;
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_CHAT_ROLES_H_
