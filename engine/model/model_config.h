// ModelConfig: what a checkpoint's metadata says about its architecture, checked once, then fixed.
#ifndef TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_
#define TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/backend.h"

namespace tidepool::engine {

enum class FfnKind : uint8_t { kDense, kMoe };

struct LayerConfig {
  int heads = 0;
  int kv_heads = 0;
  FfnKind ffn = FfnKind::kDense;
  int ffn_width = 0;           // dense layers: neurons of the FFN
  int64_t sliding_window = 0;  // 0: attention sees everything
};

struct MoeConfig {
  int experts = 0;
  int experts_used = 0;
  int expert_width = 0;            // neurons of one routed expert
  int shared_width = 0;            // neurons of the shared expert; 0: none
  bool normalize_weights = false;  // divide the chosen weights by their sum
};

// Angles of rotary positions within the context stay below it; kernels take no sin or cos of more.
inline constexpr double kMaxRopeAngle = 0x1p30;

struct RopeConfig {
  kernels::RopeStyle style = kernels::RopeStyle::kInterleaved;
  int dims = 0;  // rotated elements of each head
  // [dims / 2] radians per position, with all scaling but that of rope_freqs.weight.
  std::vector<double> inv_freq;
  float scale = 1;  // factor on cos and sin (YaRN)
};

// Immutable, validated: Parse is the only way to make one from a file.
struct ModelConfig {
  // Supported general.architecture values: llama (Llama, Mistral, Mixtral), qwen2, qwen2moe, qwen3,
  // qwen3moe. Errors name the key, the value found and what is accepted: INVALID_ARGUMENT where the
  // file is wrong, UNIMPLEMENTED where it holds a design that is not supported.
  static absl::StatusOr<ModelConfig> Parse(const Checkpoint& file);

  std::string architecture;
  std::string name;    // general.name, or the file's own name: one line of UTF-8
  int vocab_size = 0;  // rows of the embedding; the tokenizer may name fewer tokens
  int hidden_size = 0;
  int head_dim = 0;
  int64_t context_length = 0;  // positions the model was trained for
  float norm_eps = 0;
  bool qk_norm = false;  // per-head RMS norm of q and k before RoPE
  RopeConfig rope;
  MoeConfig moe;
  std::vector<LayerConfig> layers;

  // How many have experts.
  int moe_layers() const;
};

// Of all layers, with keys and values of `dtype`.
int64_t KvBytesPerToken(const ModelConfig& config, kernels::DType dtype);

// Tokens of context at which the attention of a row takes as many multiplications as its weights;
// 0: none, as all layers have windows.
int64_t AttentionDepth(const ModelConfig& config);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_
