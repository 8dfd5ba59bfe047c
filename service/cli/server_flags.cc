#include "service/cli/server_flags.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "service/cli/units.h"
#include "service/store/redis_address.h"

namespace tidepool::service {
namespace {

absl::Status SetAddress(absl::string_view value, std::string* address) {
  RETURN_IF_ERROR(ParseHostPort(value).status());
  *address = std::string(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status SetListen(absl::string_view value, Config* config) {
  return SetAddress(value, &config->listen);
}

absl::Status SetAdminListen(absl::string_view value, Config* config) {
  return SetAddress(value, &config->admin_listen);
}

absl::Status SetProbeListen(absl::string_view value, Config* config) {
  return SetAddress(value, &config->probe_listen);
}

absl::Status SetHttp(absl::string_view value, Config* config) {
  config->http_named = true;
  if (value != "off") return SetAddress(value, &config->http);
  config->http.clear();
  return absl::OkStatus();
}

absl::Status SetServer(absl::string_view value, Config* config) {
  return SetAddress(value, &config->server);
}

absl::Status AddWorker(absl::string_view value, Config* config) {
  return SetAddress(value, &config->workers.emplace_back());
}

absl::Status AddWorkerName(absl::string_view value, Config* config) {
  absl::ConsumePrefix(&value, "dns:///");
  if (absl::StrContains(value, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", value, "\" is not NAME:PORT or dns:///NAME:PORT"));
  }
  return SetAddress(value, &config->worker_names.emplace_back());
}

absl::Status SetStallTimeout(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->stall_timeout, ParseTime(value));
  if (config->stall_timeout >= absl::Seconds(1)) return absl::OkStatus();
  return absl::InvalidArgumentError("accepted: 1s or more");
}

absl::Status SetDrainGrace(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->drain_grace, ParseTime(value));
  return absl::OkStatus();
}

absl::Status SetDrainTimeout(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->drain_timeout, ParseTime(value));
  return absl::OkStatus();
}

absl::Status SetStore(absl::string_view value, Config* config) {
  if (value.empty()) return absl::InvalidArgumentError("the value is empty");
  if (IsRedisUrl(value)) {
    RETURN_IF_ERROR(ParseRedisUrl(value).status());
  } else if (absl::StrContains(value, "://")) {
    // Else it would become a file of that name, and rediss:// would seem to work.
    return absl::InvalidArgumentError(
        "a kind of store that is not known; accepted: a file, redis://HOST:PORT or :memory:");
  }
  config->store = std::string(value);
  return absl::OkStatus();
}

absl::Status SetDurability(absl::string_view value, Config* config) {
  if (value != "process" && value != "power") {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not process or power"));
  }
  config->durability = value == "power" ? StoreDurability::kPower : StoreDurability::kProcess;
  return absl::OkStatus();
}

absl::Status SetRequestTtl(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->request_ttl, ParseTime(value));
  return absl::OkStatus();
}

absl::Status SetOrphanTtl(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->orphan_ttl, ParseTime(value));
  return absl::OkStatus();
}

absl::Status SetSessionTtl(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->session_ttl, ParseTime(value));
  if (config->session_ttl < absl::Seconds(1)) {
    return absl::InvalidArgumentError("less than 1s; leave it out to keep sessions");
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
