#include "service/store/redis_address.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

constexpr absl::string_view kScheme = "redis://";
constexpr int kMaxDatabases = 1 << 16;

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, "; accepted: redis://[:PASSWORD@]HOST:PORT[/DB]"));
}

absl::StatusOr<std::string> Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const absl::string_view hex = text.substr(i + 1, 2);
    if (hex.size() < 2 || !absl::ascii_isxdigit(hex[0]) || !absl::ascii_isxdigit(hex[1])) {
      return Wrong(
          "a % in the Redis URL is not followed by two hex digits (write % itself as %25)");
    }
    out += absl::HexStringToBytes(hex);
    i += 2;
  }
  return out;
}

absl::Status ParseHostAndPort(absl::string_view text, RedisAddress* address) {
  size_t colon = text.rfind(':');
  if (absl::ConsumePrefix(&text, "[")) {
    const size_t close = text.find(']');
    if (close == absl::string_view::npos) return Wrong("the Redis URL has a [ without a ]");
    address->host = std::string(text.substr(0, close));
    text.remove_prefix(close + 1);
    if (!text.empty() && text[0] != ':')
      return Wrong("the Redis URL has unexpected text after its ]");
    colon = text.empty() ? absl::string_view::npos : 0;
  } else {
    address->host = std::string(text.substr(0, colon));
  }
  if (address->host.empty()) return Wrong("the Redis URL has no host");
  if (colon == absl::string_view::npos) return absl::OkStatus();
  if (!absl::SimpleAtoi(text.substr(colon + 1), &address->port) || address->port < 1 ||
      address->port > 65535) {
    return Wrong("the Redis URL's port is not a number from 1 to 65535");
  }
  return absl::OkStatus();
}

}  // namespace

std::string RedisAddress::Name() const {
  const bool brackets = absl::StrContains(host, ":");
  return absl::StrCat(kScheme, brackets ? "[" : "", host, brackets ? "]" : "", ":", port,
                      database == 0 ? "" : absl::StrCat("/", database));
}

bool IsRedisUrl(absl::string_view store) { return absl::StartsWith(store, kScheme); }

absl::StatusOr<RedisAddress> ParseRedisUrl(absl::string_view url) {
  if (!absl::ConsumePrefix(&url, kScheme)) return Wrong("a Redis URL must begin with redis://");
  RedisAddress address;
  if (const size_t at = url.rfind('@'); at != absl::string_view::npos) {
    const absl::string_view login = url.substr(0, at);
    const size_t colon = login.find(':');
    if (colon == absl::string_view::npos || colon + 1 == login.size()) {
      return Wrong("the Redis URL has no password between : and @");
    }
    ASSIGN_OR_RETURN(address.user, Unescape(login.substr(0, colon)));
    ASSIGN_OR_RETURN(address.password, Unescape(login.substr(colon + 1)));
    url.remove_prefix(at + 1);
  }
  if (const size_t slash = url.find('/'); slash != absl::string_view::npos) {
    const absl::string_view database = url.substr(slash + 1);
    if (!database.empty() && (!absl::SimpleAtoi(database, &address.database) ||
                              address.database < 0 || address.database >= kMaxDatabases)) {
      return Wrong("the Redis URL's database is not a number of 0 or more");
    }
    url = url.substr(0, slash);
  }
  RETURN_IF_ERROR(ParseHostAndPort(url, &address));
  return address;
}

std::string StoreName(absl::string_view store) {
  if (!IsRedisUrl(store)) return std::string(store);
  const absl::StatusOr<RedisAddress> address = ParseRedisUrl(store);
  return address.ok() ? address->Name() : "redis://...";
}

}  // namespace tidepool::service
