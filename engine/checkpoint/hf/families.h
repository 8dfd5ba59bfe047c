// A table of the model families that a config.json can name. A family is one row: which parts its
// layers have, which keys its config.json has, and the values of keys that are missing.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::engine::hf {

// Groups of tensors that a model may have. The rules in tensor_rules.cc name the tensors.
enum class Part : uint8_t {
  kAlways,
  kQkv,          // q_proj, k_proj, v_proj
  kQkvBias,      // their biases
  kFusedQkv,     // qkv_proj
  kOutputBias,   // of o_proj
  kQkNorm,       // q_norm, k_norm
  kQkLayernorm,  // query_layernorm, key_layernorm
  kSinks,
  kMla,              // the compressed keys and values of DeepSeek
  kMlaQuery,         // q_proj of a model with kMla
  kMlaLowRankQuery,  // q_a_proj, q_b_proj
  // Names of the norms besides input_layernorm.
  kFfnNorm,            // post_attention_layernorm is the norm before the FFN: ffn_norm
  kPostAttentionNorm,  // the same, but GGUF's name is post_attention_norm
  kGemmaNorms,         // before and after both branches
  kGlm4Norms,          // the same with other names
  kPostNorms,          // after both branches alone
  // Layers without experts.
  kDense,       // gate_proj, up_proj, down_proj
  kDenseFused,  // gate_up_proj, down_proj
  kMlpBias,
  // Layers with experts: the router and the experts.
  kExperts,
  kMixtralExperts,
  kGraniteExperts,
  kHunyuanExperts,
  kGptOssExperts,
  kGptOssMxfp4,
  kSelectionBias,
  kErnieSelectionBias,
  // Layers with experts: the shared expert.
  kSharedExpert,   // with a gate, as in Qwen
  kSharedExperts,  // as in DeepSeek
  kSharedMlp,      // as in Hunyuan
  kGraniteShared,
};

class Parts {
 public:
  constexpr Parts() = default;
  constexpr Parts(std::initializer_list<Part> parts) {  // NOLINT: a list is a set of parts
    for (const Part part : parts) Add(part);
  }
  constexpr void Add(Part part) { bits_ |= uint64_t{1} << static_cast<int>(part); }
  constexpr void Add(Parts other) { bits_ |= other.bits_; }
  constexpr bool Has(Part part) const { return Overlaps({part}); }
  constexpr bool Overlaps(Parts other) const { return (bits_ & other.bits_) != 0; }

 private:
  uint64_t bits_ = 0;
};

enum class ConfigBias : uint8_t {
  kNone,
  kByKey,      // q, k, v and the output, if attention_bias is true
  kQkvByKey,   // q, k and v, if attention_bias is true
  kQkv,        // q, k and v, always
  kQkvUnless,  // q, k and v, unless qkv_bias is false
};

enum class ConfigWindow : uint8_t {
  kNone,
  kAlways,    // sliding_window applies to all layers
  kSwitched,  // use_sliding_window enables it, in layers from max_window_layers on
  kPattern,   // every sliding_window_pattern-th layer has none
};

// The keys that describe experts. An empty name: there is no such key.
struct ExpertKeys {
  absl::string_view count;        // empty: the family has no experts
  absl::string_view other_count;  // a second name of `count`
  absl::string_view used = "num_experts_per_tok";
  absl::string_view width;
  absl::string_view shared_width;
  absl::string_view shared_count;  // shared experts, each of the width of a routed one
  Part shared_part = Part::kAlways;
  absl::string_view normalize;
  absl::string_view scale;
  bool groups = false;             // n_group and topk_group
  int gating = 0;                  // expert_gating_func; 0: not written
  absl::string_view first_sparse;  // number of leading layers without experts
  absl::string_view interval;      // every interval-th layer has experts
  // intermediate_size is the width of the dense layers, not of the experts.
  bool own_width = false;
};

// A key that a family's config.json may have. `value` is the only supported value, as JSON; empty:
// any value, because the key does not change logits.
struct FixedKey {
  absl::string_view key;
  absl::string_view value;
};

// A key with a number that is copied to the metadata.
struct NumberKey {
  absl::string_view key;
  absl::string_view gguf;
};

struct HfFamily {
  absl::string_view model_type;
  absl::string_view architecture;  // general.architecture
  Parts parts;
  // Whether GGUF interleaves the rows of the two halves of each head in q and k.
  bool rotary_pairs = false;
  bool partial_rotary = false;  // reads partial_rotary_factor
  bool gelu = false;            // the activation is gelu_pytorch_tanh instead of silu
  bool norm_plus_one = false;   // norms multiply by 1 + weight
  bool mlp_bias = false;        // reads mlp_bias
  bool local_rope = false;      // layers with a window have a rotary base of their own
  bool ntk_alpha = false;       // dynamic scaling with alpha is a larger base
  ConfigBias bias = ConfigBias::kNone;
  ConfigWindow window = ConfigWindow::kNone;
  ExpertKeys experts;
  absl::string_view qk_norm_key;  // a switch for Part::kQkNorm
  absl::string_view no_rope;      // a list with 0 for layers without rotation
  absl::Span<const NumberKey> numbers;
  absl::Span<const FixedKey> fixed;
  absl::string_view defaults = "{}";  // values of missing keys, as JSON
};

absl::Span<const HfFamily> HfFamilies();

// Returns null if the model_type is not supported.
const HfFamily* FindHfFamily(absl::string_view model_type);
// Returns all supported model_types, joined by ", ".
std::string KnownHfFamilies();

// The settings of a config.json that determine which tensors exist and how to read them.
struct HfModel {
  const HfFamily* family = nullptr;
  Parts parts;
  int64_t vocab_size = 0;
  int64_t head_dim = 0;  // of q and k; with MLA, of their rotated part
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t key_dim = 0;    // with MLA: of each head's keys without the rotated part
  int64_t value_dim = 0;  // with MLA
  int64_t experts = 0;
  std::vector<bool> sparse;  // by layer: true if its FFN is a mixture of experts
  int64_t draft_layers = 0;  // layers after the last one, which are ignored
  bool tied = false;
  // The text model of a multimodal checkpoint.
  bool nested = false;
  std::vector<float> rope_divisors;  // for llama3 scaling; empty: no such scaling
  std::vector<float> rope_long;      // for longrope scaling; empty: no such scaling
  std::vector<float> rope_short;
};

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_
