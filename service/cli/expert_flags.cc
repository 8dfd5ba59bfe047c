#include "service/cli/expert_flags.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/expert_options.h"
#include "kernels/base/status_macros.h"
#include "service/cli/units.h"

namespace tidepool::service {
namespace {

// A size that leaves room for sums.
absl::StatusOr<int64_t> ParseBytes(absl::string_view value) {
  ASSIGN_OR_RETURN(const size_t bytes, ParseSize(value));
  constexpr size_t kMost = size_t{1} << 50;
  if (bytes > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is more than 1024TiB"));
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

absl::Status SetExpertMemory(absl::string_view value, Config* config) {
  engine::ExpertMemory& memory = config->experts.memory;
  if (value == "auto") {
    memory = {};
    return absl::OkStatus();
  }
  if (absl::EndsWith(value, "%")) {
    ASSIGN_OR_RETURN(const float percent, ParseNumber(absl::StripSuffix(value, "%"), 0, 100));
    memory = {.kind = engine::ExpertMemoryKind::kShare, .share = percent / 100};
    return absl::OkStatus();
  }
  const absl::StatusOr<int64_t> bytes = ParseBytes(value);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.status().message(), "; also auto, or a percentage such as 50%"));
  }
  memory = {.kind = engine::ExpertMemoryKind::kBytes, .bytes = *bytes};
  return absl::OkStatus();
}

absl::Status SetReserveMemory(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->experts.limits.reserve_bytes, ParseBytes(value));
  return absl::OkStatus();
}

absl::Status SetCacheDir(absl::string_view value, Config* config) {
  if (value.empty()) return absl::InvalidArgumentError("the value is empty");
  config->experts.cache_dir = std::string(value);
  return absl::OkStatus();
}

absl::Status SetOffloadPolicy(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->experts.policy.kind, moe::ParsePolicyKind(value));
  return absl::OkStatus();
}

absl::Status SetRefreshInterval(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->experts.policy.refresh_interval, ParseInteger(value, 1, 1 << 30));
  return absl::OkStatus();
}

absl::Status SetPrefetch(absl::string_view value, Config* config) {
  if (value != "on" && value != "off") {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not on or off"));
  }
  config->experts.prefetch = value == "on" ? moe::Prefetch::kOn : moe::Prefetch::kOff;
  return absl::OkStatus();
}

absl::Status SetTraceExperts(absl::string_view value, Config* config) {
  if (value.empty()) return absl::InvalidArgumentError("the value is empty");
  config->experts.trace_path = std::string(value);
  return absl::OkStatus();
}

absl::Status SetExpertReader(absl::string_view value, Config* config) {
  constexpr std::pair<absl::string_view, moe::ReaderKind> kKinds[] = {
      {"auto", moe::ReaderKind::kAuto},
      {"uring", moe::ReaderKind::kUring},
      {"threads", moe::ReaderKind::kThreads}};
  for (const auto& [name, kind] : kKinds) {
    if (value == name) {
      config->experts.reader = kind;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not auto, uring or threads"));
}

}  // namespace tidepool::service
