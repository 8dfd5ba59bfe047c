#include "service/cli/expert_flags.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/loading/expert_options.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"

namespace tidepool::service {
namespace {

// Parses a size. The maximum is so small that several sizes can be added without overflow.
absl::StatusOr<int64_t> ParseBytes(absl::string_view value) {
  ASSIGN_OR_RETURN(const size_t bytes, ParseSize(value));
  constexpr size_t kMax = size_t{1} << 50;
  if (bytes > kMax) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is more than 1024TiB"));
  }
  return static_cast<int64_t>(bytes);
}

// Parses a size, or a percentage of all experts.
absl::StatusOr<engine::ExpertMemory> ParseExpertMemory(absl::string_view value) {
  if (absl::EndsWith(value, "%")) {
    ASSIGN_OR_RETURN(const float percent, ParseNumber(absl::StripSuffix(value, "%"), 0, 100));
    return engine::ExpertMemory{.kind = engine::ExpertMemoryKind::kShare, .share = percent / 100};
  }
  ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes(value));
  return engine::ExpertMemory{.kind = engine::ExpertMemoryKind::kBytes, .bytes = bytes};
}

absl::StatusOr<engine::ExpertMemory> ParseExpertMemoryOrAuto(absl::string_view value) {
  if (value == "auto") return engine::ExpertMemory();
  absl::StatusOr<engine::ExpertMemory> memory = ParseExpertMemory(value);
  if (memory.ok() || absl::EndsWith(value, "%")) return memory;
  return absl::InvalidArgumentError(absl::StrCat(
      memory.status().message(), "; the flag also accepts auto, or a percentage such as 50%"));
}

absl::StatusOr<moe::Prefetch> ParsePrefetch(absl::string_view value) {
  if (value == "on") return moe::Prefetch::kOn;
  if (value == "off") return moe::Prefetch::kOff;
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not on or off"));
}

constexpr int64_t kMaxInterval = 1 << 30;

}  // namespace

absl::Status SetExpertMemory(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->model.experts.memory, ParseExpertMemoryOrAuto(value));
  return absl::OkStatus();
}

absl::Status SetHostExpertMemory(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->model.experts.host_memory, ParseExpertMemoryOrAuto(value));
  return absl::OkStatus();
}

absl::Status SetReserveMemory(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->model.experts.limits.reserve_bytes, ParseBytes(value));
  return absl::OkStatus();
}

absl::Status SetOffloadPolicy(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->model.experts.policy.kind, moe::ParsePolicyKind(value));
  return absl::OkStatus();
}

absl::Status SetRefreshInterval(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->model.experts.policy.refresh_interval,
                   ParseInteger(value, 1, kMaxInterval));
  return absl::OkStatus();
}

absl::Status SetPrefetch(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->model.experts.prefetch, ParsePrefetch(value));
  return absl::OkStatus();
}

absl::Status ChangeExpertMemory(absl::string_view value, Config* config) {
  const absl::StatusOr<engine::ExpertMemory> memory = ParseExpertMemory(value);
  if (!memory.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(memory.status().message(), "; also a percentage such as 50%"));
  }
  config->offload.memory = *memory;
  return absl::OkStatus();
}

absl::Status ChangeOffloadPolicy(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->offload.policy, moe::ParsePolicyKind(value));
  return absl::OkStatus();
}

absl::Status ChangeRefreshInterval(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->offload.refresh_interval, ParseInteger(value, 1, kMaxInterval));
  return absl::OkStatus();
}

absl::Status ChangePrefetch(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->offload.prefetch, ParsePrefetch(value));
  return absl::OkStatus();
}

absl::Status SetExpertReader(absl::string_view value, Config* config) {
  constexpr std::pair<absl::string_view, moe::ReaderKind> kKinds[] = {
      {"auto", moe::ReaderKind::kAuto},
      {"uring", moe::ReaderKind::kUring},
      {"threads", moe::ReaderKind::kThreads}};
  for (const auto& [name, kind] : kKinds) {
    if (value == name) {
      config->model.experts.reader = kind;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not auto, uring or threads"));
}

}  // namespace tidepool::service
