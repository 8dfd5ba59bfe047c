#include "engine/checkpoint/hf/families.h"

#include "absl/strings/str_cat.h"

namespace tidepool::engine::hf {
namespace {

constexpr HfFamily kFamilies[] = {
    {.model_type = "llama",
     .architecture = "llama",
     .rotary_pairs = true,
     .bias = ConfigBias::kByKey},
    {.model_type = "mistral",
     .architecture = "llama",
     .rotary_pairs = true,
     .window = ConfigWindow::kAlways},
    {.model_type = "mixtral",
     .architecture = "llama",
     .rotary_pairs = true,
     .window = ConfigWindow::kAlways,
     .experts = ConfigExperts::kMixtral},
    {.model_type = "qwen2",
     .architecture = "qwen2",
     .bias = ConfigBias::kQkv,
     .window = ConfigWindow::kSwitched},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .bias = ConfigBias::kQkvUnless,
     .window = ConfigWindow::kSwitched,
     .experts = ConfigExperts::kQwen,
     .shared_expert = true},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .qk_norm = true,
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kSwitched,
     .default_head_dim = 128},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .qk_norm = true,
     .bias = ConfigBias::kByKey,
     .window = ConfigWindow::kSwitched,
     .experts = ConfigExperts::kQwen},
};

}  // namespace

const HfFamily* FindHfFamily(absl::string_view model_type) {
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string KnownHfFamilies() {
  std::string names;
  for (const HfFamily& family : kFamilies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", family.model_type);
  }
  return names;
}

}  // namespace tidepool::engine::hf
