#include "service/cli/server_flags.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/flag_setters.h"
#include "service/store/redis_address.h"

namespace tidepool::service {

absl::Status SetHttp(absl::string_view value, Config* config) {
  config->listen.http_named = true;
  if (value != "off") return SetAddress<&Config::listen, &ListenFlags::http>(value, config);
  config->listen.http.clear();
  return absl::OkStatus();
}

absl::Status AddWorker(absl::string_view value, Config* config) {
  RETURN_IF_ERROR(ParseHostPort(value).status());
  return AddString<&Config::front, &FrontFlags::workers>(value, config);
}

absl::Status AddWorkerName(absl::string_view value, Config* config) {
  absl::ConsumePrefix(&value, "dns:///");
  if (absl::StrContains(value, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", value, "\" is not NAME:PORT or dns:///NAME:PORT"));
  }
  RETURN_IF_ERROR(ParseHostPort(value).status());
  return AddString<&Config::front, &FrontFlags::worker_names>(value, config);
}

absl::Status SetStallTimeout(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->serving.stall_timeout, ParseTime(value));
  if (config->serving.stall_timeout >= absl::Seconds(1)) return absl::OkStatus();
  return absl::InvalidArgumentError("accepted: 1s or more");
}

absl::Status SetStore(absl::string_view value, Config* config) {
  if (value.empty()) return absl::InvalidArgumentError("the value is empty");
  if (IsRedisUrl(value)) {
    RETURN_IF_ERROR(ParseRedisUrl(value).status());
  } else if (absl::StrContains(value, "://")) {
    // Otherwise SQLite would create a file named "rediss:...", and the store would seem to work.
    return absl::InvalidArgumentError(
        "a kind of store that is not known; accepted: a file, redis://HOST:PORT or :memory:");
  }
  config->store.location = std::string(value);
  return absl::OkStatus();
}

absl::Status SetDurability(absl::string_view value, Config* config) {
  if (value != "process" && value != "power") {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not process or power"));
  }
  config->store.durability = value == "power" ? StoreDurability::kPower : StoreDurability::kProcess;
  return absl::OkStatus();
}

absl::Status SetSessionTtl(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->store.session_ttl, ParseTime(value));
  if (config->store.session_ttl < absl::Seconds(1)) {
    return absl::InvalidArgumentError("less than 1s; leave it out to keep sessions");
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
