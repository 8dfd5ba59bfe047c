// The designs that a config.json can name, as data.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tidepool::engine::hf {

enum class ConfigBias : uint8_t {
  kNone,
  kByKey,      // attention_bias: q, k, v and the output
  kQkv,        // always, of q, k and v
  kQkvUnless,  // the same, unless qkv_bias is false
};

enum class ConfigWindow : uint8_t {
  kNone,
  kAlways,    // sliding_window holds, in all layers
  kSwitched,  // use_sliding_window decides
};

enum class ConfigExperts : uint8_t {
  kNone,
  kMixtral,  // num_local_experts of intermediate_size
  kQwen,     // num_experts of moe_intermediate_size
};

struct HfFamily {
  absl::string_view model_type;
  absl::string_view architecture;  // general.architecture
  // GGUF's rows of q and k are those of Hugging Face with a head's two halves in turns.
  bool rotary_pairs = false;
  bool qk_norm = false;
  ConfigBias bias = ConfigBias::kNone;
  ConfigWindow window = ConfigWindow::kNone;
  ConfigExperts experts = ConfigExperts::kNone;
  bool shared_expert = false;
  int64_t default_head_dim = 0;  // 0: hidden_size / num_attention_heads
};

// Null for a model_type that is not supported.
const HfFamily* FindHfFamily(absl::string_view model_type);
// All model_types, joined by ", ".
std::string KnownHfFamilies();

// What of a config.json decides which tensors there are, and how they are read.
struct HfModel {
  const HfFamily* family = nullptr;
  int64_t head_dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t experts = 0;
  std::vector<bool> sparse;  // by layer: whether its FFN is a mixture of experts
  bool qkv_bias = false;
  bool output_bias = false;
  bool tied = false;
  std::vector<float> rope_divisors;  // of llama3 scaling; empty: none
};

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_
