// The parts of config.h that read generation_config.json.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/hf/config.h"
#include "engine/checkpoint/hf/config_parts.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::hf {

absl::Status ReadGenerationConfig(const std::string& path, const Json& config,
                                  GgufMetadata* metadata) {
  const JsonMembers members(path, config);
  const std::pair<absl::string_view, absl::string_view> numbers[] = {
      {"temperature", "temp"},
      {"top_p", "top_p"},
      {"min_p", "min_p"},
      {"typical_p", "typical_p"},
      {"repetition_penalty", "penalty_repeat"}};
  for (const auto& [key, name] : numbers) {
    if (!members.Has(key)) continue;
    ASSIGN_OR_RETURN(const double value, members.Float(key));
    metadata->SetF32(absl::StrCat("general.sampling.", name), static_cast<float>(value));
  }
  if (members.Has("top_k")) {
    ASSIGN_OR_RETURN(const int64_t top_k, members.Int("top_k", 0, kMaxVocabulary));
    metadata->SetU32("general.sampling.top_k", static_cast<uint32_t>(top_k));
  }
  // If do_sample is false, decoding is greedy. If it is missing, the temperature does not change.
  ASSIGN_OR_RETURN(const bool sample, members.BoolOr("do_sample", true));
  if (!sample) metadata->SetF32("general.sampling.temp", 0);
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const std::string& path, const Json& config, ConfigTokens* tokens) {
  const JsonMembers members(path, config);
  const std::pair<absl::string_view, std::vector<int64_t>*> keys[] = {
      {"bos_token_id", &tokens->bos},
      {"eos_token_id", &tokens->eos},
      {"pad_token_id", &tokens->padding}};
  for (const auto& [key, ids] : keys) {
    ASSIGN_OR_RETURN(std::vector<int64_t> found, members.IntsOr(key));
    if (!found.empty()) *ids = std::move(found);
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine::hf
