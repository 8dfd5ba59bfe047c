// A table of the model families that a config.json can name.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tidepool::engine::hf {

enum class ConfigBias : uint8_t {
  kNone,
  kByKey,      // q, k, v and the output, if attention_bias is true
  kQkv,        // q, k and v, always
  kQkvUnless,  // q, k and v, unless qkv_bias is false
};

enum class ConfigWindow : uint8_t {
  kNone,
  kAlways,    // sliding_window applies to all layers
  kSwitched,  // use_sliding_window enables it
};

enum class ConfigExperts : uint8_t {
  kNone,
  kMixtral,  // num_local_experts experts of width intermediate_size
  kQwen,     // num_experts experts of width moe_intermediate_size
};

struct HfFamily {
  absl::string_view model_type;
  absl::string_view architecture;  // general.architecture
  // Whether GGUF interleaves the rows of the two halves of each head in q and k.
  bool rotary_pairs = false;
  bool qk_norm = false;
  ConfigBias bias = ConfigBias::kNone;
  ConfigWindow window = ConfigWindow::kNone;
  ConfigExperts experts = ConfigExperts::kNone;
  bool shared_expert = false;
  int64_t default_head_dim = 0;  // 0: hidden_size / num_attention_heads
};

// Returns null if the model_type is not supported.
const HfFamily* FindHfFamily(absl::string_view model_type);
// Returns all supported model_types, joined by ", ".
std::string KnownHfFamilies();

// The settings of a config.json that determine which tensors exist and how to read them.
struct HfModel {
  const HfFamily* family = nullptr;
  int64_t head_dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t experts = 0;
  std::vector<bool> sparse;  // by layer: true if its FFN is a mixture of experts
  bool qkv_bias = false;
  bool output_bias = false;
  bool tied = false;
  std::vector<float> rope_divisors;  // for llama3 scaling; empty: no such scaling
};

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_
