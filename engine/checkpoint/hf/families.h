// A table of the model families that a config.json can name. A family is one row. The row says
// which parts the layers have, which keys the config.json has, and which values missing keys have.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::engine::hf {

// Groups of tensors that a model may have. tensor_rules.cc has the names of the tensors.
enum class Part : uint8_t {
  kAlways,
  kQkv,          // q_proj, k_proj, v_proj
  kQkvBias,      // the biases of kQkv
  kFusedQkv,     // qkv_proj
  kOutputBias,   // the bias of o_proj
  kQkNorm,       // q_norm, k_norm
  kQkLayernorm,  // query_layernorm, key_layernorm
  kSinks,
  kMla,       // the compressed keys and values of DeepSeek's multi-head latent attention (MLA)
  kMlaQuery,  // q_proj in a model with kMla
  kMlaLowRankQuery,  // q_a_proj and q_b_proj in a model with kMla
  kLfm2Attention,    // q_proj, k_proj, v_proj, out_proj and norms of q and k under LFM2's names
  // Layers without attention.
  kDeltaNet,       // in_proj_qkv, in_proj_z, in_proj_b, in_proj_a; GGUF tiles the V heads
  kDeltaNetFused,  // in_proj_qkvz, in_proj_ba
  kShortConv,
  // Norms. Most of these parts also include input_layernorm, the norm before the mixer.
  kFfnNorm,            // post_attention_layernorm is the norm before the FFN: ffn_norm
  kPostAttentionNorm,  // the same norm, but GGUF calls it post_attention_norm
  kGemmaNorms,         // norms before and after the attention and the FFN
  kGlm4Norms,          // the same norms under GLM-4's names
  kPostNorms,          // norms after the attention and after the FFN, and none before them
  kLfm2Norms,          // the norms before the mixer and the FFN, and the last norm
  // FFNs of layers without experts.
  kDense,       // gate_proj, up_proj, down_proj
  kDenseFused,  // gate_up_proj, down_proj
  kMlpBias,
  kLfm2Dense,  // w1, w2, w3
  // Layers with experts: the router and the experts' matrices.
  kExperts,
  kQwen3VlExperts,  // all experts in one tensor, in either of two layouts: expert_layout.h
  kMixtralExperts,
  kGraniteExperts,
  kHunyuanExperts,
  kGptOssExperts,
  kGptOssMxfp4,
  kSelectionBias,
  kErnieSelectionBias,
  kLfm2Experts,  // also the selection bias
  // Layers with experts: the shared expert's matrices.
  kSharedExpert,   // with a gate, as in Qwen's models
  kSharedExperts,  // as in DeepSeek's models
  kSharedMlp,      // as in Hunyuan's models
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
  kAlways,  // all layers have the window `sliding_window`
  // use_sliding_window enables the window. These values say for which layers, if there is no
  // layer_types.
  kSwitched,        // for the layers from max_window_layers on
  kSwitchedAll,     // for all layers; layer_types is ignored
  kSwitchedEven,    // for layers 0, 2, 4, ... before max_window_layers
  kSwitchedNoRope,  // for the layers without rotation
  kPattern,         // every sliding_window_pattern-th layer has no window
};

// The names of the keys that describe experts. A name is empty if the family has no such key.
struct ExpertKeys {
  absl::string_view count;        // empty: the family has no experts
  absl::string_view other_count;  // an alternative name of the same key
  absl::string_view used = "num_experts_per_tok";
  absl::string_view width;
  absl::string_view shared_width;
  absl::string_view shared_count;  // number of shared experts; each is as wide as a routed one
  Part shared_part = Part::kAlways;
  absl::string_view normalize;
  absl::string_view scale;
  bool groups = false;             // whether n_group and topk_group are read
  int gating = 0;                  // value of expert_gating_func; 0: the key is not written
  absl::string_view first_sparse;  // number of leading layers without experts
  absl::string_view interval;      // every interval-th layer has experts
  // True if the experts' width has its own key. In that case, intermediate_size is only the dense
  // layers' width.
  bool own_width = false;
};

// A key that a family's config.json may have. `value` is the only supported value, as JSON. If it
// is empty, every value is accepted, because the key does not change logits.
struct FixedKey {
  absl::string_view key;
  absl::string_view value;
};

// A key with a number that is copied to the metadata.
struct NumberKey {
  absl::string_view key;
  absl::string_view gguf;
};

// Large because it has a member for each difference between families.
struct HfFamily {
  absl::string_view model_type;
  absl::string_view architecture;  // value of general.architecture
  Parts parts;
  // Whether GGUF interleaves the rows of the two halves of each head in q and k.
  bool rotary_pairs = false;
  bool partial_rotary = false;   // partial_rotary_factor is read
  bool gelu = false;             // the activation is gelu_pytorch_tanh instead of silu
  bool legacy_gelu = false;      // hidden_act "gelu" means gelu_pytorch_tanh, too
  bool rotary_head_dim = false;  // if there is a head_dim, it is qk_rope_head_dim
  bool norm_plus_one = false;    // norms multiply by 1 + weight
  bool mlp_bias = false;         // mlp_bias is read
  bool local_rope = false;       // layers with a window use another rotary base
  bool ntk_alpha = false;        // dynamic scaling with alpha means a larger rotary base
  bool mrope = false;            // mrope_section is read
  bool mtp = false;              // the checkpoint may have draft layers, "mtp.*"
  bool block_width = false;      // LFM2's keys determine the width of dense FFNs
  ConfigBias bias = ConfigBias::kNone;
  ConfigWindow window = ConfigWindow::kNone;
  ExpertKeys experts;
  // The value of layer_types for layers without attention; empty: all layers have attention.
  absl::string_view recurrent;
  absl::string_view eps = "rms_norm_eps";  // the key of the norms' epsilon
  absl::string_view tied;                  // another key with the meaning of tie_word_embeddings
  absl::string_view qk_norm_key;           // key of a bool: whether the model has Part::kQkNorm
  absl::string_view no_rope;  // key of a list that has a 0 for each layer without rotation
  absl::Span<const NumberKey> numbers;
  absl::Span<const FixedKey> fixed;
  absl::string_view defaults = "{}";  // values of missing keys, as JSON
  // Keys that may be missing, but not null. Keys that ReadConfig checks for all families are not in
  // the list.
  absl::Span<const absl::string_view> not_null;
};

absl::Span<const HfFamily> HfFamilies();

// Returns null if the model_type is not supported.
const HfFamily* FindHfFamily(absl::string_view model_type);
// Returns all supported model_types, joined by ", ".
std::string KnownHfFamilies();

// Sizes of a gated delta net.
struct DeltaSizes {
  int64_t k_heads = 0;
  int64_t v_heads = 0;  // a multiple of k_heads
  int64_t k_dim = 0;
  int64_t v_dim = 0;

  // Number of rows of all queries (or keys), and of all values.
  int64_t k_size() const { return k_heads * k_dim; }
  int64_t v_size() const { return v_heads * v_dim; }
  int64_t channels() const { return 2 * k_size() + v_size(); }
};

// Sizes of the routed experts of a layer.
struct ExpertShape {
  int64_t count = 0;   // 0: the model has no experts
  int64_t hidden = 0;  // size of each expert's inputs and outputs
  int64_t width = 0;   // FFN width of one expert
};

// What decides which tensors a layer has.
struct LayerKind {
  bool sparse = false;     // the FFN is a mixture of experts
  bool recurrent = false;  // the layer has no attention
};

// The settings of a config.json that determine which tensors exist and how to read them.
struct HfModel {
  const HfFamily* family = nullptr;
  Parts parts;
  int64_t vocab_size = 0;
  int64_t head_dim = 0;  // dimension of q and k heads; with MLA, of their rotated part
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t key_dim = 0;    // with MLA: dimension of each head's keys without the rotated part
  int64_t value_dim = 0;  // with MLA: dimension of each head's values
  ExpertShape experts;
  std::vector<bool> sparse;     // for each layer: whether its FFN is a mixture of experts
  std::vector<bool> recurrent;  // for each layer: whether it has no attention
  DeltaSizes delta;
  // number of tokens that the convolutions of layers without attention read
  int64_t conv_width = 0;
  int64_t draft_layers = 0;  // number of draft layers (after the last layer); they are ignored
  // Whether the embedding is also the output weight. If `text_prefix` is set, this is only the case
  // if the files have no output weight.
  bool tied = false;
  // Set if the model is the text model inside a multimodal checkpoint: the prefix of its settings
  // in config.json, "text_config." or "".
  std::optional<std::string> text_prefix;
  std::vector<float> rope_divisors;  // of llama3 scaling; empty: no such scaling
  std::vector<float> rope_long;      // of longrope scaling; empty: no such scaling
  std::vector<float> rope_short;
  // The key in config.json that has the rotary settings.
  absl::string_view rope_settings = "rope_parameters";

  int64_t layers() const { return static_cast<int64_t>(sparse.size()); }
  // The V heads of a delta net in the order of GGUF. transformers has the V heads of each K head
  // together. With Part::kDeltaNet, GGUF has the first V head of all K heads, then the second.
  std::vector<int64_t> ValueHeads() const;
  // The kind of a layer. Layers after the last one are draft layers.
  LayerKind KindOf(int64_t layer) const {
    if (layer >= layers()) return {.sparse = experts.count > 0};
    return {.sparse = sparse[layer], .recurrent = recurrent[layer]};
  }
};

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_FAMILIES_H_
