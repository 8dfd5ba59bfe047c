#include "service/store/redis_keys.h"

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

constexpr char kPrefix[] = "tidepool:";

}  // namespace

std::string RedisSessionKey(absl::string_view session_id) {
  return absl::StrCat(kPrefix, "session:", session_id);
}
std::string RedisLogKey(absl::string_view session_id) {
  return absl::StrCat(kPrefix, "log:", session_id);
}
std::string RedisTextKey(absl::string_view session_id) {
  return absl::StrCat(kPrefix, "text:", session_id);
}
std::string RedisPrincipalKey(absl::string_view principal) {
  return absl::StrCat(kPrefix, "principal:", principal);
}
std::string RedisDeletedKey(absl::string_view mark) {
  return absl::StrCat(kPrefix, "deleted:", mark);
}
std::string RedisGoneKey(absl::string_view session_id) {
  return absl::StrCat(kPrefix, "gone:", session_id);
}
std::string RedisAllKey() { return absl::StrCat(kPrefix, "all"); }
std::string RedisUpdatedKey() { return absl::StrCat(kPrefix, "updated"); }
std::string RedisSequenceKey() { return absl::StrCat(kPrefix, "sequence"); }
std::string RedisSchemaKey() { return absl::StrCat(kPrefix, "schema"); }
std::string RedisStoreKey() { return absl::StrCat(kPrefix, "store"); }
std::string RedisLossesKey() { return absl::StrCat(kPrefix, "losses"); }

}  // namespace tidepool::service
