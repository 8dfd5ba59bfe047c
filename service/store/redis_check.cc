#include "service/store/redis_check.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "service/store/redis_scripts.h"

namespace tidepool::service {
namespace {

// The scripts read the time before they write. Redis allows this only from version 5 on, because
// older versions do not replicate the effects of a script.
constexpr int kOldestMajor = 5;

// Returns the value of a line "name:value" in the output of INFO.
absl::StatusOr<std::string> Info(RedisLink* link, const std::string& section,
                                 absl::string_view name) {
  ASSIGN_OR_RETURN(const RedisReply reply, link->Call({"INFO", section}));
  for (absl::string_view line : absl::StrSplit(reply.value().text(), '\n')) {
    line = absl::StripSuffix(line, "\r");
    if (absl::ConsumePrefix(&line, name) && absl::ConsumePrefix(&line, ":")) {
      return std::string(line);
    }
  }
  return absl::FailedPreconditionError(absl::StrCat("the server's INFO does not contain ", name));
}

absl::StatusOr<std::string> Setting(RedisLink* link, const std::string& name) {
  absl::StatusOr<RedisReply> reply = link->Call({"CONFIG", "GET", name});
  if (absl::IsUnavailable(reply.status())) return reply.status();
  if (!reply.ok() || reply->value().size() < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server does not report its ", name,
                     " (CONFIG GET), so it may lose acknowledged writes; allow the command, or "
                     "add --store-unsafe"));
  }
  return std::string(reply->value()[1].text());
}

absl::Status Unsafe(absl::string_view setting, absl::string_view value, absl::string_view wanted,
                    absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("the server's ", setting, " is ", value,
                                                    ", so ", why, "; set it to ", wanted,
                                                    ", or add --store-unsafe to risk it"));
}

absl::Status CheckSafety(RedisLink* link, RedisSafety safety) {
  ASSIGN_OR_RETURN(const std::string appendonly, Setting(link, "appendonly"));
  if (appendonly != "yes") {
    return Unsafe("appendonly", appendonly, "yes", "a restart loses sessions");
  }
  ASSIGN_OR_RETURN(const std::string fsync, Setting(link, "appendfsync"));
  if (fsync != "always" && safety == RedisSafety::kPower) {
    return Unsafe("appendfsync", fsync, "always",
                  "a power loss can lose tokens (--durability power)");
  }
  if (fsync != "always" && fsync != "everysec") {
    return Unsafe("appendfsync", fsync, "everysec or always",
                  "a crash of its machine loses more than a second");
  }
  ASSIGN_OR_RETURN(const std::string memory, Setting(link, "maxmemory"));
  ASSIGN_OR_RETURN(const std::string policy, Setting(link, "maxmemory-policy"));
  if (memory != "0" && policy != "noeviction") {
    return Unsafe("maxmemory-policy", policy, "noeviction",
                  "sessions are evicted when memory is short");
  }
  return absl::OkStatus();
}

absl::Status CheckSchema(RedisLink* link) {
  RETURN_IF_ERROR(
      link->Call({"SET", RedisSchemaKey(), absl::StrCat(kRedisSchemaVersion), "NX"}).status());
  ASSIGN_OR_RETURN(const RedisReply reply, link->Call({"GET", RedisSchemaKey()}));
  const int64_t version = reply.value().integer();
  if (version >= 1 && version <= kRedisSchemaVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("its schema version is ", reply.value().text(),
                                                    ", this program supports versions up to ",
                                                    kRedisSchemaVersion, ": use a newer program"));
}

}  // namespace

absl::Status CheckRedisServer(RedisLink* link, RedisSafety safety) {
  ASSIGN_OR_RETURN(const std::string version, Info(link, "server", "redis_version"));
  int major = 0;
  const std::string first = version.substr(0, version.find('.'));
  if (!absl::SimpleAtoi(first, &major) || major < kOldestMajor) {
    return absl::FailedPreconditionError(absl::StrCat("the server is Redis ", version, "; version ",
                                                      kOldestMajor, " or newer is required"));
  }
  ASSIGN_OR_RETURN(const std::string role, Info(link, "replication", "role"));
  if (role != "master") {
    return absl::FailedPreconditionError(
        absl::StrCat("the server is a ", role, ", which is read-only; use its master"));
  }
  ASSIGN_OR_RETURN(const std::string cluster, Info(link, "cluster", "cluster_enabled"));
  if (cluster != "0") {
    return absl::FailedPreconditionError(
        "the server is part of a Redis cluster, which is not supported; use a single server");
  }
  if (safety != RedisSafety::kUnchecked) RETURN_IF_ERROR(CheckSafety(link, safety));
  return CheckSchema(link);
}

}  // namespace tidepool::service
